"""Commits that skip unread records: noted where clients show that nothing was read, and not where they have."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, fetch_request, from_offset, only_partition, resolved
from consumer_requests import Member
from group_requests import BILLING, Consumer, broker_for_groups, commit_request, share
from transactions import TransactionalProducer

from tailrace.broker.core import clients
from tailrace.broker.core.clients import ClientConnection, Clients
from tailrace.broker.core.topics import LOSSES_TOPIC
from tailrace.facts import losses
from tailrace.facts.losses import Loss, LossReason
from tailrace.log.retention import Reason
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

LATEST = -1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(segment_ms="1")
        for number in range(10):
            broker.produce(b"%d" % number)
            broker.now_ms += 10
        yield broker


def connect(broker: LocalBroker) -> ClientConnection:
    return broker.broker.clients.connect()


def commit(broker: LocalBroker, offset: int, client_id: str = "worker") -> None:
    """As a client does that is no member, over a connection of its own."""
    request = commit_request({("orders", 0): offset})
    answer = only_partition(broker.ask(request, 8, client_id=client_id, connection=connect(broker)))
    assert answer.error_code == 0


def fetch(broker: LocalBroker, connection: ClientConnection, offset: int, client_id: str = "worker") -> int:
    request = fetch_request(from_offset(offset), max_wait_ms=0)
    return int(only_partition(broker.ask(request, 12, client_id=client_id, connection=connection)).error_code)


def latest(broker: LocalBroker, connection: ClientConnection, client_id: str = "worker") -> int:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=partitions)])
    return int(only_partition(broker.ask(request, 7, client_id=client_id, connection=connection)).offset)


def noted(broker: LocalBroker) -> list[Loss]:
    """Those that were skipped."""
    broker.run_jobs()
    if broker.broker.topic(LOSSES_TOPIC) is None:
        return []
    return [loss for loss in map(losses.decode, broker.values(LOSSES_TOPIC)) if loss.kind == "skipped"]


def skips(broker: LocalBroker) -> list[tuple[int, int]]:
    return [(loss.first, loss.last) for loss in noted(broker)]


def test_a_client_that_fetches_nothing_skips_what_it_commits_past(broker: LocalBroker) -> None:
    commit(broker, 2)
    commit(broker, 7, "ops")
    (loss,) = noted(broker)
    assert (loss.group, loss.topic, loss.first, loss.last, loss.exact) == (BILLING, "orders", 2, 6, False)
    assert (loss.reason, loss.client_id) == (LossReason.RESET_FORWARD, "ops")
    commit(broker, 3, "ops")
    commit(broker, 3, "ops")
    commit(broker, 100, "ops")
    assert skips(broker) == [(2, 6), (3, 9)], "back is no loss, and behind the end there is nothing"


def test_a_client_gets_its_response_when_what_is_lost_is_on_disk(broker: LocalBroker) -> None:
    def answered(request: Any, version: int) -> None:
        """Flushes log by log, the ledger last, until there is a response."""
        answers = resolved(broker.begin(request, version, client_id="ops", connection=connect(broker)))
        ledger = []
        while (flush := broker.broker.flushes.next_of_one_log()) is not None:
            if flush.log is broker.log(LOSSES_TOPIC):
                ledger.append(flush)
            else:
                broker._run_flush(flush)
        assert not answers
        for flush in ledger:
            broker._run_flush(flush)
        assert answers

    commit(broker, 2)
    answered(commit_request({("orders", 0): 5}), 8)
    offsets = OffsetDeleteRequestTopic(name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    answered(OffsetDeleteRequest(group_id=BILLING, topics=[offsets]), 0)
    commit(broker, 6)
    answered(DeleteGroupsRequest(groups_names=[BILLING]), 2)
    assert skips(broker) == [(2, 4), (5, 9), (6, 9)]


def test_a_client_that_fetches_the_partition_has_read_what_it_commits(broker: LocalBroker) -> None:
    reading = connect(broker)
    commit(broker, 2)
    fetch(broker, reading, 2)
    commit(broker, 7)
    assert skips(broker) == []
    commit(broker, 8, "another")
    assert skips(broker) == [(7, 7)]


def test_a_closed_connection_counts_for_a_while(broker: LocalBroker) -> None:
    reading, again = connect(broker), connect(broker)
    commit(broker, 2)
    for connection in (reading, again):
        fetch(broker, connection, 2)
    reading.close()
    broker.tick(clients.CLOSED_MS)
    commit(broker, 4)
    again.close()
    broker.tick(clients.CLOSED_MS - 1000)
    commit(broker, 5)
    assert skips(broker) == []
    broker.tick(1000)
    commit(broker, 7)
    assert skips(broker) == [(5, 6)]


def test_members_may_seek(broker: LocalBroker) -> None:
    (a,) = share(Consumer(broker, "a"))
    for offset in (2, 9):
        assert a.commit(offset) == 0
    assert skips(broker) == []


def test_a_client_that_has_fallen_off_and_goes_on_at_the_end_skips_what_lies_between(broker: LocalBroker) -> None:
    commit(broker, 2)
    broker.broker.retention.delete(broker.partition(), 5, Reason.AGE, broker.now_ms)
    reading = connect(broker)
    assert fetch(broker, reading, 3) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert latest(broker, reading) == 10
    fetch(broker, reading, 10)
    broker.produce(b"new")
    commit(broker, 11)
    (loss,) = noted(broker)
    assert (loss.group, loss.first, loss.last, loss.reason) == (BILLING, 5, 9, LossReason.RESET_FORWARD)
    commit(broker, 11)
    broker.produce(b"newer")
    commit(broker, 12)
    assert skips(broker) == [(5, 9)]


@pytest.mark.parametrize("ends", ["commit", "abort"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_in_a_transaction_skip_what_the_member_has_not_read(
    broker: LocalBroker, protocol: str, ends: str
) -> None:
    """The member has fallen off, and its producer, which is another client, commits behind the end."""
    if protocol == "classic":
        (classic,) = share(Consumer(broker, "a"))
        member_id, epoch = classic.member_id, classic.generation
        assert classic.commit(2) == 0
    else:
        member = Member(broker, "a", "orders").join()
        member_id, epoch = member.member_id, member.epoch
        assert member.commit(2) == 0
    producer = TransactionalProducer(broker)
    reading = connect(broker)
    broker.broker.retention.delete(broker.partition(), 5, Reason.AGE, broker.now_ms)
    assert fetch(broker, reading, 3, "test") == ErrorCode.OFFSET_OUT_OF_RANGE
    assert latest(broker, reading, "test") == 10
    request = producer.offsets_request({("orders", 0): 12}, member_id=member_id, generation_id=epoch)
    answer = broker.ask(request, 5, client_id="producer", connection=connect(broker))
    assert only_partition(answer).error_code == 0
    getattr(producer, ends)()
    (loss,) = noted(broker)
    assert (loss.first, loss.last, loss.reason, loss.client_id) == (5, 9, LossReason.RESET_FORWARD, "test")


def test_offsets_in_a_transaction_are_no_reset_forward(broker: LocalBroker) -> None:
    """A producer fetches nothing."""
    commit(broker, 2)
    producer = TransactionalProducer(broker)
    request = producer.offsets_request({("orders", 0): 7})
    answer = broker.ask(request, 5, client_id="producer", connection=connect(broker))
    assert only_partition(answer).error_code == 0
    producer.commit()
    assert skips(broker) == []


def test_a_group_that_keeps_up_is_not_taken_for_one_that_has_fallen_off(broker: LocalBroker) -> None:
    """Another one, of clients with the same id."""
    commit(broker, 6)
    broker.broker.retention.delete(broker.partition(), 5, Reason.AGE, broker.now_ms)
    reading = connect(broker)
    fetch(broker, reading, 3)
    latest(broker, reading)
    commit(broker, 10)
    assert skips(broker) == []


def test_a_client_that_asks_for_the_end_without_having_fallen_off_skips_nothing(broker: LocalBroker) -> None:
    reading = connect(broker)
    commit(broker, 2)
    fetch(broker, reading, 2)
    latest(broker, reading)
    commit(broker, 10)
    assert skips(broker) == []


def test_what_is_kept_of_clients_is_limited(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("wide", partitions=20)
    places = [broker.partition("wide", index) for index in range(20)]
    for limit in ("PARTITIONS_MAX", "OUT_OF_RANGE_MAX", "RESETS_MAX", "CLOSED_MAX"):
        monkeypatch.setattr(clients, limit, 5)
    known = Clients(lambda: 0)
    connection = known.connect()
    for place in places:
        connection.fetches("a", place)
        connection.sent_out_of_range(place, 1)
    assert [known.is_fetching("a", place) for place in places] == [True] * 5 + [False] * 15
    for place in places:
        connection.asks_latest("a", place, 10)
    assert [partition for _, partition in known.resets] == places[15:]
    for number, place in enumerate(places):
        other = known.connect()
        other.fetches(f"client-{number}", place)
        other.close()
    assert [known.is_fetching(f"client-{number}", place) for number, place in enumerate(places)].count(True) == 5
    connection.close()
    assert not known._open
