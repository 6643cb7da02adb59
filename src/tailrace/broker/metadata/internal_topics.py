"""Topics that the broker itself writes to: created by their first record, appended to, and read back.

Records are appended as one batch: after a crash the log has all of them, or none. A batch may be part of a transaction;
then its records count from the marker on that commits it (`LastRecords`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.broker.metadata.records import ConfigChanged
from tailrace.broker.metadata.state import TOPIC_RESOURCE
from tailrace.broker.metadata.topic_changes import new_topic
from tailrace.log.layout.errors import LogError, without_frames
from tailrace.log.log import Log
from tailrace.records import batch
from tailrace.records.batch import NO_PRODUCER, BatchHeader
from tailrace.records.control import Marker, marker_of
from tailrace.records.decoders import Decoder
from tailrace.records.record import Record, decode_records, encode_batch

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

_PIECE_BYTES = 1 << 20
_RECORD_BYTES_MAX = 40  # beside its key and its value


class NotRead(LogError):
    """The log of an internal topic cannot be read to its end: the part that can be read is not a state that ever
    existed.
    """


class AppendedBatch(NamedTuple):
    partition: Partition
    base_offset: int


class ReadBatch(NamedTuple):
    """A batch of an internal topic: its records, or the marker that it is."""

    header: BatchHeader
    records: list[Record]
    marker: Marker | None


class InternalTopic:
    """A topic that the broker writes to. The first record creates it, with the configs of that moment."""

    def __init__(
        self, broker: "Broker", name: str, partition_count: int, configs: Callable[[], Mapping[str, str]]
    ) -> None:
        self.name = name
        self._broker = broker
        self._partition_count = partition_count
        self._configs = configs

    @property
    def topic(self) -> Topic | None:
        """None until the first record."""
        return self._broker.topic(self.name)

    @property
    def logs(self) -> Iterator[Log]:
        """Those of its partitions that have one."""
        for partition in self.topic.touched if self.topic is not None else ():
            if partition.log is not None:
                yield partition.log

    def create(self, now_ms: int) -> Topic:
        """Returns the topic, which is created if there is none. Raises StorageError."""
        if self.topic is None:
            broker = self._broker
            made = new_topic(
                broker.metadata,
                self.name,
                self._partition_count,
                self._configs(),
                broker.random_bytes,
                by_broker=True,
            )
            broker.metadata_log.write(made, now_ms)
        topic = self.topic
        assert topic is not None
        return topic

    def configure(self, now_ms: int) -> None:
        """Gives the topic, if it exists, the configs that it would be created with now. Raises StorageError."""
        topic = self.topic
        changes = [
            ConfigChanged(resource_type=TOPIC_RESOURCE, resource_name=self.name, key=key, value=text)
            for key, text in self._configs().items()
            if topic is not None and topic.overrides.get(key) != text
        ]
        if changes:
            self._broker.metadata_log.write(changes, now_ms)

    def append(
        self,
        records: Iterable[Record],
        now_ms: int,
        partition_index: int = 0,
        *,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
    ) -> AppendedBatch:
        """Appends the records as one batch, and requests a flush: `Broker.when_flushed` says when it is on disk. With a
        producer, the batch is part of its transaction. Raises LogError, and Refused while the log cannot be created.
        """
        encoded = _encode(records, producer_id, producer_epoch)
        return self.append_batch(encoded, now_ms, partition_index)

    def append_batch(self, encoded: bytearray, now_ms: int, partition_index: int = 0) -> AppendedBatch:
        """Appends an encoded batch, such as a marker, like `append`."""
        partition = self.create(now_ms).partition(partition_index)
        assert partition is not None
        try:
            log = self._broker.log_for_append(partition)
            appended = log.append(encoded, now_ms)
        except LogError:
            if partition.log is not None:
                self._broker.notice(partition.log)
            raise
        self._broker.appended(partition, log, now_ms)
        self._broker.flushes.request(log)
        return AppendedBatch(partition, appended.base_offset)


def append_records(log: Log, records: Iterable[Record], now_ms: int) -> int:
    """Appends the records as one batch: after a crash the log has all of them, or none. Returns the offset of the
    first.
    """
    return log.append(_encode(records), now_ms).base_offset


def _encode(records: Iterable[Record], producer_id: int = NO_PRODUCER, producer_epoch: int = -1) -> bytearray:
    return encode_batch(
        [record._replace(offset=n) for n, record in enumerate(records)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=producer_id != NO_PRODUCER,
    )


def batches_of(records: Iterable[Record], bytes_max: int) -> Iterator[list[Record]]:
    """Yields the records, in order, in lists of at most `bytes_max`; a record that is larger comes by itself."""
    batch_records: list[Record] = []
    size = 0
    for record in records:
        record_size = size_of(record)
        if batch_records and size + record_size > bytes_max:
            yield batch_records
            batch_records, size = [], 0
        batch_records.append(record)
        size += record_size
    if batch_records:
        yield batch_records


def size_of(record: Record) -> int:
    """The size of a record in a batch, at most."""
    return _RECORD_BYTES_MAX + len(record.key or b"") + len(record.value or b"")


def records_of(
    log: Log, decoder: Decoder | None = None, *, from_offset: int = 0, before: int | None = None
) -> Iterator[Record]:
    """Yields the records of the batches that `read_batches` yields, whether or not their transactions are committed."""
    for found in read_batches(log, decoder, from_offset=from_offset, before=before):
        yield from found.records


def read_batches(
    log: Log, decoder: Decoder | None = None, *, from_offset: int = 0, before: int | None = None
) -> Iterator[ReadBatch]:
    """Yields what `batches_in` does, decoded."""
    for data, position, header in batches_in(log, from_offset=from_offset, before=before):
        if header.is_control:
            yield ReadBatch(header, [], marker_of(data, position)[0])
        else:
            yield ReadBatch(header, decode_records(data, position, decoder=decoder), None)


def batches_in(
    log: Log, *, from_offset: int = 0, before: int | None = None
) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Yields all batches up to the high watermark; with bounds, those that begin within them: some bytes, where in them
    the batch is, and its header. Raises NotRead, and what reading a log raises.
    """
    offset: int = max(from_offset, log.start_offset)
    end = log.high_watermark if before is None else min(before, log.high_watermark)
    while offset < end:
        piece = log.read(offset, _PIECE_BYTES)
        if piece is None:
            if any(gap.first_offset <= offset and end <= gap.last_offset + 1 for gap in log.recorded_gaps):
                return  # the log ends in a range that a repair has given up
            raise NotRead(f"{log.directory} ends at offset {offset} instead of {end}")
        with piece:
            data, offset = piece.read(), piece.next_offset
        for position, header in batch.split(data):
            yield data, position, header


