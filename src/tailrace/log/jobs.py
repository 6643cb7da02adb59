"""Jobs: the work for which a log must wait for a disk, in three steps.

    begin    by the log's owner: notes what is to be done, as it is now
    run      in any thread: reads and writes files and its own notes, and of the log looks at what was written since
    finish   by the owner again: publishes what was done, or raises what went wrong

A `FlushJob` makes appended records count. A checkpoint is a flush that hands over a `SaveJob` when it is finished,
which saves what is derived, so that recovery can begin there; meanwhile the log may be flushed again, so that
nobody waits for an index. A log has one flush and one save under way at most: an fsync that fails is told to one
caller only, so nobody else may ask meanwhile and be told that all is well. `Log.flush` and `Log.checkpoint` are all
steps in one, for those who may wait.

A log may be removed while a job of it is under way. From then on the job does nothing, wherever it is (but for a sync
that the system does, which harms nobody); who takes the log's files away waits for one that is just running
(`wait_while_running`), so that nothing is written where a new log of the same name may stand by then.
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
from tailrace.log.reader import Position
from tailrace.log.segment.segment import SavedParts, Segment
from tailrace.log.state.producer_state import encode_snapshot
from tailrace.log.state.replay import remove_snapshots

if TYPE_CHECKING:
    from tailrace.log.log import Log

logger = logging.getLogger("tailrace.log")

NO_ROOM = (ENOSPC, EDQUOT)


class Job(Protocol):
    """Work that waits for a disk: begun by the owner, run in any thread, finished by the owner."""

    def run(self) -> None: ...

    def finish(self) -> object: ...


class LogJob:
    """What the jobs of one log have in common."""

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
                    # A flush is never tried again: the pages that could not be written count as clean now, so a
                    # second one would succeed.
                    self._error = without_frames(error)

    @property
    def failure(self) -> OSError | None:
        """Why it is not done, if it is not. An error that nobody foresaw, which whoever runs jobs has said, is one."""
        if self._is_done:
            return None
        return self._error or OSError(EIO, "a job has failed in a way that nobody foresaw")

    def _work(self) -> None:
        raise NotImplementedError

    def wait_while_running(self) -> None:
        """Of a log that was removed: afterwards this job touches no file any more."""
        with self._running:
            pass


class FlushJob(LogJob):
    """Afterwards everything that was appended before `begin` is on disk, and readers see it; and as a rule what came
    until the disk was asked, which may take a while where there is much to do.
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
        """Whose files it is about to sync."""
        return self._unflushed.segments

    @property
    def bytes(self) -> int:
        """That were written since the flush before it."""
        return self._unflushed.bytes

    @property
    def only_file(self) -> File | None:
        """The file whose sync is all that there is to do, if that is so. Who can have it synced without a thread need
        not `run` the job, and says how it went (`synced`).
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
            self._no_room = without_frames(error)  # nothing that counts was synced yet: all of it may be tried again
            return
        if self._epochs is not None:  # first: a batch of an epoch that nobody knows would look damaged
            self.log.files.sync_directory(self.log.directory)
        for segment in self._unflushed.segments:  # in order, so that no segment is on disk before the one it follows
            if segment is self._unflushed.segments[-1]:
                self._take_more(segment)
            segment.log.sync()
        for directory in self._unflushed.directories:
            self.log.files.sync_directory(directory)
        self._enrol()

    def _enrol(self) -> None:
        """Last: a name in the checkpoints is a promise that there is a log."""
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
        """What is to be saved now, where this is a checkpoint. Raises LogOffline where the disk refused, and OutOfSpace
        where it has no room for what stands beside a new log: then nothing is flushed, and it can be tried again.
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
    """Afterwards recovery need not look at what was appended before `begin`: all that is derived from it is saved.

    It is begun together with a flush, and run after it: what it saves speaks only of what is on disk.
    """

    def __init__(self, log: "Log") -> None:
        super().__init__(log)
        self._parts: list[SavedParts] = [
            segment.begin_save(sealed=segment is not log.active) for segment in log.segments if not segment.is_saved
        ]
        self._snapshots = {**log.snapshots_due, self.target: encode_snapshot(log.producers)}
        # That of the recovery point on disk stays until a later one is there.
        self._kept = {log.recovery_point_on_disk, *self._snapshots, *(segment.base_offset for segment in log.segments)}

    def _work(self) -> None:
        files, directory = self.log.files, self.log.directory
        for parts in self._parts:
            parts.run()
        for offset, snapshot in self._snapshots.items():
            write_whole(files, join(directory, numbered(offset, SNAPSHOT)), snapshot)
        files.sync_directory(directory)
        remove_snapshots(files, directory, lambda offset: offset not in self._kept)

    def finish(self) -> None:
        self.log.saving = None
        if self.log.is_removed:
            return
        for parts in self._parts:  # also where it has failed, perhaps for want of just that
            parts.segment.rested(parts.size)
        failure = self.failure
        self.log.save_failed = failure is not None
        if failure is not None:
            # Derived data: without it recovery has more to do, and nothing is lost. The next checkpoint tries again.
            logger.warning("could not save the indexes of %s: %s", self.log.directory, failure)
        else:
            for parts in self._parts:
                parts.segment.finish_save(parts)
            self.log.saved(self.target, self._snapshots)


class TimestampsJob:
    """Afterwards the largest timestamps of these segments are in memory, but for those that could not be read."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments

    def run(self) -> None:
        for segment in self._segments:
            try:
                segment.find_largest_timestamp()
            except FileNotFoundError:  # deleted meanwhile
                continue
            except OSError as error:
                logger.warning("nobody knows how old %s is: %s", segment.log.path, error)

    def finish(self) -> None:
        pass
