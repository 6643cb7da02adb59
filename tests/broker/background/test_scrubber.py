"""The scrubber of a running broker: what it reads, how fast, what it finds, and who is told."""

import logging
from pathlib import Path

import pytest
from brokers import LocalBroker, from_offset, only_partition, values_of

from tailrace.broker.background.scrubber import FILE_NAME, NOTE_MS
from tailrace.broker.core.losses import damaged_ranges
from tailrace.log.files.checksums import CHUNK_BYTES
from tailrace.protocol.errors import ErrorCode
from tailrace.records.batch import HEADER_SIZE, split

INTERVAL_MS = 1_000_000
FAST = {"tailrace.scrub.bytes.per.second": str(1 << 30), "tailrace.scrub.interval.ms": str(INTERVAL_MS)}
OFF = {"tailrace.scrub.bytes.per.second": "0"}


def fill(broker: LocalBroker, segments: int = 3, topic: str = "orders", size: int = 20) -> None:
    """So many sealed segments, of four batches with one record each, and one that is active."""
    broker.create_topic(topic, segment_ms="1")
    for segment in range(segments + 1):
        broker.now_ms += 1000
        for number in range(4 if segment < segments else 1):
            broker.produce((b"%d-%d" % (segment, number)).ljust(size, b"."), topic=topic)


def segments_of(broker: LocalBroker, topic: str = "orders") -> list[Path]:
    return sorted((Path(broker.path) / f"{topic}-0").glob("*.log"))


def sealed_bytes(broker: LocalBroker) -> int:
    return sum(segment.size for log in broker.directory.logs.values() for segment in log.segments[:-1])


def rot(path: Path, batch: int) -> int:
    """Spoils one batch, on disk; returns its offset."""
    position, header = list(split(path.read_bytes()))[batch]
    with path.open("r+b") as file:
        file.seek(position + HEADER_SIZE)
        file.write(b"rotten")
    return header.base_offset


def fetched(broker: LocalBroker, offset: int, max_bytes: int = 1 << 20) -> tuple[int, list[bytes]]:
    answer = only_partition(broker.fetch(from_offset(offset, max_bytes=max_bytes)))
    return answer.error_code, values_of(answer)


def found(broker: LocalBroker) -> list[tuple[int, int]]:
    return [(bad.first_offset, bad.last_offset) for bad in damaged_ranges(broker.directory)]


def scrub(broker: LocalBroker) -> None:
    """A round, from its beginning to its end."""
    rounds = broker.broker.scrubber.rounds
    broker.tick(INTERVAL_MS)
    for _ in range(20):
        if broker.broker.scrubber.rounds > rounds:
            return
        broker.tick(1000)
    raise AssertionError("the round does not end")


def test_all_that_is_sealed_is_read_once_in_an_interval(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, FAST) as broker:
        fill(broker)
        scrub(broker)
        assert broker.broker.scrubber.scrubbed_bytes == sealed_bytes(broker) > 0
        broker.tick(INTERVAL_MS // 2)
        assert broker.broker.scrubber.scrubbed_bytes == sealed_bytes(broker)
        scrub(broker)
        assert broker.broker.scrubber.scrubbed_bytes == 2 * sealed_bytes(broker)
        assert not found(broker)


@pytest.mark.parametrize("restart", [False, True], ids=["written by this process", "written by an earlier one"])
@pytest.mark.parametrize("checksums", [True, False], ids=["with sums", "without"])
def test_rot_is_found_although_readers_had_found_all_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, restart: bool, checksums: bool
) -> None:
    with LocalBroker(tmp_path, FAST) as broker:
        fill(broker)
        if not checksums:
            for path in segments_of(broker):
                path.with_suffix(".sums").unlink(missing_ok=True)
        if restart:
            broker.restart()
        assert [len(fetched(broker, offset)[1]) for offset in (0, 4, 8, 12)] == [4, 4, 4, 1]
        offset = rot(segments_of(broker)[1], 2)
        answer = only_partition(broker.fetch(from_offset(offset)))
        assert answer.error_code == 0, "nobody looks again on their own"
        with caplog.at_level(logging.ERROR):
            scrub(broker)
        assert found(broker) == [(offset, offset)]
        assert f"orders-0/{segments_of(broker)[1].name} is damaged at byte" in caplog.text
        assert f"offsets {offset} to {offset} cannot be read" in caplog.text
        assert fetched(broker, offset)[0] == ErrorCode.CORRUPT_MESSAGE
        assert [len(fetched(broker, other)[1]) for other in (0, 4, 5, 7, 8, 12)] == [4, 2, 1, 1, 4, 1]
        caplog.clear()
        scrub(broker)
        assert found(broker) == [(offset, offset)]
        assert "corruption found" not in caplog.text, "it is said once"


