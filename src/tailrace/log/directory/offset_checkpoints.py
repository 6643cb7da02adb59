"""Offset checkpoints: the recovery points, start offsets and cleaner offsets of all logs, written to disk.

Jobs save them, in any thread and in any order: the offsets that were noted last win, and a log whose directory was
removed is left out. An entry that stayed behind would be applied to the next log of the same name, which has none of
those offsets.

A new log is added with its first flush (`enrol`), and never before its directory is on disk: so an entry without a log
is a loss. The entries of a log that is lost, or cannot be opened, stay as they were (`keep`).
"""

import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from tailrace.log.disk.interface import Files, join, read_whole, replace_whole
from tailrace.log.files.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, START_OFFSETS, encode_lines, encode_offsets
from tailrace.log.files.directory_state import DirectoryState
from tailrace.log.jobs import NO_ROOM
from tailrace.log.layout.errors import OutOfSpace, StorageError, without_frames
from tailrace.log.layout.names import TopicPartition, parse_partition
from tailrace.log.log import Log
from tailrace.log.segment.segment import Segment

if TYPE_CHECKING:
    from tailrace.log.directory.directory import DataDirectory


class NotedOffsets(NamedTuple):
    """The offsets of all logs, as they were when a job began. Kept as parallel lists: noting ten thousand logs takes a
    millisecond.
    """

    number: int  # ascending: a larger one was noted later
    partitions: list[TopicPartition]
    logs: list[Log]
    recovery_points: list[int]
    start_offsets: list[int]
    cleaner_offsets: list[int]

    @classmethod
    def of(cls, logs: dict[TopicPartition, Log], number: int) -> "NotedOffsets":
        return cls(
            number,
            list(logs),
            list(logs.values()),
            [log.recovery_point for log in logs.values()],
            [log.view.start for log in logs.values()],
            [log.compacted_to for log in logs.values()],
        )


class OffsetCheckpoints:
    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._mutex = threading.Lock()
        self._latest = NotedOffsets.of({}, 0)
        self._taken_away: WeakSet[Log] = WeakSet()
        self._cleaner_offsets: bytes | None = None  # as they are on disk, once read
        self._kept: dict[str, dict[TopicPartition, int]] = {RECOVERY_POINTS: {}, START_OFFSETS: {}, CLEANER_OFFSETS: {}}
        self._to_enrol: deque[tuple[TopicPartition, Log]] = deque()
        self._enrolled: dict[TopicPartition, Log] = {}  # since the latest offsets were noted
        self._recovery_points: dict[TopicPartition, int] = {}  # as they are on disk

    def save(self, noted: NotedOffsets) -> None:
        """Saves these offsets, durably, unless later ones were saved already."""
        with self._mutex:
            self._note(noted)
            entries = self._entries(RECOVERY_POINTS)
            replace_whole(self._files, join(self._path, RECOVERY_POINTS), encode_offsets(entries))
            self._recovery_points = entries
            replace_whole(self._files, join(self._path, START_OFFSETS), encode_offsets(self._entries(START_OFFSETS)))
            self._replace_cleaner_offsets()

    def enrol(self, log: Log) -> None:
        """Adds this new log, whose directory is on disk, to the recovery points, durably. So a log with acknowledged
        records has an entry, and its loss is noticed. Threads that call this at the same time share one write.
        """
        partition = parse_partition(log.name.decode())
        assert partition is not None
        self._to_enrol.append((partition, log))
        with self._mutex:
            if log.is_enrolled:
                return
            new = {partition: log}
            while self._to_enrol:
                new.update((self._to_enrol.popleft(),))
            entries = self._recovery_points | dict.fromkeys(new, 0)
            lines = (f"{where.topic} {where.partition} {offset}" for where, offset in entries.items())
            replace_whole(self._files, join(self._path, RECOVERY_POINTS), encode_lines(lines))
            self._recovery_points = entries
            self._enrolled |= new
            for one in new.values():
                one.is_enrolled = True

    def keep(
        self, partition: TopicPartition, recovery_point: int | None, start: int | None, cleaner: int | None
    ) -> None:
        """Keeps these entries, for a partition whose log is lost or cannot be opened. None means no entry."""
        with self._mutex:
            for kept, offset in zip(self._kept.values(), (recovery_point, start, cleaner), strict=True):
                if offset is not None:
                    kept[partition] = offset

    def give_up(self, partition: TopicPartition) -> None:
        """Reverts `keep`."""
        with self._mutex:
            for kept in self._kept.values():
                kept.pop(partition, None)

    def are_on_disk(self, noted: NotedOffsets, state: DirectoryState) -> bool:
        """Returns whether `state`, as it was found, has exactly these offsets: then there is nothing to save."""
        with self._mutex:
            self._note(noted)
            entries = self._entries(RECOVERY_POINTS)
            self._recovery_points = entries if state.recovery_points is None else state.recovery_points
            return (
                entries == state.recovery_points
                and self._entries(START_OFFSETS) == state.start_offsets
                and self._entries(CLEANER_OFFSETS) == (state.cleaner_offsets or {})
            )

    def _note(self, noted: NotedOffsets) -> None:
        if noted.number > self._latest.number:
            self._latest = noted
            known = set(noted.logs) if self._enrolled else ()
            self._enrolled = {where: log for where, log in self._enrolled.items() if log not in known}

    def _entries(self, name: str) -> dict[TopicPartition, int]:
        """Returns the entries of the checkpoint file of this name."""
        latest = self._latest
        if name == CLEANER_OFFSETS:  # most logs are never compacted, and have none
            left = self._left(latest.cleaner_offsets)
            return self._kept[name] | {partition: offset for partition, offset in left.items() if offset}
        if name == START_OFFSETS:
            return self._kept[name] | self._left(latest.start_offsets)
        new = {partition: 0 for partition, log in self._enrolled.items() if log not in self._taken_away}
        return self._kept[name] | new | self._left(latest.recovery_points)

    def _left(self, offsets: list[int]) -> dict[TopicPartition, int]:
        entries = zip(self._latest.partitions, self._latest.logs, offsets, strict=True)
        return {
            partition: offset for partition, log, offset in entries if log.is_enrolled and log not in self._taken_away
        }

    def _replace_cleaner_offsets(self) -> None:
        """Replaces the file if its contents changed, which is rare. Writes an empty file, too: it proves that no log
        was ever compacted.
        """
        content = encode_offsets(self._entries(CLEANER_OFFSETS))
        path = join(self._path, CLEANER_OFFSETS)
        if self._cleaner_offsets is None:
            self._cleaner_offsets = self._read_if_possible(path)
        if content != self._cleaner_offsets:
            replace_whole(self._files, path, content)
            self._cleaner_offsets = content

    def _read_if_possible(self, path: str) -> bytes | None:
        try:
            return read_whole(self._files, path)
        except OSError:  # then it is replaced
            return None

    def take_away(self, logs: Iterable[Log]) -> None:
        """Leaves these logs, whose directories were removed, out of all saves from now on, including jobs that were
        begun before.
        """
        with self._mutex:
            self._taken_away.update(logs)


