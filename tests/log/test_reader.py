"""Reading a log: by offset and by time, from any thread, with and without waiting for a disk."""

import random
import threading
import time
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import DATA, ORDERS, PARTITION, SMALL, batch_of, memory_files, stored_batches

from tailrace.log import time_search
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import File
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.checksums import CHUNK_BYTES
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import Damaged, LogError, OffsetOutOfRange, StorageError
from tailrace.log.log import Log
from tailrace.log.recovery.recovery import open_log
from tailrace.log.segment.derived_cache import DerivedCache
from tailrace.log.segment.segment import Segment, WouldWait
from tailrace.log.segment.slices import FileSlice
from tailrace.log.time_search import FoundTime
from tailrace.log.view import REMEMBERED_MAX, StoppedReaders
from tailrace.records.batch import split
from tailrace.records.compression import Codec
from tailrace.records.record import Record, encode_batch

NOW = 5000
ONE_SEGMENT = LogConfig(index_interval_bytes=300)


class Setup:
    def __init__(self, config: LogConfig = SMALL) -> None:
        self.files = memory_files()
        self.config = config
        self.directory = DataDirectory(self.files, DATA, config)
        self.log = self.directory.create(ORDERS)

    def fill(self, sizes: list[int]) -> list[bytes]:
        """A batch of one to three records for each size, flushed; returns their bytes."""
        batches = []
        for number, size in enumerate(sizes):
            data = batch_of(1 + number % 3, size=size)
            self.log.append(data, NOW)
            batches.append(bytes(data))
        self.log.flush()
        return batches

    def reopened(self, **options: Any) -> Log:
        """The log as a new process finds it after a clean stop."""
        self.directory.close(NOW)
        log, _ = open_log(self.files, PARTITION, self.config, clean=True, start_offset=0, recovery_point=0, **options)
        return log

    def spoil(self, position: int, base_offset: int = 0) -> None:
        self.files.disk.file(f"{PARTITION}/{base_offset:020d}.log")[position] ^= 1


def some_sizes(count: int, seed: int = 1) -> list[int]:
    lot = random.Random(seed)
    return [lot.choice([1, 20, 100, 400]) for _ in range(count)]


def bytes_of(piece: FileSlice | None) -> bytes:
    assert piece is not None
    with piece:
        return piece.read()


def bytes_from(log: Log, offset: int, *, up_to: int | None = None, until: int | None = None) -> bytes:
    """All that slice after slice gives, until there is no more, or damage, or the offset where to stop."""
    pieces = []
    while offset != until and (piece := log.read(offset, 1 << 20, up_to=up_to)) is not None:
        pieces.append(bytes_of(piece))
        offset = piece.next_offset
    return b"".join(pieces)


# By offset


@pytest.mark.parametrize("max_bytes", [0, 1, 61, 200, 500, 1000, 5000])
def test_a_slice_is_whole_batches_one_at_least_and_no_more_than_asked_for(max_bytes: int) -> None:
    setup = Setup()
    batches = setup.fill(some_sizes(60))
    assert len(setup.log.segments) > 3
    for number, data in enumerate(batches):
        ((_, header),) = split(data)
        for offset in range(header.base_offset, header.next_offset):
            piece = setup.log.read(offset, max_bytes)
            assert piece is not None
            given = piece.read()
            assert b"".join(batches[number:]).startswith(given)
            found = list(split(given))
            assert found[0][1] == header
            assert len(given) <= max_bytes or len(found) == 1
            assert piece.length == len(given)
            assert piece.next_offset == found[-1][1].next_offset
            piece.release()


@pytest.mark.parametrize("max_bytes", [200, 500, 1000, 5000, 100_000])
def test_a_slice_holds_as_many_batches_of_a_segment_as_fit(max_bytes: int) -> None:
    """Also where batches are larger than the index interval, as most are: there each has an entry of its own."""
    setup = Setup(ONE_SEGMENT)
    batches = setup.fill(some_sizes(60))
    for number, data in enumerate(batches):
        ((_, header),) = split(data)
        fitting, size = 1, len(data)
        while number + fitting < len(batches) and size + len(batches[number + fitting]) <= max_bytes:
            size += len(batches[number + fitting])
            fitting += 1
        assert bytes_of(setup.log.read(header.base_offset, max_bytes)) == b"".join(batches[number : number + fitting])


