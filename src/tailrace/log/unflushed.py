"""What a log has written and not yet brought to disk: the work of its next flush.

A job *takes* all of it when it begins. What is written while the job runs gathers anew, so nothing can be taken for
flushed that came too late: neither bytes nor the name of a file.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tailrace.log.segment import Segment


@dataclass(slots=True)
class Unflushed:
    segments: list[Segment] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    epochs: bool = False
    topic_id: bool = False
    bytes: int = 0
    records: int = 0

    def __bool__(self) -> bool:
        return bool(self.segments or self.directories or self.epochs or self.topic_id)

    def will_write(self, segment: Segment) -> None:
        """To be told before a segment is written to."""
        if not self.segments or self.segments[-1] is not segment:
            self.segments.append(segment)

    def named(self, *directories: str) -> None:
        """Names in these directories are new."""
        self.directories += [path for path in directories if path not in self.directories]

    def forget(self, segments: Iterable[Segment]) -> None:
        """These are deleted, so all of theirs was flushed, though a write that was refused may have been announced."""
        self.segments = [segment for segment in self.segments if segment not in set(segments)]

    def give_back(self, taken: "Unflushed") -> None:
        """A job has done nothing of what it took."""
        self.segments = [*taken.segments, *(each for each in self.segments if each not in taken.segments)]
        self.named(*taken.directories)
        self.epochs, self.topic_id = self.epochs or taken.epochs, self.topic_id or taken.topic_id
        self.bytes += taken.bytes
        self.records += taken.records

    def take(self) -> "Unflushed":
        """Afterwards this is empty, and all it held is the taker's."""
        taken = Unflushed(self.segments, self.directories, self.epochs, self.topic_id, self.bytes, self.records)
        self.segments, self.directories = [], []
        self.epochs = self.topic_id = False
        self.bytes = self.records = 0
        return taken