class UndecidedRecords(NamedTuple):
    """The last record of each key of a transaction that is neither committed nor aborted."""

    log: Log
    producer_id: int
    producer_epoch: int
    records: list[Record]


class PendingRecords:
    """The last record of each key of a transaction that its marker has not ended yet."""

    __slots__ = ("producer_epoch", "records")

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.records: dict[bytes, Record] = {}


class LastRecords:
    """The last record of each key in one log, of which batches are added in order; pure.

    A record without a value removes its key, also from transactions that are not decided yet. The records of a
    transaction wait for its marker. If that commits, each counts unless a record of its key with a higher offset does:
    compaction keeps the one with the highest offset, whatever the order in which transactions end.

    Keys are in the order in which their last records began to count, which compaction does not change. A record may
    come before one of another key that it builds on, if that was written again: a replay must not depend on the order.
    """

    def __init__(self) -> None:
        self.last: dict[bytes, Record] = {}
        self.pending: dict[int, PendingRecords] = {}  # by producer id

    def add(self, found: ReadBatch) -> None:
        header, records, marker = found
        if marker is not None:
            self._end(header.producer_id, marker)
        elif header.is_transactional and records:
            pending = self.pending.setdefault(header.producer_id, PendingRecords(header.producer_epoch))
            pending.producer_epoch = header.producer_epoch
            for record in records:
                pending.records.pop(record.key or b"", None)
                pending.records[record.key or b""] = record
        else:
            for record in records:
                self._keep(record.key or b"", record)

    def _end(self, producer_id: int, marker: Marker) -> None:
        ended = self.pending.pop(producer_id, None)
        if ended is None or marker is Marker.ABORT:
            return
        for key, record in ended.records.items():
            kept = self.last.get(key)
            if kept is None or kept.offset < record.offset:
                self._keep(key, record)

    def _keep(self, key: bytes, record: Record) -> None:
        self.last.pop(key, None)
        if record.value is not None:
            self.last[key] = record
            return
        for pending in self.pending.values():
            waiting = pending.records.get(key)
            if waiting is not None and waiting.offset < record.offset:
                del pending.records[key]


class LastRecordsJob:
    """A job that reads logs, each key of which is in one of them, and keeps the last record of each key."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._logs = logs
        self.last: dict[bytes, Record] = {}
        self.undecided: list[UndecidedRecords] = []
        self.error: Exception | None = NotRead("the log was not read to its end")

    def run(self) -> None:
        try:
            for log in self._logs:
                self._read(log)
        except Exception as error:  # noqa: BLE001 - any error: half of the offsets are worse than none
            self.error = without_frames(error)
        else:
            self.error = None

    def _read(self, log: Log) -> None:
        found = LastRecords()
        for one in read_batches(log):
            found.add(one)
        self.last |= found.last
        self.undecided += (
            UndecidedRecords(log, producer_id, pending.producer_epoch, list(pending.records.values()))
            for producer_id, pending in found.pending.items()
            if pending.records
        )

    def finish(self) -> None:
        pass