def test_a_slice_goes_up_to_the_high_watermark_though_more_is_appended() -> None:
    setup = Setup(ONE_SEGMENT)
    batches = setup.fill([400] * 10)
    for _ in range(10):
        setup.log.append(batch_of(1, size=400), NOW)
    assert bytes_of(setup.log.read(0, 1 << 20)) == b"".join(batches)


def test_a_slice_ends_where_its_segment_does_and_the_next_begins_there() -> None:
    setup = Setup()
    batches = setup.fill(some_sizes(60))
    assert bytes_from(setup.log, 0) == b"".join(batches)
    for segment, following in pairwise(setup.log.segments):
        last = max(offset for offset in stored_batches(setup.log) if offset < following.base_offset)
        piece = setup.log.read(last, 1 << 20)
        assert piece is not None
        assert piece.next_offset == following.base_offset
        piece.release()
        assert segment.size > 0


@pytest.mark.parametrize("outside", [-1, 31, 1000])
def test_an_offset_outside_of_the_log_is_out_of_range(outside: int) -> None:
    setup = Setup()
    setup.fill([20] * 15)
    assert setup.log.high_watermark == 30
    with pytest.raises(OffsetOutOfRange):
        setup.log.read(outside, 100)
    assert setup.log.read(30, 100) is None


def check_limit(log: Log, ends: list[int], up_to: int) -> None:
    """`ends` is where each batch ends. From each of them on there is something to read if a batch lies before the
    limit, and nothing that is read lies behind it.
    """
    for offset in [0, *ends[:-1]]:
        piece = log.read(offset, 1 << 20, up_to=up_to)
        if offset >= up_to:
            assert piece is None
        else:
            assert piece is not None
            assert offset < piece.next_offset <= up_to


def test_nothing_at_or_behind_a_limit_between_batches_is_given() -> None:
    setup = Setup()
    ends = [next(split(data))[1].next_offset for data in setup.fill(some_sizes(40))]
    for up_to in (0, *ends):
        check_limit(setup.log, ends, up_to)


def test_a_limit_behind_the_high_watermark_changes_nothing() -> None:
    setup = Setup()
    setup.fill(some_sizes(10))
    setup.log.append(batch_of(3), NOW)
    end = setup.log.high_watermark
    assert bytes_of(setup.log.read(0, 1 << 20, up_to=end + 3)) == bytes_of(setup.log.read(0, 1 << 20))
    assert setup.log.read(end, 1 << 20, up_to=end + 3) is None


# Going on where a read has stopped


