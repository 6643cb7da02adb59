"""One partition's log: segments in order, and the three offsets that bound them.

    append   check, stamp, one write; what was written counts for readers once a flush has covered it
    read     whole batches from an offset on, up to the high watermark, as a slice
    find     the first record at or after a time, the record with the largest timestamp
    roll     a new segment when the active one is full or old
    delete   from the front, whole segments; the start offset may lie anywhere

The log is changed by one thread, its owner. Reading and finding are safe from any thread. Nothing here looks at a
clock or starts a thread: the time is an argument, and what waits for a disk is a job (`log/jobs.py`) that the owner
begins, any thread runs, and the owner finishes.
"""

from bisect import bisect_right
from collections.abc import Iterator
from errno import ENOSPC
from typing import NamedTuple

from tailrace.log.config import LogConfig
from tailrace.log.damage import DamagedRange, missing_file
from tailrace.log.derived import Derived
from tailrace.log.epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.epochs import EpochEnd, LeaderEpochs
from tailrace.log.errors import (
    Damaged,
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
from tailrace.log.offsets import EndOffset, HighWatermark, OffsetBounds, StartOffset
from tailrace.log.producer_snapshot import encode_snapshot
from tailrace.log.producer_state import ProducerState
from tailrace.log.replay import replay_segments
from tailrace.log.segment import DerivedCache, Segment
from tailrace.log.slices import FileSlice
from tailrace.log.transaction_index import AbortedTransaction
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.control import Marker, marker_of
from tailrace.records.record import Record, decode_records, first_record_at_or_after

_PIECE_BYTES = 1 << 20  # read at a time by whoever looks for a record


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time: int
    is_duplicate: bool = False


class Position(NamedTuple):
    """A place in the log where a batch ends: everything before it is on disk."""

    segment_base: int
    position: int


class FoundTime(NamedTuple):
    offset: int
    timestamp: int


class Log:
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
        self.files = files
        self.directory = directory
        self.config = config
        self.epochs = epochs
        self.producers = producers
        self.epochs_are_unsaved = False
        self.recovery_point: int = bounds.end
        self.offline: LogOffline | None = None
        self.wants_checkpoint = False
        self.dirty_bytes = 0
        self.segments = segments
        self.condemned: list[Segment] = []
        self.bounds = bounds
        self.unsynced: list[Segment] = []
        self.unsynced_directories: list[str] = []
        self.snapshots_due: dict[int, bytes] = {}
        self._cache = cache
        self._is_closed = False
        self.visible = self.end_position

    @property
    def start_offset(self) -> StartOffset:
        return self.bounds.start

    @property
    def high_watermark(self) -> HighWatermark:
        return self.bounds.high_watermark

    @property
    def end_offset(self) -> EndOffset:
        return self.bounds.end

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided: how far a reader of committed records may go."""
        return self.producers.last_stable_offset(self.bounds.high_watermark)

    @property
    def leader_epoch(self) -> int:
        return self.epochs.latest

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def end_position(self) -> Position:
        return Position(self.active.base_offset, self.active.size)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def damage(self) -> list[DamagedRange]:
        """What is known to be damaged now; a range nobody has read yet may come to it."""
        return [known for segment in self.segments for known in segment.checks.damage]

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

    # Reading: from any thread

    def read(self, offset: int, max_bytes: int, *, up_to: int | None = None, wait: bool = True) -> FileSlice | None:
        """Whole batches, beginning with the one that holds `offset`: up to `max_bytes`, but one at least. None at
        the end.

        Nothing at or beyond `up_to` is given, nor beyond the high watermark. Raises OffsetOutOfRange, or Damaged
        where the bytes are; with `wait=False`, WouldWait where a disk must be asked.
        """
        high_watermark, visible = self.bounds.high_watermark, self.visible
        if not self.bounds.start <= offset <= high_watermark:
            raise OffsetOutOfRange(offset, self.bounds.start, high_watermark)
        if offset == high_watermark or (up_to is not None and offset >= up_to):
            return None
        for segment, limit in self._segments_from(offset, visible):
            found = segment.find(offset, limit, wait=wait)
            if found is None:
                continue
            position, header = found
            if up_to is not None and up_to < high_watermark:
                if header.base_offset >= up_to:
                    return None
                limit = self._limit_before(segment, up_to, limit, wait)
            end, next_offset = segment.end_of_batches(position, header, min(position + max_bytes, limit), wait=wait)
            return FileSlice(segment.log, position, end - position, next_offset)
        return None

    def _segments_from(self, offset: int, visible: Position) -> Iterator[tuple[Segment, int]]:
        """The segments that can hold `offset` or what follows it, each with the position up to which readers may
        go.
        """
        segments = self.segments
        first = max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset > visible.segment_base:
                return
            is_last = segment.base_offset == visible.segment_base
            yield segment, visible.position if is_last else segment.size
            if not is_last:
                self._require_no_gap(segment, segments[number + 1], offset)

    def _require_no_gap(self, segment: Segment, following: Segment, offset: int) -> None:
        """A segment that was never compacted ends where the next begins; if not, a file between them is missing."""
        derived = segment.derived()
        if derived.next_offset >= following.base_offset or derived.may_have_gaps:
            return
        if offset < following.base_offset:
            raise Damaged(missing_file(derived.next_offset, following.base_offset))

    def _limit_before(self, segment: Segment, up_to: int, limit: int, wait: bool) -> int:
        found = segment.find(up_to, limit, wait=wait)
        return found[0] if found is not None else limit

    def aborted_transactions(self, first: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from `first` to before `end`: what a reader of committed records
        leaves out.
        """
        aborted: list[AbortedTransaction] = []
        for segment, _ in self._segments_from(first, self.visible):
            index = segment.transactions()
            if index is None:
                _, index = replay_segments(self.files, self.directory, self.segments, self.bounds.end, segment)
                segment.adopt_transactions(index)
            aborted += index.overlapping(first, end)
            # A later one cannot reach back before the offset below which everything was decided by then.
            if any(entry.last_stable_offset >= end for entry in index):
                break
        return aborted

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Where the largest epoch not above `epoch` ends, as far as readers may know."""
        return self.epochs.end_of(epoch, self.bounds.high_watermark)

    # Finding: from any thread

    def find_time(self, timestamp: int) -> FoundTime | None:
        """The first record, in order of offsets, with this timestamp or a later one; None if there is none."""
        for segment, _ in self._segments_from(self.bounds.start, self.visible):
            derived = segment.derived()
            if derived.max_timestamp < timestamp:
                continue
            entry = derived.time_index.before(timestamp)
            offset = max(self.bounds.start, entry.last_offset if entry else segment.base_offset)
            found = self._find_time_from(offset, timestamp, derived.next_offset)
            if found is not None:
                return found
        return None

    def _find_time_from(self, offset: int, timestamp: int, end: int) -> FoundTime | None:
        for data, position, header in self._batches_from(offset, end):
            if header.max_timestamp >= timestamp:
                record = first_record_at_or_after(data, position, timestamp, start_offset=self.bounds.start)
                if record is not None:
                    return FoundTime(record.offset, record.timestamp)
        return None

    def _batches_from(self, offset: int, end: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
        """Every batch with records from `offset` to before `end` that readers may see, a piece of the log at a
        time.
        """
        while offset < min(end, self.bounds.high_watermark):
            piece = self.read(offset, _PIECE_BYTES)
            if piece is None:
                return
            with piece:
                data, offset = piece.read(), piece.next_offset
            for position, header in batch.split(data):
                yield data, position, header

    def find_max_timestamp(self) -> FoundTime | None:
        """The record with the largest timestamp that readers may see, the first of them; None in an empty log."""
        best: FoundTime | None = None
        for segment, _ in self._segments_from(self.bounds.start, self.visible):
            derived = segment.derived()
            if best is not None and derived.max_timestamp <= best.timestamp:
                continue
            found = self._max_timestamp_of(segment, derived)
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
        return best

    def _max_timestamp_of(self, segment: Segment, derived: Derived) -> FoundTime | None:
        """Its index knows the batch, unless that is not flushed yet or was deleted: then its batches are gone
        through.
        """
        known = derived.max_timestamp_offset
        start, end = max(self.bounds.start, segment.base_offset), derived.next_offset
        if start <= known < self.bounds.high_watermark:
            start, end = known, known + 1
        best: FoundTime | None = None
        for data, position, header in self._batches_from(start, end):
            if best is None or header.max_timestamp > best.timestamp:
                record = self._newest_record(data, position)
                if record is not None and (best is None or record.timestamp > best.timestamp):
                    best = FoundTime(record.offset, record.timestamp)
        return best

    def _newest_record(self, data: bytes, position: int) -> Record | None:
        readable = [record for record in decode_records(data, position) if record.offset >= self.bounds.start]
        return max(readable, key=lambda record: record.timestamp, default=None)

    # Flushing

    def begin_flush(self) -> FlushJob | None:
        """None where there is nothing to do."""
        if self.offline is not None:
            raise self.offline
        return FlushJob(self) if self.unsynced or self.unsynced_directories else None

    def flushed(self, job: FlushJob) -> None:
        """Called by a job that is done: what it covered counts from now on."""
        self.bounds.flushed(job.target)
        if job.visible > self.visible:
            self.visible = job.visible
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

    def truncate(self, end: int) -> None:
        """Afterwards the log ends at `end`, or before it if a batch lies across it, and all that is left is on disk.

        This takes back what readers may have seen: only recovery and a follower of another log have a reason to. No
        reads may be under way, and the recovery point on disk must not be beyond `end` (see
        `DataDirectory.truncate`).
        """
        self._require_writable()
        if not self.bounds.start <= end <= self.bounds.end:
            raise OffsetOutOfRange(end, self.bounds.start, self.bounds.end)
        self.flush()
        try:
            self._cut_segments(end)
        except OSError as error:
            raise self.take_offline("a truncation failed", error) from error

    def _cut_segments(self, end: int) -> None:
        kept = [segment for segment in self.segments if segment.base_offset <= end]
        for segment in reversed(self.segments[len(kept) :]):  # the newest first: what is left has no gap at any point
            segment.remove()
            self.files.sync_directory(self.directory)
        last = kept[-1]
        found = last.find(end, last.size) if end > last.base_offset else (0, None)
        if found is not None:
            header = found[1]
            end = header.base_offset if header is not None else last.base_offset
            last.truncate(found[0])
        self.segments = tuple(kept)
        self.producers, _ = replay_segments(self.files, self.directory, self.segments, end)
        self.epochs.truncate(end)
        self.epochs_are_unsaved = True
        self.snapshots_due = {offset: data for offset, data in self.snapshots_due.items() if offset <= end}
        self.bounds.truncated(end)
        self.visible = self.end_position
        self.recovery_point = min(self.recovery_point, end)

    def close(self, now_ms: int) -> None:
        """Afterwards everything is on disk and a clean start needs to read no data. A log that is offline is just
        let go.
        """
        try:
            if self.offline is None and not self._is_closed:
                self.checkpoint(now_ms)
        finally:
            self._is_closed = True
            for segment in (*self.segments, *self.condemned):
                segment.close()
