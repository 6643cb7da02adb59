"""Cases of share partitions, one by one; `test_share_partition_model` has the rest."""

from collections.abc import Callable, Sequence

import pytest

from tailrace.broker.core.errors import Refused
from tailrace.broker.queues.partition.partition_state import SPAN_MAX
from tailrace.broker.queues.partition.settings import PartitionSettings
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import (
    OFFSET_MAX,
    AckBatch,
    AckType,
    Acquired,
    Decision,
    EndReason,
    OffsetRange,
    RecordState,
    StateRange,
    StateUpdate,
)
from tailrace.protocol.errors import ErrorCode

LOCK_MS = 30_000
GAP, ACCEPT, RELEASE, REJECT, RENEW = AckType


class Queue:
    """A share partition whose decisions are carried out at once, on a clock of its own."""

    def __init__(self, settings: PartitionSettings | None = None, start: int = 0) -> None:
        self.partition = SharePartition(settings or PartitionSettings(), start)
        self.now = 0

    def acquire(
        self, *batches: tuple[int, int], member: str = "m", records_max: int = 500, is_strict: bool = False
    ) -> list[Acquired]:
        found = self.partition.next_available(self.now)
        if found is None:
            return []
        ranges = [OffsetRange(*batch) for batch in batches]
        return self.partition.acquire(
            member, found.first, ranges, records_max=records_max, now_ms=self.now, lock_ms=LOCK_MS, is_strict=is_strict
        )

    def carry_out(self, decision: Decision) -> Decision:
        if decision.update is not None:
            self.partition.replay(decision.update, self.now)
        return decision

    def acknowledge(self, *batches: tuple[int, int, Sequence[int]], member: str = "m") -> Decision:
        said = [AckBatch(*batch) for batch in batches]
        return self.carry_out(self.partition.acknowledge(member, said, self.now, LOCK_MS))

    def refused(self, *batches: tuple[int, int, Sequence[int]], member: str = "m") -> ErrorCode:
        before = persisted(self.partition), self.partition.in_flight
        with pytest.raises(Refused) as refused:
            self.acknowledge(*batches, member=member)
        assert (persisted(self.partition), self.partition.in_flight) == before
        return refused.value.code

    def pass_time(self, ms: int) -> Decision:
        self.now += ms
        return self.carry_out(self.partition.expire_locks(self.now))


def persisted(partition: SharePartition) -> list[StateUpdate]:
    return list(partition.snapshot())


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_records_are_acquired_in_whole_batches_and_finished_in_any_order(queue: Queue) -> None:
    assert queue.acquire((0, 9), (10, 19), records_max=12) == [Acquired(0, 19, 1)]
    assert queue.acknowledge((10, 19, [ACCEPT])).accepted == 10
    assert queue.partition.start_offset == 0
    assert queue.partition.complete_count == 10
    queue.acknowledge((0, 9, [ACCEPT]))
    assert queue.partition.start_offset == queue.partition.end_offset == 20
    assert queue.partition.next_available(0) == OffsetRange(20, OFFSET_MAX)


def test_a_strict_acquisition_ends_inside_a_batch(queue: Queue) -> None:
    assert queue.acquire((0, 9), records_max=3, is_strict=True) == [Acquired(0, 2, 1)]
    assert queue.acquire((0, 9), records_max=3, is_strict=True, member="n") == [Acquired(3, 5, 1)]
    assert queue.partition.end_offset == 6


def test_ranges_end_with_batches_once_they_are_large_enough(queue: Queue) -> None:
    batches = [OffsetRange(n, n + 9) for n in range(0, 60, 10)]
    acquired = queue.partition.acquire("m", 0, batches, records_max=100, now_ms=0, lock_ms=1, batch_size=15)
    assert acquired == [Acquired(0, 19, 1), Acquired(20, 39, 1), Acquired(40, 59, 1)]


def test_offsets_without_records_are_acquired_with_the_batch_behind_them(queue: Queue) -> None:
    assert queue.acquire((5, 9), (20, 29)) == [Acquired(0, 29, 1)]


# Acknowledgements that are refused


