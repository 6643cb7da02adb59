"""The sparse indexes against plain lists of entries, and what their own bytes tell of damage."""

import struct

from batches import flip
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.files.index import IndexEntry, OffsetIndex, TimeEntry, TimeIndex, positions_in

BASE = 1 << 40
LOG_SIZE = 3000


def growing(low: int, high: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(low, high), unique=True, max_size=12).map(sorted)


def pairs(first: st.SearchStrategy[list[int]], second: st.SearchStrategy[list[int]]) -> st.SearchStrategy:
    return st.tuples(first, second).map(lambda both: list(zip(*both, strict=False)))


ENTRIES = pairs(growing(BASE, BASE + 40), growing(0, LOG_SIZE - 1)).map(lambda ps: [IndexEntry(*p) for p in ps])
TIMES = pairs(growing(-2, 40), growing(BASE, BASE + 40)).map(lambda ps: [TimeEntry(*p) for p in ps])


def offset_index(entries: list[IndexEntry]) -> OffsetIndex:
    index = OffsetIndex(BASE)
    for entry in entries:
        index.append(*entry)
    return index


def time_index(entries: list[TimeEntry]) -> TimeIndex:
    index = TimeIndex(BASE)
    for entry in entries:
        index.append(*entry)
    return index


SOME_ENTRIES = [IndexEntry(BASE + 3, 100), IndexEntry(BASE + 7, 1000), IndexEntry(BASE + 0x7FFFFFFF, 2999)]
SOME_TIMES = [TimeEntry(-1, BASE), TimeEntry(50, BASE + 3), TimeEntry(1 << 50, BASE + 0x7FFFFFFF)]


def test_entries_are_stored_as_kafka_stores_them() -> None:
    assert offset_index(SOME_ENTRIES).data == struct.pack(">6i", 3, 100, 7, 1000, 0x7FFFFFFF, 2999)
    assert time_index(SOME_TIMES).data == struct.pack(">qiqiqi", -1, 0, 50, 3, 1 << 50, 0x7FFFFFFF)


@given(ENTRIES)
def test_an_offset_index_read_from_its_bytes_has_the_same_entries(entries: list[IndexEntry]) -> None:
    index = OffsetIndex(BASE, bytes(offset_index(entries).data))
    assert [index.entry(number) for number in range(len(index))] == entries
    assert index.last() == (entries[-1] if entries else None)


@given(TIMES)
def test_a_time_index_read_from_its_bytes_has_the_same_entries(entries: list[TimeEntry]) -> None:
    index = TimeIndex(BASE, bytes(time_index(entries).data))
    assert [index.entry(number) for number in range(len(index))] == entries
    assert index.last() == (entries[-1] if entries else None)


@given(ENTRIES, st.integers(BASE - 1, BASE + 41))
def test_an_offset_is_looked_for_from_the_last_entry_not_behind_it(entries: list[IndexEntry], offset: int) -> None:
    at_or_before = [entry for entry in entries if entry.last_offset <= offset]
    assert offset_index(entries).at_or_before(offset) == (at_or_before[-1] if at_or_before else None)


@given(ENTRIES, st.integers(0, LOG_SIZE) | st.just(-1))
def test_positions_are_split_in_those_up_to_one_and_those_after_it(entries: list[IndexEntry], position: int) -> None:
    index = offset_index(entries)
    up_to = [entry for entry in entries if entry.position <= position]
    assert index.at_or_before_position(position) == (up_to[-1] if up_to else None)
    assert index.positions_after(position) == [entry.position for entry in entries if entry.position > position]


@given(TIMES, st.integers(-3, 41))
def test_a_time_is_looked_for_from_the_last_entry_that_is_older(entries: list[TimeEntry], timestamp: int) -> None:
    older = [entry for entry in entries if entry.timestamp < timestamp]
    assert time_index(entries).before(timestamp) == (older[-1] if older else None)


@given(st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 5))))
def test_the_time_index_keeps_only_times_larger_than_all_before(appended: list[tuple[int, int]]) -> None:
    index, expected, offset = TimeIndex(BASE), [], BASE
    for timestamp, step in appended:
        offset += step
        index.append(timestamp, offset)
        if not expected or timestamp > max(entry.timestamp for entry in expected):
            expected.append(TimeEntry(timestamp, offset))
    assert [index.entry(number) for number in range(len(index))] == expected


@given(ENTRIES, st.integers(0, LOG_SIZE))
def test_an_offset_index_keeps_what_stands_before_a_position(entries: list[IndexEntry], position: int) -> None:
    index = offset_index(entries)
    index.keep_before(position)
    assert index.data == offset_index([entry for entry in entries if entry.position < position]).data


