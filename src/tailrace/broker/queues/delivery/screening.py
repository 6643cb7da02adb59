"""Whether records that were found for a member may be delivered by now: their delay, their expiry, and their order.

Most topics have none of that: then there are no rules, and no byte is looked at. A delay or an expiry of the topic
needs only the headers of batches. What records say themselves, in headers and keys, needs their batches to be decoded:
a small one at once, others in a job (`deliveries`).

    expired        ended (`SharePartition.archive`)
    for later      parked, if their time is far from that of their neighbours; else they, and what is behind them, stay
                   where they are, which costs nothing
    keys           added to the order of the share partition
"""

import logging
from contextlib import suppress
from typing import NamedTuple

from tailrace.broker.configs.registry import QueueConfig
from tailrace.broker.queues.delivery.batches import FoundBatch
from tailrace.broker.queues.delivery.inspection import Inspection, Inspections, Needs, inspect
from tailrace.broker.queues.delivery.reads import FoundRecords
from tailrace.broker.queues.partition.states import OFFSET_MAX, OffsetRange
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.records.batch import BatchHeader, Buffer
from tailrace.records.compression import DECOMPRESSED_BYTES_MAX
from tailrace.records.errors import CorruptBatch, TooLarge
from tailrace.records.record import decode_records

logger = logging.getLogger("tailrace.broker.queues")

INLINE_RECORDS_MAX = 1_000  # decoded at once, some 2 µs each
INLINE_BYTES_MAX = 64 << 10
KEYS_MAX = 100_000  # of unfinished records: some 150 bytes each
DECODED_BYTES_MAX = 1 << 20  # of these, decompressed


class Rules(NamedTuple):
    delay_ms: int
    ttl_ms: int  # negative: none
    needs: Needs

    @property
    def needs_records(self) -> bool:
        return True in self.needs


def rules_of(config: QueueConfig, *, orders_by_key: bool) -> Rules | None:
    """Returns the rules for the records of a topic; None if there are none."""
    needs = Needs(config.delay_headers, config.ttl_headers, orders_by_key)
    if config.delay_ms <= 0 and config.ttl_ms < 0 and True not in needs:
        return None
    return Rules(config.delay_ms, config.ttl_ms, needs)


class Now(NamedTuple):
    wall_ms: int
    steady_ms: int
    is_trusted: bool = True  # the wall clock: if it is not, no record expires

    def steady(self, wall_ms: int) -> int:
        """When it will be that time on the clock that never jumps."""
        return self.steady_ms + wall_ms - self.wall_ms


class LaterRange(NamedTuple):
    first: int
    last: int
    due_ms: int  # steady


class Screening:
    """What is to be done before records are acquired, and up to where they may be."""

    def __init__(self) -> None:
        self.expired: list[OffsetRange] = []
        self.later: list[LaterRange] = []
        self.inspected: list[Inspection] = []  # whose keys are to be added
        self.last = OFFSET_MAX  # that may be acquired
        self.due_ms: int | None = None  # when more may be, on the steady clock
        self.unread: OffsetRange | None = None  # to be read by a job, as nothing is known of the first records

    @property
    def has_changes(self) -> bool:
        return bool(self.expired or self.later or self.inspected)


class DecodeBudget:
    """What may be decoded without a job, for one request."""

    def __init__(self) -> None:
        self.records = INLINE_RECORDS_MAX
        self.bytes = INLINE_BYTES_MAX

    def take(self, found: FoundBatch) -> bool:
        size = found.end - found.begin
        if found.header.record_count > self.records or size > self.bytes:
            return False
        self.records -= found.header.record_count
        self.bytes -= size
        return True


def screen(found: FoundRecords, rules: Rules, now: Now, budget: DecodeBudget) -> Screening:
    """Applies the rules to records that were found. Changes nothing but what is known of batches."""
    return _Screen(found, rules, now, budget).run()


