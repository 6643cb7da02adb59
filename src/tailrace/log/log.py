"""One partition's log: segments in order, and the three offsets that bound them.

    append   check, stamp, one write; what was written counts for readers once a flush has covered it
    roll     a new segment when the active one is full or old
    flush    as a job: begun here, run in any thread, finished here (`log/jobs.py`)
    delete   from the front, whole segments; the start offset may lie anywhere
    read, find      by offset, by time: any thread may, see `log/reading.py`

Everything else in this module is for one thread, the log's owner. Nothing here looks at a clock or starts a thread:
the time is an argument.
"""

import logging
from bisect import bisect_right
from errno import ENOSPC
from typing import NamedTuple

from tailrace.log.config import LogConfig
from tailrace.log.damage import DamagedRange
from tailrace.log.epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.epochs import LeaderEpochs
from tailrace.log.errors import (
    InvalidAppend,
    LogClosed,
    LogOffline,
    OffsetOutOfRange,
    OutOfSpace,
    StorageError,
)
from tailrace.log.files import Files, join, parent, replace_whole
from tailrace.log.index import POSITION_MAX, RELATIVE_OFFSET_MAX
from tailrace.log.jobs import CheckpointJob, FlushJob
from tailrace.log.names import SNAPSHOT, numbered
from tailrace.log.offsets import OffsetBounds
from tailrace.log.producer_snapshot import encode_snapshot
from tailrace.log.producer_state import ProducerState
from tailrace.log.reading import Position, ReadableLog
from tailrace.log.replay import replay_segments, snapshot_offsets
from tailrace.log.segment import DerivedCache, Segment
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.control import Marker, marker_of

logger = logging.getLogger(__name__)


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time: int
    is_duplicate: bool = False


