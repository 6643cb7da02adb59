"""OffsetDelete: a group forgets how far it has come with topics that none of its members reads."""

from pathlib import Path

from brokers import LocalBroker
from group_requests import BILLING, Consumer, broker_for_groups, commit, offsets, share

from tailrace.broker.core.topics import LOSSES_TOPIC
from tailrace.facts import losses
from tailrace.facts.losses import LossReason
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


def delete(broker: LocalBroker, *places: tuple[str, int], group: str = BILLING) -> tuple[int, list[int]]:
    """The error of the whole, and those of each."""
    topics = [
        OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        for topic, index in places
    ]
    answer = broker.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    if not answer.error_code:
        found = [(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions]
        assert found == list(places)
    return answer.error_code, [one.error_code for topic in answer.topics for one in topic.partitions]


def test_offsets_are_forgotten_for_good(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(partitions=2)
        for partition in (0, 1):
            commit(broker, 5, partition=partition)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert delete(broker, ("orders", 0), ("orders", 9), ("nobody", 0)) == (0, [0, unknown, unknown])
        for _ in range(2):
            assert offsets(broker) == {("orders", 1): 5}
            broker.kill()
        assert delete(broker, ("orders", 0)) == (0, [0]), "there is nothing to forget"


def test_a_group_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        assert delete(broker, ("orders", 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_what_a_member_reads_is_not_forgotten(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        broker.create_topic("payments")
        commit(broker, 5)
        commit(broker, 6, "payments")
        a, _ = share(Consumer(broker, "a"), Consumer(broker, "b", topics=("invoices",)))
        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert delete(broker, ("orders", 0), ("payments", 0)) == (0, [subscribed, 0])
        assert offsets(broker) == {("orders", 0): 5}
        broker.kill()
        assert delete(broker, ("orders", 0)) == (0, [subscribed]), "members are known after a restart"
        a.leave()
        assert delete(broker, ("orders", 0)) == (0, [0])
        assert offsets(broker) == {}


def test_of_members_whose_words_nobody_understands_nothing_is_forgotten(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        commit(broker, 5)
        (a,) = share(Consumer(broker, "a", protocol_type="connect"))
        assert delete(broker, ("orders", 0)) == (ErrorCode.NON_EMPTY_GROUP, [])
        a.leave()
        assert delete(broker, ("orders", 0)) == (0, [0])


def test_what_the_group_had_not_read_is_in_the_loss_ledger(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(partitions=2)
        for partition in (0, 1):
            broker.produce(b"a", b"b", b"c", partition=partition)
            commit(broker, 1, partition=partition)
        assert delete(broker, ("orders", 1), ("orders", 9)) == (0, [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        (loss,) = map(losses.decode, broker.values(LOSSES_TOPIC))
        assert (loss.kind, loss.group, loss.partition, loss.first, loss.last) == ("skipped", BILLING, 1, 1, 2)
        assert (loss.reason, loss.client_id) == (LossReason.GROUP_DELETED, "test")
