"""Jobs: what a log must wait for a disk for, in three steps.

    begin    by the log's owner: notes what is to be done, as it is now
    run      in any thread: reads and writes files and its own notes, nothing of the log's
    finish   by the owner again: publishes what was done, or raises what went wrong

A `FlushJob` makes appended records count. A checkpoint is a flush that hands over a `SaveJob` when it is finished,
which saves what is derived, so that recovery can begin there; meanwhile the log may be flushed again, so that
nobody waits for an index. A log has one flush and one save under way at most: an fsync that fails is told to one
caller only, so nobody else may ask meanwhile and be told that all is well. `Log.flush` and `Log.checkpoint` are all
steps in one, for those who may wait.
"""

import logging
from typing import TYPE_CHECKING

from tailrace.log.epochs import FILE_NAME
from tailrace.log.files import join, replace_whole, write_whole
from tailrace.log.names import SNAPSHOT, numbered
from tailrace.log.producer_snapshot import encode_snapshot
from tailrace.log.replay import remove_snapshots
from tailrace.log.segment import SavedParts

if TYPE_CHECKING:
    from tailrace.log.log import Log

logger = logging.getLogger(__name__)


class FlushJob:
    """Afterwards everything that was appended before `begin` is on disk, and readers see it."""

    def __init__(self, log: "Log", save: "SaveJob | None" = None) -> None:
        self.log = log
        self.target: int = log.bounds.end
        self._save = save
        self._visible = log.end_position
        self._work = log.unflushed.take()
        self._epochs = log.epochs.encode() if self._work.epochs else None
        self._error: OSError | None = None

    def run(self) -> None:
        try:
            self._sync()
        except OSError as error:
            # Never tried again: the pages that could not be written count as clean now, so a second sync would
            # succeed.
            self._error = error

    def _sync(self) -> None:
        if self._epochs is not None:  # first: a batch of an epoch that nobody knows would look damaged
            replace_whole(self.log.files, join(self.log.directory, FILE_NAME), self._epochs)
        for segment in self._work.segments:  # in order, so that no segment is on disk before the one it follows
            segment.log.sync()
        for directory in self._work.directories:
            self.log.files.sync_directory(directory)

    def finish(self) -> "SaveJob | None":
        """What is to be saved now, where this is a checkpoint. Raises LogOffline where the disk refused."""
        self.log.flushing = None
        if self._error is not None:
            if self._save is not None:
                self.log.saving = None
            raise self.log.take_offline("a flush failed", self._error) from self._error
        self.log.flushed(self.target, self._visible)
        return self._save


class SaveJob:
    """Afterwards recovery need not look at what was appended before `begin`: all that is derived from it is saved.

    It is begun together with a flush, and run after it: what it saves speaks only of what is on disk.
    """

    def __init__(self, log: "Log") -> None:
        self.log = log
        self.target: int = log.bounds.end
        self._parts: list[SavedParts] = [
            segment.begin_save(sealed=segment is not log.active) for segment in log.segments if not segment.is_saved
        ]
        self._snapshots = {**log.snapshots_due, self.target: encode_snapshot(log.producers)}
        # That of the recovery point on disk stays until a later one is there.
        self._kept = {log.recovery_point_on_disk, *self._snapshots, *(segment.base_offset for segment in log.segments)}
        self._is_saved = False

    def run(self) -> None:
        try:
            self._save()
            self._is_saved = True
        except OSError as error:
            # Derived data: without it recovery has more to do, and nothing is lost. The next checkpoint tries again.
            logger.warning("could not save the indexes of %s: %s", self.log.directory, error)

    def _save(self) -> None:
        files, directory = self.log.files, self.log.directory
        for parts in self._parts:
            parts.run()
        for offset, snapshot in self._snapshots.items():
            write_whole(files, join(directory, numbered(offset, SNAPSHOT)), snapshot)
        files.sync_directory(directory)
        remove_snapshots(files, directory, lambda offset: offset not in self._kept)

    def finish(self) -> None:
        self.log.saving = None
        self.log.save_failed = not self._is_saved
        if self._is_saved:
            for parts in self._parts:
                parts.segment.finish_save(parts)
            self.log.saved(self.target, self._snapshots)