@given(TIMES, st.integers(BASE - 1, BASE + 41))
def test_a_time_index_keeps_what_names_an_earlier_offset(entries: list[TimeEntry], offset: int) -> None:
    index = time_index(entries)
    index.keep_before(offset)
    assert index.data == time_index([entry for entry in entries if entry.last_offset < offset]).data


@given(ENTRIES, TIMES)
def test_a_copy_stays_as_it_is_while_the_index_goes_on(entries: list[IndexEntry], times: list[TimeEntry]) -> None:
    index, time = offset_index(entries), time_index(times)
    copies = index.copy(), time.copy()
    index.append(BASE + 100, LOG_SIZE)
    time.append(100, BASE + 100)
    assert copies[0].data == offset_index(entries).data
    assert copies[1].data == time_index(times).data
    assert (len(index), len(time)) == (len(entries) + 1, len(times) + 1)


@given(ENTRIES, TIMES)
def test_what_was_built_by_appending_is_sound(entries: list[IndexEntry], times: list[TimeEntry]) -> None:
    assert offset_index(entries).is_sound(entries[-1].position + 1 if entries else 0)
    assert time_index(times).is_sound()


def test_an_offset_index_that_points_behind_the_log_is_not_sound() -> None:
    index = offset_index(SOME_ENTRIES)
    assert index.is_sound(3000)
    assert not index.is_sound(2999)


def test_an_index_cut_inside_of_an_entry_is_not_sound() -> None:
    entries, times = bytes(offset_index(SOME_ENTRIES).data), bytes(time_index(SOME_TIMES).data)
    for size in range(len(entries) + 1):
        assert OffsetIndex(BASE, entries[:size]).is_sound(LOG_SIZE) == (size % 8 == 0)
    for size in range(len(times) + 1):
        assert TimeIndex(BASE, times[:size]).is_sound() == (size % 12 == 0)


def test_zeroed_entries_behind_others_are_not_sound() -> None:
    entries, times = bytes(offset_index(SOME_ENTRIES).data), bytes(time_index(SOME_TIMES).data)
    for number in (1, 2):
        zeroed = entries[: 8 * number] + bytes(8) + entries[8 * number + 8 :]
        assert not OffsetIndex(BASE, zeroed).is_sound(LOG_SIZE)
        zeroed = times[: 12 * number] + bytes(12) + times[12 * number + 12 :]
        assert not TimeIndex(BASE, zeroed).is_sound()
    assert not OffsetIndex(BASE, entries + bytes(8)).is_sound(LOG_SIZE), "as a file that was made longer beforehand"
    assert not TimeIndex(BASE, times + bytes(12)).is_sound()


def test_a_flipped_bit_is_not_sound_unless_entries_still_grow_inside_of_the_log() -> None:
    entries, times = bytes(offset_index(SOME_ENTRIES).data), bytes(time_index(SOME_TIMES).data)
    seen = set()
    for bit in range(8 * len(entries)):
        index = OffsetIndex(BASE, flip(entries, bit))
        seen.add(index.is_sound(LOG_SIZE))
        assert index.is_sound(LOG_SIZE) == grows([index.entry(n) for n in range(3)], LOG_SIZE)
    for bit in range(8 * len(times)):
        time = TimeIndex(BASE, flip(times, bit))
        seen.add(time.is_sound())
        assert time.is_sound() == grows([time.entry(n) for n in range(3)])
    assert seen == {True, False}


def grows(entries: list[IndexEntry] | list[TimeEntry], second_limit: int | None = None) -> bool:
    first, second = zip(*entries, strict=True)
    if second_limit is not None and second[-1] >= second_limit:
        return False
    return list(first) == sorted(set(first)) and list(second) == sorted(set(second))


@given(
    positions=st.lists(st.integers(0, 5000), unique=True).map(sorted),
    start=st.integers(0, 5000),
    length=st.integers(0, 5000),
    most=st.integers(1, 50),
)
def test_a_thinned_index_has_a_few_of_the_entries_of_a_stretch_and_the_first_of_them(
    positions: list[int], start: int, length: int, most: int
) -> None:
    index = OffsetIndex(100)
    for number, position in enumerate(positions):
        index.append(100 + number, position)
    inside = [position for position in positions if start <= position < start + length]
    thinned = positions_in(index.thinned(start, start + length, most))
    assert thinned[:1] == inside[:1]
    assert len(thinned) <= most
    assert set(thinned) <= set(inside)
    every = -(-len(inside) // most)
    assert thinned == inside[:: every or 1], "they are spread"
