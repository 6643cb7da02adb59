"""Locates the partitions under a path, for tools that read a directory without opening it.

Nothing is written or locked, and a broker may be running there. The checkpoints are read before the logs, so that they
never point beyond what the logs hold. The start offset is the exception: a broker moves it before it deletes segments,
so it is read again if a log seems to lack its beginning.
"""

from dataclasses import dataclass

from tailrace.log.disk.interface import Files, join, name_of, parent
from tailrace.log.files.directory_state import DirectoryState, PartitionDirectory
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import parse_partition
from tailrace.log.tools.compaction_history import MetadataHistory
from tailrace.log.tools.lost_partitions import LostPartition, find_lost, holds_segments


class NoLogHere(LogError):
    """The path leads to neither a partition nor a data directory."""


@dataclass(frozen=True, slots=True)
class Places:
    """The partitions under a path, and the `state` of the data directory if it is one."""

    found: tuple[PartitionDirectory, ...]
    state: DirectoryState | None = None
    lost: tuple[LostPartition, ...] = ()


def locate(files: Files, path: str) -> Places:
    """Returns the partition at `path`, or all partitions of the data directory at `path`. Raises NoLogHere.

    `path` must be absolute: the name of a partition, and its checkpoints, are in the parent directory.
    """
    if _holds_segments(files, path):
        return Places((locate_partition(files, path),))
    state = DirectoryState(files, path)
    history = MetadataHistory(files, path, state)
    lost = find_lost(files, path)
    found = []
    for name in files.directories_in(path):
        partition = parse_partition(name)
        if partition is not None and _holds_segments(files, join(path, name)):
            found.append(state.partition_directory(join(path, name), partition, f"{name}/")._replace(history=history))
    if not found and not lost:
        raise NoLogHere(
            f"{path} holds no log. Expected a partition, with files like 00000000000000000000.log, or a data "
            "directory, with partitions like orders-0"
        )
    return Places(tuple(found), state, lost)


def locate_partition(files: Files, path: str) -> PartitionDirectory:
    """Returns one partition's directory, with its checkpoints if the parent is a data directory."""
    partition = parse_partition(name_of(path))
    if partition is None:
        return PartitionDirectory(path)
    state = DirectoryState(files, parent(path))
    return state.partition_directory(path, partition)._replace(history=MetadataHistory(files, parent(path), state))


def _holds_segments(files: Files, directory: str) -> bool:
    return holds_segments(files.files_in(directory))
