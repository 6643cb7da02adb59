"""A journal write: what several logs have appended since they were last safe, written to the journal at once.

Like the jobs of one log (`log/jobs`) it has three steps: begun by the owner of the logs, run in any thread, finished by
the owner. What it wrote counts, and readers see it; the logs' own files are still to be synced, which nobody waits for.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.log.disk.interface import Data
from tailrace.log.files.journal_file import JournalEntry
from tailrace.log.flush.journal import Journal
from tailrace.log.layout.errors import without_frames
from tailrace.log.log import Log
from tailrace.log.reader import Position
from tailrace.log.segment.segment import Segment

JOURNAL_BYTES_PER_LOG_MAX = 128 << 10  # of one log: more is better synced where it is
JOURNAL_WRITE_LOGS_MAX = 256
JOURNAL_WRITE_BYTES_TARGET = 512 << 10  # of all logs: what is beyond goes into the next one


class Noted(NamedTuple):
    """A log as it was when the journal write began."""

    log: Log
    segment: Segment
    start: int
    end: Position
    target: int


def bytes_to_journal(log: Log) -> int:
    """How much of the log a journal write would take: 0 where there is nothing, or too much, or where bytes of one file
    are not all that is missing, as something new has to be named, or a flush under way does more than sync that file.
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
    def __init__(self, journal: Journal, logs: Sequence[Log], batch: Data | None = None) -> None:
        """Of logs that have something to write, and for which there is room. Where that is the last batch of one log,
        and at hand, it need not be read again.
        """
        self.logs = logs
        self.error: Exception | None = None  # the journal's
        self._journal = journal
        self._batch = batch
        self._noted: list[Noted] = []
        self._written: list[Noted] = []
        for log in logs:
            self._noted.append(noted := _note(log))
            journal.hold(log, noted.target)

    def run(self) -> None:
        written, entries = [], []
        try:
            for noted in self._noted:
                if (entry := _entry_of(noted, self._batch)) is not None:
                    written.append(noted)
                    entries.append(entry)
            self._journal.write(entries)
            self._written = written
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody knows what the journal has then
            self.error = without_frames(error)

    def finish(self) -> list[Log]:
        """The logs of which nothing was written: they have to be synced themselves."""
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


def _entry_of(noted: Noted, batch: Data | None) -> JournalEntry | None:
    """None where the log was removed meanwhile, or cannot be read."""
    log, segment, start, end, _ = noted
    try:
        # What is read is in the page cache: it was just written.
        data = segment.log.read_at(start, end.position - start) if batch is None else batch
    except OSError:
        return None
    assert log.topic_id is not None
    assert len(data) == end.position - start
    return JournalEntry(log.name, log.topic_id, segment.base_offset, start, data)
