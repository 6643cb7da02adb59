"""The half of a log that any thread may use: reading from an offset, and finding records by time.

Nothing in here changes what the log holds. Its owner, in another thread, may append, roll and flush meanwhile:
segments and bounds are replaced as a whole, bytes once written never change, and a slice pins the file it lies in.
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
from tailrace.log.segment.derived import Derived
from tailrace.log.segment.segment import Segment, WouldWait, number_of_segment_at
from tailrace.log.segment.slices import FileSlice
from tailrace.log.segment.tail import due_end
from tailrace.log.state.producer_state import ProducerState
from tailrace.log.state.replay import replay_segments
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import decode_records, first_record_at_or_after

Answer = TypeVar("Answer")

_PIECE_BYTES = 1 << 20  # read at a time by whoever looks for a record
_ENTRIES_MAX = 1024  # of an index, for who reads ahead: one for each 64 KB of 64 MB
_UNREADABLE = {EACCES, EIO, ENOENT}  # a disk or a file is to blame, and not a process that has too much open
_MISSING_MAX = 1000  # ranges that are remembered
_REACHED_MAX = 16  # places where readers of a log have stopped: 3 KB, and there may be many logs


class Position(NamedTuple):
    """A place in the log where a batch ends: everything before it is on disk."""

    segment_base: int
    position: int


class FoundTime(NamedTuple):
    offset: int
    timestamp: int


class ReadPosition(NamedTuple):
    """Where a batch begins, or will."""

    segment: Segment
    position: int


class Ahead(NamedTuple):
    """What lies ahead of a reader, and some entries of the index of it."""

    records: FileSlice
    entries: bytes


class View(NamedTuple):
    """What readers may see of a log, at one moment. The owner replaces it as a whole; a reader takes it once."""

    start: StartOffset
    high_watermark: HighWatermark
    last_stable: int
    segments: tuple[Segment, ...]
    visible: Position
    sealed_bytes: int  # of all segments but the last
    reached: dict[int, ReadPosition]  # where readers of these segments have stopped, by the offset that they go on with

    def limit_of(self, segment: Segment) -> int:
        """The position up to which readers may go."""
        return self.visible.position if segment.base_offset == self.visible.segment_base else segment.size

    @property
    def first_readable(self) -> int:
        """The start, or where the first file that is left begins."""
        return max(self.start, self.segments[0].base_offset)


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
        self.recorded_gaps = recorded_gaps  # what repairs have given up; readers pass over it
        self.is_removed = False
        self._missing: tuple[DamagedRange, ...] = ()
        self._unreadable: dict[int, DamagedRange] = {}  # by segment; replaced as a whole
        end = Position(segments[-1].base_offset, segments[-1].size)
        self.view = View(bounds.start, bounds.high_watermark, bounds.high_watermark, segments, end, 0, {})
        self.publish(segments)

    def publish(self, segments: tuple[Segment, ...] | None = None, visible: Position | None = None) -> None:
        """By the owner, after every change that readers should know of."""
        start, high_watermark, before = self.bounds.start, self.bounds.high_watermark, self.view
        if segments is not None:
            for segment, following in pairwise(segments):
                segment.checks.limit = following.base_offset
            self._missing = tuple(bad for bad in self._missing if start <= bad.last_offset < self.bounds.end)
            bases = {segment.base_offset for segment in segments}
            self._unreadable = {base: bad for base, bad in self._unreadable.items() if base in bases}
        self.view = View(
            start,
            high_watermark,
            max(start, self.producers.last_stable_offset(high_watermark)),
            before.segments if segments is None else segments,
            before.visible if visible is None else visible,
            before.sealed_bytes if segments is None else sum(segment.size for segment in segments[:-1]),
            before.reached if segments is None else {},
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
        """Below it every transaction is decided: how far a reader of committed records may go."""
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
        """The offset behind the first `count` segments, all of which are sealed."""
        return self.view.segments[count].base_offset

    def segments_of_unknown_age(self, count: int) -> list[Segment]:
        """Those of the first `count` segments whose largest timestamp is not in memory."""
        return [segment for segment in self.view.segments[:count] if segment.largest_timestamp is None]

    @property
    def end_position(self) -> Position:
        active = self.view.segments[-1]
        return Position(active.base_offset, active.size)

    @property
    def size(self) -> int:
        """Of the segments that can be read. Costs the same however many there are."""
        view = self.view
        return view.sealed_bytes + view.segments[-1].size

    @property
    def damage(self) -> list[DamagedRange]:
        """What is known to be damaged now; a range nobody has read yet may come to it."""
        known = [known for segment in self.segments for known in segment.checks.damage]
        missing = [bad for bad in self._missing if not any(_holds(one, bad) for one in known)]
        return [*known, *missing, *self._unreadable.values()]

    def note_missing(self, bad: DamagedRange) -> DamagedRange:
        """From now on, `damage` has these offsets, which no segment has. By any thread: if two come at once, one of
        them may have to come again.
        """
        known = self._missing
        if not any(_holds(one, bad) for one in known):
            others = [one for one in known if not _holds(bad, one)]
            self._missing = tuple(sorted((*others[: _MISSING_MAX - 1], bad), key=lambda one: one.first_offset))
        return bad

    def find_missing_around(self, segment: Segment) -> None:
        """On return, `damage` has what no segment has just behind this sealed one, or before it if it is the first.
        Waits for a disk.
        """
        view = self.view
        if segment not in view.segments[:-1]:
            return
        number = view.segments.index(segment)
        if number == 0 and view.start < segment.base_offset:
            self.note_missing(missing_file(view.start, segment.base_offset))
        following, sums = view.segments[number + 1], segment.derived_files.read_sums()
        if sums is not None and (sums.log_size, sums.next_offset) == (segment.size, following.base_offset):
            return
        if segment.derived().is_partial:  # where its batches end is not known: the bad bytes are named, up to the end
            segment.check(0, segment.size)
        elif (missing := self._missing_between(segment, following, wait=True)) is not None:
            self.note_missing(missing)

    def read(self, offset: int, max_bytes: int, *, up_to: int | None = None, wait: bool = True) -> FileSlice | None:
        """Whole batches, beginning with the one that holds `offset`: up to `max_bytes`, but one at least. None at
        the end.

        Nothing at or beyond `up_to`, where a batch begins, is given, nor beyond the high watermark. Raises
        OffsetOutOfRange, or Damaged where the bytes are; with `wait=False`, WouldWait where a disk must be asked;
        and LogRemoved once the log is.
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

    def stretch(self, offset: int, max_bytes: int, *, up_to: int) -> Ahead | None:
        """What lies ahead of a reader, for somebody who reads it without asking us again: bytes of one segment that
        were checked, from the batch that holds `offset` on, all of it before `up_to`. It may end amid a batch. Its next
        offset is one that none of it reaches. None where no such is known without asking a disk.
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
        """From now on `damage` has what begins there, to the end of the segment, until it can be read again."""
        segment = view.segments[max(0, number_of_segment_at(view.segments, offset))]
        end = segment.checks.limit or view.high_watermark
        known = self._unreadable.get(segment.base_offset)
        if error.errno in _UNREADABLE and not (known and known.first_offset <= offset):
            reason = f"reading it fails: {error.strerror}"
            bad = DamagedRange(segment.name, 0, segment.size, offset, end - 1, reason)
            self._unreadable = {**self._unreadable, segment.base_offset: bad}

    def _note_readable(self, offset: int) -> None:
        found = self._unreadable.items()
        self._unreadable = {base: bad for base, bad in found if not bad.first_offset <= offset <= bad.last_offset}

    def _has_lost_files(self, view: View, error: OSError) -> bool:
        """Whether segments were deleted or replaced since somebody looked: then it is worth looking again."""
        return isinstance(error, FileNotFoundError) and self.view.segments is not view.segments

    def _cannot_be_read(self, error: OSError) -> LogError:
        return (
            LogRemoved(self.directory) if self.is_removed else StorageError(f"{self.directory} cannot be read", error)
        )

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
        """The place of `offset` where a reader has stopped there and can go on: there is more by now, and nothing of
        it has to be checked.
        """
        place = view.reached.get(offset)
        if place is not None:
            segment, position = place
            limit = view.limit_of(segment)
            if position < limit and segment.checks.are_sound(position, min(position + max_bytes, limit)):
                return place
        return None

    def _find(self, view: View, offset: int, wait: bool) -> ReadPosition | None:
        for segment, limit in self._segments_from(view, offset, wait):
            found = segment.find(offset, limit, wait=wait)
            if found is not None:
                position, header = found
                if header.base_offset > offset:
                    self._require_gap(view, offset, header.base_offset, wait)
                return ReadPosition(segment, position)
        return None

    def _require_gap(self, view: View, offset: int, found: int, wait: bool) -> None:
        """The first batch behind `offset` begins at `found`. Raises Damaged where no compaction and no repair has left
        such a gap.
        """
        segment = view.segments[number_of_segment_at(view.segments, offset)]
        if not segment.derived(wait=wait).may_have_gaps:
            raise Damaged(self.note_missing(missing_records(segment.name, offset, found)))

    def _is_near_end(self, view: View, segment: Segment, position: int, near: int) -> bool:
        """Whether a reader that stands behind `near` can have all the rest, without looking where batches end."""
        is_last = segment.base_offset == view.visible.segment_base
        return position >= near and is_last and segment.checks.are_sound(position, view.visible.position)

    def _slice(self, view: View, place: ReadPosition, stop: int, next_offset: int) -> FileSlice:
        if len(view.reached) >= _REACHED_MAX:
            view.reached.clear()  # who needs it finds it again
        view.reached[next_offset] = ReadPosition(place.segment, stop)
        return FileSlice(place.segment.log, place.position, stop - place.position, next_offset)

    def _segments_from(self, view: View, offset: int, wait: bool = True) -> Iterator[tuple[Segment, int]]:
        """The segments that can hold `offset` or what follows it, each with the position up to which readers may
        go.
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
        """Raises Damaged where `offset` lies in what is missing between a segment and the next, or before it."""
        missing = self._missing_between(segment, following, wait)
        if missing is not None and offset <= missing.last_offset:
            raise Damaged(self.note_missing(missing))

    def _missing_between(self, segment: Segment, following: Segment, wait: bool) -> DamagedRange | None:
        """What is missing behind the last batch of a segment: it was truncated, or a file behind it is lost."""
        derived = segment.derived(wait=wait)
        if derived.next_offset >= following.base_offset:
            return None
        due = due_end(derived, following.base_offset, self.recorded_gaps)
        return missing_file(derived.next_offset, due) if derived.next_offset < due else None

    def _limit_before(self, segment: Segment, offset: int, limit: int, wait: bool) -> int:
        """The position of the batch that holds `offset`, or where damage hides it."""
        try:
            found = segment.find(offset, limit, wait=wait)
        except Damaged as error:
            return error.damage.position
        return found[0] if found is not None else limit

    def aborted_transactions(self, first: int, end: int, *, wait: bool = True) -> list[AbortedTransaction]:
        """The aborted transactions with records from `first` to before `end`: what a reader of committed records
        leaves out. With `wait=False`, raises WouldWait where a disk must be asked.
        """
        return self._ask(lambda view: self._aborted_transactions(view, first, end, wait))

    def _aborted_transactions(self, view: View, first: int, end: int, wait: bool) -> list[AbortedTransaction]:
        aborted: list[AbortedTransaction] = []
        for segment, _ in self._segments_from(view, max(first, view.first_readable), wait):
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
        """The answer, asked again where what was being looked at was deleted or replaced."""
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
        """Where the largest epoch not above `epoch` ends, as far as readers may know."""
        found, high_watermark = self.epochs.end_of(epoch, self.view.high_watermark), self.view.high_watermark
        return found._replace(end_offset=min(found.end_offset, high_watermark))

    def find_time(self, timestamp: int) -> FoundTime | None:
        """The first record, in order of offsets, with this timestamp or a later one; None if there is none."""
        return self._ask(lambda view: self._find_time(view, timestamp))

    def _find_time(self, view: View, timestamp: int) -> FoundTime | None:
        for segment, _ in self._segments_from(view, view.first_readable):
            derived = segment.derived()
            if derived.max_timestamp < timestamp and not derived.is_partial:
                continue
            entry = derived.time_index.before(timestamp)
            offset = max(view.first_readable, entry.last_offset if entry else segment.base_offset)
            found = self._find_time_from(offset, timestamp, derived.next_offset)
            if found is not None:
                return found
        return None

    def _find_time_from(self, offset: int, timestamp: int, end: int) -> FoundTime | None:
        for data, position, header in self._batches_from(offset, end):
            if header.max_timestamp >= timestamp:
                found = self._first_in_batch(data, position, header, timestamp)
                if found is not None:
                    return found
        return None

    def _first_in_batch(self, data: bytes, position: int, header: BatchHeader, timestamp: int) -> FoundTime | None:
        start = self.view.start
        try:
            record = first_record_at_or_after(data, position, timestamp, start_offset=start)
        except CorruptBatch:  # a producer may send what it likes: who looks for a time begins with this batch, then
            return FoundTime(max(start, header.base_offset), header.max_timestamp)
        return FoundTime(record.offset, record.timestamp) if record is not None else None

    def _batches_from(self, offset: int, end: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
        """Every batch with records from `offset` to before `end` that readers may see, a piece of the log at a
        time.
        """
        while offset < min(end, self.view.high_watermark):
            piece = self.read(offset, _PIECE_BYTES)
            if piece is None:
                return
            with piece:
                data, offset = piece.read(), piece.next_offset
            for position, header in batch.split(data):
                yield data, position, header

    def find_max_timestamp(self) -> FoundTime | None:
        """The record with the largest timestamp that readers may see, the first of them; None in an empty log."""
        return self._ask(self._find_max_timestamp)

    def _find_max_timestamp(self, view: View) -> FoundTime | None:
        best: FoundTime | None = None
        for segment, _ in self._segments_from(view, view.first_readable):
            derived = segment.derived()
            if best is None or derived.max_timestamp > best.timestamp:
                best = _newer(best, self._max_timestamp_of(view, segment, derived))
        return best

    def _max_timestamp_of(self, view: View, segment: Segment, derived: Derived) -> FoundTime | None:
        """Its index knows the batch. If that is not flushed yet, or its record was deleted, all are gone through."""
        known = derived.max_timestamp_offset
        if view.start <= known < view.high_watermark:
            newest = self._newest_of(known, known + 1)
            if newest is not None and newest.timestamp == derived.max_timestamp:
                return newest
        return self._newest_of(max(view.first_readable, segment.base_offset), derived.next_offset)

    def _newest_of(self, start: int, end: int) -> FoundTime | None:
        best: FoundTime | None = None
        for data, position, header in self._batches_from(start, end):
            if best is None or header.max_timestamp > best.timestamp:
                best = _newer(best, self._newest_record(data, position, header))
        return best

    def _newest_record(self, data: bytes, position: int, header: BatchHeader) -> FoundTime | None:
        start = self.view.start
        try:
            readable = [record for record in decode_records(data, position) if record.offset >= start]
        except CorruptBatch:
            return FoundTime(max(start, header.base_offset), header.max_timestamp)
        newest = max(readable, key=lambda record: record.timestamp, default=None)
        return FoundTime(newest.offset, newest.timestamp) if newest is not None else None


def _holds(one: DamagedRange, other: DamagedRange) -> bool:
    return one.first_offset <= other.first_offset and other.last_offset <= one.last_offset


def _newer(one: FoundTime | None, other: FoundTime | None) -> FoundTime | None:
    """The one with the larger timestamp; the first, where they are the same."""
    if one is None or other is None:
        return one or other
    return other if other.timestamp > one.timestamp else one
