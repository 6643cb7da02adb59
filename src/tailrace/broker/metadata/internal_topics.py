"""Topics that the broker itself writes to: created by their first record, appended to, and read back.

Records are appended as one batch: after a crash the log has all of them, or none.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.broker.metadata.records import ConfigChanged
from tailrace.broker.metadata.state import TOPIC_RESOURCE
from tailrace.broker.metadata.topic_changes import new_topic
from tailrace.log.layout.errors import LogError, without_frames
from tailrace.log.log import Log
from tailrace.records import batch
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
            made = new_topic(broker.metadata, self.name, self._partition_count, self._configs(), broker.random_bytes)
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

    def append(self, records: Iterable[Record], now_ms: int, partition_index: int = 0) -> Partition:
        """Appends the records as one batch, and requests a flush. Returns their partition: `Broker.when_flushed` says
        when they are on disk. Raises LogError, and Refused while the log cannot be created.
        """
        partition = self.create(now_ms).partition(partition_index)
        assert partition is not None
        try:
            log = self._broker.log_for_append(partition)
            append_records(log, records, now_ms)
        except LogError:
            if partition.log is not None:
                self._broker.notice(partition.log)
            raise
        self._broker.appended(partition, log, now_ms)
        self._broker.flushes.request(log)
        return partition


def append_records(log: Log, records: Iterable[Record], now_ms: int) -> None:
    """Appends the records as one batch: after a crash the log has all of them, or none."""
    log.append(encode_batch([record._replace(offset=n) for n, record in enumerate(records)]), now_ms)


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
    """Yields all records up to the high watermark, without control batches; with bounds, those of the batches that
    begin within them. Raises NotRead, and what reading a log raises.
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
            if not header.is_control:
                yield from decode_records(data, position, decoder=decoder)


class LastRecordsJob:
    """A job that reads logs and keeps the last record of each key; a record without a value removes its key."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._logs = logs
        self.last: dict[bytes, Record] = {}
        self.error: Exception | None = NotRead("the log was not read to its end")

    def run(self) -> None:
        try:
            for log in self._logs:
                for record in records_of(log):
                    self._keep(record)
        except Exception as error:  # noqa: BLE001 - any error: half of the offsets are worse than none
            self.error = without_frames(error)
        else:
            self.error = None

    def _keep(self, record: Record) -> None:
        key = record.key or b""
        if record.value is None:
            self.last.pop(key, None)
        else:
            self.last[key] = record

    def finish(self) -> None:
        pass
