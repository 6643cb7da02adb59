"""The recovery points and start offsets of all logs, on their way to disk.

Jobs save them, in any thread and in any order: what was begun last stands, and a log whose directory was taken away
is named no more. A name that stayed behind would be taken for that of the next log that is made under it, which has
none of those offsets.
"""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from tailrace.log.checkpoints import RECOVERY_POINTS, START_OFFSETS, encode_offsets
from tailrace.log.errors import StorageError
from tailrace.log.files import Files, join, replace_whole
from tailrace.log.log import Log
from tailrace.log.names import TopicPartition
from tailrace.log.segment import Segment

if TYPE_CHECKING:
    from tailrace.log.directory import DataDirectory


class LogOffsets(NamedTuple):
    """Those of one log, as they were when a job began."""

    partition: TopicPartition
    log: Log
    recovery_point: int
    start_offset: int


class SavedOffsets:
    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._mutex = threading.Lock()
        self._number = 0
        self._latest: list[LogOffsets] = []
        self._taken_away: WeakSet[Log] = WeakSet()

    def save(self, number: int, offsets: list[LogOffsets]) -> None:
        """Afterwards these offsets are on disk, or later ones. `number` says in which order they were noted."""
        with self._mutex:
            if number > self._number:
                self._number, self._latest = number, offsets
            left = [entry for entry in self._latest if entry.log not in self._taken_away]
            recovery_points = {entry.partition: entry.recovery_point for entry in left}
            start_offsets = {entry.partition: entry.start_offset for entry in left}
            replace_whole(self._files, join(self._path, RECOVERY_POINTS), encode_offsets(recovery_points))
            replace_whole(self._files, join(self._path, START_OFFSETS), encode_offsets(start_offsets))

    def take_away(self, logs: Iterable[Log]) -> None:
        """These have no directory any more. Whoever saves from now on, whenever it was begun, leaves them out."""
        with self._mutex:
            self._taken_away.update(logs)


class OffsetsJob:
    """See `log/jobs.py` for the three steps. One at a time for a directory."""

    def __init__(self, directory: "DataDirectory") -> None:
        self._directory = directory
        self._number, self._offsets = directory.note_offsets()
        # A save under way would bring the files of a segment back: its log's turn comes with the next job.
        self._condemned: list[tuple[Log, Segment]] = [
            (log, segment)
            for log in directory.logs.values()
            if log.condemned and log.saving is None
            for segment in log.condemned
        ]
        self._error: OSError | None = None
        self._removing = threading.Lock()

    def run(self) -> None:
        try:
            self._directory.saved_offsets.save(self._number, self._offsets)
            for log, segment in self._condemned:
                with self._removing:
                    if not log.is_removed:
                        segment.remove()
        except OSError as error:
            self._error = error

    def wait_while_running(self) -> None:
        """Afterwards no file of a log that was removed is touched any more."""
        with self._removing:
            pass

    def finish(self) -> None:
        """Raises StorageError where the disk refused: the old offsets stand, and what was deleted is still there."""
        self._directory.saving_offsets = None
        if self._error is not None:
            message = f"the checkpoints of {self._directory.path} could not be saved"
            raise StorageError(message, self._error) from self._error
        for entry in self._offsets:
            entry.log.recovery_point_on_disk = entry.recovery_point
        for log, segment in self._condemned:
            log.condemned.remove(segment)
