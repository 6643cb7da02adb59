"""`tailrace log repair`, run as a user runs it."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from compactions import CONFIG, World, compact
from typer.testing import CliRunner

from tailrace.cli.app import app_of
from tailrace.cli.common.output import Failure
from tailrace.log.directory.admission import FORMAT_VERSION
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import LogOffline
from tailrace.log.layout.names import TopicPartition
from tailrace.log.tools.locate import locate
from tailrace.log.tools.repair import make_plan
from tailrace.log.tools.repair_steps import carry_out
from tailrace.records.batch import HEADER_SIZE, split
from tailrace.records.compression import Codec
from tailrace.records.record import Record, encode_batch
from tailrace.testing.faulty_files import FaultyFiles

SEGMENT = "00000000000000000000.log"
DONE, FOUND, USAGE, NOT_FOUND, REFUSED = 0, 1, 2, 4, 5


def tailrace(*arguments: object, code: int = DONE) -> tuple[str, str]:
    """What the command writes to stdout, and what it says when it fails; in this process, as a start takes its time."""
    done = CliRunner().invoke(app_of(("log",)), list(map(str, arguments)))
    failure = done.exception if isinstance(done.exception, Failure) else None
    assert (failure.code if failure else done.exit_code) == code, done.output
    return done.stdout, str(failure or "")


def asked(*arguments: object, code: int = DONE) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tailrace(*arguments, "--json", code=code)[0])
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with logs of several segments, stopped cleanly; one of them is the broker's own."""
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path / "data"), LogConfig(segment_bytes=500))
    for partition in (
        TopicPartition("orders", 0),
        TopicPartition("orders", 1),
        TopicPartition("__consumer_offsets", 0),
    ):
        log = directory.create(partition)
        for batch in range(20):
            records = [Record(n, 1000 + batch, b"key-%d" % n, b"value-%d" % batch) for n in range(3)]
            log.append(encode_batch(records), now_ms=1000)
        log.flush()
    directory.close(2000)
    return tmp_path / "data"


def spoil(path: Path) -> None:
    """The second batch, of the offsets 3 to 5."""
    content = bytearray(path.read_bytes())
    position, _ = list(split(bytes(content)))[1]
    content[position + HEADER_SIZE : position + HEADER_SIZE + 5] = b"rotten"[:5]
    path.write_bytes(content)


