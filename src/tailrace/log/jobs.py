"""Jobs: the work of a log that waits for a disk, in three steps.

    begin    by the log's owner: notes what is to be done, as of now
    run      in any thread: reads and writes files; of the log, it only looks at what was written since
    finish   by the owner again: publishes the result, or raises the error

A `FlushJob` makes appended records count. A checkpoint is a flush whose `finish` returns a `SaveJob`, which saves
indexes and producer state, so that recovery can begin behind them. The log may be flushed again while the save runs, so
that no flush waits for an index. A log has at most one flush and one save under way: the system reports a failed fsync
only once, so a second flush at the same time could succeed wrongly. `Log.flush` and `Log.checkpoint` do all steps in
one call, for callers that may block.

A log may be removed while a job of it is under way. From then on the job does nothing, at any step (except for a sync
that has already begun, which does no harm). Before the log's files are removed, `wait_while_running` waits for a
running job, so that it cannot write into a new log of the same name.
"""

import logging
import threading
from collections.abc import Sequence
from errno import EDQUOT, EIO, ENOSPC
from typing import TYPE_CHECKING, Protocol

from tailrace.log.dirty import NOTHING
from tailrace.log.disk.interface import File, join, put_in_place, write_whole
from tailrace.log.files.leader_epochs import FILE_NAME
from tailrace.log.files.partition_metadata import encode_topic_id
from tailrace.log.layout.errors import OutOfSpace, without_frames
from tailrace.log.layout.names import PARTITION_METADATA, SNAPSHOT, numbered
from tailrace.log.segment.save import SegmentSave
from tailrace.log.segment.segment import Segment
from tailrace.log.state.producer_state import encode_snapshot
from tailrace.log.state.replay import remove_snapshots
from tailrace.log.view import Position

if TYPE_CHECKING:
    from tailrace.log.log import Log

logger = logging.getLogger("tailrace.log")

NO_ROOM = (ENOSPC, EDQUOT)


class Job(Protocol):
    """Work that waits for a disk: begun by the owner, run in any thread, finished by the owner."""

    def run(self) -> None: ...

    def finish(self) -> object: ...


class LogJob:
    """The common part of the jobs of one log."""

    def __init__(self, log: "Log") -> None:
        self.log = log
        self.target: int = log.bounds.end
        self._is_done = False
        self._error: OSError | None = None
        self._running = threading.Lock()

    def run(self) -> None:
        with self._running:
            if not self.log.is_removed:
                try:
                    self._work()
                    self._is_done = True
                except OSError as error:
                    # A flush is never retried: the system now counts the pages that it could not write as
                    # clean, so a second flush would succeed wrongly.
                    self._error = without_frames(error)

    @property
    def failure(self) -> OSError | None:
        """The error of a job that failed; None if it is done. An unexpected error, which the runner of jobs has logged,
        counts as EIO.
        """
        if self._is_done:
            return None
        return self._error or OSError(EIO, "unexpected error in a job; see the log")

    def _work(self) -> None:
        raise NotImplementedError

    def wait_while_running(self) -> None:
        """Waits until this job no longer touches any file of its log, which was removed."""
        with self._running:
            pass


