"""`tailrace log`, run as a user runs it."""

import json
import os
import pty
import shutil
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.names import TopicPartition
from tailrace.records.batch import BatchHeader, split
from tailrace.records.record import Record, encode_batch

KAFKA_SEGMENT = Path(__file__).parents[2] / "data" / "kafka-segment"
SEGMENT = "00000000000000000000.log"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TAILRACE = [sys.executable, "-m", "tailrace.cli.main"]


def tailrace(*arguments: object, code: int = 0, environment: dict[str, str] | None = None) -> tuple[str, str]:
    """What the command writes to stdout and to stderr."""
    command = [*TAILRACE, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "TZ": "UTC", **(environment or {})}
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def verified(path: Path, *, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tailrace("log", "verify", path, "--json", code=code)[0])
    return found


def dumped(path: Path, *options: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in tailrace("log", "dump", path, "--json", *options, code=code)[0].splitlines()]


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KAFKA_SEGMENT, tmp_path / "kafka"))


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A data directory with two partitions, each of several segments, stopped cleanly."""
    return make(tmp_path / "data", stop=True)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The same, but nobody closed it."""
    return make(tmp_path / "data", stop=False)


def make(path: Path, *, stop: bool) -> Path:
    directory = DataDirectory(OperatingSystemFiles(), str(path), LogConfig(segment_bytes=500))
    for number in range(2):
        log = directory.create(TopicPartition("orders", number))
        for batch in range(20):
            records = [Record(n, 1000 + batch, b"key-%d" % n, b"value-%d" % batch) for n in range(3)]
            log.append(encode_batch(records), now_ms=1000)
        log.flush()
    if stop:
        directory.close(2000)
    return path


def batches_of(path: Path) -> list[tuple[int, BatchHeader]]:
    return list(split(path.read_bytes()))


