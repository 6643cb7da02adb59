"""Compaction against a dict: whatever producers do, in however many passes, the newest value of each key is there, at
the offset it got, and the log goes on as if nothing had happened.
"""

from dataclasses import dataclass, field

from compactions import batches_of, compact, records_of
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import DATA, ORDERS, memory_files

from tailrace.log.compaction.messages import CleanerSettings, PassResult
from tailrace.log.config import LogConfig
from tailrace.log.directory import DataDirectory
from tailrace.records.batch import read_header
from tailrace.records.compression import Codec
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, encode_batch

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=200, delete_retention_ms=1000)
KEYS = [b"a", b"b", b"c", b"d", b"e"]


@dataclass
class World:
    """A log, and what should be in it."""

    files: object = field(default_factory=memory_files)
    now: int = 10_000
    stored: dict[int, Record] = field(default_factory=dict)  # everything that was ever decided to be there
    newest: dict[bytes, int] = field(default_factory=dict)
    undecided: dict[int, list[Record]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory = DataDirectory(self.files, DATA, CONFIG)  # type: ignore[arg-type]
        self.log = self.directory.create(ORDERS)

    def write(self, pairs: list[tuple[bytes, bytes | None]], codec: Codec, producer: int, transactional: bool) -> None:
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
            assert record.key is not None
            self.newest[record.key] = max(record.offset, self.newest.get(record.key, -1))

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
        self.directory = DataDirectory(self.files, DATA, CONFIG)  # type: ignore[arg-type]
        self.log = self.directory.logs[ORDERS]

    def check(self, *, ended: int) -> None:
        seen = {record.offset: record for record in records_of(self.log, committed=True)}
        undecided = {record.offset for records in self.undecided.values() for record in records}
        for offset, record in seen.items():
            if offset not in undecided:
                assert self.stored.get(offset) == record
        for key, offset in self.newest.items():
            last = self.stored[offset]
            assert offset in seen or last.value is None, f"the newest value of {key!r} is gone"
        for offset in self.stored:
            if offset >= ended:
                assert offset in seen, "what was not compacted stays"
        for record in seen.values():
            is_newest = record.key is not None and self.newest.get(record.key) == record.offset
            assert is_newest or record.offset >= ended or record.offset in undecided


PAIRS = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([b"x" * 30, b"y", None])), min_size=1, max_size=5)
STEPS = st.one_of(
    st.tuples(st.just("write"), PAIRS, st.sampled_from(Codec), st.sampled_from([-1, 5])),
    st.tuples(st.just("write"), PAIRS, st.just(Codec.NONE), st.just(-1)),
    st.tuples(st.just("transact"), PAIRS, st.sampled_from([Codec.NONE, Codec.ZSTD]), st.sampled_from([7, 8])),
    st.tuples(st.just("mark"), st.sampled_from([7, 8]), st.sampled_from(Marker)),
    st.tuples(st.just("compact"), st.sampled_from([0, 500, 2000]), st.sampled_from([128 << 20, 24 * 30])),
    st.tuples(st.just("reopen")),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, min_size=5, max_size=60))
def test_the_newest_value_of_each_key_is_there_at_its_offset_after_any_passes(steps: list[tuple]) -> None:
    world = World()
    ended = 0
    for step in steps:
        match step:
            case ("write", pairs, codec, producer):
                world.write(pairs, codec, producer, False)
            case ("transact", pairs, codec, producer):
                world.write(pairs, codec, producer, True)
            case ("mark", producer, marker):
                world.mark(producer, marker)
            case ("compact", later, memory):
                world.now += later
                world.checkpoint()
                result = compact(world.log, world.now, CleanerSettings(dedupe_buffer_bytes=memory))
                if result is not None:
                    assert isinstance(result, PassResult), result
                    ended = max(ended, result.end)
                world.check(ended=ended)
            case _:
                world.reopen()
    world.log.flush()
    world.check(ended=ended)
    end = world.log.end_offset
    producers = dict(world.log.producers.producers)
    world.reopen()
    world.check(ended=ended)
    assert world.log.end_offset == end
    assert dict(world.log.producers.producers) == producers
    assert not world.directory.reports[ORDERS].damage
    headers = [read_header(data) for data in batches_of(world.log)]
    assert all(one.next_offset <= other.base_offset for one, other in zip(headers, headers[1:], strict=False))
    assert not headers or headers[-1].next_offset == end, "a reader gets to the end"
