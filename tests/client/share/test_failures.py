"""A share consumer, and a broker that says what a test tells it to."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from client.conftest import a_batch, options
from client.fakes import HANG_UP, FakeBroker

from tailrace.client.errors import Refused
from tailrace.client.share.acknowledgements import Outcome
from tailrace.client.share.consumer import ShareConsumer
from tailrace.client.share.deliveries import Delivery
from tailrace.client.share.holdings import Result
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import Assignment, TopicPartitions
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from tailrace.protocol.messages.share_fetch import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from tailrace.protocol.messages.share_fetch import PartitionData as FetchedData
from tailrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

PATIENCE_S = 20
LOCK_MS = 30_000


class FakeGroup:
    """A share group of one member on a fake broker: hands out the offsets of `ready`, and notes what it is asked."""

    def __init__(self, broker: FakeBroker, partition: int = 0) -> None:
        self.broker = broker
        self.partition = partition  # that the broker leads
        self.assigned = [partition]
        self.ready: list[int] = []
        self.heartbeats: list[ShareGroupHeartbeatRequest] = []
        self.fetches: list[ShareFetchRequest] = []
        self.acknowledgements: list[ShareAcknowledgeRequest] = []
        self.heartbeat_code = self.fetch_code = self.partition_code = 0
        self.reassigns = False
        self.refuses: Callable[[list[tuple[int, int]]], int] = lambda batches: 0  # a code for (offset, type) pairs
        address = FindCoordinatorResponse(host="127.0.0.1", port=broker.port)
        broker.answers[FindCoordinatorRequest] = lambda request, version: address
        broker.answers[ShareGroupHeartbeatRequest] = lambda request, version: self._heartbeat(request)
        broker.answers[ShareFetchRequest] = lambda request, version: self.fetch(request)
        broker.answers[ShareAcknowledgeRequest] = lambda request, version: self.acknowledge(request)

    def _heartbeat(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        self.heartbeats.append(request)
        if code := self.heartbeat_code:
            self.heartbeat_code = 0
            return ShareGroupHeartbeatResponse(error_code=code)
        all_of_it = Assignment(
            topic_partitions=[TopicPartitions(topic_id=self.broker.topic_id, partitions=self.assigned)]
        )
        assignment = all_of_it if request.member_epoch == 0 or self.reassigns else None
        return ShareGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=50, assignment=assignment)

    def fetch(self, request: ShareFetchRequest) -> Any:
        self.fetches.append(request)
        if code := self.fetch_code:
            self.fetch_code = 0
            return ShareFetchResponse(error_code=code)
        found, self.ready = self.ready[: request.max_records], self.ready[request.max_records :]
        data = FetchedData(
            partition_index=self.partition,
            error_code=self.partition_code,
            records=b"".join(bytes(a_batch(b"%d" % n, base_offset=n)) for n in found),
            acquired_records=[AcquiredRecords(first_offset=n, last_offset=n, delivery_count=1) for n in found],
        )
        topic = ShareFetchableTopicResponse(topic_id=self.broker.topic_id, partitions=[data])
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=LOCK_MS, responses=[topic] if found or self.partition_code else []
        )

    def acknowledge(self, request: ShareAcknowledgeRequest) -> Any:
        self.acknowledgements.append(request)
        code = self.refuses(pairs(request))
        data = PartitionData(partition_index=self.partition, error_code=code)
        topic = ShareAcknowledgeTopicResponse(topic_id=self.broker.topic_id, partitions=[data])
        return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=LOCK_MS, responses=[topic])


def pairs(request: ShareAcknowledgeRequest) -> list[tuple[int, int]]:
    batches: list[AcknowledgementBatch] = [
        batch for topic in request.topics for one in topic.partitions for batch in one.acknowledgement_batches
    ]
    return [(n, one.acknowledge_types[0]) for one in batches for n in range(one.first_offset, one.last_offset + 1)]


@pytest.fixture
def group(fake: FakeBroker) -> FakeGroup:
    return FakeGroup(fake)


@pytest.fixture
def consumer(fake: FakeBroker, group: FakeGroup) -> Iterator[ShareConsumer]:
    with closing(ShareConsumer(options(fake.bootstrap), "workers", ["orders"])) as consumer:
        yield consumer


def take(consumer: ShareConsumer, count: int, **more: Any) -> list[Delivery]:
    found: list[Delivery] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, consumer.trouble
        found += consumer.poll(count - len(found), 0.05, **more)
    return found


def results(consumer: ShareConsumer, count: int) -> list[Result]:
    found: list[Result] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, (found, consumer.trouble)
        consumer.poll(0, 0.05)
        found += consumer.results()
    return found


def test_a_session_counts_its_requests_and_ends_with_the_last_acknowledgements(
    group: FakeGroup, consumer: ShareConsumer
) -> None:
    group.ready = [1, 2, 3]
    first, second, third = take(consumer, 3)
    consumer.acknowledge(first, Outcome.ACCEPT)
    (result,) = results(consumer, 1)
    assert (result.delivery, result.outcome, result.error) == (first, Outcome.ACCEPT, None)
    consumer.acknowledge(second, Outcome.RELEASE)
    consumer.close()
    assert third.attempt == 1
    fetched = [request.share_session_epoch for request in group.fetches]
    acknowledged = [request.share_session_epoch for request in group.acknowledgements]
    assert acknowledged[-1] == -1
    assert sorted(fetched + acknowledged[:-1]) == list(range(len(fetched) + len(acknowledged) - 1))
    assert [pairs(request) for request in group.acknowledgements] == [[(1, 1)], [(2, 2)]]
    assert group.heartbeats[-1].member_epoch == -1
    asked: list[Any] = [*group.fetches, *group.acknowledgements, *group.heartbeats]
    members = {request.member_id for request in asked}
    assert len(members) == 1


def test_durations_of_one_request_are_ours_and_stay_away_where_none_are_given(
    group: FakeGroup, consumer: ShareConsumer
) -> None:
    group.ready = [1, 2, 3]
    first, second = take(consumer, 2, lock_ms=7000)
    consumer.acknowledge(first, Outcome.RELEASE, delay_ms=500)
    consumer.renew(second, lock_ms=9000)
    results(consumer, 2)
    (third,) = take(consumer, 1)
    consumer.acknowledge(third, Outcome.ACCEPT)
    results(consumer, 1)
    assert {request.lock_duration_ms for request in group.fetches if request.max_records == 2} == {7000}
    assert group.fetches[-1].lock_duration_ms == -1
    sent = [(one.is_renew_ack, one.delay_ms, one.lock_duration_ms, pairs(one)) for one in group.acknowledgements]
    assert sorted(sent) == [(False, -1, -1, [(3, 1)]), (False, 500, -1, [(1, 2)]), (True, -1, 9000, [(2, 4)])]


def test_one_acknowledgement_that_is_refused_does_not_take_others_with_it(
    group: FakeGroup, consumer: ShareConsumer
) -> None:
    group.ready = [1, 2, 3]
    bad = ErrorCode.INVALID_RECORD_STATE
    group.refuses = lambda sent: bad if any(offset == 2 for offset, _ in sent) else 0
    for one in take(consumer, 3):
        consumer.acknowledge(one, Outcome.ACCEPT)
    found = {result.delivery.offset: result.error for result in results(consumer, 3)}
    assert found[1] is None
    assert found[3] is None
    assert isinstance(found[2], Refused)
    assert found[2].code == bad


def test_an_acknowledgement_that_could_not_be_stored_is_sent_again(group: FakeGroup, consumer: ShareConsumer) -> None:
    group.ready = [1]
    codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]
    group.refuses = lambda sent: codes.pop(0) if codes else 0
    (one,) = take(consumer, 1)
    consumer.acknowledge(one, Outcome.ACCEPT)
    assert [result.error for result in results(consumer, 1)] == [None]
    assert not codes


@pytest.mark.parametrize("code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
def test_a_session_that_is_lost_is_begun_anew_and_what_it_held_is_reported(
    group: FakeGroup, consumer: ShareConsumer, code: int
) -> None:
    group.ready = [1, 2]
    first, second = take(consumer, 2)
    group.fetch_code = code
    group.ready = [3]
    (third,) = take(consumer, 1)
    lost = consumer.results()
    assert {(result.delivery, result.outcome) for result in lost} == {(first, None), (second, None)}
    assert {result.error.code for result in lost if isinstance(result.error, Refused)} == {code}
    assert [request.share_session_epoch for request in group.fetches].count(0) == 2
    consumer.acknowledge(third, Outcome.ACCEPT)
    assert [result.error for result in results(consumer, 1)] == [None]


def test_a_connection_that_is_lost_leaves_acknowledgements_in_doubt(
    fake: FakeBroker, group: FakeGroup, consumer: ShareConsumer
) -> None:
    group.ready = [1, 2]
    first, second = take(consumer, 2)
    fake.answers[ShareAcknowledgeRequest] = lambda request, version: HANG_UP
    consumer.acknowledge(first, Outcome.ACCEPT)
    found = {result.delivery: result for result in results(consumer, 2)}
    assert found[first].outcome is Outcome.ACCEPT
    assert found[first].error is not None
    assert found[second].outcome is None
    group.ready = [3]
    assert [one.offset for one in take(consumer, 1)] == [3]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_that_was_removed_joins_again(group: FakeGroup, consumer: ShareConsumer, code: int) -> None:
    group.ready = [1]
    take(consumer, 1)
    group.heartbeat_code = code
    deadline = time.monotonic() + PATIENCE_S
    while [request.member_epoch for request in group.heartbeats].count(0) < 2:
        assert time.monotonic() < deadline
        consumer.poll(0, 0.05)
    rejoined = [request for request in group.heartbeats if request.member_epoch == 0][-1]
    assert rejoined.subscribed_topic_names == ["orders"]
    assert consumer.held == 1


def test_an_error_that_no_retry_mends_is_raised(group: FakeGroup, consumer: ShareConsumer) -> None:
    group.heartbeat_code = ErrorCode.GROUP_MAX_SIZE_REACHED
    with pytest.raises(Refused):
        take(consumer, 1)


def test_a_broker_without_anything_to_deliver_is_not_asked_in_a_busy_loop(
    group: FakeGroup, consumer: ShareConsumer, fake: FakeBroker
) -> None:
    consumer.poll(1, 0.1)

    def wait(request: ShareFetchRequest, version: int) -> Any:
        time.sleep(request.max_wait_ms / 1000)
        return group.fetch(request)

    fake.answers[ShareFetchRequest] = wait
    before = len(group.fetches)
    consumer.poll(1, 1.0)
    assert len(group.fetches) - before <= 10


def test_each_broker_that_leads_a_partition_has_a_session_of_its_own(
    fake: FakeBroker, another_fake: FakeBroker, group: FakeGroup, consumer: ShareConsumer
) -> None:
    fake.topics["orders"].append([])
    fake.leaders["orders", 1] = another_fake.node_id
    other = FakeGroup(another_fake, 1)
    group.assigned = [0, 1]
    group.ready, other.ready = [1], [2]
    for one in take(consumer, 2):
        consumer.acknowledge(one, Outcome.ACCEPT)
    assert {(result.delivery.at.partition, result.error) for result in results(consumer, 2)} == {(0, None), (1, None)}
    assert [pairs(one) for one in group.acknowledgements] == [[(1, 1)]]
    assert [pairs(one) for one in other.acknowledgements] == [[(2, 1)]]
    assert {request.member_id for request in group.fetches} == {request.member_id for request in other.fetches}


def test_a_partition_whose_leader_has_moved_is_followed(
    fake: FakeBroker, another_fake: FakeBroker, group: FakeGroup, consumer: ShareConsumer
) -> None:
    group.ready = [1]
    (one,) = take(consumer, 1)
    other = FakeGroup(another_fake)
    fake.answers[FindCoordinatorRequest] = lambda _, __: FindCoordinatorResponse(host="127.0.0.1", port=fake.port)
    fake.leaders["orders", 0] = another_fake.node_id
    group.partition_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    other.ready = [2]
    assert [each.offset for each in take(consumer, 1)] == [2]
    consumer.acknowledge(one, Outcome.ACCEPT)  # by the session that still holds it
    assert [result.error for result in results(consumer, 1)] == [None]
    assert [pairs(each) for each in group.acknowledgements] == [[(1, 1)]]


def test_a_partition_that_is_taken_away_is_no_longer_fetched(group: FakeGroup, consumer: ShareConsumer) -> None:
    group.ready = [1]
    take(consumer, 1)
    group.reassigns, group.assigned = True, []
    deadline = time.monotonic() + PATIENCE_S
    while len(group.heartbeats) < 5:
        assert time.monotonic() < deadline
        consumer.poll(0, 0.05)
    before = len(group.fetches)
    group.ready = [2]
    assert consumer.poll(1, 0.3) == []
    assert len(group.fetches) == before
