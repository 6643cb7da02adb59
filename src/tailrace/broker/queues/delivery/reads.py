"""Finds records for a member in the log, by the headers of batches: what to acquire, and the bytes to send.

holes     offsets without records for members: markers, records of aborted transactions, what compaction has taken.
          Holes before the records are finished by the broker if they are large; small ones, and those between, are
          acquired along with the records, and the member says that there is nothing
holders   batches of which no record is available are sent along between others if they are small
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from tailrace.broker.queues.delivery.batches import FoundBatch, batches_of
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import OFFSET_MAX, Acquired, OffsetRange
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.log.files.index import AbortedTransaction
from tailrace.log.layout.errors import LogError, without_frames
from tailrace.log.log import Log
from tailrace.log.segment.slices import FileSlice
from tailrace.records.errors import CorruptBatch

HOLE_MAX = 16  # offsets that a member is bothered with
UNWANTED_BYTES_MAX = 64 << 10  # sent in one place between batches that are wanted
BATCHES_MAX = 2_000  # looked at for one partition, some 2 µs each
READ_BYTES_MIN = 256 << 10


class FoundHole(NamedTuple):
    first: int
    last: int
    is_aborted: bool


class FoundRecords(NamedTuple):
    """What a share partition has for a member. To be released."""

    queue: QueuePartition
    state: SharePartition  # of the queue, when it was looked for
    first: int  # the first record that is available
    holes: Sequence[OffsetRange]  # to be finished first
    batches: Sequence[FoundBatch]  # to be acquired, if any
    records: FileSlice
    last: int = OFFSET_MAX  # what is behind it is for later

    @property
    def length(self) -> int:
        return self.batches[-1].end - self.batches[0].begin if self.batches else 0

    def ranges_from(self, first: int) -> list[OffsetRange]:
        return [
            OffsetRange(batch.first, min(batch.last, self.last))
            for batch in self.batches
            if batch.last >= first and batch.first <= self.last
        ]

    def release(self) -> None:
        self.records.release()

    def bytes_of(self, acquired: Sequence[Acquired]) -> FileSlice:
        """Returns the batches of the records that were acquired."""
        first, last = acquired[0].first, acquired[-1].last
        sent = [batch for batch in self.batches if batch.last >= first and batch.first <= last]
        sent = sent or [self.batches[0]]  # all of it is a hole: the member finds nothing, and says so
        return self.records.piece(sent[0].begin, sent[-1].end - sent[0].begin)


class WantedRange(NamedTuple):
    """What is to be read for a share partition."""

    queue: QueuePartition
    log: Log
    available: OffsetRange
    end: int  # of what members may read
    bytes_max: int
    needs_aborted: bool


def wanted_range(
    queue: QueuePartition, bytes_max: int, bytes_min: int, records_max: int, reads_committed: bool, steady_ms: int
) -> WantedRange | None:
    """Returns None if there is nothing available."""
    state, log = queue.state, queue.partition.log
    available = state.next_available(steady_ms) if state is not None else None
    if available is None or log is None:
        return None
    view = log.view
    end = view.last_stable if reads_committed else view.high_watermark
    if not view.start <= available.first < end:
        return None
    enough = max(bytes_min, READ_BYTES_MIN, 2 * records_max * _bytes_of_a_record(log))
    return WantedRange(queue, log, available, end, min(bytes_max, enough), reads_committed)


def _bytes_of_a_record(log: Log) -> int:
    """Returns the mean: bytes that are not sent need not be checked, either."""
    return log.size // max(1, log.end_offset - log.start_offset) + 1


class OpenedRange(NamedTuple):
    """Batches of a share partition, to be released."""

    wanted: WantedRange
    records: FileSlice
    aborted: Sequence[AbortedTransaction]
    batches: Iterable[FoundBatch]

    def serves(self, wanted: WantedRange) -> bool:
        """Whether it begins with what is wanted now."""
        return self.wanted.log is wanted.log and self.wanted.available.first == wanted.available.first


def open_range(wanted: WantedRange, *, wait: bool) -> OpenedRange | None:
    """Returns the range, from any thread. Raises LogError and CorruptBatch; and with `wait=False`, also when the
    batches are taken from it, WouldWait instead of waiting for a disk.
    """
    log, first = wanted.log, wanted.available.first
    records = log.read(first, wanted.bytes_max, up_to=wanted.end, wait=wait)
    if records is None:
        return None
    try:
        aborted = log.aborted_transactions(first, records.next_offset, wait=wait) if wanted.needs_aborted else []
        batches: Iterable[FoundBatch] = islice(batches_of(records, wait=wait), BATCHES_MAX)
        return OpenedRange(wanted, records, aborted, list(batches) if wait else batches)
    except BaseException:
        records.release()
        raise


class ReadJob:
    """A job that opens ranges, and may wait for a disk. `opened` has what it found, or an error. What it found is
    released with the fetch, if that does not take it.
    """

    def __init__(self, ranges: Sequence[WantedRange]) -> None:
        self._ranges = ranges
        self.opened: dict[QueuePartition, OpenedRange | Exception] = {}

    def run(self) -> None:
        for wanted in self._ranges:
            try:
                opened = open_range(wanted, wait=True)
            except (LogError, CorruptBatch, OSError) as error:
                self.opened[wanted.queue] = without_frames(error)
            else:
                if opened is not None:
                    self.opened[wanted.queue] = opened

    def finish(self) -> None:
        pass


def find_records(wanted: WantedRange, opened: OpenedRange, records_max: int, *, is_strict: bool) -> FoundRecords:
    """Returns what there is for a member, and changes nothing; takes the opened range over. Raises WouldWait instead of
    waiting for a disk, and CorruptBatch; then the range is released.
    """
    state = wanted.queue.state
    assert state is not None
    try:
        chosen = _Choice(state, wanted.available, records_max, opened.aborted, 0 if is_strict else HOLE_MAX)
        chosen.take_from(opened.batches)
    except BaseException:
        opened.records.release()
        raise
    first = wanted.available.first
    return FoundRecords(wanted.queue, state, first, chosen.holes_to_finish, chosen.wanted, opened.records)


class _Choice:
    """The batches to acquire, and the holes before them."""

    def __init__(
        self,
        state: SharePartition,
        available: OffsetRange,
        records_max: int,
        aborted: Sequence[AbortedTransaction],
        hole_max: int,
    ) -> None:
        self.wanted: list[FoundBatch] = []
        self._holes: list[FoundHole] = []
        self._state = state
        self._next = available.first
        self._last = available.last
        self._left = records_max
        self._unwanted = 0  # bytes behind the last batch that is wanted
        self._aborted = aborted
        self._hole_max = hole_max

    @property
    def holes_to_finish(self) -> list[OffsetRange]:
        offsets = sum(hole.last - hole.first + 1 for hole in self._holes)
        must_go = offsets > self._hole_max or not self.wanted or any(hole.is_aborted for hole in self._holes)
        return [OffsetRange(hole.first, hole.last) for hole in self._holes] if must_go else []

    def take_from(self, batches: Iterable[FoundBatch]) -> None:
        for batch in batches:
            if batch.first > self._last or self._left <= 0 or not self._take(batch):
                return

    def _take(self, batch: FoundBatch) -> bool:
        """Returns False if the batch, and all behind it, is for another time."""
        if batch.first > self._next and not self._take_hole(self._next, batch.first - 1):
            return False
        first = max(batch.first, self._next)
        self._next = batch.last + 1
        is_aborted = self._is_aborted(batch)
        if is_aborted or not batch.has_records:
            return self._take_hole(first, batch.last, is_aborted=is_aborted)
        free = self._state.available_in(first, batch.last)
        if free:
            self.wanted.append(batch)
            self._left -= free
            self._unwanted = 0
            return True
        self._unwanted += batch.end - batch.begin
        return not self.wanted or self._unwanted <= UNWANTED_BYTES_MAX

    def _take_hole(self, first: int, last: int, *, is_aborted: bool = False) -> bool:
        if self.wanted:
            return last - first < self._hole_max and not is_aborted
        self._holes.append(FoundHole(first, last, is_aborted))
        return True

    def _is_aborted(self, batch: FoundBatch) -> bool:
        header = batch.header
        if not self._aborted or not header.is_transactional or header.is_control:
            return False
        return any(
            one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
            for one in self._aborted
        )