def flip(path: Path, position: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


# verify


def test_a_segment_of_kafkas_is_verified(kafka: Path) -> None:
    found = verified(kafka)
    assert found["healthy"]
    assert (found["damage"], found["tail"], found["derived"]) == ([], [], [])
    (partition,) = found["partitions"]
    assert (partition["segments"], partition["batches"], partition["records"]) == (1, 11, 1033)
    assert (partition["start_offset"], partition["end_offset"]) == (0, 1033)
    assert "Healthy" in tailrace("log", "verify", kafka)[0]


def test_a_data_directory_of_ours_is_verified_while_it_is_open_and_when_it_is_closed(tmp_path: Path) -> None:
    for stop in (False, True):
        found = verified(make(tmp_path / str(stop), stop=stop))
        assert found["healthy"]
        assert [(partition["name"], partition["records"]) for partition in found["partitions"]] == [
            ("orders-0", 60),
            ("orders-1", 60),
        ]


FIELDS = {
    "base offset": 0,
    "length": 8,
    "leader epoch": 12,
    "magic": 16,
    "crc": 17,
    "attributes": 21,
    "last offset delta": 23,
    "base timestamp": 27,
    "max timestamp": 35,
    "producer id": 43,
    "producer epoch": 51,
    "base sequence": 53,
    "record count": 57,
    "a record": 70,
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_costs_the_batch_it_is_in_and_no_other(ours: Path, field: str) -> None:
    path = ours / "orders-1" / SEGMENT
    position, header = batches_of(path)[2]
    flip(path, position + FIELDS[field])
    (damage,) = verified(ours, code=1)["damage"]
    assert damage.pop("reason")
    assert damage == {
        "file": f"orders-1/{SEGMENT}",
        "position": position,
        "length": header.size,
        "first_offset": header.base_offset,
        "last_offset": header.last_offset,
    }
    offsets = [record["offset"] for record in dumped(ours / "orders-1", code=1)]
    assert offsets == [n for n in range(60) if not header.base_offset <= n <= header.last_offset]


def test_a_flipped_bit_in_a_segment_of_kafkas_costs_the_batch_it_is_in(kafka: Path) -> None:
    position, header = batches_of(kafka / SEGMENT)[3]
    flip(kafka / SEGMENT, position + 5000)
    (damage,) = verified(kafka, code=1)["damage"]
    assert (damage["file"], damage["position"], damage["length"]) == (SEGMENT, position, header.size)
    assert (damage["first_offset"], damage["last_offset"]) == (600, 799)
    assert [record["offset"] for record in dumped(kafka, code=1)] == [*range(600), *range(800, 1033)]
    said = tailrace("log", "verify", kafka, code=1)[0]
    assert f"{SEGMENT}, byte {position}" in said
    assert "offsets 600 to 799" in said


def test_a_torn_tail_is_named_and_healthy(killed: Path) -> None:
    path = sorted((killed / "orders-0").glob("*.log"))[-1]
    position, header = batches_of(path)[-1]
    os.truncate(path, path.stat().st_size - 5)
    found = verified(killed)
    assert found["damage"] == []
    (tail,) = found["tail"]
    assert tail.pop("reason")
    assert tail == {
        "file": f"orders-0/{path.name}",
        "position": position,
        "length": header.size - 5,
        "first_offset": header.base_offset,
    }
    assert "torn" in tailrace("log", "verify", killed)[0]
    assert len(dumped(killed / "orders-0")) == 60 - header.record_count


def test_bytes_missing_at_the_end_after_a_clean_stop_are_damage(ours: Path) -> None:
    path = sorted((ours / "orders-0").glob("*.log"))[-1]
    _, header = batches_of(path)[-1]
    os.truncate(path, path.stat().st_size - 5)
    (damage,) = verified(ours, code=1)["damage"]
    assert (damage["first_offset"], damage["last_offset"]) == (header.base_offset, 59)


def test_a_segment_missing_in_the_middle_is_damage(ours: Path) -> None:
    first, lost, following, *_ = sorted((ours / "orders-0").glob("*.log"))
    lost.unlink()
    (damage,) = verified(ours, code=1)["damage"]
    assert damage["file"] == f"orders-0/{lost.name}"
    assert (damage["first_offset"], damage["last_offset"]) == (int(lost.stem), int(following.stem) - 1)
    kept = len(dumped(ours / "orders-0", code=1))
    assert kept == 60 - (int(following.stem) - int(lost.stem))
    assert verified(first.parent, code=1)["damage"][0]["file"] == lost.name


def test_an_index_that_is_lost_is_no_damage(ours: Path) -> None:
    (ours / "orders-0" / SEGMENT).with_suffix(".timeindex").unlink()
    assert [fault["file"] for fault in verified(ours)["derived"]] == ["orders-0/00000000000000000000.timeindex"]


# dump


def test_every_record_of_kafkas_is_dumped_as_its_readme_says(kafka: Path) -> None:
    records = dumped(kafka)
    assert [record["offset"] for record in records] == list(range(1033))
    for codec, name in enumerate(CODECS):
        for index, record in enumerate(records[200 * codec : 200 * (codec + 1)]):
            assert (record["key"] is None) == (index % 5 == 0)
            assert (record["value"] is None) == (index % 17 == 0)
            assert record["value"] is None or record["value"].startswith(f"{name}-{index}-")
            assert record["headers"] == ([["c", name]] if index % 3 == 0 else [])
    for transaction, start in enumerate([1000, 1011, 1022], start=1):
        values = [record["value"] for record in records[start : start + 10]]
        assert values == [f"tx{transaction}-{index}" for index in range(10)]
    controls = [
        (record["offset"], record["control"], record["producer_id"]) for record in records if "control" in record
    ]
    assert controls == [(1010, "commit", 5), (1021, "abort", 6), (1032, "commit", 7)]


def test_batches_are_dumped_with_what_their_headers_say(kafka: Path) -> None:
    batches = dumped(kafka / SEGMENT, "--batches")
    assert [batch["codec"] for batch in batches[:5]] == list(CODECS)
    headers = batches_of(kafka / SEGMENT)
    assert [(batch["position"], batch["size"], batch["base_offset"], batch["crc"]) for batch in batches] == [
        (position, header.size, header.base_offset, header.crc) for position, header in headers
    ]
    assert [batch["base_offset"] for batch in batches if batch["control"]] == [1010, 1021, 1032]
    assert all(batch["valid"] for batch in batches)


def test_a_damaged_stretch_is_among_the_batches_as_one_that_is_not_valid(kafka: Path) -> None:
    flip(kafka / SEGMENT, 40_000)
    batches = dumped(kafka, "--batches", code=1)
    assert [(batch["base_offset"], batch["last_offset"]) for batch in batches if not batch["valid"]] == [(200, 399)]
    assert len(batches) == 11


def test_a_range_of_offsets_can_be_dumped(ours: Path) -> None:
    records = dumped(ours / "orders-0", "--from", 10, "--to", 20)
    assert [record["offset"] for record in records] == list(range(10, 21))


def test_the_records_of_many_partitions_say_whose_they_are(ours: Path) -> None:
    records = dumped(ours)
    assert [(record["topic"], record["partition"]) for record in records] == [("orders", 0)] * 60 + [("orders", 1)] * 60


def test_bytes_that_are_not_utf_8_come_out_whole(tmp_path: Path) -> None:
    binary = bytes(range(256))
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    log = directory.create(TopicPartition("bytes", 0))
    records = [
        Record(0, 1, binary, "grüße".encode(), (("text", b"t"), ("bytes", binary), ("none", None), ("\udcff", b""))),
        Record(1, 2, b"", binary),
        Record(2, 3, None, None),
    ]
    log.append(encode_batch(records), now_ms=1000)
    directory.close(2000)
    first, second, third = dumped(tmp_path / "bytes-0")
    assert b64decode(first["key_base64"]) == binary
    assert ("key" in first, first["value"]) == (False, "grüße")
    text, data, none, odd = first["headers"]
    assert (text, none) == (["text", "t"], ["none", None])
    assert (data[0], b64decode(data[1]["base64"])) == ("bytes", binary)
    assert (b64decode(odd[0]["base64"]), odd[1]) == (b"\xff", "")
    assert (second["key"], b64decode(second["value_base64"]), "value" in second) == ("", binary, False)
    assert (third["key"], third["value"]) == (None, None)


def test_people_get_a_line_for_each_record(kafka: Path) -> None:
    lines = tailrace("log", "dump", kafka)[0].splitlines()
    assert len(lines) == 1033
    assert lines[1003].split() == ["1003", "2026-11-15T19:33:18.340+00:00", "-", "tx1-3"]
    assert lines[1021].split()[2] == "abort"


def test_a_reader_that_stops_early_ends_the_dump_quietly(kafka: Path) -> None:
    dump = subprocess.Popen([*TAILRACE, "log", "dump", kafka], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert dump.stdout is not None
    assert dump.stderr is not None
    dump.stdout.readline()
    dump.stdout.close()
    assert dump.stderr.read() == b""
    dump.stderr.close()
    dump.wait()


def test_damage_is_named_on_stderr_and_the_dump_goes_on(kafka: Path) -> None:
    flip(kafka / SEGMENT, 40_000)
    said, warned = tailrace("log", "dump", kafka, code=1)
    assert len(said.splitlines()) == 833
    assert "offsets 200 to 399 cannot be read" in warned


# what is wrong with the command rather than with the log


def test_what_is_not_there_ends_with_4(tmp_path: Path) -> None:
    for verb in ("verify", "dump"):
        assert "does not exist" in tailrace("log", verb, tmp_path / "nowhere", code=4)[1]


def test_a_directory_without_a_log_ends_with_2_and_says_what_was_expected(tmp_path: Path) -> None:
    for verb in ("verify", "dump"):
        assert "00000000000000000000.log" in tailrace("log", verb, tmp_path, code=2)[1]


def test_a_file_that_is_no_segment_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for verb in ("verify", "dump"):
        tailrace("log", verb, tmp_path / "notes.txt", code=2)


def test_a_verb_that_is_mistyped_ends_with_2_and_a_suggestion(tmp_path: Path) -> None:
    assert "verify" in tailrace("log", "verfy", tmp_path, code=2)[1]


def test_the_version_is_told() -> None:
    assert tailrace("--version")[0].startswith("tailrace ")


def test_nothing_heavy_is_imported_before_a_verb_runs() -> None:
    code = "import sys; from tailrace.cli.app import app_of; app_of(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiokafka", "asyncio", "cramjam", "rich.table", "tailrace.log.scan.scan"} & set(loaded)


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_and_for_those_who_want_them(
    kafka: Path, environment: dict[str, str], coloured: bool
) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", **environment}
    done = subprocess.run([*TAILRACE, "log", "verify", kafka], stdout=theirs, env=environment, check=True)
    os.close(theirs)
    said = os.read(ours, 65536)
    os.close(ours)
    assert done.returncode == 0
    assert (b"\x1b[" in said.replace(b"\x1b[1m", b"").replace(b"\x1b[0m", b"")) == coloured
    assert "\x1b" not in tailrace("log", "verify", kafka)[0]
