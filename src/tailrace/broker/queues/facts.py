"""What is known of a share partition: for DescribeShareGroupOffsets, and for metrics."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.delayed import StartJob
from tailrace.broker.queues.outcomes import Outcomes
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import RecordState
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.log.segment.segment import WouldWait
from tailrace.records.batch import HEADER_SIZE, read_header
from tailrace.records.errors import CorruptBatch

if TYPE_CHECKING:
    from tailrace.broker.queues.coordinator import QueueCoordinator

PARKED = 5  # beside Kafka's numbers of states
STATES_MAX = 1_000  # records of a partition, some 5 µs each

UNKNOWN = -1


def backlog_of(queue: QueuePartition, *, reads_committed: bool) -> int:
    """Returns how many records are not finished, those that were never acquired included; -1 if that is unknown."""
    if queue.state is None:
        return UNKNOWN
    state, end = queue.state, queue.end_for(reads_committed=reads_committed)
    return state.unfinished + max(0, end - state.end_offset)


class StateRun(NamedTuple):
    first: int
    last: int
    state: int
    delivery_count: int


def states_of(state: SharePartition, end: int, states_max: int) -> list[StateRun]:
    """Returns the states of the first so many records that are not finished, and lie before the end of the log."""
    runs: list[StateRun] = []
    offset = state.start_offset
    for _ in range(min(states_max, STATES_MAX)):
        offset = state.next_unfinished(offset)
        if offset >= end:
            break
        one = _state_of(state, offset)
        if runs and runs[-1].last + 1 == offset and runs[-1][2:] == one[2:]:
            runs[-1] = runs[-1]._replace(last=offset)
        else:
            runs.append(one)
        offset += 1
    return runs


def _state_of(state: SharePartition, offset: int) -> StateRun:
    found, count = state.state_of(offset)
    number = int(found)
    if found is RecordState.AVAILABLE and offset < state.end_offset and not state.is_free(offset):
        number = PARKED
    return StateRun(offset, offset, number, count)


# The timestamp of the oldest record that is not finished


def oldest_ms(queue: QueuePartition, *, reads_committed: bool) -> int | None:
    """Returns the timestamp, roughly: that of the batch; -1 if there is no such record; None if it is on a disk, and
    `OldestJob` has to read it.
    """
    state, log = queue.state, queue.partition.log
    if state is None or log is None or state.start_offset >= queue.end_for(reads_committed=reads_committed):
        return UNKNOWN
    if queue.oldest is not None and queue.oldest[0] == state.start_offset:
        return queue.oldest[1]
    try:
        timestamp = _timestamp_at(log, state.start_offset, wait=False)
    except WouldWait:
        return None
    queue.oldest = state.start_offset, timestamp
    return timestamp


def _timestamp_at(log: Log, offset: int, *, wait: bool) -> int:
    """Raises WouldWait; damage is no timestamp."""
    with suppress(LogError, CorruptBatch):
        records = log.read(offset, 1, wait=wait)
        if records is not None:
            with records:
                head = records.read(0, HEADER_SIZE) if wait else records.read_cached(0, HEADER_SIZE)
                if head is None:
                    raise WouldWait
                return read_header(bytes(head)).base_timestamp
    return UNKNOWN


class OldestJob:
    """A job that reads what `oldest_ms` could not read without waiting."""

    def __init__(self, queues: Sequence[QueuePartition]) -> None:
        self._wanted = list(_wanted(queues))
        self._found: list[tuple[QueuePartition, int, int]] = []

    def run(self) -> None:
        self._found = [(queue, offset, _timestamp_at(log, offset, wait=True)) for queue, log, offset in self._wanted]

    def finish(self) -> None:
        for queue, offset, timestamp in self._found:
            queue.oldest = offset, timestamp


def _wanted(queues: Sequence[QueuePartition]) -> Iterator[tuple[QueuePartition, Log, int]]:
    for queue in queues:
        if queue.state is not None and queue.partition.log is not None:
            yield queue, queue.partition.log, queue.state.start_offset


class Totals:
    """Of all share partitions of a group and a topic."""

    def __init__(self) -> None:
        self.backlog = 0
        self.in_flight = 0
        self.parked = 0
        self.oldest_ms: int | None = None
        self.outcomes = Outcomes()

    def add(self, queue: QueuePartition, *, reads_committed: bool) -> None:
        if queue.state is not None:
            self.backlog += backlog_of(queue, reads_committed=reads_committed)
            self.in_flight += queue.state.in_flight
            self.parked += queue.state.parked
        self.outcomes.add_all(queue.outcomes)


def totals(queues: "QueueCoordinator", start_job: StartJob) -> dict[tuple[str, str], Totals]:
    """Returns the totals by group and topic. The age of records that are on a disk is read, for the next time."""
    found: dict[tuple[str, str], Totals] = {}
    cold = []
    for of_group in queues.groups.values():
        reads_committed = of_group.settings.reads_committed
        for queue in of_group.partitions.values():
            total = found.setdefault((of_group.group, queue.partition.topic.name), Totals())
            total.add(queue, reads_committed=reads_committed)
            oldest = oldest_ms(queue, reads_committed=reads_committed)
            if oldest is None:
                cold.append(queue)
            elif oldest >= 0 and (total.oldest_ms is None or oldest < total.oldest_ms):
                total.oldest_ms = oldest
    if cold:
        job = OldestJob(cold)
        start_job(job, job.finish)
    return found
