"""The half of a log that appends: checks, stamps and writes batches, and begins new segments.

Only one thread, the log's owner, may call it. The time is an argument. What is appended counts once a flush, which
`log` begins, has covered it.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EMFILE, ENFILE
from typing import cast

from tailrace.log.dirty import UnflushedWrites
from tailrace.log.disk.interface import Data, Files, join
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.files.recorded_gaps import RecordedGap
from tailrace.log.jobs import NO_ROOM
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import (
    LogClosed,
    LogError,
    LogOffline,
    LogRemoved,
    OutOfSpace,
    StorageError,
    without_frames,
)
from tailrace.log.layout.names import FLUSH_FAILED
from tailrace.log.layout.offsets import OffsetBounds
from tailrace.log.reader import ReadableLog
from tailrace.log.roll import NO_ROOM_KNOWN, RollPolicy, age_of
from tailrace.log.segment.derived_cache import DerivedCache
from tailrace.log.segment.segment import Segment
from tailrace.log.state.producer_state import ProducerState, encode_snapshot
from tailrace.log.validation import Appended, check_batch, follow_one_another, repetition_of
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.control import NO_MARKER, Marker, marker_of

logger = logging.getLogger("tailrace.log")


class AppendableLog(ReadableLog):
    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        segments: tuple[Segment, ...],
        bounds: OffsetBounds,
        epochs: LeaderEpochs,
        producers: ProducerState,
        recorded_gaps: tuple[RecordedGap, ...],
        config: LogConfig,
        cache: DerivedCache,
    ) -> None:
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
        self.offline: LogOffline | None = None
        self.unflushed = UnflushedWrites()
        self.snapshots_due: dict[int, bytes] = {}
        self._cache = cache
        self._is_closed = False
        self._before_append: list[Callable[[], object]] = []
        self._is_guarded = False  # closed, or with something to do before the next append

    def configure(self, config: LogConfig) -> None:
        """Applies `config` to later appends and new segments."""
        self.config = config
        self._roll_policy = RollPolicy(self.directory, config, self.active)
        self._room = NO_ROOM_KNOWN

    def append(self, data: bytearray | memoryview, now_ms: int, header: BatchHeader | None = None) -> Appended:
        """Appends the batch in `data`, and stamps it in place; it counts once it is flushed. `header` is its header, if
        the caller has read it.

        Raises CorruptBatch if the batch is not intact, InvalidAppend if it cannot be appended here, and StorageError if
        the disk refuses; in each case the log is unchanged. A duplicate of an idempotent producer's batch is not
        appended again: the offsets of the original are returned.
        """
        if self._is_guarded or self.offline is not None:
            self._prepare_append()
        header = check_batch(data, self.config, header)
        if header.producer_id != batch.NO_PRODUCER and (original := self.producers.check(header)) is not None:
            return repetition_of(original, self.config)
        marker = marker_of(data) if header.attributes & batch.CONTROL else NO_MARKER
        header, append_time = self._stamp(data, header, self.bounds.end, now_ms)
        return self._write(data, (header,), append_time, now_ms, marker)

    def append_all(self, batches: Sequence[memoryview], headers: Sequence[BatchHeader], now_ms: int) -> Appended | None:
        """Appends several batches with one write, and returns one result for all of them. Returns None, and changes
        nothing, if they must be appended one by one: one of them is a duplicate, or out of order, or does not fit into
        the segment.
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
        """Stamps the batch. Returns its new header, and its append time."""
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
    ) -> Appended:
        """Writes consecutive batches, which were checked and stamped, and notes them. A marker must be the
        only batch.
        """
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
        segment.note(data, headers)
        unflushed.wrote(size, next_offset - base_offset)
        self.bounds.appended(next_offset)
        if headers[0].producer_id != batch.NO_PRODUCER:
            self._note_producer(headers, marker)
        return Appended(base_offset, next_offset - 1, append_time)

    def _has_room_for(self, size: int, next_offset: int, now_ms: int) -> bool:
        """Returns whether the active segment is known to have room for this."""
        position, offset, until_ms = self._room
        return self.view.segments[-1].size + size <= position and next_offset <= offset and now_ms <= until_ms

    def _note_producer(self, headers: Sequence[BatchHeader], marker: tuple[Marker | None, int]) -> None:
        for header in headers:
            aborted = self.producers.replay(header, *marker)
            if aborted is not None:
                self.active.add_aborted(aborted)

    def _segment_for(self, size: int, last_offset: int, now_ms: int) -> Segment:
        """Returns the active segment, after a roll if one is due. On return, `_room` is up to date."""
        active = self.active
        if active.size and self._roll_policy.is_due(active, size, last_offset, now_ms):
            active = self._roll()
        if not active.size:
            active.first_append_ms = now_ms
        self._room = self._roll_policy.room_in(active, now_ms)
        return active

    def age_of_active_segment(self, now_ms: int) -> int:
        """Returns the age of the active segment's first batch, in milliseconds; 0 if it is empty."""
        return age_of(self.active, now_ms)

    def roll(self) -> None:
        """Begins a new active segment, unless the current one is empty. The old one is flushed with the next flush."""
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
        """Returns the error for a failed append. If the disk is full, or too many files are open, the log is unchanged.
        After any other error the contents of the file are unknown, and the log goes offline.
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
        """Makes every append and flush raise from now on; what is on disk can still be read. Logs the reason, once.

        Leaves a marker for the next start, if possible: the page cache may hold bytes that the disk does not.
        """
        if self.offline is None:
            cause = without_frames(cause)
            self.offline = LogOffline(f"{message} in {self.directory}, which is now read-only", cause)
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
        """The error that appends and flushes raise, if they are refused."""
        if self.is_removed:
            return LogRemoved(self.directory)
        if self._is_closed:
            return LogClosed(self.directory)
        return self.offline.again() if self.offline is not None else None

    def _require_writable(self) -> None:
        if self._is_closed or self.offline is not None:
            raise cast(LogError, self.refusal)  # not assigned to a variable, which would create a reference cycle

    # Writes that a start had no room for

    def before_append(self, duty: Callable[[], object]) -> None:
        """Calls `duty` before the next append. While it raises StorageError or OSError, appends are refused, and each
        one tries again.
        """
        self._before_append.append(duty)
        self._is_guarded = True

    def do_what_is_due(self) -> None:
        """Does what must precede the next append. Raises StorageError if there still is no room."""
        if self._before_append:
            self._prepare_append()

    def _prepare_append(self) -> None:
        """Does what must precede an append. Raises if the log takes no appends: for good, or until there is room."""
        self._require_writable()
        try:
            while self._before_append:
                self._before_append[0]()
                del self._before_append[0]
        except OSError as error:
            raise self._append_failed(None, error) from error
        self._is_guarded = False
