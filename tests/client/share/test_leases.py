"""Leases: which record is held until when, and when to renew."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.share.acknowledgements import SharePartition
from tailrace.client.share.deliveries import Delivery
from tailrace.client.share.leases import Leases
from tailrace.records.record import Record

PARTITION = SharePartition(b"i" * 16, 0)


def delivery(offset: int, attempt: int = 1) -> Delivery:
    return Delivery(TopicPartition("orders", 0), PARTITION, Record(offset), attempt)


def test_a_lease_is_due_when_it_ends() -> None:
    leases = Leases[str](renews=False)
    first = delivery(1)
    assert leases.add(first, "node", 100.0, 30.0) is None
    assert leases.next_due == 130.0
    assert leases.take_due(129.9) == []
    (due,) = leases.take_due(130.0)
    assert due.delivery is first
    assert due.ends == 130.0


def test_a_lease_that_is_renewed_is_due_at_half_of_its_time_and_when_it_ends() -> None:
    leases = Leases[str](renews=True)
    leases.add(delivery(1), "node", 100.0, 30.0)
    (due,) = leases.take_due(115.0)
    assert leases.next_due == 130.0
    leases.extend(due, 116.0, 30.0)
    assert leases.next_due == 131.0
    assert leases.take_due(130.0) == []


def test_only_the_latest_delivery_of_a_record_is_held() -> None:
    leases = Leases[str](renews=False)
    first, second = delivery(1), delivery(1, 2)
    leases.add(first, "node", 0.0, 1.0)
    replaced = leases.add(second, "node", 0.5, 1.0)
    assert replaced is not None
    assert replaced.delivery is first
    assert leases.find(first) is None
    assert leases.find(second) is leases.at(PARTITION, 1)
    leases.remove(replaced)
    assert len(leases) == 1
    assert leases.next_due == 1.5


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0.1, 10.0), st.booleans()), max_size=300))
def test_no_lease_is_forgotten_and_none_that_was_removed_comes_back(steps: list[tuple[int, float, bool]]) -> None:
    leases = Leases[int](renews=False)
    ends: dict[int, float] = {}
    now = 0.0
    for offset, lock_s, adds in steps:
        now += 0.3
        expected = {held for held, end in ends.items() if end <= now}
        found = leases.take_due(now)
        assert {lease.delivery.offset for lease in found} == expected
        for lease in found:
            leases.remove(lease)
            del ends[lease.delivery.offset]
        if adds:
            leases.add(delivery(offset), 0, now, lock_s)
            ends[offset] = now + lock_s
        elif (held := leases.at(PARTITION, offset)) is not None:
            leases.remove(held)
            del ends[offset]
        assert {lease.delivery.offset for lease in leases} == ends.keys()
        assert leases.next_due == min(ends.values(), default=float("inf"))
