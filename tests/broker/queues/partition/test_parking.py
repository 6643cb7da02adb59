from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.queues.partition.parking import Parking
from tailrace.broker.queues.partition.states import OffsetRange

DELAYS = st.one_of(st.integers(0, 2_000), st.integers(590_000, 620_000), st.integers(0, 100_000_000))


@given(st.lists(st.tuples(st.integers(0, 300), DELAYS), max_size=30), st.lists(st.integers(1, 30_000), max_size=60))
def test_no_range_comes_early_and_none_is_late_by_more_than_a_bucket(
    parked: list[tuple[int, int]], steps: list[int]
) -> None:
    parking = Parking()
    now = 5_000
    waiting: dict[int, int] = {}
    for n, (after_ms, delay_ms) in enumerate(parked):
        now += after_ms
        parking.park(n, n + 5, now + delay_ms, now)
        waiting[n] = now + delay_ms
    for step in (*steps, 200_000_000):
        now += step
        while (due := parking.next_due) is not None and due <= now:
            for first, last in parking.due(now, 3):
                assert last == first + 5
                assert waiting.pop(first) <= now
        assert all(due_ms > now - 50 for due_ms in waiting.values())
        assert parking.ranges == len(waiting)
    assert not waiting
    assert parking.next_due is None


def test_ranges_come_in_portions() -> None:
    parking = Parking()
    for n in range(10):
        parking.park(n, n, 100, 0)
    assert len(list(parking.due(100, 4))) == 4
    assert parking.next_due == 100
    assert len(list(parking.due(100, 100))) == 6
    assert list(parking.due(100, 100)) == []


def test_a_range_of_the_far_future_is_exact() -> None:
    parking = Parking()
    due_ms = 10**9 + 7_777
    parking.park(3, 4, due_ms, 0)
    found: list[OffsetRange] = []
    while not found:
        assert parking.next_due is not None
        now = parking.next_due
        found = list(parking.due(now, 10))
    assert found == [OffsetRange(3, 4)]
    assert due_ms <= now < due_ms + 50