def test_rot_in_a_header_that_no_crc_covers_is_found(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, FAST) as broker:
        fill(broker)
        path = segments_of(broker)[0]
        position, header = list(split(path.read_bytes()))[1]
        with path.open("r+b") as file:
            file.seek(position + 15)
            file.write(b"\x07")  # of the leader epoch
        scrub(broker)
        assert found(broker) == [(header.base_offset, header.last_offset)]


def test_files_beside_the_logs_are_looked_at_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalBroker(tmp_path, FAST) as broker:
        fill(broker)
        for suffix, path in zip((".timeindex", ".sums"), segments_of(broker), strict=False):
            content = bytearray(path.with_suffix(suffix).read_bytes())
            content[-1] ^= 1
            path.with_suffix(suffix).write_bytes(content)
        scrub(broker)
        assert broker.broker.scrubber.faults == 2
        assert "orders-0/00000000000000000000.timeindex will be rebuilt" in caplog.text
        assert "orders-0/00000000000000000004.sums will be rebuilt" in caplog.text
        assert not found(broker)


def test_it_reads_no_faster_than_it_may(tmp_path: Path) -> None:
    rate = 2 * CHUNK_BYTES
    configs = {"tailrace.scrub.bytes.per.second": str(rate), "tailrace.scrub.interval.ms": str(INTERVAL_MS)}
    with LocalBroker(tmp_path, configs) as broker:
        fill(broker, segments=2, size=700_000)
        broker.tick(INTERVAL_MS)
        began = broker.broker.scrubber.scrubbed_bytes
        assert began <= rate
        for _ in range(8):
            broker.tick(250)
        read = broker.broker.scrubber.scrubbed_bytes - began
        assert CHUNK_BYTES <= read <= 2 * rate + CHUNK_BYTES
        assert began + read < sealed_bytes(broker)


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, OFF) as broker:
        fill(broker)
        rot(segments_of(broker)[0], 1)
        for _ in range(5):
            broker.tick(10 * INTERVAL_MS)
        assert broker.broker.scrubber.scrubbed_bytes == 0
        assert not found(broker)


def test_after_a_restart_it_goes_on_where_it_was(tmp_path: Path) -> None:
    configs = {**FAST, "tailrace.scrub.bytes.per.second": str(CHUNK_BYTES)}
    with LocalBroker(tmp_path, configs) as broker:
        fill(broker, segments=4, size=300_000)
        for _ in range(4):
            broker.tick(1000)
        broker.now_ms += NOTE_MS
        broker.tick(1000)
        before = broker.broker.scrubber.scrubbed_bytes
        assert CHUNK_BYTES < before < sealed_bytes(broker)
        read = before
        for _ in range(20):  # however often it starts
            broker.restart()
            broker.tick(0)
            broker.tick(NOTE_MS)
            read += broker.broker.scrubber.scrubbed_bytes
            if broker.broker.scrubber.rounds:
                break
        assert broker.broker.scrubber.rounds == 1
        assert read < 2 * sealed_bytes(broker)
        broker.restart()
        broker.tick(1000)
        broker.tick(1000)
        assert broker.broker.scrubber.scrubbed_bytes == 0, "the round is over"


@pytest.mark.parametrize("content", [b"", b"nonsense", b"0\n1\n1 x y z\n"])
def test_a_note_that_cannot_be_read_costs_a_round(tmp_path: Path, content: bytes) -> None:
    with LocalBroker(tmp_path, FAST) as broker:
        fill(broker)
        scrub(broker)
        broker.close()
        (tmp_path / FILE_NAME).write_bytes(content)
        broker.open()
        scrub(broker)
        assert broker.broker.scrubber.scrubbed_bytes == sealed_bytes(broker)


def test_a_topic_that_is_deleted_meanwhile_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalBroker(tmp_path, FAST) as broker:
        fill(broker)
        fill(broker, topic="other")
        broker.hold_jobs = True
        broker.tick(INTERVAL_MS)
        broker.tick(1000)
        broker.delete_topic("orders")
        broker.hold_jobs = False
        broker.run_jobs()
        scrub(broker)
        assert broker.broker.scrubber.faults == 0
        assert not found(broker)
        assert "rot" not in caplog.text
