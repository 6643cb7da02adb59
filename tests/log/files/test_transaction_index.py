"""The index of aborted transactions against a plain list."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.files.index import AbortedTransaction, TransactionIndex


def aborted(producer_id: int, first: int, length: int, stable: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id, first, first + length, stable)


ABORTED = st.lists(
    st.builds(aborted, st.integers(0, 1 << 62), st.integers(0, 30), st.integers(0, 10), st.integers(0, 50))
)


def index_of(entries: list[AbortedTransaction]) -> TransactionIndex:
    index = TransactionIndex()
    for entry in entries:
        index.append(entry)
    return index


def test_entries_are_stored_as_kafka_stores_them() -> None:
    index = index_of([AbortedTransaction(4711, 10, 20, 15)])
    assert index.data == struct.pack(">hqqqq", 0, 4711, 10, 20, 15)


@given(ABORTED)
def test_an_index_read_from_its_bytes_has_the_same_entries_and_is_sound(entries: list[AbortedTransaction]) -> None:
    index = TransactionIndex(bytes(index_of(entries).data))
    assert list(index) == entries
    assert index.is_sound()


@given(ABORTED, st.integers(0, 45), st.integers(1, 45))
def test_a_stretch_overlaps_the_transactions_with_an_offset_in_it(
    entries: list[AbortedTransaction], first: int, length: int
) -> None:
    stretch = range(first, first + length)
    expected = [e for e in entries if set(stretch) & set(range(e.first_offset, e.last_offset + 1))]
    assert index_of(entries).overlapping(first, first + length) == expected


@given(ABORTED, st.integers(0, 45))
def test_transactions_whose_marker_is_cut_off_are_forgotten(entries: list[AbortedTransaction], offset: int) -> None:
    index = index_of(entries)
    index.keep_before(offset)
    assert list(index) == [entry for entry in entries if entry.last_offset < offset]


def test_an_index_cut_inside_of_an_entry_is_not_sound() -> None:
    data = bytes(index_of([AbortedTransaction(1, 2, 3, 4), AbortedTransaction(5, 6, 7, 8)]).data)
    for size in range(len(data) + 1):
        assert TransactionIndex(data[:size]).is_sound() == (size % 34 == 0)


def test_an_index_of_another_version_or_with_offsets_the_wrong_way_round_is_not_sound() -> None:
    good = index_of([AbortedTransaction(1, 2, 3, 4)])
    assert not TransactionIndex(good.data + struct.pack(">hqqqq", 1, 1, 2, 3, 4)).is_sound()
    assert not TransactionIndex(good.data + struct.pack(">hqqqq", 0, 1, 3, 2, 4)).is_sound()
