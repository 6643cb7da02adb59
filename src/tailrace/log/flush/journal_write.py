"""A journal write: batches that several logs have appended, written to the journal at once.

Like the jobs of a log (`log/jobs`), it has three steps: begun by the owner of the logs, run in any thread, finished by
the owner. What it wrote counts as flushed, and readers see it. The logs' own files are synced later; no caller waits
for that.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.log.files.journal_file import JournalEntry
from tailrace.log.flush.journal import Journal
from tailrace.log.layout.errors import without_frames
from tailrace.log.log import Log
from tailrace.log.segment.segment import Segment
from tailrace.log.view import Position

JOURNAL_BYTES_PER_LOG_MAX = 128 << 10  # of one log: a larger range is better synced in its own file
JOURNAL_WRITE_LOGS_MAX = 256
JOURNAL_WRITE_BYTES_TARGET = 512 << 10  # of all logs: the rest goes into the next write


class Noted(NamedTuple):
    """A log as it was when the journal write began."""

    log: Log
    segment: Segment
    start: int
    end: Position
    target: int


def bytes_to_journal(log: Log) -> int:
    """Returns how many bytes of the log a journal write would take. Returns 0 if there are none, or too many; or if
    more than these bytes must be made durable: new names, or a flush under way that does more than sync this file.
    """
    visible, active, unflushed, flushing = log.view.visible, log.view.segments[-1], log.unflushed, log.flushing
    size = active.size - visible.position
    if (
        size > JOURNAL_BYTES_PER_LOG_MAX
        or visible.segment_base != active.base_offset
        or unflushed.directories
        or unflushed.epochs
        or unflushed.topic_id
        or log.topic_id is None
        or (flushing is not None and flushing.only_file is None)
        or log.refusal is not None
    ):
        return 0
    return size


class JournalWriteJob:
    def __init__(self, journal: Journal, logs: Sequence[Log]) -> None:
        """All `logs` must have bytes to write, and the journal must have room for them."""
        self.logs = logs
        self.error: Exception | None = None  # of the journal
        self._journal = journal
        self._noted: list[Noted] = []
        self._written: list[Noted] = []
        for log in logs:
            self._noted.append(noted := _note(log))
            journal.hold(log, noted.target)

    def run(self) -> None:
        written, entries = [], []
        try:
            for noted in self._noted:
                if (entry := _entry_of(noted)) is not None:
                    written.append(noted)
                    entries.append(entry)
            self._journal.write(entries)
            self._written = written
        except Exception as error:  # noqa: BLE001 - after any error, the contents of the journal are unknown
            self.error = without_frames(error)

    def finish(self) -> list[Log]:
        """Returns the logs that are not in the write: their own files must be synced."""
        for log, _, _, end, target in self._written:
            if not log.is_removed:
                log.flushed(target, end)
        if len(self._written) == len(self._noted):
            return []
        return [one.log for one in self._noted if one not in self._written and not one.log.is_removed]


def _note(log: Log) -> Noted:
    view, active = log.view, log.view.segments[-1]
    end = Position(active.base_offset, active.size)
    return Noted(log, active, view.visible.position, end, log.bounds.end)


def _entry_of(noted: Noted) -> JournalEntry | None:
    """Returns None if the log was removed meanwhile, or cannot be read."""
    log, segment, start, end, _ = noted
    try:
        # This reads from the page cache: the bytes were just written.
        data = segment.log.read_at(start, end.position - start)
    except OSError:
        return None
    assert log.topic_id is not None
    assert len(data) == end.position - start
    return JournalEntry(log.name, log.topic_id, segment.base_offset, start, data)
