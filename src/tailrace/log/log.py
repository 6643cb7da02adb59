"""One partition's log: segments in order, and the three offsets that bound them.

The broker uses a log through this surface:

    append, append_all        check, stamp, one write; readers see it once a flush has covered it
    configure                 at any time: later appends obey
    start_offset, high_watermark, last_stable_offset, end_offset, leader_epoch, size
    view                      all that readers may see, at one moment
    read, stretch, find_…     by offset, by time; aborted transactions, epoch ends (`log/reader`, from any thread)
    begin_flush, begin_checkpoint       as a job: begun here, run in any thread, finished here (`log/jobs`)
    delete_before             from the front, whole segments; the start offset may lie anywhere
    producers, epochs, topic_id         what the log remembers beside its batches
    offline, refusal, damage, is_removed

What follows is the business of a log on the local disk alone: retention, compaction, the scrubber and recovery use it.

    roll, age_of_active_segment, sealed_segments, oldest_segment, end_of_first_segments, end_of_sealed,
    segments_of_unknown_age, rule_out_gaps, replace_segments, truncate
    recovery_point, compacted_to, condemned, saving, flushing, replacing

No other module of `broker/` or `server/` looks at `segments` or `active`.

All but reading is for one thread, the log's owner. Nothing here looks at a clock or starts a thread: the time is an
argument.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from errno import EMFILE, ENFILE
from typing import NamedTuple, cast

from tailrace.log.dirty import UnflushedWrites
from tailrace.log.disk.interface import Data, Files, join, name_of, parent, replace_whole
from tailrace.log.files.index import POSITION_MAX, RELATIVE_OFFSET_MAX, least_size_of_full_index
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.files.recorded_gaps import RecordedGap, has_gap
from tailrace.log.jobs import NO_ROOM, FlushJob, LogJob, SaveJob
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.damage import missing_file
from tailrace.log.layout.errors import (
    Damaged,
    JobUnderWay,
    LogClosed,
    LogError,
    LogOffline,
    LogRemoved,
    OffsetOutOfRange,
    OutOfSpace,
    StorageError,
    without_frames,
)
from tailrace.log.layout.names import FLUSH_FAILED
from tailrace.log.layout.offsets import OffsetBounds
from tailrace.log.reader import Position, ReadableLog
from tailrace.log.scan.scan import header_at
from tailrace.log.segment.segment import DerivedCache, Segment, number_of_segment_at
from tailrace.log.state.producer_state import ProducerState, encode_snapshot
from tailrace.log.state.replay import remove_snapshots, replay_segments
from tailrace.log.validation import Appended, check_batch, follow_one_another, repetition_of
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.checksum import crc32c
from tailrace.records.control import NO_MARKER, Marker, marker_of

logger = logging.getLogger("tailrace.log")


class Room(NamedTuple):
    """How far the active segment takes appends without another look at whether it is full or old."""

    position: int
    offset: int
    until_ms: int


NO_ROOM_KNOWN = Room(-1, -1, -1)


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
        topic_id: bytes | None = None,
        compacted_to: int = 0,
        recorded_gaps: tuple[RecordedGap, ...] = (),
    ) -> None:
        """A log as recovery left it: everything in it is on disk. See `recovery.open_log`."""
        super().__init__(
            files,
            directory,
            segments=segments,
            bounds=bounds,
            epochs=epochs,
            producers=producers,
            recorded_gaps=recorded_gaps,
        )
        self.configure(config)
        self.name = name_of(directory).encode()  # as the journal has it
        self.topic_id = topic_id
        self.recovery_point: int = bounds.end
        self.synced: int = bounds.end  # what its own files have; the rest may be in the journal
        self.offline: LogOffline | None = None
        self.flushing: FlushJob | None = None
        self.saving: SaveJob | None = None
        self.replacing: LogJob | None = None
        self.is_half_replaced = False  # a replacement failed in the middle: the next start does the rest
        self.compacted_to = compacted_to  # below it, each key has one value; what lies behind is new
        self.compacted_to_on_disk = compacted_to
        self.unflushed = UnflushedWrites()
        self.snapshots_due: dict[int, bytes] = {}
        self.save_failed = False
        self.recovery_point_on_disk: int = bounds.end
        self.condemned: list[Segment] = []
        self.is_enrolled = True  # named by the recovery points on disk, or about to be by the start that found it
        self.enrol: Callable[[Log], None] | None = None  # of a new one: called by its first flush
        self._cache = cache
        self._is_closed = False
        self._before_append: list[Callable[[], object]] = []
        self._is_guarded = False  # closed, or with something to do before the next append

    @property
    def dirty_bytes(self) -> int:
        """Written since the last flush began."""
        return self.unflushed.bytes

    @property
    def wants_checkpoint(self) -> bool:
        """Whether a segment was sealed since the last one. If that one failed, it is not wanted at once again."""
        return bool(self.snapshots_due) and not self.save_failed

    def note_creation(self) -> None:
        """The directory and its first file are new: the first flush brings their names to disk, and the epoch."""
        self.unflushed.will_write(self.active)
        self.unflushed.named(self.directory, parent(self.directory))
        self.unflushed.epochs = True

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Afterwards the log belongs to this topic; that is on disk with the next flush."""
        if topic_id != self.topic_id:
            self.topic_id = topic_id
            self.unflushed.topic_id = True
            self.unflushed.named(self.directory)

    def configure(self, config: LogConfig) -> None:
        """Afterwards appends obey `config`, and so do segments that are begun."""
        self.config = config
        interval_bytes = min(config.index_interval_bytes, self.active.interval_bytes)
        self._full_index_from = least_size_of_full_index(config.segment_index_bytes, interval_bytes)
        self._room = NO_ROOM_KNOWN

    # Appending

    def append(
        self,
        data: bytearray | memoryview,
        now_ms: int,
        header: BatchHeader | None = None,
        tell: Callable[[int, int], None] | None = None,
    ) -> Appended:
        """Afterwards the batch in `data` is written behind all others, stamped in place; a flush makes it count. Its
        `header` need not be read where it was. Who waits for no more than that can be told its offset and the time
        that it was given as soon as it is so, while the rest is yet to be noted (`tell`); of a repetition it is not.

        Raises CorruptBatch for bytes that are no intact batch, InvalidAppend for what cannot be appended here, and
        StorageError where the disk refuses; then the log is as it was. A repetition of what an idempotent producer has
        sent before is not appended again: the offsets of the original are returned.
        """
        if self._is_guarded or self.offline is not None:
            self._prepare_append()
        header = check_batch(data, self.config, header)
        if header.producer_id != batch.NO_PRODUCER and (original := self.producers.check(header)) is not None:
            return repetition_of(original, self.config)
        marker = marker_of(data) if header.attributes & batch.CONTROL else NO_MARKER
        header, append_time = self._stamp(data, header, self.bounds.end, now_ms)
        return self._write(data, (header,), append_time, now_ms, marker, tell)

    def append_all(self, batches: Sequence[memoryview], headers: Sequence[BatchHeader], now_ms: int) -> Appended | None:
        """The same of several, whose headers were read, in one write: as if they were appended one by one, and
        returned as one. None, and nothing has changed, where that is how it must be done: one is a repetition, or out
        of turn, or does not fit into the segment.
        """
        if self._is_guarded or self.offline is not None:
            self._prepare_append()
        first, size = headers[0], sum(map(len, batches))
        next_offset = self.bounds.end + sum(header.last_offset_delta + 1 for header in headers)
        if not (self._has_room_for(size, next_offset, now_ms) and follow_one_another(headers)):
            return None
        if first.producer_id != batch.NO_PRODUCER and self.producers.check(first) is not None:
            return None
        for data, header in zip(batches, headers, strict=True):
            check_batch(data, self.config, header)
        stamped: list[BatchHeader] = []
        offset: int = self.bounds.end
        append_time = batch.NO_TIMESTAMP
        for data, header in zip(batches, headers, strict=True):
            stamped_header, append_time = self._stamp(data, header, offset, now_ms)
            stamped.append(stamped_header)
            offset += header.last_offset_delta + 1
        return self._write(b"".join(batches), stamped, append_time, now_ms)

    def _stamp(
        self, data: bytearray | memoryview, header: BatchHeader, offset: int, now_ms: int
    ) -> tuple[BatchHeader, int]:
        """Its header now, and the time that it was given."""
        header = batch.stamp(data, header, offset, self.epochs.latest)
        if not self.config.log_append_time:
            return header, batch.NO_TIMESTAMP
        return batch.set_log_append_time(data, header, now_ms), now_ms

    def _write(
        self,
        data: Data,
        headers: Sequence[BatchHeader],
        append_time: int,
        now_ms: int,
        marker: tuple[Marker | None, int] = NO_MARKER,
        tell: Callable[[int, int], None] | None = None,
    ) -> Appended:
        """Writes batches, one behind the other, that are checked and stamped, and notes them. A marker stands alone."""
        size, unflushed, base_offset = len(data), self.unflushed, self.bounds.end
        next_offset = headers[-1].base_offset + headers[-1].last_offset_delta + 1
        if self._has_room_for(size, next_offset, now_ms):
            segment = self.view.segments[-1]
        else:
            segment = self._segment_for(size, next_offset - 1, now_ms)
        unflushed.will_write(segment)
        try:
            segment.write(data)
        except OSError as error:
            raise self._append_failed(segment, error) from error
        try:
            if tell is not None:
                tell(base_offset, append_time)
        finally:  # whatever becomes of who was told: it is written
            segment.note(data, headers)
            unflushed.wrote(size, next_offset - base_offset)
            self.bounds.appended(next_offset)
            if headers[0].producer_id != batch.NO_PRODUCER:
                self._note_producer(headers, marker)
        return Appended(base_offset, next_offset - 1, append_time)

    def _has_room_for(self, size: int, next_offset: int, now_ms: int) -> bool:
        """Whether the active segment takes it, as far as one knows without another look."""
        position, offset, until_ms = self._room
        return self.view.segments[-1].size + size <= position and next_offset <= offset and now_ms <= until_ms

    def _note_producer(self, headers: Sequence[BatchHeader], marker: tuple[Marker | None, int]) -> None:
        for header in headers:
            aborted = self.producers.replay(header, *marker)
            if aborted is not None:
                self.active.add_aborted(aborted)

    def _segment_for(self, size: int, last_offset: int, now_ms: int) -> Segment:
        """The active segment, after a roll where these bytes would make it too large, its index is full, or it has
        become too old. Afterwards it is known what it takes without another look.
        """
        active = self.active
        if active.size:
            too_large = active.size + size > min(self.config.segment_bytes, POSITION_MAX)
            too_far = last_offset - active.base_offset > RELATIVE_OFFSET_MAX
            age_ms = now_ms - self._begun_ms(now_ms)
            too_old = age_ms > self.config.segment_ms or (self.config.segment_jitter_ms and self._is_early(age_ms))
            if too_large or too_far or too_old or (active.size >= self._full_index_from and self._has_full_index()):
                active = self._roll()
        if not active.size:
            active.first_append_ms = now_ms
        self._room = self._room_in(active, now_ms)
        return active

    def _room_in(self, active: Segment, now_ms: int) -> Room:
        if not 0 < active.size < self._full_index_from:
            return NO_ROOM_KNOWN
        sooner_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return Room(
            min(self.config.segment_bytes, POSITION_MAX, self._full_index_from),
            active.base_offset + RELATIVE_OFFSET_MAX,
            self._begun_ms(now_ms) + self.config.segment_ms - sooner_ms,
        )

    def _has_full_index(self) -> bool:
        return self.active.has_full_index(self.config.segment_index_bytes)

    def _is_early(self, age_ms: int) -> bool:
        """Whether the segment is too old although others would not be: logs that began together are not to roll at
        once. Each does so a part of `segment.jitter.ms` sooner, which is as good as random, and always the same.
        """
        name = f"{name_of(self.directory)}/{self.active.name}"
        sooner_ms = crc32c(name.encode()) % min(self.config.segment_jitter_ms, self.config.segment_ms)
        return age_ms > self.config.segment_ms - sooner_ms

    def age_of_active_segment(self, now_ms: int) -> int:
        """How long ago the active segment got its first batch, in milliseconds; 0 where it is empty."""
        return now_ms - self._begun_ms(now_ms) if self.active.size else 0

    def _begun_ms(self, now_ms: int) -> int:
        """When the active segment, which is not empty, got its first batch. One of an earlier process is as old as
        that batch says, if that is believable.
        """
        active = self.active
        if active.first_append_ms is None:
            active.first_append_ms = now_ms
            with suppress(OSError):
                header = header_at(active.log, 0)
                if header is not None and header.max_timestamp >= 0:
                    active.first_append_ms = min(now_ms, header.max_timestamp)
        return active.first_append_ms

    def roll(self) -> None:
        """Afterwards the active segment is a new one, unless it was empty. The old one is flushed with the next
        flush.
        """
        self._prepare_append()
        if self.active.size:
            self._roll()

    def _roll(self) -> Segment:
        new = self.new_segment(self.bounds.end)
        try:
            new.create()
            self.unflushed.will_write(new)
        except OSError as error:
            raise self._append_failed(None, error) from error
        self.active.seal()
        self.unflushed.named(self.directory)
        self.snapshots_due[self.bounds.end] = encode_snapshot(self.producers)
        self.publish(segments=(*self.segments, new))
        self._room = NO_ROOM_KNOWN
        return new

    def new_segment(self, base_offset: int, size: int = 0) -> Segment:
        return Segment(
            self.files,
            self.directory,
            base_offset,
            size,
            epochs=self.epochs,
            cache=self._cache,
            interval_bytes=self.config.index_interval_bytes,
        )

    def _append_failed(self, segment: Segment | None, error: OSError) -> StorageError:
        """Where there is no room, on the disk or for descriptors, the log is as it was. After any other error nobody
        knows what the file holds: the log goes offline.
        """
        if error.errno in (EMFILE, ENFILE):
            return StorageError("too many files are open", error)
        if error.errno in NO_ROOM:
            try:
                if segment is not None:
                    segment.undo_append()
                return OutOfSpace("no space left to append", error)
            except OSError as undo_error:
                error = undo_error
        return self.take_offline("a write failed", error)

    def take_offline(self, message: str, cause: OSError) -> LogOffline:
        """From now on every append and flush raises; what is on disk can still be read. Logs why, once.

        The next start is told, if the disk takes at least that: the page cache may hold what the disk does not.
        """
        if self.offline is None:
            cause = without_frames(cause)
            self.offline = LogOffline(f"{message} in {self.directory}, which now takes no appends", cause)
            with suppress(OSError):
                self.files.open(join(self.directory, FLUSH_FAILED), create=True).close()
            logger.error(
                "%s. Records that were flushed are still served. Check the disk (dmesg, smartctl), then restart the "
                "broker",
                self.offline,
            )
        return self.offline.again()

    @property
    def refusal(self) -> LogError | None:
        """What appends and flushes are answered with, if they are refused."""
        if self.is_removed:
            return LogRemoved(self.directory)
        if self._is_closed:
            return LogClosed(self.directory)
        return self.offline.again() if self.offline is not None else None

    def _require_writable(self) -> None:
        if self._is_closed or self.offline is not None:
            raise cast(LogError, self.refusal)  # without a name, by which this frame would hold it in a cycle

    # What a start had no room for

    def before_append(self, duty: Callable[[], object]) -> None:
        """Calls `duty` before the next append. While it raises StorageError or OSError, appends are refused, and each
        one tries again.
        """
        self._before_append.append(duty)
        self._is_guarded = True

    def save_epochs_before_append(self) -> None:
        """The leader epochs in memory are not on disk: they will be before anything is appended under them."""
        if self._save_epochs not in self._before_append:
            self.before_append(self._save_epochs)

    def do_what_is_due(self) -> None:
        """On return nothing is left to do before an append. Raises StorageError where there is still no room."""
        if self._before_append:
            self._prepare_append()

    def _prepare_append(self) -> None:
        """Raises where the log takes no appends: for good, or until there is room for what has to come first."""
        self._require_writable()
        try:
            while self._before_append:
                self._before_append[0]()
                del self._before_append[0]
        except OSError as error:
            raise self._append_failed(None, error) from error
        self._is_guarded = False

    # Flushing

    def begin_flush(self) -> FlushJob | None:
        """None where there is nothing to do. Raises JobUnderWay where another flush has not come back yet."""
        self._require_writable()
        self._require_no_flush()
        if not self.unflushed:
            return None
        self.flushing = job = FlushJob(self)
        return job

    def _require_no_flush(self) -> None:
        if self.flushing is not None:
            raise JobUnderWay(f"{self.directory} is being flushed: one at a time")

    @property
    def is_idle(self) -> bool:
        """Whether no job is under way."""
        return self.flushing is None and self.saving is None

    def require_idle(self) -> None:
        if not self.is_idle:
            raise JobUnderWay(f"{self.directory} has a job under way, which must come back first")

    def require_settled(self) -> None:
        """The same, and that no segments are just being replaced, which flushes and checkpoints need not know of."""
        self.require_idle()
        if self.replacing is not None:
            raise JobUnderWay(f"segments of {self.directory} are being replaced, which must come back first")

    def flushed(self, up_to: int, visible: Position) -> None:
        """Called by a job that is done: what it covered counts from now on. A journal write may have been quicker."""
        self.bounds.flushed(up_to)
        self.publish(visible=max(visible, self.view.visible))

    def files_synced(self, up_to: int) -> None:
        """Called by a flush that is done: the files have everything below; what waited for that is condemned."""
        self.synced = max(self.synced, up_to)
        if len(self.segments) > 1 and self.segments[1].base_offset <= self.bounds.start:
            self._condemn()

    def saved(self, up_to: int, snapshots: Iterable[int]) -> None:
        """Called by a job that is done: recovery need not look at what lies below."""
        for offset in snapshots:
            self.snapshots_due.pop(offset, None)
        self.recovery_point = max(self.recovery_point, up_to)

    def flush(self) -> None:
        """Afterwards `high_watermark` is `end_offset`: all is on disk. Raises StorageError where it cannot be."""
        if (job := self.begin_flush()) is not None:
            job.run()
            job.finish()

    def begin_checkpoint(self, steady_ms: int | None) -> FlushJob:
        """A flush that hands over a `SaveJob` when it is finished. Raises JobUnderWay where one has not come back.

        Producers that were idle for too long are forgotten, if the time of a steady clock is given.
        """
        self._require_writable()
        self.require_idle()
        if steady_ms is not None:
            self.producers.expire(steady_ms, self.config.producer_id_expiration_ms)
        self.saving = SaveJob(self)
        self.flushing = job = FlushJob(self, self.saving)
        return job

    def checkpoint(self, steady_ms: int | None) -> None:
        """Afterwards `recovery_point` is `end_offset`, if what is derived could be saved; all is flushed in any
        case.
        """
        job = self.begin_checkpoint(steady_ms)
        job.run()
        if (save := job.finish()) is not None:
            save.run()
            save.finish()

    def raise_leader_epoch(self, epoch: int) -> None:
        """Afterwards what is appended belongs to `epoch`. Waits for the disk: an epoch that was used must not be
        forgotten. Where there is no room, the first append tries again.
        """
        self._require_writable()
        self._require_no_flush()  # which may be writing the file, too
        if self.epochs.assign(epoch, self.bounds.end):
            try:
                self._save_epochs()
            except OSError as error:
                if error.errno in NO_ROOM:
                    self.save_epochs_before_append()
                    return
                raise self.take_offline("the leader epoch could not be saved", error) from error

    def _save_epochs(self) -> None:
        replace_whole(self.files, join(self.directory, EPOCHS_FILE), self.epochs.encode())

    # Shortening, at either end

    def delete_before(self, offset: int) -> tuple[Segment, ...]:
        """On return, nothing below `offset` can be read. Segments wholly below it wait in `condemned` for their
        removal, which must not come before the start offset is on disk: see `DataDirectory.checkpoint`. Returns the
        segments that this call has condemned.
        """
        if not self.bounds.start <= offset <= self.bounds.high_watermark:
            raise OffsetOutOfRange(offset, self.bounds.start, self.bounds.high_watermark)
        self.bounds.deleted(offset)
        return self._condemn()

    def _condemn(self) -> tuple[Segment, ...]:
        """The segments wholly below the start; but where nobody knows what their names stand for, they wait until that
        is known, and where they are not synced, until they are: what follows them on disk must not lack them.
        """
        below = min(self.bounds.start, self.synced)
        kept = max(0, number_of_segment_at(self.segments, below)) if self.owns_its_names else 0
        condemned = self.segments[:kept]
        self.condemned += condemned
        self.unflushed.forget(condemned)
        self.publish(segments=self.segments[kept:])
        return condemned

    def rule_out_gaps(self) -> None:
        """Makes gaps between offsets damage in the sealed segments, except where a repair has recorded one: the log
        was never compacted.
        """
        for segment in self.sealed_segments:
            if not has_gap(self.recorded_gaps, segment.base_offset, segment.checks.limit):
                segment.rule_out_gaps()

    @property
    def owns_its_names(self) -> bool:
        """Whether the files of its segments' names are theirs. They may be others while some are being replaced, and
        after that has failed.
        """
        return self.replacing is None and not self.is_half_replaced

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Called by a job that is done: readers find `new` where `old` were, whose names are its own by now."""
        first = self.segments.index(old[0])
        self.publish(segments=(*self.segments[:first], new, *self.segments[first + len(old) :]))
        self.unflushed.forget(old)
        for segment in old:
            segment.close()
        self._condemn()

    def end_after_truncation(self, offset: int) -> int:
        """Where the log would end if it were truncated at `offset`: there, or before the batch that lies across it."""
        if not self.bounds.start <= offset <= self.bounds.end:
            raise OffsetOutOfRange(offset, self.bounds.start, self.bounds.end)
        if offset < self.segments[0].base_offset:
            raise Damaged(missing_file(offset, self.segments[0].base_offset))
        segment = self.segments[number_of_segment_at(self.segments, offset)]
        try:
            found = segment.find(offset, segment.size)
        except OSError as error:
            raise StorageError(f"{self.directory} cannot be read", error) from error
        return offset if found is None else max(self.bounds.start, min(offset, found[1].base_offset))

    def truncate(self, offset: int) -> None:
        """Afterwards the log ends where `end_after_truncation` says, and all that is left is on disk.

        This takes back what readers may have seen: only a follower of another log has a reason to. No reads, no job
        and no journal write may be under way, and the recovery point on disk must not be beyond the new end: see
        `DataDirectory.truncate`.
        """
        self._require_writable()
        self.require_settled()
        end = self.end_after_truncation(offset)
        self.flush()
        try:
            self._truncate(end)
        except OSError as error:
            raise self.take_offline("a truncation failed", error) from error

    def _truncate(self, end: int) -> None:
        # First: the syncs that follow cover it.
        remove_snapshots(self.files, self.directory, lambda snapshot: snapshot > end)
        segments = self._cut_segments(end)
        refused = self.producers.refused
        self.producers, aborted = replay_segments(self.files, self.directory, segments, end, segments[-1])
        self.producers.refused = refused
        segments[-1].adopt_transactions(aborted)
        segments[-1].derived_files.save_transactions(aborted)
        epoch = self.epochs.latest
        self.epochs.truncate(end)
        self.epochs.assign(epoch, end)  # it never goes back, although nothing is left of what was written in it
        self._save_epochs()
        self.snapshots_due = {offset: data for offset, data in self.snapshots_due.items() if offset <= end}
        self.recovery_point = min(self.recovery_point, end)
        self.compacted_to = min(self.compacted_to, end)
        self.synced = end
        self.bounds.truncated(end)
        self._room = NO_ROOM_KNOWN
        self.publish(segments=segments, visible=Position(segments[-1].base_offset, segments[-1].size))

    def _cut_segments(self, end: int) -> tuple[Segment, ...]:
        kept = [segment for segment in self.segments if segment.base_offset <= end]
        found = kept[-1].find(end, kept[-1].size)
        lies_across = found is not None and found[1].base_offset < end
        if lies_across:  # the log begins inside of its last batch: it ends up empty, and goes on at its start
            kept.clear()
        for segment in reversed(self.segments[len(kept) :]):  # the newest first: what is left has no gap at any point
            segment.remove()
            self.files.sync_directory(self.directory)
        if lies_across:
            kept.append(self.new_segment(end))
            kept[-1].create()
            self.files.sync_directory(self.directory)
        elif found is not None:
            kept[-1].truncate(found[0])
        return tuple(kept)

    @property
    def is_cleanly_closed(self) -> bool:
        return self._is_closed and self.offline is None and self.is_saved and not self._before_append

    @property
    def is_saved(self) -> bool:
        """Whether all that a start wants to know is on disk: then a checkpoint has nothing to do."""
        if self.recovery_point != self.bounds.end or self.unflushed:  # most are known by that
            return False
        return all(segment.is_saved for segment in self.segments)

    def close(self, steady_ms: int) -> None:
        """Afterwards everything is on disk and a clean start needs to read no data, if `is_cleanly_closed` says so.

        A log that is offline, or goes offline now, is just let go. Raises JobUnderWay, and does nothing, while it has
        a job.
        """
        self.require_settled()
        try:
            if self.offline is None and not self._is_closed and not self.is_saved:
                self.checkpoint(steady_ms)
        except LogOffline:
            pass  # it has logged why
        except StorageError as error:
            logger.error("%s", error)
        finally:
            self.let_go()

    def note_removal(self) -> None:
        """Afterwards nobody can use the log but those who have a piece of it pinned. What is on disk is on disk; a
        job that is under way may come back, and changes nothing.
        """
        self.is_removed = True  # first: readers that find a file closed look here for the reason
        self.let_go()
        self.unflushed = UnflushedWrites()
        self.snapshots_due = {}

    def let_go(self) -> None:
        """Afterwards no descriptor is held, whatever is not on disk yet."""
        self._is_closed = self._is_guarded = True
        for segment in (*self.segments, *self.condemned):
            segment.close()
