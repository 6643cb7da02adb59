"""Where logs lie: the partitions that a path leads to, and how their data directory was left.

For tools that look at a directory without opening it: nothing is written, nothing is locked, and a broker may be at
work in it. What is said of the data directory is read before the logs are, so that it never speaks of more than
they hold. The start of a log is the exception: a broker that deletes moves it first, so it is read again where a
log seems to lack its beginning.
"""

from dataclasses import dataclass, field, replace
from math import inf

from tailrace.log.checkpoints import (
    CLEAN_SHUTDOWN,
    RECOVERY_POINTS,
    START_OFFSETS,
    CorruptCheckpoint,
    decode_offsets,
)
from tailrace.log.directory import FORMAT_FILE
from tailrace.log.errors import LogError
from tailrace.log.files import Files, join, name_of, parent, read_whole
from tailrace.log.names import LOG, TopicPartition, parse_numbered, parse_partition


class NoLogHere(LogError):
    """The path leads to neither a partition nor a data directory."""


@dataclass(frozen=True, slots=True)
class Place:
    """One partition's directory. `prefix` stands before the names of its files where there are several partitions.

    Recovery point and start offset are None where nobody knows them.
    """

    directory: str
    partition: TopicPartition | None = None
    prefix: str = ""
    clean: bool = False
    recovery_point: int | None = None
    start_offset: int | None = None

    @property
    def name(self) -> str:
        return name_of(self.directory)

    def cut_point(self, start_offset: int) -> float:
        """From here on, bad bytes may be a write that was lost rather than damage."""
        return inf if self.clean else max(self.recovery_point or 0, start_offset)

    def with_latest_start(self, files: Files) -> "Place":
        """The same place, with the start offset that is on disk by now."""
        if self.partition is None or self.start_offset is None:
            return self
        state = DirectoryState.read(files, parent(self.directory))
        return replace(self, start_offset=state.offset_of(self.partition, state.start_offsets))

    def was_never_compacted(self, following: int | None) -> bool:
        """Of a segment that ends at `following`, or is the last: compaction stays away from what lies behind the
        recovery point.
        """
        return self.recovery_point is not None and (following is None or following > self.recovery_point)


@dataclass(slots=True)
class DirectoryState:
    """What the small files of a data directory say."""

    clean: bool
    is_ours: bool
    recovery_points: dict[TopicPartition, int] | None = None
    start_offsets: dict[TopicPartition, int] | None = None
    damaged: list[str] = field(default_factory=list)  # names of those that cannot be read

    @classmethod
    def read(cls, files: Files, path: str) -> "DirectoryState":
        state = cls(files.exists(join(path, CLEAN_SHUTDOWN)), files.exists(join(path, FORMAT_FILE)))
        state.recovery_points = state._offsets(files, path, RECOVERY_POINTS)
        state.start_offsets = state._offsets(files, path, START_OFFSETS)
        return state

    def _offsets(self, files: Files, path: str, name: str) -> dict[TopicPartition, int] | None:
        data = read_whole(files, join(path, name))
        try:
            return None if data is None else decode_offsets(data)
        except CorruptCheckpoint:
            self.damaged.append(name)
            return None

    def offset_of(self, partition: TopicPartition, offsets: dict[TopicPartition, int] | None) -> int | None:
        """None where nobody knows. A log of ours that the file does not name was made after it: it began at 0 then."""
        return None if offsets is None else offsets.get(partition, 0 if self.is_ours else None)

    def place(self, directory: str, partition: TopicPartition, prefix: str = "") -> Place:
        recovery_point = self.offset_of(partition, self.recovery_points)
        start_offset = self.offset_of(partition, self.start_offsets)
        return Place(directory, partition, prefix, self.clean, recovery_point, start_offset)


@dataclass(frozen=True, slots=True)
class Places:
    """What a path leads to. `state` is there where it is a data directory."""

    found: tuple[Place, ...]
    state: DirectoryState | None = None

    @property
    def without_directory(self) -> list[TopicPartition]:
        """Partitions that have a recovery point and nothing else."""
        known = self.state.recovery_points if self.state else None
        return sorted((known or {}).keys() - {place.partition for place in self.found})


def locate(files: Files, path: str) -> Places:
    """The partition that `path` is, or the partitions of the data directory that it is. Raises NoLogHere.

    `path` is absolute: the name of a partition, and what covers it, stand in the directory above.
    """
    if _holds_segments(files, path):
        return Places((locate_partition(files, path),))
    state = DirectoryState.read(files, path)
    found = []
    for name in files.directories_in(path):
        partition = parse_partition(name)
        if partition is None:
            continue
        if partition in (state.recovery_points or {}) or _holds_segments(files, join(path, name)):
            found.append(state.place(join(path, name), partition, f"{name}/"))
    if not found:
        raise NoLogHere(
            f"{path} holds no log: expected is a partition, with files like 00000000000000000000.log, or a data "
            "directory, with partitions like orders-0"
        )
    return Places(tuple(found), state)


def locate_partition(files: Files, path: str) -> Place:
    """One partition's directory, with what the directory above says of it if that is a data directory."""
    partition = parse_partition(name_of(path))
    if partition is None:
        return Place(path)
    return DirectoryState.read(files, parent(path)).place(path, partition)


def _holds_segments(files: Files, directory: str) -> bool:
    return any(parsed and parsed[1] == LOG for parsed in map(parse_numbered, files.files_in(directory)))