def everything(data: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_a_healthy_directory_has_nothing_to_repair(data: Path) -> None:
    assert "Nothing to repair" in tailrace("log", "repair", data)[0]
    assert tailrace("log", "repair", data, "--apply")[0] == tailrace("log", "repair", data)[0]


def test_the_plan_is_shown_and_nothing_is_changed(data: Path) -> None:
    spoil(data / "orders-0" / SEGMENT)
    before = everything(data)
    said = tailrace("log", "repair", data, code=FOUND)[0]
    assert everything(data) == before
    assert "orders-0  (177 records kept, 3 offsets lost)" not in said, "of one partition"
    assert "orders-0  (57 records kept, 3 offsets lost)" in said
    assert f"cut out    {SEGMENT}, byte " in said
    assert "offsets 3 to 5" in said
    assert f"tailrace log repair {data} --apply" in said
    plan = asked("log", "repair", data, code=FOUND)
    assert (plan["applied"], plan["offsets_lost"]) == (False, 3)
    assert plan["partitions"][0]["steps"][0]["action"] == "cut out"


def test_it_is_done_when_told_and_then_all_is_healthy(data: Path) -> None:
    spoil(data / "orders-0" / SEGMENT)
    said = tailrace("log", "repair", data, "--apply")[0]
    assert "orders-0: offsets 3 to 5 are lost, and given up by a repair at 20" in said
    assert "Healthy" in said
    verified = asked("log", "verify", data)
    assert verified["healthy"]
    assert [(gap["partition"], gap["first_offset"], gap["last_offset"]) for gap in verified["gaps"]] == [
        ("orders-0", 3, 5)
    ]
    assert "Recorded gaps" in tailrace("log", "verify", data)[0]
    assert "Nothing to repair" in tailrace("log", "repair", data, "--apply")[0]
    dumped = [
        json.loads(line)["offset"] for line in tailrace("log", "dump", data / "orders-0", "--json")[0].splitlines()
    ]
    assert dumped == [0, 1, 2, *range(6, 60)]


def test_one_partition_can_be_repaired_alone(data: Path) -> None:
    spoil(data / "orders-0" / SEGMENT)
    spoil(data / "orders-1" / SEGMENT)
    before = everything(data / "orders-1")
    assert asked("log", "repair", data, "--topic", "orders", "--partition", "0", "--apply")["applied"]
    assert everything(data / "orders-1") == before
    assert asked("log", "repair", data / "orders-1", "--apply")["applied"]
    assert "Nothing to repair" in tailrace("log", "repair", data)[0]
    assert "no such partition" in tailrace("log", "repair", data, "--topic", "other", code=NOT_FOUND)[1]


@pytest.mark.parametrize("options", ["--topic orders --partition 0", "--topic orders", "--internal"])
def test_what_it_says_to_do_is_what_was_shown(data: Path, options: str) -> None:
    spoil(data / "orders-0" / SEGMENT)
    spoil(data / "orders-1" / SEGMENT)
    said = tailrace("log", "repair", data, *options.split(), code=1)[0]
    assert f"To do it:\n  tailrace log repair {data} {options} --apply\n" in said


def test_a_directory_in_use_is_refused(data: Path) -> None:
    spoil(data / "orders-0" / SEGMENT)
    held = DataDirectory(OperatingSystemFiles(), str(data), LogConfig(segment_bytes=500))
    before = everything(data / "orders-0")
    command = [sys.executable, "-m", "tailrace", "log", "repair", str(data), "--apply"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TZ": "UTC"})
    assert done.returncode == REFUSED
    said = tailrace("log", "repair", data, "--apply", code=REFUSED)[1]
    assert done.stderr == f"tailrace: {said}\n"
    assert "stop the broker first" in said
    assert tailrace("log", "repair", data / "orders-0", code=REFUSED)[1] == said
    assert everything(data / "orders-0") == before
    held.abandon()


def test_a_directory_of_kafka_is_refused_even_with_a_format_file_of_an_old_release(data: Path) -> None:
    (data / "meta.properties").write_text("version=1\n")
    before = everything(data)
    assert "is Apache Kafka's data directory" in tailrace("log", "repair", data, "--apply", code=REFUSED)[1]
    assert everything(data) == before


def test_a_directory_of_somebody_elses_or_of_a_newer_release_is_refused(data: Path, tmp_path: Path) -> None:
    (data / "tailrace.format").write_text(f"{FORMAT_VERSION + 1}\n")
    before = everything(data)
    says = f"'{FORMAT_VERSION + 1}', and this release knows {FORMAT_VERSION}"
    assert says in tailrace("log", "repair", data, "--apply", code=REFUSED)[1]
    (data / "tailrace.format").unlink()
    assert "no data directory of tailrace's" in tailrace("log", "repair", data, "--apply", code=REFUSED)[1]
    assert everything(data) == {path: data for path, data in before.items() if path.name != "tailrace.format"}
    tailrace("log", "repair", tmp_path / "nowhere", code=NOT_FOUND)
    tailrace("log", "repair", data / "orders-0" / SEGMENT, code=USAGE)


def test_the_brokers_own_state_is_not_given_up_unless_that_is_said(data: Path) -> None:
    spoil(data / "__consumer_offsets-0" / SEGMENT)
    before = everything(data)
    said, warned = tailrace("log", "repair", data, "--apply", code=REFUSED)
    assert "commits that stand there are forgotten" in said
    assert "--accept-loss --internal" in warned
    for flag in ("--internal", "--accept-loss"):
        assert "--accept-loss --internal" in tailrace("log", "repair", data, "--apply", flag, code=REFUSED)[1]
    assert everything(data) == before
    assert "--internal --accept-loss --apply" in tailrace("log", "repair", data, code=FOUND)[0]
    tailrace("log", "repair", data, "--apply", "--accept-loss", "--internal")
    assert asked("log", "verify", data)["healthy"]


def test_a_compaction_that_was_cut_short_is_said_and_completed_first(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    directory = DataDirectory(files, str(tmp_path), CONFIG)
    world = World(files, directory)
    for number in range(10):
        world.write([(b"key", b"%d" % number * 50)], Codec.NONE, -1, False)
    world.log.roll()
    world.checkpoint()
    files.fail("rename", EIO, name=SEGMENT)
    with pytest.raises(LogOffline):
        compact(world.log, world.now)
    directory.abandon()
    shown, _ = tailrace("log", "repair", tmp_path)
    assert "complete" in shown
    assert "interrupted" in shown
    spoil(tmp_path / "orders-0" / SEGMENT)
    assert asked("log", "repair", tmp_path, code=FOUND)["offsets_lost"] == 1
    done, _ = tailrace("log", "repair", tmp_path, "--apply")
    assert "orders-0: a replacement by compaction that was cut short is completed" in done
    assert "Nothing to repair" in done, "what had rotted was replaced"
    assert not list(tmp_path.glob("orders-0/*.swap"))


# Partitions that are lost


def lose(data: Path, partition: str = "orders-1") -> None:
    shutil.rmtree(data / partition)


def test_a_lost_partition_is_named_by_verify_and_planned_by_repair(data: Path) -> None:
    lose(data)
    before = everything(data)
    found = asked("log", "verify", data, code=FOUND)
    assert [(one["partition"], one["end_offset"]) for one in found["lost"]] == [("orders-1", 60)]
    shown, _ = tailrace("log", "verify", data, code=FOUND)
    assert "1 lost partition" in shown
    plan, _ = tailrace("log", "repair", data, code=FOUND)
    assert "goes on at offset 60" in plan
    assert plan.strip().endswith("--accept-loss --apply")
    assert asked("log", "repair", data, code=FOUND)["lost"][0]["goes_on_at"] == 60
    assert everything(data) == before


def test_a_lost_partition_is_given_up_only_where_the_loss_is_accepted(data: Path) -> None:
    lose(data)
    before = everything(data)
    assert "--accept-loss" in tailrace("log", "repair", data, "--apply", code=REFUSED)[1]
    assert everything(data) == before
    tailrace("log", "repair", data, "--topic", "orders", "--partition", 0, "--apply")
    done = asked("log", "repair", data, "--apply", "--accept-loss")
    assert done["after"]["healthy"]
    assert [(gap["first_offset"], gap["last_offset"]) for gap in done["after"]["gaps"]] == [(0, 59)]
    assert "Healthy" in tailrace("log", "verify", data)[0]
    directory = DataDirectory(OperatingSystemFiles(), str(data))
    log = directory.logs[TopicPartition("orders", 1)]
    assert log.append(encode_batch([Record(0, 0, b"k", b"v")]), 0).base_offset == 60
    directory.close(0)


def test_a_lost_log_of_the_brokers_own_needs_leave_for_that_too(data: Path) -> None:
    lose(data, "__consumer_offsets-0")
    assert "--internal" in tailrace("log", "repair", data, "--apply", "--accept-loss", code=REFUSED)[1]
    plan, _ = tailrace("log", "repair", data, code=FOUND)
    assert "--internal --accept-loss --apply" in plan
    tailrace("log", "repair", data, "--apply", "--accept-loss", "--internal")
    assert "Healthy" in tailrace("log", "verify", data)[0]


def test_a_repair_of_a_lost_partition_that_was_cut_short_begins_again(data: Path) -> None:
    """Until its segment is there, the partition is lost: it never goes on at an offset that it had."""
    for calls in range(12):
        copy = data.parent / f"copy-{calls}"
        shutil.copytree(data, copy)
        lose(copy)
        files = FaultyFiles(OperatingSystemFiles())
        for kind in ("rename", "sync_directory", "make_directory"):
            files.fail(kind, EIO, after=calls, forever=True)
        plan = make_plan(files, locate(files, str(copy)))
        with suppress(OSError):
            carry_out(files, plan, str(copy), "now")
        directory = DataDirectory(OperatingSystemFiles(), str(copy))
        log = directory.logs.get(TopicPartition("orders", 1))
        if log is not None:
            assert (log.start_offset, log.end_offset) == (60, 60)
            assert not directory.reports[TopicPartition("orders", 1)].damage
        directory.close(0)
        if log is None:
            tailrace("log", "repair", copy, "--apply", "--accept-loss")
        assert "Healthy" in tailrace("log", "verify", copy)[0]