class GoingOn:
    """One that reads on and on. Each time it must be given what somebody finds who searches for the offset."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._offset = 0

    def read(self, max_bytes: int, up_to: int) -> None:
        given = self._outcome(max_bytes, up_to)
        stopped, self._log._stopped = self._log._stopped, StoppedReaders(self._log.segments)
        assert self._outcome(max_bytes, up_to) == given
        self._log._stopped = stopped
        if isinstance(given, tuple):
            self._offset = given[1]
        elif given is OffsetOutOfRange:
            self._offset = self._log.start_offset

    def _outcome(self, max_bytes: int, up_to: int) -> tuple[bytes, int] | type[LogError] | None:
        try:
            piece = self._log.read(self._offset, max_bytes, up_to=up_to)
        except LogError as error:
            return type(error)
        return None if piece is None else (bytes_of(piece), piece.next_offset)


steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6), st.sampled_from([1, 50, 400])),
    st.tuples(st.just("read"), st.integers(0, 2), st.sampled_from([1, 300, 2000, 1 << 20])),
    st.tuples(st.just("read up to"), st.integers(0, 2), st.integers(0, 60)),
    st.tuples(st.just("flush"), st.none(), st.none()),
    st.tuples(st.just("delete"), st.integers(0, 60), st.none()),
    st.tuples(st.just("truncate"), st.integers(0, 60), st.none()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40), st.sampled_from([SMALL, ONE_SEGMENT]))
def test_a_reader_that_goes_on_is_given_what_a_search_would_find(
    script: list[tuple[str, Any, Any]], config: LogConfig
) -> None:
    log = Setup(config).log
    readers = [GoingOn(log) for _ in range(3)]
    for what, number, size in script:
        bounds = log.bounds
        if what == "append":
            for _ in range(number):
                log.append(batch_of(1 + number % 3, size=size), NOW)
        elif what == "read":
            readers[number].read(size, log.end_offset)
        elif what == "read up to":
            ends = [0, *(offset for offset in stored_batches(log) if offset <= size)]
            readers[number].read(1 << 20, ends[-1])
        elif what == "flush":
            log.flush()
        elif what == "delete" and bounds.start <= number <= bounds.high_watermark:
            log.delete_before(number)
        elif what == "truncate" and bounds.start <= number <= bounds.end:
            log.truncate(number)


def test_a_reader_that_goes_on_searches_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(ONE_SEGMENT)
    batches = setup.fill([200] * 10)
    piece = setup.log.read(0, 1 << 20)
    assert bytes_of(piece) == b"".join(batches)
    more = setup.fill([200] * 10)
    monkeypatch.setattr(Segment, "find", None)
    assert bytes_of(setup.log.read(10 * 2 - 1, 1 << 20)) == b"".join(more)
    assert bytes_of(setup.log.read(10 * 2 - 1, 500)) == more[0]


def test_a_reader_that_goes_on_is_told_of_damage_that_was_found_since() -> None:
    setup = Setup(ONE_SEGMENT)
    batches = setup.fill([200] * 10)
    first = setup.log.read(0, 3 * len(batches[1]))
    assert first is not None
    stop = len(bytes_of(first))
    segment = setup.log.active
    setup.spoil(stop + 80)
    segment.checks.distrust(0, segment.size, segment.size)
    with pytest.raises(WouldWait):
        setup.log.read(first.next_offset, 1 << 20, wait=False)
    with pytest.raises(Damaged):
        setup.log.read(first.next_offset, 1 << 20)


def test_a_reader_does_not_go_on_where_other_segments_stand_by_now() -> None:
    setup = Setup(ONE_SEGMENT)
    for _ in range(10):
        setup.log.append(batch_of(1, size=200), NOW)
    setup.log.flush()
    assert setup.log.read(0, 700) is not None
    (stopped,) = setup.log._stopped._positions
    setup.log.truncate(1)
    for _ in range(20):
        setup.log.append(batch_of(1, size=30), NOW)
    setup.log.flush()
    assert next(split(bytes_of(setup.log.read(stopped, 1))))[1].base_offset == stopped


def test_of_many_readers_not_all_places_are_remembered() -> None:
    setup = Setup(ONE_SEGMENT)
    setup.fill([20] * 300)
    for offset in stored_batches(setup.log):
        assert setup.log.read(offset, 1) is not None
    assert 0 < len(setup.log._stopped) <= REMEMBERED_MAX


# Damage


def test_a_slice_never_goes_past_damage_and_reading_goes_on_behind_it() -> None:
    setup = Setup(ONE_SEGMENT)
    batches = setup.fill([200] * 12)
    position = sum(map(len, batches[:5]))
    setup.spoil(position + 80)
    log = setup.reopened()
    ((_, bad),) = split(batches[5])
    assert bytes_from(log, 0, until=bad.base_offset) == b"".join(batches[:5])
    with pytest.raises(Damaged) as error:
        log.read(bad.base_offset, 1 << 20)
    assert (error.value.damage.first_offset, error.value.damage.last_offset) == (bad.base_offset, bad.last_offset)
    assert bytes_from(log, bad.next_offset) == b"".join(batches[6:])
    assert log.damage == [error.value.damage]


def test_what_lies_before_damage_is_given_although_the_limit_lies_in_it() -> None:
    """As where the oldest undecided transaction begins with the damaged batch."""
    setup = Setup(ONE_SEGMENT)
    batches = setup.fill([200] * 12)
    setup.spoil(sum(map(len, batches[:5])) + 80)
    log = setup.reopened()
    ((_, bad),) = split(batches[5])
    assert bytes_from(log, 0, up_to=bad.base_offset) == b"".join(batches[:5])


# Without waiting


def test_bytes_that_this_process_appended_are_read_without_waiting() -> None:
    setup = Setup()
    batches = setup.fill(some_sizes(40))
    offset, pieces = 0, []
    while (piece := setup.log.read(offset, 300, wait=False)) is not None:
        pieces.append(bytes_of(piece))
        offset = piece.next_offset
    assert b"".join(pieces) == b"".join(batches)


def test_a_log_of_an_earlier_process_waits_for_its_index_and_its_checks_once() -> None:
    setup = Setup(ONE_SEGMENT)
    batches = setup.fill([200] * 20)
    log = setup.reopened()
    with pytest.raises(WouldWait):
        log.read(0, 500, wait=False)
    log.segments[0].derived()
    with pytest.raises(WouldWait):
        log.read(0, 500, wait=False)  # the index is there, but nobody has checked the bytes
    expected = bytes_of(log.read(0, 500))
    assert bytes_of(log.read(0, 500, wait=False)) == expected
    assert b"".join(batches).startswith(expected)


def test_each_mebibyte_is_checked_when_it_is_first_read() -> None:
    setup = Setup()
    setup.config = LogConfig()
    setup.log.configure(setup.config)
    batches = setup.fill([300_000] * 12)
    log = setup.reopened()
    sizes = [len(data) for data in batches]
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    first_of_second = next(number for number, end in enumerate(ends) if end > CHUNK_BYTES)
    offsets = [next(split(data))[1].base_offset for data in batches]
    log.read(0, 1)
    for number in range(first_of_second):
        assert bytes_of(log.read(offsets[number], 1, wait=False)) == batches[number]
    with pytest.raises(WouldWait):
        log.read(offsets[first_of_second], 1, wait=False)
    assert bytes_of(log.read(offsets[first_of_second], 1)) == batches[first_of_second]
    assert bytes_of(log.read(offsets[first_of_second], 1, wait=False)) == batches[first_of_second]


@pytest.mark.parametrize("max_bytes", [1, 500, 1 << 20])
def test_a_length_that_rots_after_it_was_checked_is_an_error_and_holds_nobody_up(max_bytes: int) -> None:
    setup = Setup(ONE_SEGMENT)
    batches = setup.fill([200] * 10)
    setup.log.roll()
    assert setup.log.read(0, 1 << 20) is not None
    file = setup.files.disk.file(f"{PARTITION}/{0:020d}.log")
    for number in (0, 3):
        at = sum(map(len, batches[:number])) + 8
        file[at : at + 4] = (-12).to_bytes(4, signed=True)
    with pytest.raises(StorageError):
        setup.log.read(0, max_bytes)


def test_an_index_that_memory_had_to_give_up_is_waited_for_again() -> None:
    setup = Setup()
    setup.fill(some_sizes(60))
    log = setup.reopened(cache=DerivedCache(limit_bytes=1))
    assert len(log.segments) > 3
    log.read(0, 100)
    assert log.read(0, 100, wait=False) is not None
    log.read(log.segments[2].base_offset, 100)
    with pytest.raises(WouldWait):
        log.read(0, 100, wait=False)


def test_where_the_disk_must_be_asked_a_read_that_may_not_wait_says_so() -> None:
    setup = Setup(ONE_SEGMENT)
    setup.fill([200] * 10)

    class Cold:
        """A file of which nothing is cached."""

        def __init__(self, file: File) -> None:
            self._file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def read_cached_at(self, position: int, size: int) -> None:
            return None

    setup.log.active.log = Cold(setup.log.active.log)  # type: ignore[assignment]
    with pytest.raises(WouldWait):
        setup.log.read(0, 500, wait=False)
    assert setup.log.read(0, 500) is not None


def test_real_files_just_written_are_read_without_waiting(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path / "data"), SMALL)
    log = directory.create(ORDERS)
    data = batch_of(3)
    log.append(data, NOW)
    log.flush()
    if log.active.log.read_cached_at(0, 10) is None:
        pytest.skip("this system cannot say what is cached")
    assert bytes_of(log.read(0, 1000, wait=False)) == data
    directory.close(NOW)


# By time


def timed(*times: int, codec: Codec = Codec.NONE, size: int = 10) -> bytearray:
    return encode_batch([Record(n, time, b"%d" % n, b"v" * size) for n, time in enumerate(times)], codec=codec)


def log_with(*batches: bytearray, config: LogConfig = SMALL, segments_of: int = 100) -> Log:
    log = Setup(config).log
    for number, data in enumerate(batches):
        if number and number % segments_of == 0:
            log.roll()
        log.append(data, NOW)
    log.flush()
    return log


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_a_time_is_found_to_the_record_inside_of_a_batch(codec: Codec) -> None:
    log = log_with(timed(10, 20, 30, codec=codec), timed(40, 35, 60, 50, codec=codec))
    found = {time: log.find_time(time) for time in (0, 10, 11, 30, 31, 41, 60, 61)}
    assert found == {
        0: FoundTime(0, 10),
        10: FoundTime(0, 10),
        11: FoundTime(1, 20),
        30: FoundTime(2, 30),
        31: FoundTime(3, 40),
        41: FoundTime(5, 60),
        60: FoundTime(5, 60),
        61: None,
    }


@pytest.mark.parametrize("segments_of", [1, 2, 100])
def test_a_time_is_found_where_it_first_occurs_whatever_the_order_of_times(segments_of: int) -> None:
    lot = random.Random(segments_of)
    times = [[lot.randint(0, 60) for _ in range(lot.randint(1, 4))] for _ in range(30)]
    log = log_with(*(timed(*some) for some in times), config=ONE_SEGMENT, segments_of=segments_of)
    flat = [time for some in times for time in some]
    for time_ in range(62):
        expected = next((FoundTime(offset, t) for offset, t in enumerate(flat) if t >= time_), None)
        assert log.find_time(time_) == expected
    assert log.find_max_timestamp() == FoundTime(flat.index(max(flat)), max(flat))


@pytest.mark.parametrize("segments_of", [1, 100])
def test_of_records_with_the_same_time_the_first_is_found(segments_of: int) -> None:
    log = log_with(timed(5, 9, 9), timed(9, 3), timed(9), segments_of=segments_of)
    assert log.find_time(9) == FoundTime(1, 9)
    assert log.find_time(6) == FoundTime(1, 9)
    assert log.find_max_timestamp() == FoundTime(1, 9)


def test_times_that_the_log_has_set_are_those_that_are_found() -> None:
    log = Setup(LogConfig(log_append_time=True)).log
    for now in (100, 200, 300):
        log.append(timed(7, 999_999, 1), now)
    log.flush()
    assert log.find_time(0) == FoundTime(0, 100)
    assert log.find_time(101) == FoundTime(3, 200)
    assert log.find_time(301) is None
    assert log.find_max_timestamp() == FoundTime(6, 300)


def test_a_time_is_not_found_before_it_is_flushed_nor_after_it_is_deleted() -> None:
    log = log_with(timed(10, 50, 20), timed(30), timed(40))
    log.append(timed(90), NOW)
    assert log.find_time(60) is None
    assert log.find_max_timestamp() == FoundTime(1, 50)
    log.delete_before(2)
    assert log.find_time(0) == FoundTime(2, 20)
    assert log.find_time(41) is None
    assert log.find_max_timestamp() == FoundTime(4, 40)
    log.flush()
    assert log.find_max_timestamp() == FoundTime(5, 90)


def test_the_largest_time_is_found_far_behind_a_larger_one_that_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index names the batch of the deleted record, of which another record is left."""
    monkeypatch.setattr(time_search, "_READ_BYTES", 200)
    log = log_with(timed(100, 1), timed(2, 3, size=100), timed(50), config=ONE_SEGMENT)
    log.delete_before(1)
    assert log.find_max_timestamp() == FoundTime(4, 50)


