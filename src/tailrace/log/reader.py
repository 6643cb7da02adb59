"""The half of a log that any thread may use: reading from an offset, and finding records by time (`time_search`).

Nothing here changes the log. Its owner, in another thread, may append, roll and flush at the same time: segments and
bounds are replaced as a whole, written bytes never change, and a slice pins its file.
"""

from collections.abc import Callable, Iterator
from errno import EACCES, EIO, ENOENT
from itertools import pairwise
from typing import NamedTuple, TypeVar

from tailrace.log.disk.interface import Files
from tailrace.log.files.index import AbortedTransaction
from tailrace.log.files.leader_epochs import EpochEnd, LeaderEpochs
from tailrace.log.files.recorded_gaps import RecordedGap
from tailrace.log.layout.damage import DamagedRange, missing_file, missing_records
from tailrace.log.layout.errors import Damaged, LogError, LogRemoved, OffsetOutOfRange, StorageError
from tailrace.log.layout.offsets import EndOffset, HighWatermark, OffsetBounds, StartOffset
from tailrace.log.segment.segment import Segment, WouldWait, number_of_segment_at
from tailrace.log.segment.slices import FileSlice
from tailrace.log.segment.tail import due_end
from tailrace.log.state.producer_state import ProducerState
from tailrace.log.state.replay import replay_segments
from tailrace.log.time_search import FoundTime, TimeSearch
from tailrace.log.view import Position, ReadPosition, StoppedReaders, View

Answer = TypeVar("Answer")

_ENTRIES_MAX = 1024  # index entries for a catch-up consumer: one per 64 KB of 64 MB
_UNREADABLE = {EACCES, EIO, ENOENT}  # errors of the disk or a file, not of a process with too many open files
_MISSING_MAX = 1000  # remembered ranges


class Ahead(NamedTuple):
    """A range ahead of a catch-up consumer, and some index entries of it."""

    records: FileSlice
    entries: bytes


