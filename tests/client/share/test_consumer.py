"""A share consumer on a broker: what is delivered, acknowledged, released, renewed and lost."""

import time
from collections.abc import Callable

import pytest
from client.conftest import create_topic, options, write
from client.share.conftest import Join, new_group
from compat.brokers import BrokerProcess
from queues import LOCK_MS

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.share import groups, offsets
from tailrace.client.share.acknowledgements import Outcome
from tailrace.client.share.consumer import ShareConsumer
from tailrace.client.share.deliveries import Delivery
from tailrace.client.share.holdings import Result

PATIENCE_S = 40
VALUES = [b"%d" % number for number in range(10)]


def poll_until(consumer: ShareConsumer, done: Callable[[], object], records_max: int = 0) -> list[Delivery]:
    """Polls until it is so; returns what was delivered meanwhile."""
    deadline, found = time.monotonic() + PATIENCE_S, list[Delivery]()
    while not done():
        assert time.monotonic() < deadline, consumer.trouble
        found += consumer.poll(records_max, 0.2)
    return found


def take(consumer: ShareConsumer, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, (found, consumer.trouble)
        found += consumer.poll(count - len(found), 0.5)
    return found


def settle(consumer: ShareConsumer) -> list[Result]:
    """Waits for the results of all acknowledgements."""
    results: list[Result] = []
    poll_until(consumer, lambda: results.extend(consumer.results()) or consumer.is_settled)
    return results + consumer.results()


def values(deliveries: list[Delivery]) -> list[bytes | None]:
    return [one.record.value for one in deliveries]


def test_records_are_delivered_and_what_is_accepted_is_finished(
    cluster: Cluster, group: str, topic: str, join: Join
) -> None:
    write(cluster, topic, *VALUES)
    consumer = join(group, topic)
    found = take(consumer, 10)
    assert values(found) == VALUES
    assert [one.attempt for one in found] == [1] * 10
    assert [(one.at.topic, one.at.partition, one.offset) for one in found] == [(topic, 0, n) for n in range(10)]
    for one in found:
        consumer.acknowledge(one, Outcome.ACCEPT)
    assert {(result.outcome, result.error) for result in settle(consumer)} == {(Outcome.ACCEPT, None)}
    consumer.close()
    (offset,) = offsets.offsets(cluster, group).values()
    assert offset.unfinished == 0


def test_no_more_records_are_delivered_than_are_asked_for(cluster: Cluster, group: str, topic: str, join: Join) -> None:
    write(cluster, topic, *VALUES)
    consumer = join(group, topic)
    first = take(consumer, 3)
    assert values(first) == VALUES[:3]
    assert values(take(consumer, 7)) == VALUES[3:]


def test_two_consumers_share_a_partition(cluster: Cluster, group: str, topic: str, join: Join) -> None:
    write(cluster, topic, *VALUES)
    ann, bob = join(group, topic), join(group, topic)
    first = take(ann, 4)
    rest = take(bob, 6)
    assert sorted(one.offset for one in first + rest) == list(range(10))


def test_released_records_come_again_with_their_attempt_and_rejected_ones_do_not(
    cluster: Cluster, group: str, topic: str, join: Join
) -> None:
    write(cluster, topic, *VALUES[:3])
    consumer = join(group, topic)
    accepted, released, rejected = take(consumer, 3)
    consumer.acknowledge(accepted, Outcome.ACCEPT)
    consumer.acknowledge(released, Outcome.RELEASE)
    consumer.acknowledge(rejected, Outcome.REJECT)
    (again,) = take(consumer, 1)
    assert (again.offset, again.attempt) == (released.offset, 2)
    assert sorted(int(result.outcome or 0) for result in settle(consumer)) == [1, 2, 3]
    consumer.acknowledge(again, Outcome.ACCEPT)
    assert not [result for result in settle(consumer) if result.error]
    assert consumer.poll(1, 0.5) == []


def test_a_record_whose_lock_runs_out_goes_to_another_consumer(
    cluster: Cluster, group: str, topic: str, join: Join
) -> None:
    write(cluster, topic, b"slow", b"quick")
    slow, quick = join(group, topic), join(group, topic)
    (held,) = take(slow, 1)
    (other,) = take(quick, 1)
    quick.acknowledge(other, Outcome.ACCEPT)
    (again,) = take(quick, 1)  # while the first one does nothing at all
    assert (again.offset, again.attempt) == (held.offset, 2)
    quick.acknowledge(again, Outcome.ACCEPT)
    assert not [result for result in settle(quick) if result.error]
    results: list[Result] = []
    poll_until(slow, lambda: results.extend(slow.results()) or results)
    assert [(result.delivery, result.outcome) for result in results] == [(held, None)]
    slow.acknowledge(held, Outcome.ACCEPT)
    (late,) = slow.results()
    assert late.error is not None


def test_a_record_is_kept_as_long_as_it_is_renewed(cluster: Cluster, group: str, topic: str, join: Join) -> None:
    write(cluster, topic, b"long")
    patient, other = join(group, topic, renews=True), join(group, topic)
    (held,) = take(patient, 1)
    until = time.monotonic() + 2.5 * LOCK_MS / 1000
    results: list[Result] = []
    while time.monotonic() < until:
        patient.poll(0, 0.1)
        results += patient.results()
        assert other.poll(1, 0.1) == []
    assert {(result.outcome, result.error) for result in results} == {(Outcome.RENEW, None)}
    patient.acknowledge(held, Outcome.ACCEPT)
    assert not [result for result in settle(patient) if result.error]


def test_a_renewal_that_was_asked_for_is_answered(cluster: Cluster, group: str, topic: str, join: Join) -> None:
    write(cluster, topic, b"one", b"two")
    consumer = join(group, topic)
    for held in take(consumer, 2):
        consumer.renew(held)
    results: list[Result] = []
    poll_until(consumer, lambda: results.extend(consumer.results()) or len(results) == 2)
    assert [(result.outcome, result.error) for result in results] == [(Outcome.RENEW, None)] * 2


def test_what_a_consumer_holds_when_it_closes_is_free_at_once(cluster: Cluster, topic: str, join: Join) -> None:
    group = new_group(cluster, share_record_lock_duration_ms="30000")
    write(cluster, topic, *VALUES)
    first, second = join(group, topic), join(group, topic)
    taken = take(first, 6)
    first.acknowledge(taken[0], Outcome.ACCEPT)
    first.close()
    assert {(result.delivery.offset, result.outcome) for result in first.results()} >= {(0, Outcome.ACCEPT)}
    again = take(second, 9)
    assert {one.offset for one in again} == set(range(1, 10))
    described = groups.describe(cluster, group)
    assert described is not None
    assert len(described.members) == 1


def test_a_consumer_that_is_woken_returns(cluster: Cluster, group: str, topic: str, join: Join) -> None:
    consumer = join(group, topic)
    poll_until(consumer, lambda: consumer.results() == [] and groups.describe(cluster, group))
    consumer.wake()
    begun = time.monotonic()
    assert consumer.poll(1, PATIENCE_S) == []
    assert time.monotonic() < begun + PATIENCE_S / 2


def test_a_topic_that_is_made_later_is_consumed(cluster: Cluster, group: str, topic: str, join: Join) -> None:
    later = f"{topic}-later"
    consumer = join(group, topic, later)
    write(cluster, topic, b"first")
    assert values(take(consumer, 1)) == [b"first"]
    create_topic(cluster, later, 2)
    write(cluster, later, b"second", partition=1)
    (found,) = take(consumer, 1)
    assert (found.at.topic, found.at.partition, found.record.value) == (later, 1, b"second")


def test_a_consumer_outlives_the_death_of_its_broker(own_broker: BrokerProcess, join: Join) -> None:
    cluster = Cluster(options(own_broker.bootstrap))
    create_topic(cluster, "orders")
    group = new_group(cluster)
    write(cluster, "orders", *VALUES)
    consumer = join(group, "orders", at=own_broker.bootstrap)
    done, *lost = take(consumer, 5)
    consumer.acknowledge(done, Outcome.ACCEPT)
    assert [result.error for result in settle(consumer)] == [None]
    own_broker.kill()
    results: list[Result] = []
    poll_until(consumer, lambda: results.extend(consumer.results()) or len(results) == 4)
    assert {result.delivery.offset for result in results} == {one.offset for one in lost}
    own_broker.start()
    again = take(consumer, 9)
    assert {one.offset for one in again} == set(range(1, 10))
    for one in again:
        consumer.acknowledge(one, Outcome.ACCEPT)
    assert not [result for result in settle(consumer) if result.error]
    assert consumer.trouble is None
    cluster.close()


@pytest.mark.parametrize("start", [0, 4, 10])
def test_a_group_begins_where_it_was_put(cluster: Cluster, group: str, topic: str, join: Join, start: int) -> None:
    write(cluster, topic, *VALUES)
    where = dict.fromkeys(cluster.topic(topic).partitions, start)
    offsets.alter(cluster, group, where)
    (offset,) = offsets.offsets(cluster, group).values()
    assert offset.start == start
    consumer = join(group, topic)
    assert values(take(consumer, 10 - start)) == VALUES[start:]


def test_a_group_that_forgets_a_topic_begins_anew(cluster: Cluster, group: str, topic: str, join: Join) -> None:
    write(cluster, topic, *VALUES)
    consumer = join(group, topic)
    for one in take(consumer, 10):
        consumer.acknowledge(one, Outcome.ACCEPT)
    consumer.close()
    offsets.delete(cluster, group, [topic])
    assert offsets.offsets(cluster, group) == {}
    assert values(take(join(group, topic), 10)) == VALUES
