"""Compacting a log in a test: all steps of a pass, one after the other, and what should be there afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from logs import DATA, ORDERS, memory_files

from tailrace.log.compaction.child_process import LocalPass
from tailrace.log.compaction.jobs import BeginPass, Compaction, EndPass, NextGroup
from tailrace.log.compaction.messages import CleanedGroup, CleanerSettings, PassFailed, PassResult
from tailrace.log.compaction.plan import cleanable
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import Files
from tailrace.log.layout.config import LogConfig
from tailrace.log.log import Log
from tailrace.log.state.producer_state import ProducerState
from tailrace.records.batch import read_header, split
from tailrace.records.compression import Codec
from tailrace.records.control import Marker, encode_marker, marker_of
from tailrace.records.record import Record, decode_records, encode_batch


def compact(
    log: Log, now_ms: int, settings: CleanerSettings | None = None, begin_pass: BeginPass | None = None
) -> PassResult | PassFailed | None:
    """One pass over what is on disk of the log; None where there is nothing to do."""
    plan = cleanable(log.view, log.compacted_to, log.recovery_point_on_disk)
    begin = begin_pass or (lambda spec: LocalPass(log.files, spec))
    compaction = Compaction(log, plan, now_ms, settings, begin)
    try:
        while True:
            step = NextGroup(compaction)
            step.run()
            said = step.finish()
            if not isinstance(said, CleanedGroup):
                if isinstance(said, PassResult):
                    log.compacted_to = said.end
                return said
            swap = compaction.begin_swap(said)
            assert swap is not None
            swap.run()
            swap.finish()
    finally:
        end = EndPass(compaction)
        end.run()
        end.finish()


def batches_of(log: Log, offset: int | None = None) -> list[bytes]:
    """Every batch that readers see, from an offset on."""
    batches = []
    at = log.start_offset if offset is None else offset
    while (piece := log.read(at, 1 << 20)) is not None:
        with piece:
            data, at = piece.read(), piece.next_offset
        batches += [data[position : position + header.size] for position, header in split(data)]
    return batches


def records_of(log: Log, *, committed: bool = False) -> list[Record]:
    """Every record that readers see, markers apart; those of committed transactions alone, if asked."""
    aborted = log.aborted_transactions(log.start_offset, log.high_watermark) if committed else []
    records = []
    for data in batches_of(log):
        for position, header in split(data):
            is_aborted = header.is_transactional and any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                for one in aborted
            )
            if not header.is_control and not is_aborted:
                records += decode_records(data, position)
    return records


CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=200, delete_retention_ms=1000)


@dataclass
class World:
    """A log, and what should be in it."""

    files: Files = field(default_factory=memory_files)
    opened: DataDirectory | None = None  # instead of a new one
    now: int = 10_000
    stored: dict[int, Record] = field(default_factory=dict)  # everything that was ever decided to be there
    undecided: dict[int, list[Record]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    ended: int = 0  # compacted up to here
    first_cleaned: dict[int, int] = field(default_factory=dict)  # when an offset was first compacted

    def __post_init__(self) -> None:
        self.directory = self.opened or DataDirectory(self.files, DATA, CONFIG)
        self.log = self.directory.create(ORDERS)

    def write(
        self, pairs: Sequence[tuple[bytes, bytes | None]], codec: Codec, producer: int, transactional: bool
    ) -> None:
        if producer in self.undecided and not transactional:
            return  # a producer is in a transaction, or it is not
        sequence = self.sequences.get(producer, 0)
        records = [Record(n, self.now + n, key, value, (("h", b"\xff"),)) for n, (key, value) in enumerate(pairs)]
        data = encode_batch(
            records,
            codec=codec,
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=-1 if producer < 0 else sequence,
            transactional=transactional,
        )
        base = self.log.append(data, self.now).base_offset
        self.sequences[producer] = sequence + len(records)
        placed = [record._replace(offset=base + n) for n, record in enumerate(records)]
        if transactional:
            self.undecided.setdefault(producer, []).extend(placed)
        else:
            self._decide(placed)

    def _decide(self, records: list[Record]) -> None:
        for record in records:
            self.stored[record.offset] = record

    def mark(self, producer: int, marker: Marker) -> None:
        if producer in self.undecided:
            self.log.append(encode_marker(marker, producer, 0, 1, self.now), self.now)
            records = self.undecided.pop(producer)
            if marker is Marker.COMMIT:
                self._decide(records)

    def checkpoint(self) -> None:
        self.directory.checkpoint(self.now)

    def reopen(self) -> None:
        self.directory.close(self.now)
        self.directory = DataDirectory(self.files, DATA, CONFIG)
        self.log = self.directory.logs[ORDERS]

    def compact(self, memory: int) -> None:
        self.checkpoint()
        result = compact(self.log, self.now, CleanerSettings(dedupe_buffer_bytes=memory))
        if result is not None:
            assert isinstance(result, PassResult), result
            self.ended = max(self.ended, result.end)
        for offset in self.stored:
            if offset < self.ended:
                self.first_cleaned.setdefault(offset, self.now)
        self.check()
        for record in records_of(self.log):
            is_due = self.now >= self.first_cleaned.get(record.offset, self.now) + CONFIG.delete_retention_ms
            assert not is_due or record.value is not None, "a tombstone has outlived its horizon"

    def check(self) -> None:
        """Exactly what compaction should leave is in the log."""
        seen = {record.offset: record for record in records_of(self.log, committed=True)}
        undecided = {record.offset for records in self.undecided.values() for record in records}
        for offset, record in seen.items():
            assert offset in undecided or self.stored[offset] == record
        for offset in self.stored:
            assert offset in seen or offset < self.ended, "what was not compacted stays"
        compacted = {record.key: offset for offset, record in sorted(self.stored.items()) if offset < self.ended}
        for key, offset in compacted.items():
            assert offset in seen or self.may_be_gone(offset), f"the newest value of {key!r} is gone"
        for record in records_of(self.log):  # aborted ones, too
            assert record.offset >= self.ended or compacted[record.key] == record.offset, "this should have gone"

    def may_be_gone(self, offset: int) -> bool:
        """Of the newest record of its key."""
        cleaned_ms = self.first_cleaned.get(offset, self.now)
        return self.stored[offset].value is None and self.now >= cleaned_ms + CONFIG.delete_retention_ms

    def check_nothing_is_lost(self, log: Log) -> None:
        """The same, but some passes may not have come to an end."""
        seen = {record.offset: record for record in records_of(log, committed=True)}
        for offset, record in seen.items():
            assert self.stored[offset] == record
        newest = {record.key: offset for offset, record in sorted(self.stored.items())}
        for key, offset in newest.items():
            assert offset in seen or self.may_be_gone(offset), f"the newest value of {key!r} is gone"
        deleted = {key for key, offset in newest.items() if offset not in seen}
        assert not deleted & {record.key for record in seen.values()}, "a deleted key is back"
        assert last_of_producers(log.producers) == last_of_producers(self.log.producers)
        assert log.end_offset == self.log.end_offset


def last_of_producers(producers: ProducerState) -> dict[int, tuple[int, int, int]]:
    return {
        number: (one.epoch, one.last_sequence, one.batches[-1].last_offset if one.batches else -1)
        for number, one in producers.producers.items()
    }


def producers_from_batches(log: Log) -> ProducerState:
    """As they would be known if every snapshot were lost."""
    producers = ProducerState()
    for data in batches_of(log):
        header = read_header(data)
        marker, epoch = marker_of(data) if header.is_control else (None, -1)
        producers.replay(header, marker, epoch)
    return producers