class ReadableLog:
    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        segments: tuple[Segment, ...],
        bounds: OffsetBounds,
        epochs: LeaderEpochs,
        producers: ProducerState,
        recorded_gaps: tuple[RecordedGap, ...] = (),
    ) -> None:
        self.files = files
        self.directory = directory
        self.bounds = bounds
        self.epochs = epochs
        self.producers = producers
        self.recorded_gaps = recorded_gaps  # given up by repairs; readers skip them
        self.is_removed = False
        self._missing: tuple[DamagedRange, ...] = ()
        self._unreadable: dict[int, DamagedRange] = {}  # by segment; replaced as a whole
        end = Position(segments[-1].base_offset, segments[-1].size)
        self.view = View(bounds.start, bounds.high_watermark, bounds.high_watermark, segments, end, 0)
        self.publish(segments)

    def publish(self, segments: tuple[Segment, ...] | None = None, visible: Position | None = None) -> None:
        """Replaces the view. Called by the owner after every change that readers may see."""
        start, high_watermark, before = self.bounds.start, self.bounds.high_watermark, self.view
        if segments is not None:
            for segment, following in pairwise(segments):
                segment.checks.limit = following.base_offset
            self._missing = tuple(bad for bad in self._missing if start <= bad.last_offset < self.bounds.end)
            bases = {segment.base_offset for segment in segments}
            self._unreadable = {base: bad for base, bad in self._unreadable.items() if base in bases}
            self._stopped = StoppedReaders(segments)
        self.view = View(
            start,
            high_watermark,
            max(start, self.producers.last_stable_offset(high_watermark)),
            before.segments if segments is None else segments,
            before.visible if visible is None else visible,
            before.sealed_bytes if segments is None else sum(segment.size for segment in segments[:-1]),
        )

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.view.segments

    @property
    def start_offset(self) -> StartOffset:
        return self.view.start

    @property
    def high_watermark(self) -> HighWatermark:
        return self.view.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided: the bound for readers of committed records."""
        return self.view.last_stable

    @property
    def end_offset(self) -> EndOffset:
        return self.bounds.end

    @property
    def leader_epoch(self) -> int:
        return self.epochs.latest

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    # Segments, for retention, compaction and scrubbing of a log on the local disk

    @property
    def sealed_segments(self) -> tuple[Segment, ...]:
        """All segments but the active one."""
        return self.view.segments[:-1]

    @property
    def oldest_segment(self) -> Segment:
        return self.view.segments[0]

    @property
    def end_of_sealed(self) -> int:
        """The offset behind all sealed segments, where the active one begins."""
        return self.view.segments[-1].base_offset

    def end_of_first_segments(self, count: int) -> int:
        """Returns the offset behind the first `count` segments, all of which are sealed."""
        return self.view.segments[count].base_offset

    def segments_of_unknown_age(self, count: int) -> list[Segment]:
        """Returns those of the first `count` segments whose largest timestamp is not in memory."""
        return [segment for segment in self.view.segments[:count] if segment.largest_timestamp is None]

    @property
    def end_position(self) -> Position:
        active = self.view.segments[-1]
        return Position(active.base_offset, active.size)

    @property
    def size(self) -> int:
        """The size of all readable segments. Takes constant time."""
        view = self.view
        return view.sealed_bytes + view.segments[-1].size

    @property
    def damage(self) -> list[DamagedRange]:
        """The damage that is known so far; reading may find more."""
        known = [known for segment in self.segments for known in segment.checks.damage]
        missing = [bad for bad in self._missing if not any(_holds(one, bad) for one in known)]
        return [*known, *missing, *self._unreadable.values()]

    def note_missing(self, bad: DamagedRange) -> DamagedRange:
        """Adds offsets that no segment has to `damage`. May be called from any thread; of two calls at the same time,
        one may get lost and must be repeated.
        """
        known = self._missing
        if not any(_holds(one, bad) for one in known):
            others = [one for one in known if not _holds(bad, one)]
            self._missing = tuple(sorted((*others[: _MISSING_MAX - 1], bad), key=lambda one: one.first_offset))
        return bad

    def find_missing_around(self, segment: Segment) -> None:
        """Adds to `damage` what is missing just behind this sealed segment, or before it if it is the first. Waits for
        a disk.
        """
        view = self.view
        if segment not in view.segments[:-1]:
            return
        number = view.segments.index(segment)
        if number == 0 and view.start < segment.base_offset:
            self.note_missing(missing_file(view.start, segment.base_offset))
        following, checksums = view.segments[number + 1], segment.derived_files.read_checksums()
        if checksums is not None and (checksums.log_size, checksums.next_offset) == (
            segment.size,
            following.base_offset,
        ):
            return
        if segment.derived().is_partial:  # the end of its batches is unknown: report the bad bytes, up to the end
            segment.check(0, segment.size)
        elif (missing := self._missing_between(segment, following, wait=True)) is not None:
            self.note_missing(missing)

    def read(self, offset: int, max_bytes: int, *, up_to: int | None = None, wait: bool = True) -> FileSlice | None:
        """Returns whole batches, beginning with the one that holds `offset`: up to `max_bytes`, but at least one.
        Returns None at the end. `up_to`, where a batch must begin, and the high watermark bound what is returned.

        Raises OffsetOutOfRange; Damaged if the bytes are; LogRemoved once the log is removed; and with `wait=False`,
        WouldWait instead of waiting for a disk.
        """
        while True:
            if self.is_removed:
                raise LogRemoved(self.directory)
            view = self.view
            if not view.start <= offset <= view.high_watermark:
                raise OffsetOutOfRange(offset, view.start, view.high_watermark)
            end = view.high_watermark if up_to is None else min(up_to, view.high_watermark)
            if offset >= end:
                return None
            try:
                found = self._read(view, offset, end, max_bytes, wait)
                if self._unreadable:
                    self._note_readable(offset)
                return found
            except OSError as error:
                if not self._has_lost_files(view, error):
                    self._note_unreadable(view, offset, error)
                    raise self._cannot_be_read(error) from error

    def range_ahead(self, offset: int, max_bytes: int, *, up_to: int) -> Ahead | None:
        """Returns a range for a catch-up consumer that another process serves: checked bytes of one segment, from the
        batch that holds `offset` on, all before `up_to`. The range may end inside a batch. Its next offset lies behind
        all of its records. Returns None if there is none in memory.
        """
        view = self.view
        if self.is_removed or not view.first_readable <= offset < up_to:
            return None
        number = number_of_segment_at(view.segments, offset)
        segment = view.segments[number]
        is_at_end = segment.base_offset == view.visible.segment_base
        next_offset = view.high_watermark if is_at_end else view.segments[number + 1].base_offset
        if next_offset > up_to:
            return None
        try:
            place = self._reached(view, offset, max_bytes) or self._find(view, offset, wait=False)
            if place is None or place.segment is not segment:
                return None
            start, end = place.position, min(place.position + max_bytes, view.limit_of(segment))
            if segment.checks.are_sound(start, end):
                entries = segment.derived(wait=False).index.thinned(start, end, _ENTRIES_MAX)
                return Ahead(FileSlice(segment.log, start, end - start, next_offset), entries)
        except (Damaged, OSError, WouldWait):
            pass
        return None

    def _note_unreadable(self, view: View, offset: int, error: OSError) -> None:
        """Adds the segment from `offset` to its end to `damage`, until it can be read again."""
        segment = view.segments[max(0, number_of_segment_at(view.segments, offset))]
        end = segment.checks.limit or view.high_watermark
        known = self._unreadable.get(segment.base_offset)
        if error.errno in _UNREADABLE and not (known and known.first_offset <= offset):
            reason = f"read error: {error.strerror}"
            bad = DamagedRange(segment.name, 0, segment.size, offset, end - 1, reason)
            self._unreadable = {**self._unreadable, segment.base_offset: bad}

    def _note_readable(self, offset: int) -> None:
        found = self._unreadable.items()
        self._unreadable = {base: bad for base, bad in found if not bad.first_offset <= offset <= bad.last_offset}

    def _has_lost_files(self, view: View, error: OSError) -> bool:
        """Returns whether segments were deleted or replaced since `view`: then a retry may succeed."""
        return isinstance(error, FileNotFoundError) and self.view.segments is not view.segments

    def _cannot_be_read(self, error: OSError) -> LogError:
        return LogRemoved(self.directory) if self.is_removed else StorageError(f"cannot read {self.directory}", error)

    def _read(self, view: View, offset: int, end: int, max_bytes: int, wait: bool) -> FileSlice | None:
        place = self._reached(view, offset, max_bytes) or self._find(view, offset, wait)
        if place is None:
            return None
        segment, position = place
        limit = view.limit_of(segment)
        if end < view.high_watermark:
            limit = self._limit_before(segment, end, limit, wait)
            if position >= limit:
                return None
        elif self._is_near_end(view, segment, position, limit - max_bytes):
            return self._slice(view, place, limit, view.high_watermark)
        return self._slice(view, place, *segment.end_of_batches(position, max_bytes, limit, wait=wait))

    def _reached(self, view: View, offset: int, max_bytes: int) -> ReadPosition | None:
        """Returns the position of `offset` if a reader stopped there and can go on: there is more now, and all of it
        was checked.
        """
        place = self._stopped.find(view.segments, offset)
        if place is not None:
            segment, position = place
            limit = view.limit_of(segment)
            if position < limit and segment.checks.are_sound(position, min(position + max_bytes, limit)):
                return place
        return None

    def _find(self, view: View, offset: int, wait: bool) -> ReadPosition | None:
        for segment, limit in self.segments_from(view, offset, wait):
            found = segment.find(offset, limit, wait=wait)
            if found is not None:
                position, header = found
                if header.base_offset > offset:
                    self._require_gap(view, offset, header.base_offset, wait)
                return ReadPosition(segment, position)
        return None

    def _require_gap(self, view: View, offset: int, found: int, wait: bool) -> None:
        """Raises Damaged unless compaction or a repair has left the gap from `offset` to the next batch, at `found`."""
        segment = view.segments[number_of_segment_at(view.segments, offset)]
        if not segment.derived(wait=wait).may_have_gaps:
            raise Damaged(self.note_missing(missing_records(segment.name, offset, found)))

    def _is_near_end(self, view: View, segment: Segment, position: int, near: int) -> bool:
        """Whether a reader behind `near` can have all the rest, without a search for the end of a batch."""
        is_last = segment.base_offset == view.visible.segment_base
        return position >= near and is_last and segment.checks.are_sound(position, view.visible.position)

    def _slice(self, view: View, place: ReadPosition, stop: int, next_offset: int) -> FileSlice:
        self._stopped.remember(view.segments, next_offset, ReadPosition(place.segment, stop))
        return FileSlice(place.segment.log, place.position, stop - place.position, next_offset)

    def segments_from(self, view: View, offset: int, wait: bool = True) -> Iterator[tuple[Segment, int]]:
        """Yields the segments that can hold `offset` or later ones, each with the position up to which readers may
        read.
        """
        segments, visible = view.segments, view.visible
        if offset < segments[0].base_offset:
            raise Damaged(self.note_missing(missing_file(min(offset, view.start), segments[0].base_offset)))
        first = number_of_segment_at(segments, offset)
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset > visible.segment_base:
                return
            yield segment, view.limit_of(segment)
            if segment.base_offset == visible.segment_base:
                return
            self._require_no_gap(segment, segments[number + 1], offset, wait)

    def _require_no_gap(self, segment: Segment, following: Segment, offset: int, wait: bool) -> None:
        """Raises Damaged if `offset` is missing between a segment and the next, or before it."""
        missing = self._missing_between(segment, following, wait)
        if missing is not None and offset <= missing.last_offset:
            raise Damaged(self.note_missing(missing))

    def _missing_between(self, segment: Segment, following: Segment, wait: bool) -> DamagedRange | None:
        """Returns what is missing behind the last batch of a segment: the segment was truncated, or a file behind it is
        lost.
        """
        derived = segment.derived(wait=wait)
        if derived.next_offset >= following.base_offset:
            return None
        due = due_end(derived, following.base_offset, self.recorded_gaps)
        return missing_file(derived.next_offset, due) if derived.next_offset < due else None

    def _limit_before(self, segment: Segment, offset: int, limit: int, wait: bool) -> int:
        """Returns the position of the batch that holds `offset`, or of the damage that hides it."""
        try:
            found = segment.find(offset, limit, wait=wait)
        except Damaged as error:
            return error.damage.position
        return found[0] if found is not None else limit

    def aborted_transactions(self, first: int, end: int, *, wait: bool = True) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records from `first` to before `end`, which readers of committed
        records skip. With `wait=False`, raises WouldWait instead of waiting for a disk.
        """
        return self._ask(lambda view: self._aborted_transactions(view, first, end, wait))

    def _aborted_transactions(self, view: View, first: int, end: int, wait: bool) -> list[AbortedTransaction]:
        aborted: list[AbortedTransaction] = []
        for segment, _ in self.segments_from(view, max(first, view.first_readable), wait):
            index = segment.transactions(wait=wait)
            if index is None:
                _, index = replay_segments(self.files, self.directory, view.segments, self.bounds.end, segment)
                segment.adopt_transactions(index)
            found = index.overlapping(first, end)
            aborted += found.transactions
            if found.is_complete:
                break
        return aborted

    def _ask(self, question: Callable[[View], Answer]) -> Answer:
        """Calls `question` with the current view; again if segments were deleted or replaced meanwhile."""
        while True:
            view = self.view
            try:
                return question(view)
            except OffsetOutOfRange:
                if self.view.start == view.start:
                    raise
            except OSError as error:
                if not self._has_lost_files(view, error):
                    raise self._cannot_be_read(error) from error

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Returns where the largest epoch not above `epoch` ends, bounded by the high watermark."""
        found, high_watermark = self.epochs.end_of(epoch, self.view.high_watermark), self.view.high_watermark
        return found._replace(end_offset=min(found.end_offset, high_watermark))

    def find_time(self, timestamp: int) -> FoundTime | None:
        """Returns the first record, by offset, with this timestamp or a later one; None if there is none."""
        return self._ask(lambda view: TimeSearch(self, view).first_from(timestamp))

    def find_max_timestamp(self) -> FoundTime | None:
        """Returns the first record with the largest timestamp that readers may see; None if the log is empty."""
        return self._ask(lambda view: TimeSearch(self, view).newest())


def _holds(one: DamagedRange, other: DamagedRange) -> bool:
    return one.first_offset <= other.first_offset and other.last_offset <= one.last_offset
