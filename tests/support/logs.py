"""Logs for tests: made on a disk in memory, looked at batch by batch, and compared with what was written to them."""

from collections.abc import Iterator
from typing import Any

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.errors import Damaged, LogError
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.log.recovery.state import RecoveryReport
from tailrace.records.batch import split
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, encode_batch
from tailrace.testing.recording_files import Disk, RecordingFiles

DATA = "disk/data"
ORDERS = TopicPartition("orders", 0)
PARTITION = f"{DATA}/{ORDERS}"
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=300)


def memory_files() -> RecordingFiles:
    return RecordingFiles(Disk(directories={"disk", DATA}))


def batch_of(
    count: int, *, time: int = 1000, size: int = 50, producer: int = -1, sequence: int = -1, **options: Any
) -> bytearray:
    records = [
        Record(n, time + n, b"key-%d" % n, bytes([97 + n % 26]) * size, (("n", b"%d" % n),)) for n in range(count)
    ]
    epoch = 0 if producer >= 0 else -1
    return encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **options)


def write_log(log: Log, batches: int, *, time: int = 1000) -> None:
    """Batches of several sizes by an idempotent producer and by others, and an aborted transaction now and then."""
    sequence = 0
    for number in range(batches):
        time += 10
        if number % 5 == 3:
            data = encode_batch(
                [Record(0, time, b"open", b"transaction")],
                producer_id=90 + number,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            log.append(data, time)
            log.append(encode_marker(Marker.ABORT, 90 + number, 0, 1, time), time)
        count = 1 + number % 4
        log.append(batch_of(count, time=time, producer=7, sequence=sequence), time)
        sequence += count


def stored_batches(log: Log) -> dict[int, bytes]:
    """Every batch that can be read, by its base offset; damaged ranges are passed over."""
    return dict(_readable(log))


def _readable(log: Log) -> Iterator[tuple[int, bytes]]:
    offset = int(log.start_offset)
    while offset < log.high_watermark:
        try:
            piece = log.read(offset, 700)
        except Damaged as error:
            offset = passed_over(error, offset)
            continue
        assert piece is not None
        with piece:
            data, offset = piece.read(), piece.next_offset
        for position, header in split(data):
            yield header.base_offset, data[position : position + header.size]


def passed_over(error: Damaged, offset: int) -> int:
    """The offset behind the damage, which must be about the one that was asked for."""
    assert error.damage.first_offset <= offset <= error.damage.last_offset
    return error.damage.last_offset + 1


def reopen(disk: Disk, config: LogConfig = SMALL) -> tuple[Log, RecoveryReport]:
    """The log as it comes up on this disk, which is left as it is."""
    directory = DataDirectory(RecordingFiles(disk.copy()), DATA, config)
    return directory.logs[ORDERS], directory.reports[ORDERS]


def offsets_of(batches: dict[int, bytes]) -> set[int]:
    return {
        offset
        for data in batches.values()
        for _, header in split(data)
        for offset in range(header.base_offset, header.next_offset)
    }


def offsets_named(damage: list[DamagedRange]) -> set[int]:
    return {offset for bad in damage for offset in range(bad.first_offset, bad.last_offset + 1)}


def answers(log: Log) -> list[object]:
    """What is asked of derived data: times, producers, aborted transactions, epochs' ends."""
    times = [log.find_time(time) for time in range(900, 5100, 97)]
    aborted = log.aborted_transactions(0, log.end_offset)
    return [times, log.find_max_timestamp(), dict(log.producers.producers), aborted, log.end_offset]


class Waiting:
    """Who waits for a flush of some logs, and what was answered: who, and with which error."""

    logs: list[Log]
    queue: FlushQueue

    def __init__(self) -> None:
        self.answers: list[tuple[str, LogError | None]] = []

    def wait(self, name: str, offset: int, log: Log | None = None) -> None:
        self.queue.when_flushed(log or self.logs[0], offset, lambda error: self.answers.append((name, error)))

    @property
    def answered(self) -> list[str]:
        """All of them, in the order in which they were told; none of an error."""
        assert all(error is None for _, error in self.answers)
        return [name for name, _ in self.answers]
