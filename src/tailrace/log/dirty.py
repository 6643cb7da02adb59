"""The writes of a log that are not on disk yet: the work of its next flush.

A job *takes* all of it when it begins. What is written from then on gathers anew, so nothing can be taken for flushed
that came too late: neither bytes nor the name of a file. A job that is about to sync looks once more: batches that have
come meanwhile, behind those that it took, are synced along with them (`more_of`, `synced`).
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
"""What `Written` does, without a call of Python's: each append makes one."""


class UnflushedWrites:
    __slots__ = ("directories", "epochs", "segments", "topic_id", "written")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.directories: list[str] = []
        self.epochs = False
        self.topic_id = False
        self.written = NOTHING  # replaced as a whole: threads look at it

    @property
    def bytes(self) -> int:
        return self.written.bytes

    @property
    def records(self) -> int:
        return self.written.records

    def __bool__(self) -> bool:
        return bool(self.segments or self.directories or self.epochs or self.topic_id)

    def will_write(self, segment: Segment) -> None:
        """To be told before a segment is written to."""
        if not self.segments or self.segments[-1] is not segment:
            self.segments.append(segment)

    def wrote(self, size: int, records: int) -> None:
        """To be told when a batch is written, all of it."""
        before = self.written
        self.written = _as_written((before[0] + size, before[1] + records))

    def more_of(self, segment: Segment) -> Written:
        """What was written to this segment, if all that there is to do is to sync it: from any thread. Whatever else is
        to be done is noted before what needs it is written.
        """
        written = self.written
        is_all = all(one is segment for one in self.segments) and not (self.directories or self.epochs or self.topic_id)
        return written if is_all else NOTHING

    def synced(self, segment: Segment, more: Written) -> None:
        """Of the segment, this much is on disk by now."""
        self.written = Written(self.bytes - more.bytes, self.records - more.records)
        if self.written == NOTHING:
            self.forget([segment])

    def named(self, *directories: str) -> None:
        """Names in these directories are new."""
        self.directories += [path for path in directories if path not in self.directories]

    def forget(self, segments: Iterable[Segment]) -> None:
        """These are deleted, so all of theirs was flushed, though a write that was refused may have been announced."""
        self.segments = [segment for segment in self.segments if segment not in set(segments)]

    def give_back(self, taken: "UnflushedWrites") -> None:
        """A job has done nothing of what it took."""
        self.segments = [*taken.segments, *(each for each in self.segments if each not in taken.segments)]
        self.named(*taken.directories)
        self.epochs, self.topic_id = self.epochs or taken.epochs, self.topic_id or taken.topic_id
        self.wrote(*taken.written)

    def take(self) -> "UnflushedWrites":
        """Afterwards this is empty, and all it held is the taker's."""
        taken = UnflushedWrites()
        taken.segments, self.segments = self.segments, []
        taken.directories, self.directories = self.directories, []
        taken.epochs, self.epochs = self.epochs, False
        taken.topic_id, self.topic_id = self.topic_id, False
        taken.written, self.written = self.written, NOTHING
        return taken