class Log(ReadableLog):
    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        *,
        segments: tuple[Segment, ...],
        bounds: OffsetBounds,
        epochs: LeaderEpochs,
        producers: ProducerState,
        cache: DerivedCache,
    ) -> None:
        """A log as recovery left it: everything in it is on disk. See `recovery.open_log`."""
        super().__init__(files, directory, segments=segments, bounds=bounds, epochs=epochs, producers=producers)
        self.config = config
        self.recovery_point: int = bounds.end
        self.offline: LogOffline | None = None
        self.wants_checkpoint = False
        self.dirty_bytes = 0
        self.unsynced: list[Segment] = []
        self.unsynced_directories: list[str] = []
        self.epochs_are_unsaved = False
        self.snapshots_due: dict[int, bytes] = {}
        self.condemned: list[Segment] = []
        self._cache = cache
        self._is_closed = False

    def note_creation(self) -> None:
        """The directory and its first file are new: the first flush brings their names to disk, and the epoch."""
        self.unsynced.append(self.active)
        self.unsynced_directories += [self.directory, parent(self.directory)]
        self.epochs_are_unsaved = True

    # Appending

    def append(self, batches: bytearray | memoryview, now_ms: int) -> Appended:
        """Afterwards the batches are written behind all others, stamped in place; a flush makes them count.

        Raises CorruptBatch for bytes that are no intact batches, InvalidAppend for what cannot be appended here,
        and StorageError where the disk refuses; then the log is as it was. A repetition of what an idempotent
        producer has sent before is not appended again: the offsets of the original are returned.
        """
        self._require_writable()
        found = list(batch.split(batches))
        if (original := self._check(found, len(batches))) is not None:
            return original
        markers = {position: marker_of(batches, position) for position, header in found if header.is_control}
        stamped = self._stamp(batches, found, now_ms)
        segment = self._segment_for(len(batches), stamped[-1][1].last_offset, now_ms)
        try:
            segment.append(batches, stamped)
        except OSError as error:
            raise self._append_failed(segment, error) from error
        self._appended(segment, len(batches), stamped, markers)
        append_time = now_ms if self.config.log_append_time else batch.NO_TIMESTAMP
        return Appended(stamped[0][1].base_offset, stamped[-1][1].last_offset, append_time)

    def _check(self, found: list[tuple[int, BatchHeader]], size: int) -> Appended | None:
        """Raises where the batches cannot be appended as they are; returns the original where they were appended
        before.
        """
        if not found:
            raise InvalidAppend("there is no batch to append")
        if size > self.config.segment_bytes:
            raise InvalidAppend(f"{size} bytes do not fit into a segment of {self.config.segment_bytes}")
        for _, header in found:
            if not batch.is_dense(header):
                raise InvalidAppend(f"{header.record_count} records take {header.last_offset_delta + 1} offsets")
            if header.producer_id == batch.NO_PRODUCER:
                continue
            if len(found) > 1 and not header.is_control:
                raise InvalidAppend("an idempotent producer sends one batch at a time")
            if (original := self.producers.check(header)) is not None:
                return Appended(original.base_offset, original.last_offset, batch.NO_TIMESTAMP, is_duplicate=True)
        return None

    def _stamp(
        self, batches: bytearray | memoryview, found: list[tuple[int, BatchHeader]], now_ms: int
    ) -> list[tuple[int, BatchHeader]]:
        """Gives the batches their offsets and the epoch, and the time where the log sets it; returns the headers as
        they are now.
        """
        offset, epoch = int(self.bounds.end), self.epochs.latest
        stamped = []
        for position, header in found:
            batch.stamp(batches, position, offset, epoch)
            if self.config.log_append_time:
                batch.set_log_append_time(batches, position, now_ms)
            header = batch.read_header(batches, position)
            stamped.append((position, header))
            offset = header.next_offset
        return stamped

    def _segment_for(self, size: int, last_offset: int, now_ms: int) -> Segment:
        """The active segment, after a roll where these bytes would make it too large, or it has become too old."""
        active = self.active
        if active.size:
            if active.first_append_ms is None:
                active.first_append_ms = self._first_append_of(active, now_ms)
            too_large = active.size + size > min(self.config.segment_bytes, POSITION_MAX)
            too_far = last_offset - active.base_offset > RELATIVE_OFFSET_MAX
            too_old = now_ms - active.first_append_ms > self.config.segment_ms
            if too_large or too_far or too_old:
                active = self._roll()
        if not active.size:
            active.first_append_ms = now_ms
        return active

    def _first_append_of(self, segment: Segment, now_ms: int) -> int:
        """A segment of an earlier process is as old as its first batch says, if that is believable."""
        for item in segment.batches(0, segment.size):
            if not isinstance(item, DamagedRange):
                return min(now_ms, item[1].max_timestamp) if item[1].max_timestamp >= 0 else now_ms
        return now_ms

    def roll(self) -> None:
        """Afterwards the active segment is a new one, unless it was empty. The old one is flushed with the next
        flush.
        """
        self._require_writable()
        if self.active.size:
            self._roll()

    def _roll(self) -> Segment:
        new = self._new_segment(self.bounds.end)
        try:
            new.create()
        except OSError as error:
            raise self._append_failed(None, error) from error
        self.active.seal()
        self.segments = (*self.segments, new)
        self.unsynced.append(new)
        self._note_birth(self.directory)
        self.snapshots_due[self.bounds.end] = encode_snapshot(self.producers)
        self.wants_checkpoint = True
        return new

    def _new_segment(self, base_offset: int, size: int = 0) -> Segment:
        return Segment(
            self.files,
            self.directory,
            base_offset,
            size,
            epochs=self.epochs,
            cache=self._cache,
            interval_bytes=self.config.index_interval_bytes,
        )

    def _note_birth(self, directory: str) -> None:
        if directory not in self.unsynced_directories:
            self.unsynced_directories.append(directory)

    def _appended(
        self,
        segment: Segment,
        size: int,
        stamped: list[tuple[int, BatchHeader]],
        markers: dict[int, tuple[Marker | None, int]],
    ) -> None:
        for position, header in stamped:
            if header.producer_id != batch.NO_PRODUCER:
                marker, epoch = markers.get(position, (None, -1))
                aborted = self.producers.replay(header, marker, epoch)
                if aborted is not None:
                    segment.add_aborted(aborted)
        if not self.unsynced or self.unsynced[-1] is not segment:
            self.unsynced.append(segment)
        self.dirty_bytes += size
        self.bounds.appended(stamped[-1][1].next_offset)

    def _append_failed(self, segment: Segment | None, error: OSError) -> StorageError:
        """A full disk leaves the log as it was. After any other error nobody knows what the file holds: the log
        goes offline.
        """
        if error.errno == ENOSPC:
            try:
                if segment is not None:
                    segment.undo_append()
                return OutOfSpace("no space left to append", error)
            except OSError as undo_error:
                error = undo_error
        return self.take_offline("a write failed", error)

    def take_offline(self, message: str, cause: OSError) -> LogOffline:
        """Afterwards every append and flush raises; what is on disk can still be read."""
        self.offline = LogOffline(f"{message} in {self.directory}, which now takes no appends", cause)
        return self.offline

    def _require_writable(self) -> None:
        if self._is_closed:
            raise LogClosed(self.directory)
        if self.offline is not None:
            raise self.offline

    # Flushing

    def begin_flush(self) -> FlushJob | None:
        """None where there is nothing to do."""
        if self.offline is not None:
            raise self.offline
        return FlushJob(self) if self.unsynced or self.unsynced_directories else None

    def flushed(self, job: FlushJob) -> None:
        """Called by a job that is done: what it covered counts from now on."""
        if job.visible > self.visible:
            self.visible = job.visible  # before the high watermark: a reader that sees that one finds what is below it
        self.bounds.flushed(job.target)
        self.dirty_bytes = max(0, self.dirty_bytes - job.bytes)
        self.unsynced = [
            segment
            for segment in self.unsynced
            if segment not in job.segments or Position(segment.base_offset, segment.size) > job.visible
        ]
        self.unsynced_directories = [path for path in self.unsynced_directories if path not in job.directories]
        if job.epochs is not None and job.epochs == self.epochs.encode():
            self.epochs_are_unsaved = False

    def flush(self) -> None:
        """Afterwards `high_watermark` is `end_offset`: everything is on disk. Raises LogOffline where it cannot be."""
        if (job := self.begin_flush()) is not None:
            job.run()
            job.finish()

    def begin_checkpoint(self, now_ms: int) -> CheckpointJob:
        self._require_writable()
        self.producers.expire(now_ms - self.config.producer_id_expiration_ms)
        return CheckpointJob(self)

    def checkpoint(self, now_ms: int) -> None:
        """Afterwards `recovery_point` is `end_offset`, if what is derived could be saved; all is flushed in any
        case.
        """
        job = self.begin_checkpoint(now_ms)
        job.run()
        job.finish()

    def raise_leader_epoch(self, epoch: int) -> None:
        """Afterwards what is appended belongs to `epoch`. Waits for the disk: an epoch that was used must not be
        forgotten.
        """
        self._require_writable()
        if self.epochs.assign(epoch, self.bounds.end):
            try:
                replace_whole(self.files, join(self.directory, EPOCHS_FILE), self.epochs.encode())
            except OSError as error:
                raise self.take_offline("the leader epoch could not be saved", error) from error

    # Shortening, at either end

    def delete_before(self, offset: int) -> None:
        """Afterwards nothing below `offset` can be read. Segments wholly below it wait in `condemned` for their
        removal, which must not come before the start offset is on disk: see `DataDirectory.checkpoint`."""
        if not self.bounds.start <= offset <= self.bounds.high_watermark:
            raise OffsetOutOfRange(offset, self.bounds.start, self.bounds.high_watermark)
        self.bounds.deleted(offset)
        kept = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1
        if kept > 0:
            self.condemned += self.segments[:kept]
            self.segments = self.segments[kept:]

    def end_after_truncation(self, offset: int) -> int:
        """Where the log would end if it were truncated at `offset`: there, or before the batch that lies across it."""
        if not self.bounds.start <= offset <= self.bounds.end:
            raise OffsetOutOfRange(offset, self.bounds.start, self.bounds.end)
        segment = self.segments[bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1]
        found = segment.find(offset, segment.size)
        return offset if found is None else max(self.bounds.start, min(offset, found[1].base_offset))

    def truncate(self, offset: int) -> None:
        """Afterwards the log ends where `end_after_truncation` says, and all that is left is on disk.

        This takes back what readers may have seen: only a follower of another log has a reason to. No reads may be
        under way, and the recovery point on disk must not be beyond the new end (see `DataDirectory.truncate`).
        """
        self._require_writable()
        end = self.end_after_truncation(offset)
        self.flush()
        try:
            self._cut_segments(end)
        except OSError as error:
            raise self.take_offline("a truncation failed", error) from error
        self.producers, _ = replay_segments(self.files, self.directory, self.segments, end)
        epoch = self.epochs.latest
        self.epochs.truncate(end)
        self.epochs.assign(epoch, end)  # it never goes back, although nothing is left of what was written in it
        self.epochs_are_unsaved = True
        self.snapshots_due = {offset: data for offset, data in self.snapshots_due.items() if offset <= end}
        self.bounds.truncated(end)
        self.visible = self.end_position
        self.recovery_point = min(self.recovery_point, end)

    def _cut_segments(self, end: int) -> None:
        kept = [segment for segment in self.segments if segment.base_offset <= end]
        found = kept[-1].find(end, kept[-1].size)
        lies_across = found is not None and found[1].base_offset < end
        if lies_across:  # the log begins inside of its last batch: it ends up empty, and goes on at its start
            kept.clear()
        for segment in reversed(self.segments[len(kept) :]):  # the newest first: what is left has no gap at any point
            segment.remove()
            self.files.sync_directory(self.directory)
        if lies_across:
            kept.append(self._new_segment(end))
            kept[-1].create()
            self.files.sync_directory(self.directory)
        elif found is not None:
            kept[-1].truncate(found[0])
        self.segments = tuple(kept)
        self._forget_snapshots_after(end)

    def _forget_snapshots_after(self, end: int) -> None:
        for offset in snapshot_offsets(self.files, self.directory):
            if offset > end:
                self.files.remove(join(self.directory, numbered(offset, SNAPSHOT)))

    @property
    def is_cleanly_closed(self) -> bool:
        return self._is_closed and self.offline is None and self.recovery_point == self.bounds.end

    def close(self, now_ms: int) -> None:
        """Afterwards everything is on disk and a clean start needs to read no data, if `is_cleanly_closed` says so.

        A log that is offline, or goes offline now, is just let go.
        """
        try:
            if self.offline is None and not self._is_closed:
                self.checkpoint(now_ms)
        except LogOffline as error:
            logger.error("%s", error)
        finally:
            self._is_closed = True
            for segment in (*self.segments, *self.condemned):
                segment.close()