def test_an_empty_log_has_no_times() -> None:
    log = log_with()
    assert log.find_time(0) is None
    assert log.find_max_timestamp() is None
    log.append(timed(9), NOW)
    assert log.find_max_timestamp() is None


@pytest.mark.parametrize("lost", [".timeindex", ".index"])
def test_times_are_found_where_nothing_vouches_for_an_index_and_the_other_is_lost(lost: str) -> None:
    """As in a directory of Kafka's, which has no sums: one file may be missing and the other whole."""
    setup = Setup(ONE_SEGMENT)
    for number in range(40):
        setup.log.append(timed(9000 - number, size=60), NOW)
    setup.log.flush()
    expected = [setup.log.find_time(8990), setup.log.find_max_timestamp()]
    assert expected == [FoundTime(0, 9000)] * 2
    setup.directory.close(NOW)
    for suffix in (lost, ".sums"):
        del setup.files.disk.names[f"{PARTITION}/{0:020d}{suffix}"]
    log, _ = open_log(setup.files, PARTITION, setup.config, clean=True)
    assert [log.find_time(8990), log.find_max_timestamp()] == expected


# Bounded memory


def test_lookups_in_many_segments_are_right_with_room_for_few_indexes() -> None:
    setup = Setup(LogConfig(segment_bytes=2000, index_interval_bytes=100))
    lot = random.Random(3)
    batches = [timed(*(lot.randint(0, 500) for _ in range(3)), size=50) for _ in range(400)]
    for data in batches:
        setup.log.append(data, NOW)
    setup.log.flush()
    expected = stored_batches(setup.log)
    times = [setup.log.find_time(t) for t in range(0, 501, 25)]
    one = max(segment.derived().resident_bytes for segment in setup.log.segments)
    log = setup.reopened(cache=DerivedCache(limit_bytes=3 * one))
    assert len(log.segments) > 30
    for offset in lot.choices(list(expected), k=200):
        assert bytes_of(log.read(offset, 1)) == expected[offset]
        in_memory = [segment for segment in log.segments[:-1] if segment._derived is not None]
        assert sum(segment.derived(wait=False).resident_bytes for segment in in_memory) <= 3 * one
    assert [log.find_time(t) for t in range(0, 501, 25)] == times
    assert stored_batches(log) == expected