class FlushJob(LogJob):
    """Brings everything that was appended before `begin` to disk, and makes it visible to readers. Usually covers later
    appends too, up to the moment of the sync, since a flush with much to do takes a while.
    """

    def __init__(self, log: "Log", save: "SaveJob | None" = None) -> None:
        super().__init__(log)
        self._save = save
        self._visible = log.end_position
        self._unflushed = log.unflushed.take()
        self._epochs = log.epochs.encode() if self._unflushed.epochs else None
        self._topic_id = log.topic_id if self._unflushed.topic_id else None
        self._more = NOTHING
        self._no_room: OSError | None = None

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments whose files it is about to sync."""
        return self._unflushed.segments

    @property
    def bytes(self) -> int:
        """The bytes that were written since the previous flush."""
        return self._unflushed.bytes

    @property
    def only_file(self) -> File | None:
        """The file whose sync is all that this job has to do, or None if there is more. A caller that can sync it
        without a thread need not `run` the job, and reports the result to `synced`.
        """
        unflushed = self._unflushed
        is_more = len(unflushed.segments) != 1 or unflushed.directories or self._epochs is not None
        return None if is_more or self._topic_id is not None else unflushed.segments[0].log

    def synced(self, error: OSError | None) -> None:
        self._is_done = error is None
        self._error = error

    def _work(self) -> None:
        try:
            self._write_small_files()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._no_room = without_frames(error)  # nothing that counts was synced yet: all of it may be retried
            return
        if self._epochs is not None:  # first: a batch of an unknown epoch would look damaged
            self.log.files.sync_directory(self.log.directory)
        for segment in self._unflushed.segments:  # in order, so that no segment is on disk before the one it follows
            if segment is self._unflushed.segments[-1]:
                self._take_more(segment)
            segment.log.sync()
        for directory in self._unflushed.directories:
            self.log.files.sync_directory(directory)
        self._enrol()

    def _enrol(self) -> None:
        """Runs last: an entry in the checkpoints is a promise that the log exists."""
        try:
            if (enrol := self.log.enrol) is not None:
                enrol(self.log)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._no_room = without_frames(error)

    def _take_more(self, last: Segment) -> None:
        if last.base_offset == self._visible.segment_base:
            self._more = more = self.log.unflushed.more_of(last)
            self._visible = Position(last.base_offset, self._visible.position + more.bytes)
            self.target += more.records

    def _write_small_files(self) -> None:
        files, directory = self.log.files, self.log.directory
        if self._epochs is not None:
            put_in_place(files, join(directory, FILE_NAME), self._epochs)
        if self._topic_id is not None:
            put_in_place(files, join(directory, PARTITION_METADATA), encode_topic_id(self._topic_id))

    def finish(self) -> "SaveJob | None":
        """Returns the job that saves the indexes, if this is a checkpoint. Raises LogOffline if the disk refused.
        Raises OutOfSpace if it had no room for the small files of a new log: then nothing is flushed, and the flush can
        be retried.
        """
        self.log.flushing = None
        failure = self.failure
        if self._save is not None and (self.log.is_removed or failure is not None or self._no_room is not None):
            self.log.saving = None
        if self.log.is_removed:
            return None
        if self._no_room is not None:
            self.log.unflushed.give_back(self._unflushed)
            raise OutOfSpace(f"no space left to flush {self.log.directory}", self._no_room) from self._no_room
        if failure is not None:
            raise self.log.take_offline("a flush failed", failure) from failure
        self.log.enrol = None
        if self._more is not NOTHING:
            self.log.unflushed.synced(self._unflushed.segments[-1], self._more)
        self.log.flushed(self.target, self._visible)
        self.log.files_synced(self.target)
        return self._save


class SaveJob(LogJob):
    """Saves the indexes and the producer state of everything that was appended before `begin`: recovery need not scan
    that.

    It is begun together with a flush, and run after it, so that it saves nothing about bytes that are not on disk.
    """

    def __init__(self, log: "Log") -> None:
        super().__init__(log)
        self._segment_saves: list[SegmentSave] = [
            segment.begin_save(sealed=segment is not log.active) for segment in log.segments if not segment.is_saved
        ]
        self._snapshots = {**log.snapshots_due, self.target: encode_snapshot(log.producers)}
        # The snapshot at the recovery point on disk is kept until there is a later one.
        self._kept = {log.recovery_point_on_disk, *self._snapshots, *(segment.base_offset for segment in log.segments)}

    def _work(self) -> None:
        files, directory = self.log.files, self.log.directory
        for save in self._segment_saves:
            save.run()
        for offset, snapshot in self._snapshots.items():
            write_whole(files, join(directory, numbered(offset, SNAPSHOT)), snapshot)
        files.sync_directory(directory)
        remove_snapshots(files, directory, lambda offset: offset not in self._kept)

    def finish(self) -> None:
        self.log.saving = None
        if self.log.is_removed:
            return
        for save in self._segment_saves:  # also after a failure, which may be a lack of space
            save.segment.rested(save.size)
        failure = self.failure
        self.log.save_failed = failure is not None
        if failure is not None:
            # Nothing is lost: recovery has more to scan until the next checkpoint saves them.
            directory = self.log.directory
            logger.warning("cannot save the indexes of %s: %s. The next checkpoint retries", directory, failure)
        else:
            for save in self._segment_saves:
                save.segment.finish_save(save)
            self.log.saved(self.target, self._snapshots)


class TimestampsJob:
    """Loads the largest timestamps of these segments into memory, except those that cannot be read."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments

    def run(self) -> None:
        for segment in self._segments:
            try:
                segment.find_largest_timestamp()
            except FileNotFoundError:  # deleted meanwhile
                continue
            except OSError as error:
                logger.warning("cannot determine the age of %s: %s", segment.log.path, error)

    def finish(self) -> None:
        pass