def test_a_record_cannot_be_acknowledged_twice(queue: Queue) -> None:
    queue.acquire((0, 9))
    queue.acknowledge((4, 4, [ACCEPT]))
    assert queue.refused((4, 4, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


def test_a_record_cannot_be_acknowledged_by_another_member(queue: Queue) -> None:
    queue.acquire((0, 9))
    assert queue.refused((4, 4, [ACCEPT]), member="other") is ErrorCode.INVALID_RECORD_STATE


def test_a_record_cannot_be_acknowledged_after_its_lock_timed_out(queue: Queue) -> None:
    queue.acquire((0, 9))
    assert queue.pass_time(LOCK_MS - 1).update is None
    assert queue.pass_time(1).released == 10
    assert queue.refused((0, 0, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


def test_records_before_the_start_are_acknowledged_silently(queue: Queue) -> None:
    queue.acquire((0, 9))
    queue.acknowledge((0, 4, [ACCEPT]))
    assert queue.acknowledge((0, 4, [REJECT])) == Decision(None)
    assert queue.acknowledge((3, 6, [REJECT])).update == StateUpdate(7, [], 0)


def test_records_that_were_never_acquired_cannot_be_acknowledged(queue: Queue) -> None:
    assert queue.refused((0, 0, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    queue.acquire((0, 9))
    assert queue.refused((9, 10, [ACCEPT])) is ErrorCode.INVALID_REQUEST
    assert queue.refused((500, 500, [ACCEPT])) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "batches",
    [
        [(3, 2, [ACCEPT])],
        [(-1, 2, [ACCEPT])],
        [(0, 2, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(4, 5, [ACCEPT]), (0, 1, [ACCEPT])],
        [(0, 4, [ACCEPT]), (4, 5, [ACCEPT])],
    ],
)
def test_a_malformed_acknowledgement_is_refused(queue: Queue, batches: list[tuple[int, int, list[int]]]) -> None:
    queue.acquire((0, 9))
    assert queue.refused(*batches) is ErrorCode.INVALID_REQUEST


def test_of_several_batches_all_count_or_none(queue: Queue) -> None:
    queue.acquire((0, 9))
    queue.acquire((0, 9), (10, 19), member="other")
    said = (0, 2, [ACCEPT]), (5, 5, [RENEW]), (11, 11, [ACCEPT])
    assert queue.refused(*said) is ErrorCode.INVALID_RECORD_STATE


def test_a_renewal_is_refused_where_the_group_allows_none() -> None:
    queue = Queue(PartitionSettings(is_renewable=False))
    queue.acquire((0, 9))
    assert queue.refused((0, 0, [RENEW])) is ErrorCode.INVALID_RECORD_STATE


# Acknowledgements that count


def test_each_offset_may_have_a_type_of_its_own(queue: Queue) -> None:
    queue.acquire((0, 5))
    decision = queue.acknowledge((0, 5, [RELEASE, ACCEPT, GAP, REJECT, RENEW, ACCEPT]))
    assert decision.update == StateUpdate(
        -1,
        [
            StateRange(0, 0, RecordState.AVAILABLE, 1),
            StateRange(1, 1, RecordState.ACKNOWLEDGED, 1),
            StateRange(2, 3, RecordState.ARCHIVED, 1),
            StateRange(5, 5, RecordState.ACKNOWLEDGED, 1),
        ],
        4,
    )
    assert [(one.first, one.last, one.reason) for one in decision.ended] == [(3, 3, EndReason.REJECTED)]
    assert (decision.accepted, decision.released, decision.renewed) == (2, 1, 1)
    assert queue.partition.in_flight == 1


def test_one_acknowledgement_may_cover_two_acquisitions(queue: Queue) -> None:
    queue.acquire((0, 4))
    queue.acquire((5, 9))
    assert queue.acknowledge((2, 7, [ACCEPT])).accepted == 6


def test_a_released_record_is_delivered_until_its_attempts_are_used_up(queue: Queue) -> None:
    counts = []
    for _ in range(5):
        ((_, _, count),) = queue.acquire((0, 0))
        counts.append(count)
        decision = queue.acknowledge((0, 0, [RELEASE]))
    assert counts == [1, 2, 3, 4, 5]
    assert [one.reason for one in decision.ended] == [EndReason.ATTEMPTS]
    assert queue.partition.start_offset == 1


def test_a_record_that_is_given_up_waits_for_its_dead_letter() -> None:
    queue = Queue(PartitionSettings(has_dead_letters=True))
    queue.acquire((0, 9))
    decision = queue.acknowledge((3, 4, [REJECT]))
    assert [(one.first, one.last) for one in decision.dead_letters] == [(3, 4)]
    assert queue.partition.state_of(3) == (RecordState.ARCHIVING, 1)
    queue.acknowledge((0, 2, [ACCEPT]), (5, 9, [ACCEPT]))
    assert queue.partition.start_offset == 3
    assert queue.partition.archiving == 2
    queue.carry_out(queue.partition.dead_letters_written([OffsetRange(3, 3)]))
    assert queue.partition.start_offset == 4
    queue.carry_out(queue.partition.dead_letters_written([OffsetRange(4, 4)]))
    assert queue.partition.start_offset == 10


def test_a_suspect_record_comes_by_itself(queue: Queue) -> None:
    """With five attempts, from the fourth on: the poison record of a batch does not use up those of the others."""
    for _ in range(3):
        assert queue.acquire((0, 9)) != []
        queue.acknowledge((0, 9, [RELEASE]))
    assert queue.acquire((0, 9)) == [Acquired(0, 0, 4)]
    assert queue.acquire((0, 9), member="other") == [Acquired(1, 1, 4)]


def test_good_records_come_without_the_suspect_one_behind_them(queue: Queue) -> None:
    queue.acquire((0, 4))
    for _ in range(3):
        queue.acknowledge((4, 4, [RELEASE]))
        queue.acquire((4, 4))
    queue.acknowledge((0, 3, [RELEASE]), (4, 4, [RELEASE]))
    assert queue.acquire((0, 4)) == [Acquired(0, 3, 2)]
    assert queue.acquire((0, 4)) == [Acquired(4, 4, 5)]


# Members and locks


def test_a_lost_member_frees_its_records_at_once(queue: Queue) -> None:
    queue.acquire((0, 4))
    queue.acquire((5, 9), member="other")
    decision = queue.carry_out(queue.partition.release_member("m"))
    assert decision.released == 5
    assert queue.acquire((0, 4), member="other") == [Acquired(0, 4, 2)]
    assert queue.partition.release_member("m").update is None


def test_a_renewed_lock_lasts_longer_but_not_for_ever() -> None:
    queue = Queue(PartitionSettings(lock_total_max_ms=2 * LOCK_MS))
    queue.acquire((0, 9))
    queue.pass_time(LOCK_MS - 1)
    queue.acknowledge((0, 0, [RENEW]))
    assert queue.pass_time(1).released == 9
    assert queue.partition.in_flight == 1
    queue.pass_time(LOCK_MS - 2)
    queue.acknowledge((0, 0, [RENEW]))  # would be more than twice as long in all
    assert queue.pass_time(1).released == 1


def test_a_slow_record_at_the_start_holds_up_no_other() -> None:
    queue = Queue(PartitionSettings(locks_max=100))
    queue.acquire((0, 0), member="slow")
    for n in range(1, 10_000, 99):
        assert queue.acquire((n, n + 98)) == [Acquired(n, n + 98, 1)]
        queue.acknowledge((n, n + 98, [ACCEPT]))
    assert queue.partition.start_offset == 0
    queue.acknowledge((0, 0, [ACCEPT]), member="slow")
    assert queue.partition.start_offset == queue.partition.end_offset == 10_000


def test_a_full_window_takes_no_more() -> None:
    queue = Queue(PartitionSettings(locks_max=100))
    assert queue.acquire((0, 49), (50, 149), records_max=500) == [Acquired(0, 149, 1)]
    assert queue.partition.next_available(0) is None
    queue.acknowledge((0, 50, [ACCEPT]))
    assert queue.partition.next_available(0) == OffsetRange(150, OFFSET_MAX)


def test_a_span_that_is_too_long_takes_no_more(queue: Queue) -> None:
    queue.acquire((0, 0), member="slow")
    queue.carry_out(queue.partition.archive([OffsetRange(1, 2 * SPAN_MAX)], EndReason.EXPIRED))
    assert queue.partition.end_offset == SPAN_MAX
    assert queue.partition.next_available(0) is None
    queue.acknowledge((0, 0, [RELEASE]), member="slow")
    assert queue.partition.next_available(0) == OffsetRange(0, 0)
    queue.acquire((0, 0))
    queue.acknowledge((0, 0, [ACCEPT]))
    assert queue.partition.next_available(0) == OffsetRange(SPAN_MAX, OFFSET_MAX)


def test_a_failed_read_is_no_delivery(queue: Queue) -> None:
    acquired = queue.acquire((0, 9))
    queue.partition.undo_acquire("m", acquired)
    assert queue.acquire((0, 9), member="other") == [Acquired(0, 9, 1)]


# Time


def test_a_retry_waits_longer_with_each_delivery() -> None:
    queue = Queue(PartitionSettings(retry_delay_ms=1_000, retry_jitter=0.0, attempts_max=4))
    for delay_ms in (1_000, 2_000, 4_000):
        queue.acquire((0, 0))
        queue.acknowledge((0, 0, [RELEASE]))
        assert queue.partition.parked == 1
        assert queue.partition.next_deadline == queue.now + delay_ms
        queue.now += delay_ms - 1
        assert queue.partition.next_available(queue.now) == OffsetRange(1, OFFSET_MAX)
        queue.now += 1
        assert queue.partition.unpark(queue.now)
        assert queue.partition.next_available(queue.now) == OffsetRange(0, OFFSET_MAX)


def test_a_restart_leaves_the_rest_of_a_retry_delay() -> None:
    settings = PartitionSettings(retry_delay_ms=1_000, retry_jitter=0.0)
    queue = Queue(settings)
    queue.acquire((0, 0))
    update = queue.acknowledge((0, 0, [RELEASE])).update
    assert update is not None
    for age_ms, parked in ((0, 1), (999, 1), (1_000, 0), (100_000, 0)):
        restarted = SharePartition(settings, 0)
        restarted.replay(update, 5_000, age_ms)
        assert restarted.parked == parked
        assert restarted.next_deadline == (-(-(6_000 - age_ms) // 50) * 50 if parked else None)


def test_too_many_parked_records_let_no_new_ones_follow() -> None:
    queue = Queue(PartitionSettings(retry_delay_ms=1_000, retry_jitter=0.0, parked_max=5))
    queue.acquire((0, 9))
    queue.acknowledge((0, 4, [RELEASE]))
    assert queue.partition.next_available(0) is None
    queue.acknowledge((5, 9, [ACCEPT]))
    queue.now = 1_000
    assert queue.partition.next_available(queue.now) == OffsetRange(0, OFFSET_MAX)


# The log


def test_retention_loses_what_no_member_holds(queue: Queue) -> None:
    queue.acquire((0, 9))
    queue.acknowledge((5, 6, [RELEASE]), (8, 9, [ACCEPT]))
    decision = queue.carry_out(queue.partition.archive_before(20))
    lost = [(one.first, one.last) for one in decision.ended]
    assert lost == [(5, 6), (10, 19)]
    assert {one.reason for one in decision.ended} == {EndReason.LOST}
    assert queue.partition.start_offset == 0
    queue.acknowledge((0, 4, [ACCEPT]))
    assert queue.partition.start_offset == 7
    decision = queue.acknowledge((7, 7, [RELEASE]))  # its record is gone
    assert [one.reason for one in decision.ended] == [EndReason.LOST]
    assert queue.partition.start_offset == 20


def test_retention_far_ahead_takes_no_memory(queue: Queue) -> None:
    queue.acquire((0, 9))
    far = 10**15
    decision = queue.carry_out(queue.partition.archive_before(far))
    assert [(one.first, one.last) for one in decision.ended] == [(0, 9), (10, far - 1)]
    assert queue.partition.start_offset == queue.partition.end_offset == far
    assert queue.partition.in_flight == 0
    assert queue.acknowledge((0, 9, [ACCEPT])) == Decision(None)


def test_aborted_records_end_without_having_been_delivered(queue: Queue) -> None:
    decision = queue.carry_out(queue.partition.archive([OffsetRange(0, 9)], EndReason.ABORTED))
    assert decision.update == StateUpdate(10, [], 0)
    assert queue.acquire((10, 12)) == [Acquired(10, 12, 1)]


def test_expired_records_become_dead_letters() -> None:
    queue = Queue(PartitionSettings(has_dead_letters=True))
    decision = queue.carry_out(queue.partition.archive([OffsetRange(0, 9)], EndReason.EXPIRED))
    assert [(one.first, one.last, one.reason) for one in decision.dead_letters] == [(0, 9, EndReason.EXPIRED)]
    assert queue.partition.archiving == 10


# What is persisted


def test_counts_survive_a_restart(queue: Queue) -> None:
    queue.acquire((0, 19))
    queue.acknowledge((0, 9, [RELEASE]))
    queue.acquire((0, 9))
    queue.acknowledge((3, 5, [RELEASE]))
    restarted = Queue()
    for update in queue.partition.snapshot(2):
        restarted.partition.replay(update, 0)
    assert restarted.acquire((0, 19)) == [Acquired(0, 2, 2), Acquired(3, 5, 3), Acquired(6, 9, 2), Acquired(10, 19, 1)]


def test_a_snapshot_may_be_taken_while_the_partition_changes() -> None:
    queue = Queue(PartitionSettings(locks_max=100_000))
    queue.acquire((0, 19_999))
    for n in range(0, 20_000, 2):
        queue.acknowledge((n, n, [RELEASE]))
    replayed = SharePartition(queue.partition.settings)
    for n, piece in enumerate(queue.partition.snapshot(100)):
        replayed.replay(piece, 0)
        assert len(piece.ranges) <= 100
        offset = 199 * n + 1 | 1
        if offset < 20_000:
            update = queue.acknowledge((offset, offset, [ACCEPT])).update
            assert update is not None
            replayed.replay(update, 0)
    assert n >= 50
    assert persisted(replayed) == persisted(queue.partition)


def test_runs_of_records_are_one_range_of_a_snapshot() -> None:
    queue = Queue(PartitionSettings(locks_max=1_000_000))
    queue.acquire((0, 99_999))
    queue.acknowledge((1, 99_999, [RELEASE]))
    assert persisted(queue.partition) == [
        StateUpdate(0, [StateRange(1, 99_999, RecordState.AVAILABLE, 1)], 0),
    ]


@pytest.mark.parametrize(
    "update",
    [
        StateUpdate(0, [StateRange(5, 4, RecordState.ARCHIVED, 1)]),
        StateUpdate(0, [StateRange(0, SPAN_MAX, RecordState.ARCHIVED, 1)]),
        StateUpdate(0, [StateRange(0, 4, RecordState.ACQUIRED, 1)]),
    ],
)
def test_an_update_that_no_partition_has_decided_is_refused(update: StateUpdate) -> None:
    with pytest.raises(ValueError, match="share partition"):
        SharePartition(PartitionSettings()).replay(update, 0)


def test_an_update_in_pieces_has_the_same_effect() -> None:
    ranges = [StateRange(n, n, RecordState.AVAILABLE, n % 3 + 1) for n in range(5, 15)]
    update = StateUpdate(5, ranges, 0)
    for ranges_max in (1, 3, 10, 11):
        pieces = list(update.pieces(ranges_max))
        assert [one for piece in pieces for one in piece.ranges] == ranges
        assert all(len(piece.ranges) <= ranges_max for piece in pieces)
        assert [piece.start_offset for piece in pieces] == [-1] * (len(pieces) - 1) + [5]
    assert list(StateUpdate(7).pieces(3)) == [StateUpdate(7)]


def test_a_decision_changes_nothing_by_itself() -> None:
    queue = Queue(PartitionSettings(has_dead_letters=True))
    queue.acquire((0, 9))
    decide: list[Callable[[], Decision]] = [
        lambda: queue.partition.acknowledge("m", [AckBatch(0, 3, [ACCEPT, RELEASE, REJECT, GAP])], 0, LOCK_MS),
        lambda: queue.partition.release_member("m"),
        lambda: queue.partition.expire_locks(LOCK_MS),
        lambda: queue.partition.archive([OffsetRange(0, 20)], EndReason.EXPIRED),
        lambda: queue.partition.archive_before(20),
    ]
    before = persisted(queue.partition), queue.partition.in_flight, queue.partition.end_offset
    for one in decide:
        assert one().update is not None
        assert (persisted(queue.partition), queue.partition.in_flight, queue.partition.end_offset) == before
        assert one() == one()
