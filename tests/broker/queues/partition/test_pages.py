"""Pages say what a list of bytes and a set of free offsets would."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.queues.partition.pages import PAGE_OFFSETS, Pages, pack, unpack
from tailrace.broker.queues.partition.states import RecordState

TERMINAL = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
STATES = st.sampled_from([RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED])
BORDERS = [0, 1, 2, 4_094, 4_095, 4_096, 4_097, 8_191, 8_192, 8_193, 12_287, 12_288, 13_000]
OFFSETS = st.one_of(st.sampled_from(BORDERS), st.integers(0, 13_000))
CHANGES = st.one_of(
    st.tuples(st.just("write"), OFFSETS, OFFSETS, STATES, st.integers(0, 3), st.booleans()),
    st.tuples(st.just("extend"), OFFSETS),
    st.tuples(st.just("advance"), OFFSETS),
    st.tuples(st.just("take"), OFFSETS, OFFSETS),
    st.tuples(st.just("give_back"), OFFSETS, OFFSETS),
)


class Naive:
    def __init__(self) -> None:
        self.start = self.end = 0
        self.values: dict[int, int] = {}
        self.free: set[int] = set()

    def extend(self, end: int) -> None:
        for offset in range(self.end, end):
            self.values[offset] = 0
            self.free.add(offset)
        self.end = max(end, self.end)

    def advance(self, start: int) -> None:
        for offset in range(self.start, start):
            self.values.pop(offset, None)
            self.free.discard(offset)
        self.start = max(start, self.start)
        self.end = max(self.end, self.start)


def _runs(values: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """The runs of equal values of consecutive offsets, which end where pages do."""
    runs: list[tuple[int, int, int]] = []
    for offset, value in values:
        if runs and runs[-1][1] + 1 == offset and runs[-1][2] == value and offset % PAGE_OFFSETS:
            runs[-1] = runs[-1][0], offset, value
        else:
            runs.append((offset, offset, value))
    return runs


@given(st.lists(CHANGES, max_size=25), OFFSETS, OFFSETS)
def test_pages_are_a_list_of_bytes(changes: list[tuple], one: int, other: int) -> None:  # type: ignore[type-arg]
    pages, naive = Pages(0), Naive()
    for name, *values in changes:
        _change(pages, naive, name, values)
        low = min(naive.free, default=None)
        assert pages.lowest_free() == low
    assert (pages.start, pages.end, pages.free) == (naive.start, naive.end, len(naive.free))
    is_open = [offset for offset, value in naive.values.items() if unpack(value)[0] not in TERMINAL]
    assert pages.open == len(is_open)
    assert {value: n for value, n in enumerate(pages.tally) if n} == _tally(naive)
    first, last = max(min(one, other), naive.start), min(max(one, other), naive.end - 1)
    assert pages.first_open(first) == min((offset for offset in is_open if offset >= first), default=pages.end)
    if first <= last:
        values = [(offset, naive.values[offset]) for offset in range(first, last + 1)]
        assert list(pages.runs(first, last)) == _runs(values)
        free = [(offset, value) for offset, value in values if offset in naive.free]
        assert list(pages.free_runs(first, last)) == _runs(free)


def _tally(naive: Naive) -> dict[int, int]:
    tally: dict[int, int] = {}
    for value in naive.values.values():
        tally[value] = tally.get(value, 0) + 1
    return dict(sorted(tally.items()))


def _change(pages: Pages, naive: Naive, name: str, values: list[int]) -> None:
    if name in ("extend", "advance"):
        getattr(pages, name)(values[0])
        getattr(naive, name)(values[0])
        return
    first, last = max(min(values[:2]), naive.start), min(max(values[:2]), naive.end - 1)
    if first > last:
        return
    offsets = range(first, last + 1)
    if name == "write":
        value, is_free = pack(RecordState(values[2]), values[3]), bool(values[4]) and values[2] == RecordState.AVAILABLE
        pages.write(first, last, value, is_free=is_free)
        naive.values |= dict.fromkeys(offsets, value)
        (naive.free.update if is_free else naive.free.difference_update)(offsets)
    elif name == "take":
        pages.take(first, last)
        naive.free.difference_update(offsets)
    elif all(unpack(naive.values[offset])[0] is RecordState.AVAILABLE for offset in offsets):
        pages.give_back(first, last)
        naive.free.update(offsets)


def test_a_count_that_a_byte_cannot_hold_is_the_largest_that_it_can() -> None:
    assert unpack(pack(RecordState.ARCHIVED, 1_000)) == (RecordState.ARCHIVED, 31)


def test_the_start_may_jump_far_ahead() -> None:
    pages = Pages(0)
    pages.extend(100)
    pages.advance(10**17)
    assert (pages.start, pages.end, pages.free, pages.open) == (10**17, 10**17, 0, 0)
    assert pages.lowest_free() is None
    pages.extend(10**17 + 5)
    assert pages.lowest_free() == 10**17
