"""What is known of the records of a share partition: what is persisted, who holds them, and which wait for what."""

from collections.abc import Iterable, Iterator

from tailrace.broker.queues.partition.key_order import KeyOrder
from tailrace.broker.queues.partition.leases import Leases
from tailrace.broker.queues.partition.pages import Pages, pack, unpack
from tailrace.broker.queues.partition.parking import Parking
from tailrace.broker.queues.partition.settings import PartitionSettings, retry_delay_ms
from tailrace.broker.queues.partition.states import (
    UNCHANGED,
    DeadLetterPosition,
    RecordState,
    StateRange,
    StateUpdate,
    merged,
)

SPAN_MAX = 1 << 25  # from start to end: finished records between others take up to one byte each
RANGES_MAX = 1_000  # in one decision, or a piece of a snapshot, that no request bounds
UNPARKED_MAX = 1_000  # ranges, at once


class PartitionState:
    def __init__(self, settings: PartitionSettings, start_offset: int = 0) -> None:
        self._settings = settings
        self._pages = Pages(start_offset)
        self._leases = Leases()
        self._parking = Parking()
        self._order = KeyOrder(start_offset) if settings.orders_by_key else None
        self._log_start = 0
        self.dead_letters: DeadLetterPosition | None = None

    @property
    def settings(self) -> PartitionSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: PartitionSettings) -> None:
        if settings.orders_by_key and self._order is None:
            self._order = KeyOrder(self.start_offset)
        elif not settings.orders_by_key and (order := self._order) is not None:
            self._order = None
            for offset in order.waiting_in(self.start_offset, self.end_offset):
                self._free(offset, offset)
        self._settings = settings

    # What it is

    @property
    def start_offset(self) -> int:
        """The first record that is not finished."""
        return self._pages.start

    @property
    def end_offset(self) -> int:
        """The first record that was never acquired, nor has any state."""
        return self._pages.end

    @property
    def unfinished(self) -> int:
        """Records between start and end that are not finished."""
        return self._pages.open

    @property
    def complete_count(self) -> int:
        """Records between start and end that are finished."""
        return self.end_offset - self.start_offset - self._pages.open

    def unfinished_before(self, before: int) -> int:
        """Returns how many records before an offset are not finished, those from the end on included."""
        start, end = self.start_offset, self.end_offset
        if before <= start:
            return 0
        between = self._pages.open_in(start, min(before, end) - 1) if start < end else 0
        return between + max(0, before - end)

    def next_unfinished(self, offset: int) -> int:
        """Returns the first record that is not finished, from an offset on that is not before the start."""
        return offset if offset >= self.end_offset else self._pages.first_open(offset)

    @property
    def in_flight(self) -> int:
        """Records that members hold."""
        return self._leases.held

    @property
    def archiving(self) -> int:
        """Records that wait to be written to the dead-letter topic."""
        first = pack(RecordState.ARCHIVING, 0)
        return sum(self._pages.tally[first : pack(RecordState.ARCHIVED, 0)])

    @property
    def parked(self) -> int:
        """Records that wait for their time."""
        return self._pages.open - self._pages.free - self.in_flight - self.archiving

    @property
    def attempts(self) -> dict[int, int]:
        """How many records that are not finished, and are between start and end, have been delivered how often."""
        first = pack(RecordState.AVAILABLE, 0)
        counts = self._pages.tally[first : pack(RecordState.ACQUIRED, 0)]
        return {count: records for count, records in enumerate(counts) if records}

    @property
    def next_deadline(self) -> int | None:
        """When `expire_locks` or `unpark` has something to do, at the earliest."""
        deadlines = (self._leases.next_deadline, self._parking.next_due)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def state_of(self, offset: int) -> tuple[RecordState, int]:
        """Returns the state of a record, and how often it was delivered."""
        if not self.start_offset <= offset < self.end_offset:
            before = RecordState.ARCHIVED if offset < self.start_offset else RecordState.AVAILABLE
            return before, 0
        ((_, _, value),) = self._pages.runs(offset, offset)
        state, count = unpack(value)
        if any(self._leases.of(offset, offset)):
            return RecordState.ACQUIRED, count + 1
        return state, count

    def is_free(self, offset: int) -> bool:
        """Returns whether a record between start and end may be acquired now."""
        return self._pages.is_free(offset)

    # What is persisted

    def replay(self, update: StateUpdate, now_ms: int, age_ms: int = 0) -> None:
        """Applies a decision, `age_ms` after it was made. Raises ValueError for one of another partition."""
        if update.dead_letters is not None:
            self.dead_letters = update.dead_letters
        start = update.start_offset
        if start > self.start_offset:
            before, last = self.start_offset, min(start, self.end_offset) - 1
            if last >= before:
                self._leases.end(before, last)
            self._pages.advance(start)
            self._finish_keys(before, start - 1)
        for first, last, state, count in update.ranges:
            if last < first or last - self.start_offset >= SPAN_MAX or state is RecordState.ACQUIRED:
                start = self.start_offset
                raise ValueError(f"no share partition that starts at {start} has {state.name} from {first} to {last}")
            if last >= self.start_offset:
                self._set(max(first, self.start_offset), last, state, count, now_ms - age_ms, now_ms)

    def _set(self, first: int, last: int, state: RecordState, count: int, released_ms: int, now_ms: int) -> None:
        self._pages.extend(last + 1)
        self._leases.end(first, last)
        is_free = state is RecordState.AVAILABLE
        if is_free and count and self.settings.retry_delay_ms:
            due_ms = released_ms + retry_delay_ms(self.settings, first, count)
            if due_ms > now_ms:
                is_free = False
                self._parking.park(first, last, due_ms, now_ms)
        self._pages.write(first, last, pack(state, count), is_free=is_free)
        if is_free:
            self._take_waiting(first, last)
        elif state is not RecordState.AVAILABLE:
            self._finish_keys(first, last)

    def _finish_keys(self, first: int, last: int) -> None:
        if self._order is not None:
            for offset in self._order.finish(first, last):
                self._free(offset, offset)

    def _take_waiting(self, first: int, last: int) -> None:
        if self._order is not None:
            for offset in self._order.waiting_in(first, last):
                self._pages.take(offset, offset)

    def _free(self, first: int, last: int) -> bool:
        """Makes records available that no member holds, except those that wait for others of their keys. Returns
        whether there are any.
        """
        found = False
        for one, other, _ in self._unheld(first, last):
            self._pages.give_back(one, other)
            self._take_waiting(one, other)
            found = True
        return found

    def snapshot(self, ranges_max: int = RANGES_MAX) -> Iterator[StateUpdate]:
        """Yields updates that together are all that is persisted. Between two of them the partition may change:
        replayed in their place among the other updates, they still give its state.
        """
        start, offset = self.start_offset, self.start_offset
        is_first = True
        while is_first or offset < self.end_offset:
            runs, offset = self._pages.changed(offset, ranges_max)
            ranges = merged(StateRange(first, last, *unpack(value)) for first, last, value in runs)
            if is_first or ranges:
                dead_letters = self.dead_letters if is_first and self.archiving else None
                yield StateUpdate(start if is_first else UNCHANGED, ranges, self.complete_count, dead_letters)
            is_first = False

    # Waiting

    def unpark(self, now_ms: int) -> bool:
        """Makes parked records available whose time has come, or some of them if they are many. Returns whether there
        were any.
        """
        found = [self._free(first, last) for first, last in self._parking.due(now_ms, UNPARKED_MAX)]
        return any(found)

    def park(self, first: int, last: int, due_ms: int, now_ms: int) -> None:
        """Has the available records of a range, which begins at the end at the latest, wait for their time."""
        self._pages.extend(last + 1)
        for one, other, _ in self._pages.free_runs(max(first, self.start_offset), last):
            self._pages.take(one, other)
            self._parking.park(one, other, due_ms, now_ms)

    @property
    def room_to_park(self) -> int:
        """How many records more may wait for their time."""
        return self.settings.parked_max - self.parked

    @property
    def keys_known_to(self) -> int | None:
        """Up to where the keys of all records are known that are not finished: with the order of keys, no record from
        there on is acquired. None if the order does not count.
        """
        if self._order is None:
            return None
        return max(self._order.known_to, self.start_offset)

    @property
    def known_keys(self) -> int:
        """How many records, which are not finished, have a key that is known."""
        return len(self._order) if self._order is not None else 0

    def knows_keys_before(self, offset: int) -> bool:
        """Returns whether the keys of all records before an offset are known that are not finished."""
        known_to = self.keys_known_to
        return known_to is None or self.next_unfinished(known_to) >= min(offset, self.end_offset)

    def add_keys(self, records: Iterable[tuple[int, int]], known_to: int) -> None:
        """Adds the hashes of keys of records, by offset, from `keys_known_to` on; those without a key are left out."""
        if self._order is not None:
            self._pages.extend(known_to)
            known = [(offset, key) for offset, key in records if self._is_open(offset)]
            for offset in self._order.add(known, known_to):
                self._pages.take(offset, offset)

    def _is_open(self, offset: int) -> bool:
        return self.start_offset <= offset < self.end_offset and self._pages.is_open(offset)

    def _unheld(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yields the available records of a range that no member holds, whether parked or not: first, last, count."""
        first, last = max(first, self.start_offset), min(last, self.end_offset - 1)
        if first > last:
            return
        for one, other, value in self._pages.runs(first, last):
            state, count = unpack(value)
            if state is not RecordState.AVAILABLE:
                continue
            offset = one
            for lease in self._leases.of(one, other):
                if offset < lease.first:
                    yield offset, lease.first - 1, count
                offset = lease.last + 1
            if offset <= other:
                yield offset, other, count

    @property
    def _may_grow(self) -> int:
        """By how many records the end may move."""
        if 0 < self.parked >= self.settings.parked_max:
            return 0
        return self.start_offset + SPAN_MAX - self.end_offset