class _Screen:
    def __init__(self, found: FoundRecords, rules: Rules, now: Now, budget: DecodeBudget) -> None:
        self._found = found
        self._state = found.state
        self._rules = rules
        self._now = now
        self._budget = budget
        self._room = found.state.room_to_park
        self._keys_known_to = found.state.keys_known_to
        self._keys_left = KEYS_MAX - found.state.known_keys
        self._result = Screening()

    def run(self) -> Screening:
        for n, found in enumerate(self._found.batches):
            first = max(found.first, self._found.first)
            if not self._screen_batch(found, first, is_first=n == 0):
                break
        return self._result

    def _screen_batch(self, found: FoundBatch, first: int, *, is_first: bool) -> bool:
        """Returns False if what is behind it is for another time."""
        result, rules, time = self._result, self._rules, found.header.max_timestamp
        if rules.ttl_ms >= 0 and 0 <= time <= self._now.wall_ms - rules.ttl_ms and self._now.is_trusted:
            result.expired.append(OffsetRange(first, found.last))
            return True
        if rules.delay_ms > 0 and time + rules.delay_ms > self._now.wall_ms:
            is_odd = time > self._now.wall_ms  # of the future: what is behind it may be due before
            return self._put_off(first, found.last, time + rules.delay_ms, may_park=is_odd)
        if not rules.needs_records:
            return True
        inspection = self._inspection(found)
        if inspection is None:
            result.last = min(result.last, found.first - 1)
            if is_first:
                result.unread = OffsetRange(found.first, self._found.batches[-1].last)
            return False
        return self._screen_keys(inspection, is_first) and self._screen_records(inspection, first)

    def _put_off(self, first: int, last: int, wall_ms: int, *, may_park: bool) -> bool:
        """Records are for later. Returns False if what is behind them has to wait, too."""
        result, due_ms = self._result, self._now.steady(wall_ms)
        records = last - first + 1
        if may_park and self._room >= records:
            self._room -= records
            result.later.append(LaterRange(first, last, due_ms))
            return True
        result.last, result.due_ms = min(result.last, first - 1), due_ms
        return False

    def _inspection(self, found: FoundBatch) -> Inspection | None:
        """Returns what is known of the records of a batch; decodes it if it is small."""
        known = inspections_of(self._found.queue, self._rules.needs)
        inspection = known.find(found.first)
        if inspection is None and self._budget.take(found):
            data = self._found.records.read_cached(found.begin, found.end - found.begin)
            if data is not None:
                with suppress(TooLarge):  # a job decodes it
                    inspection = inspect_batch(data, 0, found.header, self._rules.needs, limit=DECODED_BYTES_MAX)
                    known.add(inspection)
        return inspection

    def _screen_keys(self, inspection: Inspection, is_first: bool) -> bool:
        """Returns False if there are records before it whose keys are not known."""
        if self._keys_known_to is None or self._keys_known_to > inspection.last:
            return True
        unknown = self._state.next_unfinished(self._keys_known_to)
        if unknown < min(inspection.first, self._state.end_offset):
            self._result.last = min(self._result.last, inspection.first - 1)
            if is_first:
                self._result.unread = OffsetRange(unknown, inspection.last)
            return False
        if self._keys_left <= 0:
            self._result.last = min(self._result.last, inspection.first - 1)
            return False
        self._keys_left -= len(inspection.keys)
        self._result.inspected.append(inspection)
        self._keys_known_to = inspection.last + 1
        return True

    def _screen_records(self, inspection: Inspection, first: int) -> bool:
        for offset, time in inspection.expiry if self._now.is_trusted else ():
            if offset >= first and time <= self._now.wall_ms and self._state.available_in(offset, offset):
                self._result.expired.append(OffsetRange(offset, offset))
        for offset, time in inspection.due:
            if offset < first or time <= self._now.wall_ms or not self._state.available_in(offset, offset):
                continue
            if not self._put_off(offset, offset, time, may_park=True):
                return False
        return True


def inspections_of(queue: QueuePartition, needs: Needs) -> Inspections:
    known = queue.inspections
    if known is None or known.needs != needs:
        known = queue.inspections = Inspections(needs)
    return known


def inspect_batch(
    data: Buffer, position: int, header: BatchHeader, needs: Needs, limit: int = DECOMPRESSED_BYTES_MAX
) -> Inspection:
    """Raises TooLarge if the records take more bytes than `limit`. Records that cannot be decoded have no keys, nor
    headers: what to do about them is up to members.
    """
    first, last = header.base_offset, header.last_offset
    if header.is_control:
        return Inspection(first, last)
    try:
        return inspect(decode_records(data, position, limit=limit), first, last, needs)
    except CorruptBatch as error:
        if isinstance(error, TooLarge) and limit < DECOMPRESSED_BYTES_MAX:
            raise
        logger.warning("cannot decode the records from offset %d on, which are delivered as they are: %s", first, error)
        return Inspection(first, last)