def _may_be_removed(log: Log, segment: Segment) -> bool:
    """Returns whether the files of a segment may be removed now. A save under way would create them again, and a flush
    that is about to sync them would fail: then the next job removes them.
    """
    return log.saving is None and (log.flushing is None or segment not in log.flushing.segments)


class OffsetsJob:
    """Saves the offsets, then removes condemned segments. A directory has one such job at a time. See `log/jobs.py` for
    the three steps.
    """

    def __init__(self, directory: "DataDirectory") -> None:
        self._directory = directory
        self._noted = directory.note_offsets()
        self._condemned: list[tuple[Log, Segment]] = [
            (log, segment)
            for log in directory.logs.values()
            if log.condemned
            for segment in log.condemned
            if _may_be_removed(log, segment)
        ]
        self._error: OSError | None = None
        self._removing = threading.Lock()

    def run(self) -> None:
        try:
            self._directory.offset_checkpoints.save(self._noted)
            for log, segment in self._condemned:
                with self._removing:
                    if not log.is_removed:
                        segment.remove()
        except OSError as error:
            self._error = without_frames(error)

    def wait_while_running(self) -> None:
        """Waits until this job no longer touches any file of a removed log."""
        with self._removing:
            pass

    def finish(self) -> None:
        """Raises StorageError if the disk refused, OutOfSpace if it is full: the old offsets and the condemned segments
        are kept.
        """
        self._directory.saving_offsets = None
        if self._error is not None:
            message = f"cannot save the checkpoints of {self._directory.path}"
            kind = OutOfSpace if self._error.errno in NO_ROOM else StorageError
            raise kind(message, self._error) from self._error
        noted = zip(self._noted.logs, self._noted.recovery_points, self._noted.cleaner_offsets, strict=True)
        for log, recovery_point, compacted_to in noted:
            log.recovery_point_on_disk = recovery_point
            log.compacted_to_on_disk = compacted_to
        for log, segment in self._condemned:
            log.condemned.remove(segment)
