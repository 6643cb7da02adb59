from tailrace.broker.queues.partition.leases import Leases
from tailrace.broker.queues.partition.states import OffsetRange

TOTAL_MS = 1_000_000


def leases_of(leases: Leases, first: int, last: int) -> list[tuple[int, int, str, int]]:
    return [(one.first, one.last, one.grant.member_id, one.grant.deadline) for one in leases.of(first, last)]


def test_a_grant_over_several_pages_is_one_for_its_member() -> None:
    leases = Leases()
    leases.grant("a", 4_000, 13_000, 0, 100)
    assert leases.held == 9_001
    assert leases.are_of("a", 4_000, 13_000)
    assert not leases.are_of("a", 3_999, 13_000)
    assert not leases.are_of("a", 4_000, 13_001)
    assert not leases.are_of("b", 5_000, 5_000)
    assert list(leases.of_member("a")) == [
        OffsetRange(4_000, 4_095), OffsetRange(4_096, 8_191), OffsetRange(8_192, 12_287), OffsetRange(12_288, 13_000)
    ]  # fmt: skip


def test_what_ends_is_cut_out_of_the_leases_around_it() -> None:
    leases = Leases()
    leases.grant("a", 10, 19, 0, 100)
    leases.grant("b", 20, 29, 0, 100)
    leases.grant("a", 0, 4, 0, 100)
    leases.end(12, 24)
    assert leases_of(leases, 0, 100) == [(0, 4, "a", 100), (10, 11, "a", 100), (25, 29, "b", 100)]
    leases.end(27, 27)
    leases.end(0, 3)
    assert leases_of(leases, 0, 100) == [(4, 4, "a", 100), (10, 11, "a", 100), (25, 26, "b", 100), (28, 29, "b", 100)]
    assert leases.held == 7
    leases.end(0, 10_000)
    assert leases.held == 0
    assert leases.next_deadline is None
    assert list(leases.of_member("a")) == []


def test_a_hole_is_held_by_no_member() -> None:
    leases = Leases()
    leases.grant("a", 0, 9, 0, 100)
    leases.end(5, 5)
    assert not leases.are_of("a", 4, 6)
    leases.grant("b", 5, 5, 0, 100)
    assert not leases.are_of("a", 4, 6)
    assert leases.are_of("b", 5, 5)


def test_deadlines_come_in_order_whatever_the_durations() -> None:
    leases = Leases()
    for n, deadline in enumerate((500, 300, 700, 100, 700, 600)):
        leases.grant("a", n, n, 0, deadline)
    seen = []
    while (deadline := leases.next_deadline) is not None:
        for one in list(leases.overdue(deadline)):
            seen.append((deadline, one.first))
            leases.end(*one)
    assert seen == [(100, 3), (300, 1), (500, 0), (600, 5), (700, 2), (700, 4)]


def test_a_renewal_moves_the_deadline_of_its_records_only() -> None:
    leases = Leases()
    leases.grant("a", 0, 9, 0, 100)
    leases.renew(3, 4, 50, 100, TOTAL_MS)
    assert list(leases.overdue(100)) == [OffsetRange(0, 2), OffsetRange(5, 9)]
    leases.renew(0, 9, 60, 100, TOTAL_MS)
    assert leases.next_deadline == 150 + 10
    assert leases.held == 10


def test_entries_of_deadlines_that_are_over_do_not_pile_up() -> None:
    leases = Leases()
    leases.grant("a", 0, 0, 0, 10**9)
    for n in range(20_000):
        leases.grant("b", 1, 1, n, n + 30_000)
        leases.end(1, 1)
        leases.renew(0, 0, 10**9 + n, 10, 10**12)
    queue, others = leases._deadlines._queue, leases._deadlines._others
    assert len(queue) + len(others) < 2_000
