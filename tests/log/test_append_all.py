"""Several batches in one write: the log is what it would be if they had been appended one by one, or as it was."""

from errno import EIO, ENOSPC

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import DATA, ORDERS, PARTITION, batch_of, memory_files, stored_batches

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import LogOffline, OutOfSpace
from tailrace.log.log import Log
from tailrace.log.validation import Appended
from tailrace.records.batch import read_header
from tailrace.records.control import Marker, encode_marker
from tailrace.records.errors import CorruptBatch
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles

NOW = 5000
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=300)


class Place:
    """A directory in memory with one log, which has a batch in it, so that it is known what its segment takes."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.memory = memory_files()
        self.files = FaultyFiles(self.memory)
        self.config = config
        self.directory = DataDirectory(self.files, DATA, config)
        self.log: Log = self.directory.create(ORDERS)
        for _ in range(2):
            self.log.append(batch_of(1), NOW)

    def state(self) -> list[object]:
        """All that can be told apart: what is read, what is derived, who has produced what."""
        log = self.log
        log.flush()
        derived = log.active.derived()
        return [
            stored_batches(log),
            log.end_offset,
            bytes(derived.index.data),
            bytes(derived.time_index.data),
            derived.max_timestamp,
            derived.max_timestamp_offset,
            dict(log.producers.producers),
            [segment.size for segment in log.segments],
        ]

    def restarted(self, *, clean: bool) -> Log:
        if clean:
            self.directory.close(NOW)
        return DataDirectory(RecordingFiles(self.memory.disk.copy()), DATA, self.config).logs[ORDERS]


def append_all(log: Log, batches: list[bytearray]) -> Appended | None:
    return log.append_all([memoryview(data) for data in batches], [read_header(data) for data in batches], NOW)


def writes(place: Place) -> int:
    return sum(call.kind == "write" for call in place.memory.calls)


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    sizes=st.lists(st.integers(0, 400), min_size=8, max_size=8),
    times=st.lists(st.integers(0, 3000), min_size=8, max_size=8),
    producer=st.sampled_from([-1, 7]),
)
def test_several_are_as_if_they_had_been_appended_one_by_one(
    counts: list[int], sizes: list[int], times: list[int], producer: int
) -> None:
    batches, sequence = [], 0
    for count, size, time in zip(counts, sizes, times, strict=False):
        batches.append(
            batch_of(count, time=time, size=size, producer=producer, sequence=sequence if producer > 0 else -1)
        )
        sequence += count
    one_by_one, together = Place(), Place()
    for data in batches:
        one_by_one.log.append(bytearray(data), NOW)
    before = writes(together)
    assert append_all(together.log, batches) == Appended(2, 1 + sum(counts), -1)
    assert writes(together) == before + 1
    assert together.state() == one_by_one.state()
    assert stored_batches(together.restarted(clean=False)) == stored_batches(one_by_one.log)
    found = together.restarted(clean=True)
    assert found.producers.producers == one_by_one.log.producers.producers


def test_the_sums_of_a_sealed_segment_are_right_after_several() -> None:
    place = Place()
    assert append_all(place.log, [batch_of(2), batch_of(3, size=900)]) is not None
    place.log.roll()
    place.log.append(batch_of(1), NOW)
    place.log.checkpoint(NOW)
    checksums = place.log.segments[0].derived_files.read_checksums()
    assert checksums is not None
    data = bytes(place.memory.disk.file(f"{PARTITION}/{0:020d}.log"))
    assert checksums.log_size == len(data)
    assert checksums.chunk_is_intact(0, data)


OTHER_PRODUCER = [batch_of(1, producer=7, sequence=0), batch_of(1, producer=8, sequence=0)]
OUT_OF_TURN = [batch_of(2, producer=7, sequence=0), batch_of(1, producer=7, sequence=3)]
REPEATED_AT_ONCE = [batch_of(2, producer=7, sequence=0), batch_of(2, producer=7, sequence=0)]
MIXED = [batch_of(1), batch_of(1, producer=7, sequence=0)]
BEGINS = [batch_of(1, producer=7, sequence=0), batch_of(1, producer=7, sequence=1, transactional=True)]
ENDS = [batch_of(1, producer=7, sequence=0, transactional=True), batch_of(1, producer=7, sequence=1)]
MARKER = [batch_of(1, producer=7, sequence=0), encode_marker(Marker.ABORT, 7, 0, 1, 1000)]
TOO_MUCH = [batch_of(1, size=9000), batch_of(1, size=9000), batch_of(1, size=9000)]


@pytest.mark.parametrize(
    "batches", [OTHER_PRODUCER, OUT_OF_TURN, REPEATED_AT_ONCE, MIXED, BEGINS, ENDS, MARKER, TOO_MUCH]
)
def test_what_must_be_looked_at_one_by_one_changes_nothing(batches: list[bytearray]) -> None:
    place, untouched = Place(), Place()
    batches = [bytearray(data) for data in batches]
    sent = [bytes(data) for data in batches]
    assert append_all(place.log, batches) is None
    assert [bytes(data) for data in batches] == sent, "nor is anything stamped"
    assert place.state() == untouched.state()


def test_a_repetition_of_what_was_appended_before_is_looked_at_by_itself() -> None:
    place = Place()
    first, second = (batch_of(1, producer=7, sequence=number) for number in (0, 1))
    place.log.append(bytearray(first), NOW)
    assert append_all(place.log, [first, second]) is None
    assert place.log.end_offset == 3


def test_a_batch_that_is_damaged_keeps_all_of_them_out() -> None:
    place, untouched = Place(), Place()
    damaged = batch_of(1)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        append_all(place.log, [batch_of(1), damaged])
    assert place.state() == untouched.state()


def test_sequences_go_on_at_zero_behind_the_largest() -> None:
    place = Place()
    batches = [batch_of(1, producer=7, sequence=0x7FFFFFFF), batch_of(1, producer=7, sequence=0)]
    assert append_all(place.log, batches) == Appended(2, 3, -1)


def test_several_get_the_time_of_the_log_where_it_gives_one() -> None:
    place = Place(CONFIG._replace(log_append_time=True))
    assert append_all(place.log, [batch_of(1), batch_of(1)]) == Appended(2, 3, NOW)
    place.log.flush()
    assert {read_header(data).max_timestamp for data in stored_batches(place.log).values()} == {NOW}


def test_where_the_disk_has_no_room_the_log_is_as_it_was() -> None:
    place, untouched = Place(), Place()
    place.files.fail("write_at", ENOSPC)
    with pytest.raises(OutOfSpace):
        append_all(place.log, [batch_of(1, producer=7, sequence=0), batch_of(1, producer=7, sequence=1)])
    place.files.heal()
    assert place.state() == untouched.state()


def test_where_the_disk_fails_the_log_takes_no_more() -> None:
    place = Place()
    place.files.fail("write_at", EIO)
    with pytest.raises(LogOffline):
        append_all(place.log, [batch_of(1), batch_of(1)])
    with pytest.raises(LogOffline):
        append_all(place.log, [batch_of(1), batch_of(1)])
