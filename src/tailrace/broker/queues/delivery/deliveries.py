"""Carries out what the rules of a topic say about the records that were found for a member, before they are acquired.

What changes by that, expired records that end, others that are parked, and the order of keys, is looked at once more.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.queues.delivery.inspection import Inspection, Needs
from tailrace.broker.queues.delivery.reads import FoundRecords
from tailrace.broker.queues.delivery.screening import DecodeBudget, Screening, inspect_batch, inspections_of, screen
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import EndReason, OffsetRange
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.records import batch
from tailrace.records.errors import CorruptBatch

if TYPE_CHECKING:
    from tailrace.broker.queues.coordinator import QueueCoordinator

logger = logging.getLogger("tailrace.broker.queues")

JOB_BYTES_MAX = 1 << 20  # read for one share partition
JOB_RECORDS_MAX = 20_000


class UnreadRange(NamedTuple):
    """Records that a job has to read before any of them is acquired."""

    queue: QueuePartition
    state: SharePartition
    log: Log
    offsets: OffsetRange
    needs: Needs


class Deliveries(NamedTuple):
    found: list[FoundRecords]  # what may be acquired
    unread: list[UnreadRange]
    has_changes: bool


def deliveries_of(found: Sequence[FoundRecords], queues: "QueueCoordinator") -> Deliveries:
    """Applies the rules. What may not be acquired is released. Raises NotSaved."""
    done = Deliveries([], [], False)
    budget, now = DecodeBudget(), queues.now
    for one in found:
        rules = queues.rules_of(one.queue)
        if rules is None or not one.batches:
            done.found.append(one)
            continue
        screening = screen(one, rules, now, budget)
        if screening.unread is not None and one.queue.partition.log is not None:
            log = one.queue.partition.log
            done.unread.append(UnreadRange(one.queue, one.state, log, screening.unread, rules.needs))
        if screening.has_changes:
            _carry_out(one, screening, queues)
            done = done._replace(has_changes=True)
        if screening.last < one.first:
            one.queue.put_off = (one.first, screening.due_ms) if screening.due_ms is not None else None
            queues.set_deadline(one.queue)
            one.release()
        else:
            done.found.append(one._replace(last=screening.last))
    return done


def _carry_out(found: FoundRecords, screening: Screening, queues: "QueueCoordinator") -> None:
    """Raises NotSaved."""
    state = found.state
    for inspection in screening.inspected:
        add_keys(state, inspection)
    if screening.expired:
        queues.write([(found.queue, state.archive(screening.expired, EndReason.EXPIRED))])
    for first, last, due_ms in screening.later:
        state.park(first, last, due_ms, queues.steady_ms)
    queues.set_deadline(found.queue)


def add_keys(state: SharePartition, inspection: Inspection) -> None:
    """Adds the keys of a batch to the order of a share partition, unless those of records before it are not known."""
    known_to = state.keys_known_to
    if known_to is not None and known_to <= inspection.last and state.knows_keys_before(inspection.first):
        state.add_keys(inspection.keys, inspection.last + 1)


class InspectJob:
    """A job that reads ranges, and inspects their records: all of them, or the first ones."""

    def __init__(self, unread: Sequence[UnreadRange]) -> None:
        self._unread = unread
        self._inspections: list[list[Inspection]] = []

    def run(self) -> None:
        for one in self._unread:
            try:
                found = _inspect(one)
            except (LogError, CorruptBatch) as error:
                logger.warning("cannot inspect records of %s, which are delivered: %s", one.log.directory, error)
                found = [Inspection(*one.offsets)]
            self._inspections.append(found)

    def finish(self) -> None:
        for one, inspections in zip(self._unread, self._inspections, strict=True):
            known = inspections_of(one.queue, one.needs)
            for inspection in inspections:
                known.add(inspection)
                if one.queue.state is one.state:
                    add_keys(one.state, inspection)


def _inspect(unread: UnreadRange) -> list[Inspection]:
    """Returns what is known of all offsets of a range, or of the first ones. Raises LogError and CorruptBatch."""
    first, last = unread.offsets
    found = unread.log.read(first, JOB_BYTES_MAX, up_to=last + 1)
    if found is None:
        return [Inspection(first, last)]
    with found:
        data = found.read()
    inspections: list[Inspection] = []
    records = 0
    for position, header in batch.split(data):
        if header.base_offset > first:  # compaction has left nothing there
            inspections.append(Inspection(first, header.base_offset - 1))
        inspections.append(inspect_batch(data, position, header, unread.needs))
        first, records = header.next_offset, records + header.record_count
        if records >= JOB_RECORDS_MAX:
            break
    return inspections
