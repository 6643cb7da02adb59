"""The index of aborted transactions against a plain list."""

import struct
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.files import index as index_module
from tailrace.log.files.index import AbortedTransaction, TransactionIndex

PRODUCERS_MAX = 4


def aborted_in(steps: list[tuple[int, str]]) -> list[AbortedTransaction]:
    """What a log lists as aborted after these steps: each is a producer, and its next batch or marker."""
    entries: list[AbortedTransaction] = []
    started: dict[int, int] = {}
    for offset, (producer, step) in enumerate(steps):
        if step == "data":
            started.setdefault(producer, offset)
        elif producer in started:
            first = started.pop(producer)
            if step == "abort":
                entries.append(AbortedTransaction(producer, first, offset, min(started.values(), default=offset + 1)))
    return entries


STEPS = st.tuples(st.integers(0, PRODUCERS_MAX), st.sampled_from(["data", "data", "abort", "commit"]))
ABORTED = st.lists(STEPS, max_size=60).map(aborted_in)


class IndexOfPairs(TransactionIndex):
    BLOCK = 2


def index_of(
    entries: list[AbortedTransaction], make: Callable[[], TransactionIndex] = TransactionIndex
) -> TransactionIndex:
    index = make()
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


@pytest.mark.parametrize("make", [TransactionIndex, IndexOfPairs])
@given(ABORTED, st.integers(0, 65), st.integers(1, 65))
def test_a_lookup_finds_what_a_scan_of_all_entries_finds(
    make: Callable[..., TransactionIndex], entries: list[AbortedTransaction], first: int, length: int
) -> None:
    wanted = range(first, first + length)
    expected = [e for e in entries if set(wanted) & set(range(e.first_offset, e.last_offset + 1))]
    index = index_of(entries, make)
    for same in (index, index.copy(), make(index.data)):
        found = same.overlapping(first, first + length)
        assert found.transactions == expected
        assert found.is_complete == any(e.last_stable_offset >= wanted.stop for e in entries)


@given(ABORTED, st.integers(0, 20), st.integers(0, 65), st.integers(1, 65))
def test_no_segment_behind_a_complete_lookup_has_another_one(
    entries: list[AbortedTransaction], number: int, first: int, length: int
) -> None:
    number = min(number, len(entries))
    if index_of(entries[:number]).overlapping(first, first + length).is_complete:
        assert index_of(entries[number:]).overlapping(first, first + length).transactions == []


class CountedStruct:
    """A struct of the index that counts the entries which are unpacked."""

    def __init__(self, layout: str, counts: list[int]) -> None:
        self._struct = struct.Struct(layout)
        self._counts = counts

    def unpack_from(self, data: bytes, position: int) -> tuple[int, ...]:
        self._counts[0] += 1
        return self._struct.unpack_from(data, position)

    def iter_unpack(self, data: bytes) -> Iterator[tuple[int, ...]]:
        for fields in self._struct.iter_unpack(data):
            self._counts[0] += 1
            yield fields


def test_a_lookup_among_100000_transactions_unpacks_hardly_more_than_among_100(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (index_of(aborted_in([(0, "data"), (0, "abort")] * count)) for count in (100, 100_000))
    counts = [0]
    for name in ("_TRANSACTION_ENTRY", "_TRANSACTION_LAST_OFFSET"):
        monkeypatch.setattr(index_module, name, CountedStruct(getattr(index_module, name).format, counts))

    def unpacked(index: TransactionIndex, first: int) -> int:
        counts[0] = 0
        assert len(index.overlapping(first, first + 20).transactions) == 10
        return counts[0]

    among_few = max(unpacked(few, first) for first in range(0, 180, 20))
    among_many = max(unpacked(many, first) for first in range(0, 199_980, 20_000))
    assert among_many <= among_few + 10, "the logarithm of a thousand"


def test_a_lookup_passes_over_what_was_aborted_beside_a_transaction_that_stayed_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = index_of(aborted_in([(1, "data"), *[(0, "data"), (0, "abort")] * 100_000, (1, "abort")]))
    counts = [0]
    for name in ("_TRANSACTION_ENTRY", "_TRANSACTION_LAST_OFFSET"):
        monkeypatch.setattr(index_module, name, CountedStruct(getattr(index_module, name).format, counts))
    for first in (1, 99_999, 199_981):
        counts[0] = 0
        assert len(index.overlapping(first, first + 20).transactions) == 11
        assert counts[0] < 2_000, "of 100,001"


@given(ABORTED, st.integers(0, 65))
def test_transactions_whose_marker_is_cut_off_are_forgotten(entries: list[AbortedTransaction], offset: int) -> None:
    index = index_of(entries, IndexOfPairs)
    index.keep_before(offset)
    kept = [entry for entry in entries if entry.last_offset < offset]
    assert list(index) == kept
    later = [entry for entry in entries if entry.last_offset >= offset]
    for entry in later:
        index.append(entry)
    assert index.overlapping(0, 100).transactions == entries


def test_an_index_cut_inside_of_an_entry_is_not_sound() -> None:
    data = bytes(index_of([AbortedTransaction(1, 2, 3, 4), AbortedTransaction(5, 6, 7, 8)]).data)
    for size in range(len(data) + 1):
        assert TransactionIndex(data[:size]).is_sound() == (size % 34 == 0)


def test_an_index_of_another_version_or_with_falling_offsets_is_not_sound() -> None:
    good = index_of([AbortedTransaction(1, 2, 3, 4)])
    assert not TransactionIndex(good.data + struct.pack(">hqqqq", 1, 1, 2, 3, 4)).is_sound()
    assert not TransactionIndex(good.data + struct.pack(">hqqqq", 0, 1, 3, 2, 4)).is_sound()
