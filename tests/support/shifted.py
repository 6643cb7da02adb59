"""Shifted bytes: a sealed segment whose batches no longer stand where its indexes and its checksum file say.

`ways_to_shift` are the kinds of damage; `check_reads` asks a log for every offset and accepts the batch that was stored
or an error that names a range, and nothing else.
"""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tailrace.log.layout.errors import Damaged
from tailrace.log.log import Log
from tailrace.log.time_search import FoundTime
from tailrace.records.batch import HEADER_SIZE, split
from tailrace.records.record import decode_records


class Shift(NamedTuple):
    """A damaged file, and the base offsets of the batches whose own bytes were changed, moved past others or lost."""

    content: bytes
    touched: frozenset[int]


def batches_in(content: bytes) -> list[bytes]:
    return [content[position : position + header.size] for position, header in split(content)]


def inserted(content: bytes, number: int, where: str, size: int, filler: int) -> Shift:
    """`size` bytes inserted into batch `number`: before it (a batch boundary), into its header or into its body."""
    position, header = list(split(content))[number]
    at = position + {"boundary": 0, "header": 20, "body": HEADER_SIZE + 5}[where]
    new = bytes(size) if filler == 0 else random.Random(filler).randbytes(size)
    touched = frozenset() if where == "boundary" else frozenset({header.base_offset})
    return Shift(content[:at] + new + content[at:], touched)


def removed(content: bytes, number: int, where: str, size: int) -> Shift:
    """`size` bytes removed from batch `number`, from its first byte, its header or its body on."""
    position, header = list(split(content))[number]
    at = position + {"boundary": 0, "header": 20, "body": HEADER_SIZE + 5}[where]
    gone = range(at, at + size)
    touched = {one.base_offset for start, one in split(content) if start < gone.stop and start + one.size > gone.start}
    return Shift(content[:at] + content[at + size :], frozenset(touched | {header.base_offset}))


def doubled(content: bytes, number: int, behind: int) -> Shift:
    """Batch `number` stands a second time, behind batch `behind`."""
    batches = batches_in(content)
    return Shift(b"".join([*batches[: behind + 1], batches[number], *batches[behind + 1 :]]), frozenset())


def swapped(content: bytes, one: int, other: int) -> Shift:
    batches = batches_in(content)
    batches[one], batches[other] = batches[other], batches[one]
    headers = [header for _, header in split(content)]
    first, last = sorted((one, other))
    return Shift(b"".join(batches), frozenset(header.base_offset for header in headers[first : last + 1]))


def without_batch(content: bytes, number: int) -> Shift:
    position, header = list(split(content))[number]
    return Shift(content[:position] + content[position + header.size :], frozenset({header.base_offset}))


def ways_to_shift(content: bytes) -> Iterator[tuple[str, Shift]]:
    """A sample of each kind, at the first, an inner and the last batch."""
    count = len(batches_in(content))
    for number in (0, count // 2, count - 1):
        for where in ("boundary", "header", "body"):
            for size in (1, 100, 2000):
                for filler in (0, 1):
                    yield (
                        f"{size} inserted, {where} of {number}, {filler}",
                        inserted(content, number, where, size, filler),
                    )
            for size in (1, 100):
                yield f"{size} removed, {where} of {number}", removed(content, number, where, size)
        yield f"{number} doubled", doubled(content, number, number)
        yield f"{number} doubled at the end", doubled(content, number, count - 1)
        yield f"{number} swapped with the next", swapped(content, number, (number + 1) % count)
        yield f"{number} swapped", swapped(content, number, (number + count // 2) % count)
        yield f"{number} gone", without_batch(content, number)


class Stored(NamedTuple):
    """What a log held before it was damaged."""

    batches: dict[int, bytes]  # by each of their offsets
    times: list[FoundTime]

    @classmethod
    def of(cls, contents: list[bytes]) -> "Stored":
        batches, times = {}, []
        for content in contents:
            for position, header in split(content):
                batches.update(
                    dict.fromkeys(
                        range(header.base_offset, header.next_offset), content[position : position + header.size]
                    )
                )
                times += [FoundTime(record.offset, record.timestamp) for record in decode_records(content, position)]
        return cls(batches, times)

    def first_at_or_after(self, timestamp: int) -> FoundTime | None:
        return next((found for found in self.times if found.timestamp >= timestamp), None)

    def offsets_of(self, base_offsets: frozenset[int]) -> set[int]:
        return {
            offset
            for offset, data in self.batches.items()
            for _, header in split(data)
            if header.base_offset in base_offsets
        }


def check_batches(stored: Stored, offset: int, data: bytes) -> int:
    """These bytes are the batches that were stored from `offset` on. Returns the offset behind them."""
    for position, header in split(data):
        assert offset in stored.batches, f"{offset} was never stored"
        assert data[position : position + header.size] == stored.batches[offset], f"another batch for offset {offset}"
        offset = header.next_offset
    return offset


def check_reads(stored: Stored, read: Callable[[int], bytes | tuple[int, int]]) -> set[int]:
    """Asks for every offset; `read` returns batches, or the range that cannot be read. Returns the offsets of those."""
    named: set[int] = set()
    for offset in stored.batches:
        answer = read(offset)
        if isinstance(answer, bytes):
            assert answer, f"nothing for offset {offset}: a consumer would wait for ever"
            check_batches(stored, offset, answer)
        else:
            first, last = answer
            assert first <= offset <= last
            named |= set(range(first, last + 1))
    served = consume(stored, read)
    assert not named & served, "a batch is named as damaged, and served"
    assert named | served == set(stored.batches), "an offset is neither served nor named"
    return named


def consume(stored: Stored, read: Callable[[int], bytes | tuple[int, int]]) -> set[int]:
    """What a consumer gets that begins at the start and goes on behind every range that cannot be read."""
    offset, end = min(stored.batches), max(stored.batches)
    served: set[int] = set()
    while offset <= end:
        answer = read(offset)
        if isinstance(answer, bytes):
            following = check_batches(stored, offset, answer)
            served |= set(range(offset, following))
            offset = following
        else:
            offset = answer[1] + 1
    return served


def read_log(log: Log, max_bytes: int) -> Callable[[int], bytes | tuple[int, int]]:
    def read(offset: int) -> bytes | tuple[int, int]:
        try:
            piece = log.read(offset, max_bytes)
        except Damaged as error:
            return error.damage.first_offset, error.damage.last_offset
        assert piece is not None, f"nothing for offset {offset}: a consumer would wait for ever"
        with piece:
            data = piece.read()
        assert check_next(data) == piece.next_offset
        return data

    return read


def check_next(data: bytes) -> int:
    *_, (_, header) = split(data)
    return header.next_offset


def check_times(stored: Stored, log: Log) -> None:
    """A lookup by time finds the first record of that time, or names damage that may hide it."""
    for timestamp in sorted({found.timestamp for found in stored.times}):
        try:
            found = log.find_time(timestamp)
        except Damaged:
            continue
        assert found == stored.first_at_or_after(timestamp)
