"""Members of consumer groups (KIP-848) for tests of a broker: they send heartbeats, and remember what they were told.

a = Member(broker, "a", "orders").join()
assert a.partitions == {("orders", 0)}
"""

from collections.abc import Iterable
from typing import Any

from brokers import LocalBroker
from group_requests import BILLING, commit_request

from tailrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

REBALANCE_MS = 60_000
INTERVAL_MS = 5_000
SESSION_MS = 45_000


class Member:
    """One that gives up at once what it is told to, unless it is `slow`."""

    def __init__(self, broker: LocalBroker, member_id: str, *topics: str, group: str = BILLING, **sent: Any) -> None:
        self.broker = broker
        self.group = group
        self.member_id = member_id
        self.topics = list(topics)
        self.sent = sent  # instance_id, subscribed_topic_regex, server_assignor
        self.epoch = 0
        self.partitions: set[tuple[str, int]] = set()
        self.is_slow = False
        self.answer: Any = None

    def request(self, **changed: Any) -> ConsumerGroupHeartbeatRequest:
        whole = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": self.topics,
            "topic_partitions": [],
            **self.sent,
        }
        known = whole if self.epoch == 0 else {"instance_id": self.sent.get("instance_id")}
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, **{**known, **changed}
        )

    def beat(self, version: int = 1, **changed: Any) -> int:
        """Returns the error code."""
        self.told(self.broker.ask(self.request(**changed), version))
        return int(self.answer.error_code)

    def told(self, answer: Any) -> None:
        self.answer = answer
        if answer.error_code:
            return
        self.member_id, self.epoch = answer.member_id, answer.member_epoch
        if answer.assignment is not None:
            self.partitions = {
                (self.broker.broker.metadata.topics_by_id[topic.topic_id].name, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            }

    @property
    def owned(self) -> list[TopicPartitions]:
        """What it says that it owns."""
        topics = self.broker.broker.metadata.topics
        return [
            TopicPartitions(topic_id=topics[name].topic_id, partitions=[index])
            for name, index in sorted(self.partitions)
            if name in topics
        ]

    def acknowledge(self) -> int:
        """Says what it owns, which ends a revocation."""
        return self.beat(topic_partitions=self.owned)

    def join(self) -> "Member":
        assert self.beat() == 0, self.answer
        return self

    def leave(self, epoch: int = -1) -> int:
        self.epoch = epoch
        return self.beat()

    def commit(self, offset: int, partition: int = 0, *, topic: str = "orders", version: int = 9) -> int:
        request = commit_request(
            {(topic, partition): offset},
            group=self.group,
            member_id=self.member_id,
            generation_id_or_member_epoch=self.epoch,
            group_instance_id=self.sent.get("instance_id"),
        )
        return int(self.broker.ask(request, version).topics[0].partitions[0].error_code)

    def fetch(self) -> int:
        """Returns the error code of reading the group's offset."""
        topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
        one = OffsetFetchRequestGroup(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, topics=topics
        )
        return int(self.broker.ask(OffsetFetchRequest(groups=[one]), 9).groups[0].error_code)


def settle(*members: Member) -> None:
    """Until all have what they shall have."""
    for _ in range(4):
        for member in members:
            assert member.acknowledge() == 0, member.answer


def pass_time(broker: LocalBroker, ms: int, *members: Member) -> None:
    """Time passes in which these members are heard of."""
    for _ in range(ms // INTERVAL_MS):
        broker.tick(INTERVAL_MS)
        for member in members:
            assert member.beat() == 0, member.answer


def describe(broker: LocalBroker, group: str = BILLING) -> Any:
    (described,) = broker.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    return described


def all_of(topic: str, *indexes: int) -> set[tuple[str, int]]:
    return {(topic, index) for index in indexes}


def union(members: Iterable[Member]) -> list[tuple[str, int]]:
    return sorted(partition for member in members for partition in member.partitions)
