"""Lost partitions: an offset checkpoint names them, but they have no segment.

Their offsets stay in the checkpoints. So a repair that gives one up knows where it must continue, and no offset is
reused.
"""

from collections.abc import Collection
from dataclasses import dataclass

from tailrace.log.disk.interface import Files, join
from tailrace.log.files.directory_state import UNSAVED_OFFSETS_MAX, DirectoryState
from tailrace.log.layout.names import (
    CLEANED,
    INTERNAL_TOPICS,
    LOG,
    TopicPartition,
    parse_numbered,
    parse_partition,
    without_remains,
)


@dataclass(frozen=True, slots=True)
class LostPartition:
    """A lost partition, according to the checkpoints. Whether it had records from `end_offset` on is unknown unless
    `is_exact`.
    """

    partition: TopicPartition
    reason: str
    start_offset: int
    end_offset: int
    is_exact: bool = True  # the last stop was clean: there was no record behind the end

    @property
    def is_internal(self) -> bool:
        return self.partition.topic in INTERNAL_TOPICS

    @property
    def next_offset(self) -> int:
        """The offset where the partition continues after it was given up: behind all offsets that it can have had."""
        return self.end_offset if self.is_exact else self.end_offset + UNSAVED_OFFSETS_MAX

    def __str__(self) -> str:
        if self.is_exact:
            return f"{self.partition}: {self.reason}; it had offsets {self.start_offset} to before {self.end_offset}"
        return f"{self.partition}: {self.reason}; it had offsets {self.start_offset} to {self.end_offset} or later"

    def as_json(self) -> dict[str, object]:
        return {
            "partition": str(self.partition),
            "reason": self.reason,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "is_exact": self.is_exact,
        }


def find_lost(files: Files, path: str) -> tuple[LostPartition, ...]:
    """Returns the lost partitions of a data directory. If a broker is running, topics that it removes meanwhile do not
    count.
    """
    lost = _find(files, path)
    if not lost:
        return ()
    again = {one.partition for one in _find(files, path)}
    return tuple(one for one in lost if one.partition in again)


def _find(files: Files, path: str) -> list[LostPartition]:
    state = DirectoryState(files, path)
    directories = files.directories_in(path)
    missing = without_remains(state.missing(directories), directories)  # a removal may have been interrupted
    lost = [_lost(state, partition, "its directory is missing") for partition in missing]
    for name in directories:
        partition = parse_partition(name)
        if partition in state.named and state.is_ours and not holds_segments(files.files_in(join(path, name))):
            lost.append(_lost(state, partition, "its directory has no segment"))
    return sorted(lost, key=lambda one: one.partition)


def _lost(state: DirectoryState, partition: TopicPartition, reason: str) -> LostPartition:
    known = (state.recovery_points, state.start_offsets, state.cleaner_offsets)
    end = max((offsets or {}).get(partition, 0) for offsets in known)
    is_exact = state.clean and partition in (state.recovery_points or {})
    return LostPartition(partition, reason, (state.start_offsets or {}).get(partition, 0), end, is_exact)


def holds_segments(names: Collection[str]) -> bool:
    """Returns whether one of these files is a segment, or a compacted one that is about to be."""
    segments = (name.removesuffix(CLEANED) for name in names)
    return any(parsed is not None and parsed[1] == LOG for parsed in map(parse_numbered, segments))