def test_a_log_that_goes_on_answers_rightly_though_its_index_had_to_go() -> None:
    setup = Setup()
    setup.fill(some_sizes(40))
    log = setup.reopened(cache=DerivedCache(limit_bytes=1))
    for number in range(60):
        log.append(timed(10_000 - number), NOW)
        log.read(log.segments[number % 3].base_offset, 1)
    log.flush()
    first = log.end_offset - 60
    assert log.find_time(9999) == FoundTime(first, 10_000)
    assert log.find_max_timestamp() == FoundTime(first, 10_000)
    assert stored_batches(log).keys() >= set(range(first, first + 60))


# From other threads


def test_a_file_that_is_removed_while_an_offset_is_looked_up_is_out_of_range(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path / "data"), SMALL)
    log = directory.create(ORDERS)
    for _ in range(30):
        log.append(batch_of(3), NOW)
    log.flush()
    segment = log.segments[0]
    find = segment.find

    def find_and_lose(*arguments: Any, **options: Any) -> Any:
        found = find(*arguments, **options)
        log.delete_before(log.high_watermark)
        directory.checkpoint(NOW)
        return found

    segment.find = find_and_lose  # type: ignore[method-assign]
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)
    directory.close(NOW)


def test_a_file_that_is_removed_while_a_time_is_looked_up_is_no_error_of_the_disk_s(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    directory = DataDirectory(OperatingSystemFiles(), path, SMALL)
    log = directory.create(ORDERS)
    for number in range(30):
        log.append(timed(number, size=200), NOW)
    directory.close(NOW)
    directory = DataDirectory(OperatingSystemFiles(), path, SMALL)
    log = directory.logs[ORDERS]
    derived = log.segments[0].derived

    def lose_and_load(**options: bool) -> Any:
        log.segments[0].derived = derived  # type: ignore[method-assign]
        log.delete_before(log.segments[1].base_offset)
        directory.checkpoint(NOW)
        return derived(**options)

    log.segments[0].derived = lose_and_load  # type: ignore[method-assign]
    try:
        assert log.find_time(0) == FoundTime(log.start_offset, log.start_offset)
    except LogError:
        pass  # its own words for it would do as well
    finally:
        directory.close(NOW)


def record_at(offset: int) -> Record:
    return Record(offset, 1000 + offset, b"key", (b"value-%d|" % offset) * (1 + offset % 20))


@cache
def batch_at(offset: int) -> bytes:
    """The batch that is appended at an offset: it follows from the offset alone."""
    records = [record_at(offset + number) for number in range(1 + offset % 5)]
    return bytes(encode_batch(records, base_offset=offset, leader_epoch=0, codec=Codec(offset % 2 * 4)))


class Reader(threading.Thread):
    def __init__(self, log: Log, seed: int, stop: threading.Event) -> None:
        super().__init__()
        self._log = log
        self._lot = random.Random(seed)
        self._stop_event = stop
        self.batches = 0
        self.trouble: list[BaseException] = []

    def run(self) -> None:
        try:
            while not self._stop_event.is_set():
                self._read_somewhere()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            self.trouble.append(error)

    def _read_somewhere(self) -> None:
        start, end = self._log.start_offset, self._log.high_watermark
        offset = self._lot.randint(start, end) if self._lot.random() < 0.5 else max(start, end - 3)
        try:
            piece = self._log.read(offset, self._lot.choice([1, 1000, 20_000]))
        except OffsetOutOfRange:
            assert offset < self._log.start_offset, "only what is deleted is out of range"
            return
        if piece is None:
            return
        if self._lot.random() < 0.2:
            time.sleep(0.001)  # long enough for the segment to be deleted
        with piece:
            data = piece.read()
        for position, header in split(data):
            assert data[position : position + header.size] == batch_at(header.base_offset)
            self.batches += 1
        assert piece.next_offset == header.next_offset
        if self._lot.random() < 0.1:
            self._find_somewhere()

    def _find_somewhere(self) -> None:
        offset = self._lot.randint(self._log.start_offset, self._log.high_watermark)
        try:
            found = self._log.find_time(1000 + offset)
        except OffsetOutOfRange:
            return
        assert found is None or found.timestamp == 1000 + found.offset >= 1000 + offset


def test_threads_read_the_right_bytes_while_the_log_appends_rolls_flushes_deletes(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
    directory = DataDirectory(OperatingSystemFiles(descriptor_limit=6), str(tmp_path / "data"), config)
    log = directory.create(ORDERS)
    log.flush()
    stop = threading.Event()
    readers = [Reader(log, seed, stop) for seed in range(4)]
    for reader in readers:
        reader.start()
    lot, began, deletions = random.Random(1), time.monotonic(), 0
    try:
        while time.monotonic() < began + 1 or (deletions < 5 and time.monotonic() < began + 20):
            for _ in range(lot.randint(1, 40)):
                log.append(bytearray(batch_at(log.end_offset)), NOW)
            if lot.random() < 0.05:
                log.roll()
            log.flush()
            if log.high_watermark - log.start_offset > 1000:
                log.delete_before(log.high_watermark - lot.randint(1, 600))
                deletions += 1
                if lot.random() < 0.5:
                    directory.checkpoint(NOW)
            if any(reader.trouble for reader in readers):
                break
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    trouble = [error for reader in readers for error in reader.trouble]
    assert not trouble, trouble
    assert all(reader.batches > 0 for reader in readers)
    assert deletions >= 5
    directory.close(NOW)


def test_threads_that_read_a_cold_log_at_once_all_get_the_right_bytes(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
    directory = DataDirectory(OperatingSystemFiles(), path, config)
    log = directory.create(ORDERS)
    while log.end_offset < 3000:
        log.append(bytearray(batch_at(log.end_offset)), NOW)
    directory.close(NOW)
    directory = DataDirectory(OperatingSystemFiles(descriptor_limit=4), path, config)
    directory._cache._limit_bytes = 1000
    cold = directory.logs[ORDERS]
    found: list[dict[int, bytes] | LogError] = []
    threads = [threading.Thread(target=lambda: found.append(stored_batches(cold))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {offset: batch_at(offset) for offset in stored_batches(cold)}
    assert sum(len(list(split(data))) for data in expected.values()) > 500
    assert found == [expected] * 6
    assert not cold.damage
    directory.close(NOW)
