"""The state in which a data directory was left: the offset checkpoints of its logs, and whether the stop was clean.

Recovery and `log verify` both start from it, before they read a log.
"""

from collections.abc import Collection
from math import inf
from typing import NamedTuple, Protocol

from tailrace.log.disk.interface import Files, join, name_of, parent, read_whole
from tailrace.log.files.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    FORMAT_FILE,
    RECOVERY_POINTS,
    START_OFFSETS,
    CorruptCheckpoint,
    decode_offsets,
)
from tailrace.log.layout.names import METADATA_PARTITION, TopicPartition

UNSAVED_OFFSETS_MAX = 1 << 32
"""The most offsets that a log has behind its recovery point while checkpoints can be saved: a segment has half as many
at most, and each full segment triggers a checkpoint. Not enforced while saves keep failing."""


class CompactionHistory(Protocol):
    """What a data directory proves about compaction (`log/tools/compaction_history`)."""

    def rules_out(self, partition: TopicPartition) -> bool:
        """Returns whether this partition was certainly never compacted."""


class PartitionDirectory(NamedTuple):
    """One partition's directory, with its offsets from the checkpoints. Reports put `prefix` before the names of its
    files if there are several partitions.

    Recovery point and start offset are None if they are unknown.
    """

    directory: str
    partition: TopicPartition | None = None
    prefix: str = ""
    clean: bool = False
    recovery_point: int | None = None
    start_offset: int | None = None
    compacted_to: int = 0
    is_named: bool = False  # by an offset checkpoint: if so, it had a segment on disk
    history: CompactionHistory | None = None  # for tools that look at a whole data directory

    @property
    def name(self) -> str:
        return name_of(self.directory)

    def unflushed_from(self, start_offset: int) -> float:
        """Returns the offset from which bad bytes may be a lost write rather than damage."""
        return inf if self.clean else max(self.recovery_point or 0, start_offset)

    def may_have_reached(self, offset: int, end: int) -> bool:
        """Returns whether this log, which ends at `end`, may have had records up to `offset` beyond its recovery point:
        after a crash, at most two segments. After a clean stop the recovery point is the end.
        """
        return not self.clean and offset - end <= UNSAVED_OFFSETS_MAX

    def with_latest_start(self, files: Files) -> "PartitionDirectory":
        """Returns a copy with the start offset that is on disk now."""
        if self.partition is None or self.start_offset is None:
            return self
        state = DirectoryState(files, parent(self.directory))
        return self._replace(start_offset=state.offset_of(self.partition, state.start_offsets))

    def was_never_compacted(self, following: int | None) -> bool:
        """Returns whether the segment that ends at `following` (None: the last one) was certainly never compacted:
        because it reaches beyond the recovery point, or because the history rules it out for the whole log.
        """
        if self.history is not None and self.partition is not None and self.history.rules_out(self.partition):
            return True
        return self.recovery_point is not None and (following is None or following > self.recovery_point)


class DirectoryState:
    """The offset checkpoints of a data directory, and whether the last stop was clean."""

    def __init__(self, files: Files, path: str) -> None:
        self.clean = files.exists(join(path, CLEAN_SHUTDOWN))
        self.damaged: list[str] = []  # names of those that cannot be read
        self.recovery_points = self._offsets(files, path, RECOVERY_POINTS)
        self.start_offsets = self._offsets(files, path, START_OFFSETS)
        self.cleaner_offsets = self._offsets(files, path, CLEANER_OFFSETS)
        known = (self.recovery_points, self.start_offsets, self.cleaner_offsets)
        # Each of these had a log on disk: see `OffsetCheckpoints.enrol`.
        self.named = {partition for offsets in known for partition in offsets or ()}
        self.is_ours = files.exists(join(path, FORMAT_FILE)) or METADATA_PARTITION in self.named

    def _offsets(self, files: Files, path: str, name: str) -> dict[TopicPartition, int] | None:
        try:
            data = read_whole(files, join(path, name))
            return None if data is None else decode_offsets(data)
        except PermissionError:
            raise  # the operator's mistake, not the disk's
        except (CorruptCheckpoint, OSError):
            self.damaged.append(name)
            return None

    def offset_of(self, partition: TopicPartition, offsets: dict[TopicPartition, int] | None) -> int | None:
        """Returns the partition's offset, or None if it is unknown. In tailrace's own directory, a log that the
        checkpoint does not name was created after it, and starts at 0.
        """
        return None if offsets is None else offsets.get(partition, 0 if self.is_ours else None)

    def missing(self, directories: Collection[str]) -> set[TopicPartition]:
        """Returns the named partitions that have no directory among these. In a directory that another program wrote,
        none is missing.
        """
        if not self.is_ours:
            return set()
        present = set(directories)
        return {one for one in self.named if str(one) not in present and self._had_log(one)}

    def _had_log(self, partition: TopicPartition) -> bool:
        """Returns whether the checkpoints agree that this partition existed: both name it, or the recovery points name
        it with 0, as its first flush writes it. Any other name in one of them alone is corrupt.
        """
        if self.recovery_points is None or self.start_offsets is None:
            return True
        return self.recovery_points.get(partition) == 0 or (
            partition in self.recovery_points and partition in self.start_offsets
        )

    def partition_directory(self, directory: str, partition: TopicPartition, prefix: str = "") -> PartitionDirectory:
        recovery_point = self.offset_of(partition, self.recovery_points)
        start_offset = self.offset_of(partition, self.start_offsets)
        compacted_to = (self.cleaner_offsets or {}).get(partition, 0)
        is_named = self.is_ours and partition in self.named
        return PartitionDirectory(
            directory, partition, prefix, self.clean, recovery_point, start_offset, compacted_to, is_named
        )
