"""`tailrace backup`, run as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker
from logs import SMALL, batch_of
from typer.testing import CliRunner, Result

from tailrace.cli.app import app_of
from tailrace.cli.common.output import ExitCode, Failure

APP = app_of(("backup",))


def run(*arguments: object, code: int = 0) -> str:
    """What it prints. In this process: starting one for each takes longer than all of it."""
    result: Result = CliRunner().invoke(APP, ["backup", *map(str, arguments)])
    ended = result.exception.code if isinstance(result.exception, Failure) else result.exit_code
    assert ended == code, (result.output, result.exception)
    return str(result.exception) if isinstance(result.exception, Failure) else result.output


def told(*arguments: object, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code))


@pytest.fixture(autouse=True)
def _no_nicer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests behind these would be as nice as a backup is."""
    monkeypatch.setattr("os.nice", lambda _: 0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    broker = LocalBroker(tmp_path / "data")
    broker.create_topic("orders")
    broker.produce(b"first")
    broker.log().configure(SMALL)
    for number in range(60):
        broker.log().append(batch_of(2, time=1000 + number), 1000)
    broker.close()
    return tmp_path / "data"


def values(path: Path) -> list[bytes]:
    broker = LocalBroker(path)
    found = broker.values()
    broker.close()
    return found


def test_a_directory_is_backed_up_checked_and_restored(data: Path, tmp_path: Path) -> None:
    backups, new = tmp_path / "backups", tmp_path / "new"
    assert "backed up 2 logs" in run("create", data, backups)
    assert "every byte is as it was copied, and every batch is sound" in run("verify", backups)
    said = run("restore", backups, new)
    assert f"tailrace serve --data {new}" in said
    assert values(new) == values(data)


def test_with_json_everything_is_said_for_programs(data: Path, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    plan = told("create", data, backups, "--dry-run")
    assert plan["bytes_to_copy"] == plan["bytes"] > 0
    assert not backups.exists()
    made = told("create", data, backups)
    assert plan["bytes"] <= made["copied_bytes"] <= made["bytes"]
    assert told("create", data, backups, "--dry-run")["bytes_to_copy"] == 0
    second = told("create", data, backups)
    assert second["copied_bytes"] == 0
    assert [one["backup"] for one in told("list", backups)] == [made["backup"], second["backup"]]
    assert [one["healthy"] for one in told("verify", backups, "--all")] == [True, True]
    assert told("restore", backups, tmp_path / "new", "--dry-run")["bytes"] == made["bytes"]
    assert not (tmp_path / "new").exists()
    assert told("restore", backups, tmp_path / "new", "--backup", made["backup"])["damaged"] == []
    assert told("prune", backups, "--keep", 1)["deleted"] == [made["backup"]]
    assert len(told("list", backups)) == 1


def test_damage_is_named_and_ends_with_1(data: Path, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    run("create", data, backups)
    largest = max((backups / "objects").iterdir(), key=lambda path: path.stat().st_size)
    spoilt = bytearray(largest.read_bytes())
    spoilt[100] ^= 1
    largest.write_bytes(spoilt)
    assert largest.name in run("verify", backups, code=1)
    assert "unfinished, and no broker opens it" in run("restore", backups, tmp_path / "new", code=1)
    assert told("restore", backups, tmp_path / "new", "--accept-damage", code=1)["damaged"]
    segment = sorted((data / "orders-0").glob("*.log"))[1]
    spoilt = bytearray(segment.read_bytes())
    spoilt[100] ^= 1
    segment.write_bytes(spoilt)
    made = told("create", data, tmp_path / "others", code=1)
    assert made["damage"][0]["file"] == f"orders-0/{segment.name}"


def test_a_manifest_that_is_damaged_is_named_and_hides_no_other_backup(data: Path, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    for _ in range(2):
        run("create", data, backups)
    first, second = sorted((backups / "backups").iterdir())
    second.write_bytes(second.read_bytes().replace(b"orders", b"orderz"))
    assert "checksum does not match" in run("restore", backups, tmp_path / "new", code=1)
    run("create", data, backups)
    said = run("list", backups)
    assert f"{second}: its checksum does not match" in said
    assert first.stem in said
    run("verify", backups)
    run("verify", backups, "--all", code=1)
    run("restore", backups, tmp_path / "new")
    run("restore", backups, tmp_path / "older", "--backup", first.stem)


def test_nothing_is_pruned_beside_a_manifest_that_is_damaged(data: Path, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    for _ in range(2):
        run("create", data, backups)
    sound, newest = sorted((backups / "backups").iterdir())
    spoilt = bytearray(newest.read_bytes())
    spoilt[50] = 0xFF
    newest.write_bytes(spoilt)
    for options in ((), ("--dry-run",)):
        said = run("prune", backups, "--keep", 1, *options, code=ExitCode.REFUSED)
        assert str(newest) in said
        assert len(said) < len(spoilt), "it does not show all of it"
    assert sound.exists()
    newest.unlink()
    assert told("prune", backups, "--keep", 1)["deleted"] == []


def test_what_is_refused_or_not_there_is_said_with_what_to_do(data: Path, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    assert "is not there" in run("create", tmp_path / "nothing", backups, code=ExitCode.NOT_FOUND)
    assert "is not a data directory" in run("create", tmp_path, backups, code=ExitCode.NOT_FOUND)
    assert "tailrace backup create" in run("verify", backups, code=ExitCode.NOT_FOUND)
    assert "inside of" in run("create", data, data / "backups", code=ExitCode.REFUSED)
    assert "holds no backups" in run("create", data, tmp_path, code=ExitCode.REFUSED)
    run("create", data, backups)
    assert "not empty" in run("restore", backups, data, code=ExitCode.REFUSED)
    assert "not empty" in run("restore", backups, data, "--dry-run", code=ExitCode.REFUSED)
    assert "no backup x" in run("restore", backups, tmp_path / "new", "--backup", "x", code=ExitCode.NOT_FOUND)
    assert "--rate takes" in run("create", data, backups, "--rate", "fast", code=ExitCode.USAGE)
    run("create", data, backups, "--rate", "100MB")


def test_a_disk_that_is_full_is_said_in_words(data: Path, tmp_path: Path) -> None:
    """By a limit on the size of files, which stands for a disk without space, and is there for everybody."""
    backups = tmp_path / "backups"
    run("create", data, backups)
    with LocalBroker(data) as broker:
        broker.produce(b"more than a thousand bytes" * 100)
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    command = [sys.executable, "-c", f"{limit}from tailrace.cli.main import main; main()"]
    done = subprocess.run([*command, "backup", "create", data, backups], capture_output=True, text=True)
    assert done.returncode == 1
    assert "File too large; earlier backups" in done.stderr
    assert "the same command goes on from here" in done.stderr.replace("\n", " ")
    assert told("verify", backups)["healthy"]
