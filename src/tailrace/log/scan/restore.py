"""Restores batches that a log lacks after a crash, from the journal.

A segment is walked from batch to batch. At its end, or at a bad batch, the journal may have exactly the batch that is
due: of the same log, topic, segment and position, and with the expected offset. If so, it is written there, with those
that follow it, and the walk goes on. So sound batches are never changed, and the journal's copies of records that were
deleted or compacted since do no harm.
"""

from collections.abc import Iterable, Iterator

from tailrace.log.disk.interface import Data
from tailrace.log.files.journal_file import JournalEntry
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.names import parse_numbered
from tailrace.log.scan.scan import Boundary, FoundBatch, ScanRange
from tailrace.log.scan.walk import walk
from tailrace.records.batch import EXTENT, HEADER_SIZE, LENGTH_END


class JournaledLog:
    """The batches that the journal has of one log, by segment and position."""

    def __init__(self) -> None:
        self._batches: dict[tuple[int, int], memoryview] = {}

    def add(self, segment: int, position: int, data: Data) -> None:
        view = memoryview(data)
        while len(view) >= HEADER_SIZE:
            size = LENGTH_END + EXTENT.unpack_from(view)[1]
            if not HEADER_SIZE <= size <= len(view):
                return
            self._batches[segment, position] = view[:size]  # the later one wins: the log was truncated in between
            view, position = view[size:], position + size

    def batches_at(self, segment: int, position: int, offset: int) -> Iterator[memoryview]:
        """Yields the batch with this position and offset, and those that follow it."""
        while (batch := self._batches.get((segment, position))) is not None:
            base_offset, _, last_offset_delta = EXTENT.unpack_from(batch)
            if base_offset != offset:
                return
            yield batch
            position, offset = position + len(batch), base_offset + last_offset_delta + 1

    def runs_from(self, offset: int) -> list[tuple[int, bytes]]:
        """Returns the batches with records from `offset` on, in groups without gaps: the first offset of each group,
        and its bytes.
        """
        runs: list[tuple[int, list[memoryview]]] = []
        end = -1
        for batch in sorted(self._batches.values(), key=lambda one: int(EXTENT.unpack_from(one)[0])):
            base_offset, _, last_offset_delta = EXTENT.unpack_from(batch)
            if base_offset < max(offset, end):
                continue
            if base_offset != end:
                runs.append((base_offset, []))
            runs[-1][1].append(batch)
            end = base_offset + last_offset_delta + 1
        return [(first, b"".join(batches)) for first, batches in runs]

    def has(self, damage: DamagedRange) -> bool:
        """Returns whether the journal has the batch that is due where the bad bytes begin."""
        parsed = parse_numbered(damage.file)
        if parsed is None:
            return False
        return any(True for _ in self.batches_at(parsed[0], damage.position, damage.first_offset))


Journaled = dict[tuple[bytes, bytes], JournaledLog]  # by the directory's name and the topic's id


def by_log(entries: Iterable[JournalEntry]) -> Journaled:
    found: Journaled = {}
    for name, topic_id, segment, position, data in entries:
        found.setdefault((name, topic_id), JournaledLog()).add(segment, position, data)
    return found


def restore(journaled: JournaledLog, restored: ScanRange, segment: int) -> int:
    """Restores the segment where the batches of the range end or are bad. Returns the new size of its file."""
    written, size = -1, restored.end
    while True:
        for position, offset in _missing(restored._replace(end=size)):
            data = b"".join(journaled.batches_at(segment, position, offset))
            if data and position > written:
                restored.file.write_at(position, data)
                restored, written, size = restored.after(position, offset), position, max(size, position + len(data))
                break
        else:
            return size


def _missing(searched: ScanRange) -> Iterator[Boundary]:
    """Yields each position and offset where a batch is due but not found, including the end of the range."""
    position, offset = searched.position, searched.expected
    for item in walk(searched):
        if isinstance(item, FoundBatch):
            position, offset = item.position + item.header.size, item.header.next_offset
        else:
            yield Boundary(item.position, item.first_offset)
            position, offset = item.end, item.last_offset + 1
    yield Boundary(position, offset)
