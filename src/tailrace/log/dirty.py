"""The writes of a log that are not on disk yet: the work of its next flush.

A job takes all of them when it begins. Later writes are collected anew, so that a write that came too late is never
counted as flushed: neither bytes nor the name of a file. Just before it syncs, a job looks once more: batches that were
written since, behind those that it took, are synced along with them (`more_of`, `synced`).
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from tailrace.log.segment.segment import Segment


class Written(NamedTuple):
    bytes: int
    records: int


NOTHING = Written(0, 0)
_as_written: Callable[[tuple[int, int]], Written] = partial(tuple.__new__, Written)
"""Like `Written`, but without a call of a Python function: every append makes one."""


class UnflushedWrites:
    __slots__ = ("directories", "epochs", "segments", "topic_id", "written")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.directories: list[str] = []
        self.epochs = False
        self.topic_id = False
        self.written = NOTHING  # replaced as a whole: other threads read it

    @property
    def bytes(self) -> int:
        return self.written.bytes

    @property
    def records(self) -> int:
        return self.written.records

    def __bool__(self) -> bool:
        return bool(self.segments or self.directories or self.epochs or self.topic_id)

    def will_write(self, segment: Segment) -> None:
        """Must be called before a segment is written to."""
        if not self.segments or self.segments[-1] is not segment:
            self.segments.append(segment)

    def wrote(self, size: int, records: int) -> None:
        """Must be called after a whole batch was written."""
        before = self.written
        self.written = _as_written((before[0] + size, before[1] + records))

    def more_of(self, segment: Segment) -> Written:
        """Returns what was written to this segment, if a sync of it is all that is left to do; else nothing. May be
        called from any thread: any other work is noted before the write that needs it.
        """
        written = self.written
        is_all = all(one is segment for one in self.segments) and not (self.directories or self.epochs or self.topic_id)
        return written if is_all else NOTHING

    def synced(self, segment: Segment, more: Written) -> None:
        """Notes that this much of the segment is on disk now."""
        self.written = Written(self.bytes - more.bytes, self.records - more.records)
        if self.written == NOTHING:
            self.forget([segment])

    def named(self, *directories: str) -> None:
        """Notes that names in these directories are new."""
        self.directories += [path for path in directories if path not in self.directories]

    def forget(self, segments: Iterable[Segment]) -> None:
        """Drops these segments, which are deleted: all their batches were flushed, but a refused write may have
        announced one.
        """
        self.segments = [segment for segment in self.segments if segment not in set(segments)]

    def give_back(self, taken: "UnflushedWrites") -> None:
        """Puts back the writes of a job that has done nothing."""
        self.segments = [*taken.segments, *(each for each in self.segments if each not in taken.segments)]
        self.named(*taken.directories)
        self.epochs, self.topic_id = self.epochs or taken.epochs, self.topic_id or taken.topic_id
        self.wrote(*taken.written)

    def take(self) -> "UnflushedWrites":
        """Returns all writes, and leaves this object empty."""
        taken = UnflushedWrites()
        taken.segments, self.segments = self.segments, []
        taken.directories, self.directories = self.directories, []
        taken.epochs, self.epochs = self.epochs, False
        taken.topic_id, self.topic_id = self.topic_id, False
        taken.written, self.written = self.written, NOTHING
        return taken
