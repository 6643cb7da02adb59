"""One partition's log: segments in order, and the three offsets that bound them.

The broker uses a log through this surface:

    append, append_all        check, stamp, one write; readers see it once a flush has covered it (`log/appender`)
    configure                 at any time; applies to later appends
    start_offset, high_watermark, last_stable_offset, end_offset, leader_epoch, size
    view                      everything that readers may see, at one moment
    read, range_ahead, find_…     by offset, by time; aborted transactions, epoch ends (`log/reader`, from any thread)
    begin_flush, begin_checkpoint       as a job: begun here, run in any thread, finished here (`log/jobs`)
    delete_before             from the front, whole segments; the start offset may lie anywhere
    producers, epochs, topic_id         what the log remembers beside its batches
    offline, refusal, damage, is_removed

The following concerns only logs on the local disk. Retention, compaction, the scrubber, recovery and the published
facts about segments use it.

    roll, age_of_active_segment, sealed_segments, oldest_segment, end_of_first_segments, end_of_sealed,
    segments_of_unknown_age, rule_out_gaps, replace_segments, truncate
    recovery_point, compacted_to, condemned, saving, flushing, replacing

No other module of `broker/` or `server/` looks at `segments` or `active`.

Only one thread, the log's owner, may do anything but read. Nothing here looks at a clock or starts a thread: the time
is an argument.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from tailrace.log.appender import AppendableLog
from tailrace.log.dirty import UnflushedWrites
from tailrace.log.disk.interface import Files, join, name_of, parent, replace_whole
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.files.recorded_gaps import RecordedGap, has_gap
from tailrace.log.jobs import NO_ROOM, FlushJob, LogJob, SaveJob
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.damage import missing_file
from tailrace.log.layout.errors import (
    Damaged,
    JobUnderWay,
    LogOffline,
    OffsetOutOfRange,
    StorageError,
)
from tailrace.log.layout.offsets import OffsetBounds
from tailrace.log.roll import NO_ROOM_KNOWN
from tailrace.log.segment.derived_cache import DerivedCache
from tailrace.log.segment.segment import Segment, number_of_segment_at
from tailrace.log.state.producer_state import ProducerState
from tailrace.log.state.replay import remove_snapshots, replay_segments
from tailrace.log.view import Position

logger = logging.getLogger("tailrace.log")


class Log(AppendableLog):
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
        """Creates a log from what recovery found: everything in it is on disk. See `recovery.open_log`."""
        super().__init__(
            files,
            directory,
            segments=segments,
            bounds=bounds,
            epochs=epochs,
            producers=producers,
            recorded_gaps=recorded_gaps,
            config=config,
            cache=cache,
        )
        self.name = name_of(directory).encode()  # as in the journal
        self.topic_id = topic_id
        self.recovery_point: int = bounds.end
        self.synced: int = bounds.end  # its own files are durable up to here; the rest may be in the journal
        self.flushing: FlushJob | None = None
        self.saving: SaveJob | None = None
        self.replacing: LogJob | None = None
        self.is_half_replaced = False  # a replacement failed midway: the next start completes it
        self.compacted_to = compacted_to  # below it, each key has one value
        self.compacted_to_on_disk = compacted_to
        self.save_failed = False
        self.recovery_point_on_disk: int = bounds.end
        self.condemned: list[Segment] = []
        self.is_enrolled = True  # in the recovery points on disk, or about to be added by this start
        self.enrol: Callable[[Log], None] | None = None  # called by the first flush of a new log

    @property
    def dirty_bytes(self) -> int:
        """The bytes written since the last flush began."""
        return self.unflushed.bytes

    @property
    def wants_checkpoint(self) -> bool:
        """Whether a segment was sealed since the last checkpoint. False if that one failed, so that it is not repeated
        at once.
        """
        return bool(self.snapshots_due) and not self.save_failed

    def note_creation(self) -> None:
        """Notes that the directory and its first file are new: the first flush makes their names, and the epoch,
        durable.
        """
        self.unflushed.will_write(self.active)
        self.unflushed.named(self.directory, parent(self.directory))
        self.unflushed.epochs = True

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Assigns the log to this topic; durable with the next flush."""
        if topic_id != self.topic_id:
            self.topic_id = topic_id
            self.unflushed.topic_id = True
            self.unflushed.named(self.directory)

    # Flushing

    def begin_flush(self) -> FlushJob | None:
        """Returns a flush, or None if there is nothing to do. Raises JobUnderWay while another flush is out."""
        self._require_writable()
        self._require_no_flush()
        if not self.unflushed:
            return None
        self.flushing = job = FlushJob(self)
        return job

    def _require_no_flush(self) -> None:
        if self.flushing is not None:
            raise JobUnderWay(f"{self.directory} is already being flushed")

    @property
    def is_idle(self) -> bool:
        """Whether no job is under way."""
        return self.flushing is None and self.saving is None

    def require_idle(self) -> None:
        if not self.is_idle:
            raise JobUnderWay(f"{self.directory} still has a job under way")

    def require_settled(self) -> None:
        """Raises JobUnderWay while a job is under way or segments are being replaced. Flushes and checkpoints do not
        conflict with a replacement, and need only `require_idle`.
        """
        self.require_idle()
        if self.replacing is not None:
            raise JobUnderWay(f"segments of {self.directory} are still being replaced")

    def flushed(self, up_to: int, visible: Position) -> None:
        """Called by a job that is done: counts its records as flushed. A journal write may have done so before."""
        self.bounds.flushed(up_to)
        self.publish(visible=max(visible, self.view.visible))

    def files_synced(self, up_to: int) -> None:
        """Called by a flush that is done: the files have everything below `up_to`. Condemns segments that waited for
        that.
        """
        self.synced = max(self.synced, up_to)
        if len(self.segments) > 1 and self.segments[1].base_offset <= self.bounds.start:
            self._condemn()

    def saved(self, up_to: int, snapshots: Iterable[int]) -> None:
        """Called by a job that is done: recovery need not scan anything below `up_to`."""
        for offset in snapshots:
            self.snapshots_due.pop(offset, None)
        self.recovery_point = max(self.recovery_point, up_to)

    def flush(self) -> None:
        """Flushes the log: on return, `high_watermark` is `end_offset`. Raises StorageError if the disk refuses."""
        if (job := self.begin_flush()) is not None:
            job.run()
            job.finish()

    def begin_checkpoint(self, steady_ms: int | None) -> FlushJob:
        """Begins a flush whose `finish` returns a `SaveJob`. Raises JobUnderWay while another job is out. With
        `steady_ms`, the time of a clock that does not jump, producers that were idle for too long are dropped.
        """
        self._require_writable()
        self.require_idle()
        if steady_ms is not None:
            self.producers.expire(steady_ms, self.config.producer_id_expiration_ms)
        self.saving = SaveJob(self)
        self.flushing = job = FlushJob(self, self.saving)
        return job

    def checkpoint(self, steady_ms: int | None) -> None:
        """Flushes the log and saves its indexes. On return, `recovery_point` is `end_offset`, unless the indexes could
        not be saved.
        """
        job = self.begin_checkpoint(steady_ms)
        job.run()
        if (save := job.finish()) is not None:
            save.run()
            save.finish()

    def raise_leader_epoch(self, epoch: int) -> None:
        """Assigns later appends to `epoch`. Waits for the disk: an epoch that was used must not be forgotten. If the
        disk is full, the first append retries.
        """
        self._require_writable()
        self._require_no_flush()  # a flush may be writing the same file
        if self.epochs.assign(epoch, self.bounds.end):
            try:
                self._save_epochs()
            except OSError as error:
                if error.errno in NO_ROOM:
                    self.save_epochs_before_append()
                    return
                raise self.take_offline("saving the leader epoch failed", error) from error

    def save_epochs_before_append(self) -> None:
        """Saves the leader epochs, which are not on disk yet, before the next append."""
        if self._save_epochs not in self._before_append:
            self.before_append(self._save_epochs)

    def _save_epochs(self) -> None:
        replace_whole(self.files, join(self.directory, EPOCHS_FILE), self.epochs.encode())

    # Shortening, at either end

    def delete_before(self, offset: int) -> tuple[Segment, ...]:
        """Deletes everything below `offset`: readers cannot see it any more. Segments wholly below it wait in
        `condemned` for their removal, which must not precede the new start offset on disk: see
        `DataDirectory.checkpoint`. Returns the segments that this call has condemned.
        """
        if not self.bounds.start <= offset <= self.bounds.high_watermark:
            raise OffsetOutOfRange(offset, self.bounds.start, self.bounds.high_watermark)
        self.bounds.deleted(offset)
        return self._condemn()

    def _condemn(self) -> tuple[Segment, ...]:
        """Condemns the segments wholly below the start. They stay while the owner of their file names is uncertain, and
        while they are not synced: on disk, later segments must not exist without them.
        """
        below = min(self.bounds.start, self.synced)
        kept = max(0, number_of_segment_at(self.segments, below)) if self.owns_its_names else 0
        condemned = self.segments[:kept]
        self.condemned += condemned
        self.unflushed.forget(condemned)
        self.publish(segments=self.segments[kept:])
        return condemned

    def rule_out_gaps(self) -> None:
        """Makes gaps between offsets damage in the sealed segments, except where a repair has recorded one. For a log
        that was never compacted.
        """
        for segment in self.sealed_segments:
            if not has_gap(self.recorded_gaps, segment.base_offset, segment.checks.limit):
                segment.rule_out_gaps()

    @property
    def owns_its_names(self) -> bool:
        """Whether the files with its segments' names are theirs: not while segments are being replaced, nor after that
        has failed.
        """
        return self.replacing is None and not self.is_half_replaced

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Called by a job that is done: `new`, which has their file names now, takes the place of the
        segments `old`.
        """
        first = self.segments.index(old[0])
        self.publish(segments=(*self.segments[:first], new, *self.segments[first + len(old) :]))
        self.unflushed.forget(old)
        for segment in old:
            segment.close()
        self._condemn()

    def end_after_truncation(self, offset: int) -> int:
        """Returns where the log would end if it were truncated at `offset`: there, or before the batch that
        spans it.
        """
        if not self.bounds.start <= offset <= self.bounds.end:
            raise OffsetOutOfRange(offset, self.bounds.start, self.bounds.end)
        if offset < self.segments[0].base_offset:
            raise Damaged(missing_file(offset, self.segments[0].base_offset))
        segment = self.segments[number_of_segment_at(self.segments, offset)]
        try:
            found = segment.find(offset, segment.size)
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}", error) from error
        return offset if found is None else max(self.bounds.start, min(offset, found[1].base_offset))

    def truncate(self, offset: int) -> None:
        """Truncates the log at `end_after_truncation(offset)`, and flushes the rest.

        This removes records that readers may have seen: only a follower of another log may do so. No reads, jobs or
        journal writes may be under way, and the recovery point on disk must not be beyond the new end: see
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
        # First, so that the syncs below make it durable.
        remove_snapshots(self.files, self.directory, lambda snapshot: snapshot > end)
        segments = self._truncate_segments(end)
        refused = self.producers.refused
        self.producers, aborted = replay_segments(self.files, self.directory, segments, end, segments[-1])
        self.producers.refused = refused
        segments[-1].adopt_transactions(aborted)
        segments[-1].derived_files.save_transactions(aborted)
        epoch = self.epochs.latest
        self.epochs.truncate(end)
        self.epochs.assign(epoch, end)  # the epoch never goes back, even if none of its batches is left
        self._save_epochs()
        self.snapshots_due = {offset: data for offset, data in self.snapshots_due.items() if offset <= end}
        self.recovery_point = min(self.recovery_point, end)
        self.compacted_to = min(self.compacted_to, end)
        self.synced = end
        self.bounds.truncated(end)
        self._room = NO_ROOM_KNOWN
        self.publish(segments=segments, visible=Position(segments[-1].base_offset, segments[-1].size))

    def _truncate_segments(self, end: int) -> tuple[Segment, ...]:
        kept = [segment for segment in self.segments if segment.base_offset <= end]
        found = kept[-1].find(end, kept[-1].size)
        spans_end = found is not None and found[1].base_offset < end
        if spans_end:  # the log begins inside its last batch: it becomes empty, and continues at its start
            kept.clear()
        for segment in reversed(self.segments[len(kept) :]):  # the newest first, so that the log never has a gap
            segment.remove()
            self.files.sync_directory(self.directory)
        if spans_end:
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
        """Whether everything that a start needs is on disk: then a checkpoint has nothing to do."""
        if self.recovery_point != self.bounds.end or self.unflushed:  # decides most cases
            return False
        return all(segment.is_saved for segment in self.segments)

    def close(self, steady_ms: int) -> None:
        """Closes the log. If `is_cleanly_closed` is then true, everything is on disk, and the next start needs to read
        no data.

        A log that is offline, or goes offline now, is closed without a flush. Raises JobUnderWay, and does nothing,
        while the log has a job.
        """
        self.require_settled()
        try:
            if self.offline is None and not self._is_closed and not self.is_saved:
                self.checkpoint(steady_ms)
        except LogOffline:
            pass  # already logged
        except StorageError as error:
            logger.error("%s", error)
        finally:
            self.let_go()

    def note_removal(self) -> None:
        """Closes a removed log for everything but pinned slices. Nothing more is written; a job that is under way may
        finish, and changes nothing.
        """
        self.is_removed = True  # first: readers that find a closed file check this for the reason
        self.let_go()
        self.unflushed = UnflushedWrites()
        self.snapshots_due = {}

    def let_go(self) -> None:
        """Closes all descriptors, even if some writes are not on disk."""
        self._is_closed = self._is_guarded = True
        for segment in (*self.segments, *self.condemned):
            segment.close()
