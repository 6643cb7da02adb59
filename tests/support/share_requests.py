"""Members of share groups (KIP-932) for tests of a broker: they send heartbeats, and remember what they were told.

a = ShareMember(broker, "a", "orders").join()
assert a.partitions == {("orders", 0)}
"""

from typing import Any

from brokers import LocalBroker

from tailrace.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from tailrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

WORKERS = "workers"
INTERVAL_MS = 5_000
SESSION_MS = 45_000


class ShareMember:
    def __init__(self, broker: LocalBroker, member_id: str, *topics: str, group: str = WORKERS) -> None:
        self.broker = broker
        self.group = group
        self.member_id = member_id
        self.topics = list(topics)
        self.epoch = 0
        self.partitions: set[tuple[str, int]] = set()
        self.answer: Any = None

    def request(self, **changed: Any) -> ShareGroupHeartbeatRequest:
        known: dict[str, Any] = {"subscribed_topic_names": self.topics} if self.epoch == 0 else {}
        return ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, **{**known, **changed}
        )

    def beat(self, **changed: Any) -> int:
        """Returns the error code."""
        self.told(self.broker.ask(self.request(**changed), 1))
        return int(self.answer.error_code)

    def told(self, answer: Any) -> None:
        self.answer = answer
        if answer.error_code:
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.partitions = {
                (self.broker.broker.metadata.topics_by_id[topic.topic_id].name, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            }

    def join(self) -> "ShareMember":
        assert self.beat() == 0, self.answer
        return self

    def subscribe(self, *topics: str) -> int:
        self.topics = list(topics)
        return self.beat(subscribed_topic_names=self.topics)

    def leave(self) -> int:
        self.epoch = -1
        return self.beat()


def describe(broker: LocalBroker, group: str = WORKERS, **asked: Any) -> Any:
    (described,) = broker.ask(ShareGroupDescribeRequest(group_ids=[group], **asked), 1).groups
    return described


def pass_time(broker: LocalBroker, ms: int, *members: ShareMember) -> None:
    """Time passes in which these members are heard of."""
    for _ in range(ms // INTERVAL_MS):
        broker.tick(INTERVAL_MS)
        for member in members:
            assert member.beat() == 0, member.answer
