"""The state of each record between the start and the end of a share partition, in pages of 4,096 offsets.

A record is one byte: its persisted state and delivery count. Beside it, a page has two sets of bits: `open`, records
that are not finished, and `free`, records that may be acquired now. A page of equal bytes shares them with all such
pages, so a run of records costs the same whether it is short or long.

An offset that nothing was written for is available, and was never delivered.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice

from tailrace.broker.queues.partition.states import COUNT_MAX, TERMINAL, RecordState

_BITS = 12
PAGE_OFFSETS = 1 << _BITS
_LAST = PAGE_OFFSETS - 1
_COUNT_BITS = 5
_UNIFORM = tuple(bytes([value]) * PAGE_OFFSETS for value in range(256))
_BYTE = tuple(bytes([value]) for value in range(256))


def pack(state: RecordState, count: int) -> int:
    return state << _COUNT_BITS | min(count, COUNT_MAX)


def unpack(value: int) -> tuple[RecordState, int]:
    return _STATES[value >> _COUNT_BITS], value & COUNT_MAX


_STATES = tuple(RecordState)
_IS_TERMINAL = tuple(value >> _COUNT_BITS in TERMINAL for value in range(256))


def page_pieces(first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yields the pages of a range: the number of each, and the first and last position in it."""
    number, a = first >> _BITS, first & _LAST
    end, z = last >> _BITS, last & _LAST
    while number < end:
        yield number, a, _LAST
        number, a = number + 1, 0
    yield number, a, z


