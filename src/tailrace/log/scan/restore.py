"""Restores what a log lacks after a crash and the journal has.

A segment is walked from batch to batch. Where they end, or one is bad, the journal may have the very batch that is due
there: of this log and topic, for this place in this segment, and with this offset. If so it is written where it
belongs, with those that follow it, and the walk goes on. So what is whole is never changed, and what the journal has of
records that were deleted or compacted since does no harm.
"""

from collections.abc import Iterable, Iterator

from tailrace.log.disk.interface import Data, File
from tailrace.log.files.journal_file import JournalEntry
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.names import parse_numbered
from tailrace.log.scan.scan import FoundBatch
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
            self._batches[segment, position] = view[:size]  # of two the later one: the log was cut in between
            view, position = view[size:], position + size

    def batches_at(self, segment: int, position: int, offset: int) -> Iterator[memoryview]:
        """The batch that has this place and offset, and those that follow it."""
        while (batch := self._batches.get((segment, position))) is not None:
            base_offset, _, last_offset_delta = EXTENT.unpack_from(batch)
            if base_offset != offset:
                return
            yield batch
            position, offset = position + len(batch), base_offset + last_offset_delta + 1

    def runs_from(self, offset: int) -> list[tuple[int, bytes]]:
        """The batches with records from `offset` on, without gaps in each run: its first offset, and its bytes."""
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
        """Whether the batch that is due where bad bytes begin is here."""
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


def restore(
    journaled: JournaledLog,
    file: File,
    size: int,
    *,
    segment: int,
    position: int,
    offset: int,
    gaps: bool,
    epochs: LeaderEpochs | None,
) -> int:
    """Afterwards the segment, walked from a place where a batch of this offset is due, has what the journal has of it.
    Returns its size.
    """
    restored = -1
    while True:
        for position, offset in _missing(file, position, size, offset, gaps, epochs):  # noqa: B020 - from there on
            data = b"".join(journaled.batches_at(segment, position, offset))
            if data and position > restored:
                file.write_at(position, data)
                restored, size = position, max(size, position + len(data))
                break
        else:
            return size


def _missing(
    file: File, position: int, size: int, offset: int, gaps: bool, epochs: LeaderEpochs | None
) -> Iterator[tuple[int, int]]:
    """Where no batch is found although one is due, with its offset; the end of the file is such a place."""
    for item in walk(file, position, size, offset, gaps=gaps, epochs=epochs):
        if isinstance(item, FoundBatch):
            position, offset = item.position + item.header.size, item.header.next_offset
        else:
            yield item.position, item.first_offset
            position, offset = item.end, item.last_offset + 1
    yield position, offset