def page_ranges(first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yields the pages of a range: the number of each, and the first and last offset in it."""
    for number, a, z in page_pieces(first, last):
        base = number << _BITS
        yield number, base | a, base | z


def _mask(a: int, z: int) -> int:
    return ((1 << (z - a + 1)) - 1) << a


def _runs_of_ones(bits: int) -> Iterator[tuple[int, int]]:
    """Yields the first and last position of each run of ones."""
    position = 0
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        bits >>= skipped
        length = (~bits & (bits + 1)).bit_length() - 1
        position += skipped
        yield position, position + length - 1
        bits >>= length
        position += length


class Page:
    __slots__ = ("data", "free", "is_queued", "open")

    def __init__(self) -> None:
        self.data: bytes | bytearray = _UNIFORM[0]
        self.open = 0
        self.free = 0
        self.is_queued = False  # among the pages that may have free records


class Pages:
    """`start` and `end` bound the records that have a state; neither ever goes back."""

    def __init__(self, start: int) -> None:
        self._begin(start)

    def _begin(self, start: int) -> None:
        self.start = start
        self.end = start
        self.open = 0  # records
        self.free = 0  # records
        self.tally = [0] * 256  # records of each byte
        self._pages: dict[int, Page] = {}
        self._queue: list[int] = []  # numbers of pages that may have free records

    # Change

    def extend(self, end: int) -> None:
        """Moves the end; records before it are available from now on."""
        if end <= self.end:
            return
        for number, a, z in page_pieces(self.end, end - 1):
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = Page()
            mask = _mask(a, z)
            self._set_bits(number, page, page.open | mask, page.free | mask)
        self.tally[0] += end - self.end
        self.end = end

    def write(self, first: int, last: int, value: int, *, is_free: bool) -> None:
        """Sets records, which are between start and end, to a value. `is_free` counts for available ones."""
        is_open = not _IS_TERMINAL[value]
        for number, a, z in page_pieces(first, last):
            page = self._pages[number]
            self._write_bytes(page, a, z, value)
            mask = _mask(a, z)
            opened = page.open | mask if is_open else page.open ^ (page.open & mask)
            self._set_bits(number, page, opened, page.free | mask if is_free else page.free ^ (page.free & mask))
            if not page.open and isinstance(page.data, bytearray):
                _share_if_uniform(page)

    def _write_bytes(self, page: Page, a: int, z: int, value: int) -> None:
        length = z - a + 1
        self._untally(page.data[a : z + 1])
        self.tally[value] += length
        if length == PAGE_OFFSETS:
            page.data = _UNIFORM[value]
            return
        data = page.data
        if not isinstance(data, bytearray):
            data = page.data = bytearray(data)
        if length == 1:
            data[a] = value
        else:
            data[a : z + 1] = _UNIFORM[value][:length]

    def _untally(self, values: bytes | bytearray) -> None:
        first, length = values[0], len(values)
        if length == 1 or values.count(first) == length:
            self.tally[first] -= length
            return
        for value in set(values):
            self.tally[value] -= values.count(value)

    def _set_bits(self, number: int, page: Page, is_open: int, free: int) -> None:
        if is_open != page.open:
            self.open += is_open.bit_count() - page.open.bit_count()
            page.open = is_open
        if free != page.free:
            self.free += free.bit_count() - page.free.bit_count()
            page.free = free
        if free and not page.is_queued:
            page.is_queued = True
            heappush(self._queue, number)

    def take(self, first: int, last: int) -> None:
        """These records may not be acquired for now."""
        for number, a, z in page_pieces(first, last):
            page = self._pages[number]
            self._set_bits(number, page, page.open, page.free & ~_mask(a, z))

    def give_back(self, first: int, last: int) -> None:
        """These records, which are available, may be acquired again."""
        for number, a, z in page_pieces(first, last):
            page = self._pages[number]
            self._set_bits(number, page, page.open, page.free | _mask(a, z))

    def advance(self, start: int) -> None:
        """Moves the start, and forgets what is before it."""
        if start <= self.start:
            return
        if start > self.end:
            self._begin(start)
            return
        for number, a, z in page_pieces(self.start, start - 1):
            page = self._pages[number]
            self._untally(page.data[a : z + 1])
            kept = ~_mask(a, z)
            self._set_bits(number, page, page.open & kept, page.free & kept)
            if z == _LAST:
                del self._pages[number]
        self.start = start

    # Questions

    def runs(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yields the runs of equal bytes in a range that is between start and end: first, last, byte. They end where
        pages do.
        """
        for number, a, z in page_pieces(first, last):
            data = self._pages[number].data
            offset = number << _BITS | a
            if a == z:
                yield offset, offset, data[a]
                continue
            rest = data[a : z + 1]
            while rest:
                value, before = rest[0], len(rest)
                rest = rest.lstrip(_BYTE[value])
                length = before - len(rest)
                yield offset, offset + length - 1, value
                offset += length

    def free_runs(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yields the runs of free records of equal bytes in a range that is between start and end. The records of one
        may be taken before the next is asked for.
        """
        for number, a, z in page_pieces(first, last):
            base = number << _BITS | a
            for one, other in _runs_of_ones((self._pages[number].free >> a) & _mask(0, z - a)):
                yield from self.runs(base + one, base + other)

    def free_in(self, first: int, last: int) -> int:
        """Returns how many records may be acquired in a range that is between start and end."""
        pages = ((self._pages[number], a, z) for number, a, z in page_pieces(first, last))
        return sum((page.free & _mask(a, z)).bit_count() for page, a, z in pages)

    def open_in(self, first: int, last: int) -> int:
        """Returns how many records are not finished in a range that is between start and end."""
        pages = ((self._pages[number], a, z) for number, a, z in page_pieces(first, last))
        return sum((page.open & _mask(a, z)).bit_count() for page, a, z in pages)

    def is_free(self, offset: int) -> bool:
        return bool(self._pages[offset >> _BITS].free >> (offset & _LAST) & 1)

    def is_open(self, offset: int) -> bool:
        return bool(self._pages[offset >> _BITS].open >> (offset & _LAST) & 1)

    def lowest_free(self) -> int | None:
        """Returns the first record that may be acquired."""
        queue = self._queue
        while queue:
            number = queue[0]
            page = self._pages.get(number)
            if page is not None and page.free:
                return number << _BITS | ((page.free & -page.free).bit_length() - 1)
            heappop(queue)
            if page is not None:
                page.is_queued = False
        return None

    def end_of_free(self, first: int, pages_max: int) -> tuple[int, bool]:
        """Returns the last free record from `first`, which is one, before the next page without any, and whether all
        pages to the end have some.
        """
        last, number = first, first >> _BITS
        for n in range(number, number + pages_max):
            page = self._pages.get(n)
            if page is None or not page.free:
                break
            last = n << _BITS | (page.free.bit_length() - 1)
            if (n + 1) << _BITS >= self.end:
                return last, True
        return last, False

    def first_open(self, offset: int) -> int:
        """Returns the first record from `offset` on that is not finished, or the end."""
        if offset >= self.end:
            return self.end
        for number, a, _ in page_pieces(offset, self.end - 1):
            if bits := self._pages[number].open >> a:
                return (number << _BITS | a) + (bits & -bits).bit_length() - 1
        return self.end

    def changed(self, offset: int, ranges_max: int) -> tuple[list[tuple[int, int, int]], int]:
        """Returns runs from `offset` on that differ from available and never delivered, at most `ranges_max` and of as
        many pages, and the offset to go on from.
        """
        found: list[tuple[int, int, int]] = []
        offset = max(offset, self.start)
        pages = page_ranges(offset, self.end - 1) if offset < self.end else ()
        for number, first, last in islice(pages, ranges_max):
            if self._pages[number].data is not _UNIFORM[0]:
                for run in self.runs(first, last):
                    if run[2]:
                        found.append(run)
                    if len(found) >= ranges_max:
                        return found, run[1] + 1
            offset = last + 1
        return found, offset


def _share_if_uniform(page: Page) -> None:
    value = page.data[0]
    if page.data.count(value) == PAGE_OFFSETS:
        page.data = _UNIFORM[value]
