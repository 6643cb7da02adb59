"""Where the partitions of share groups start, and how far they are behind: read and changed from outside."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.coordinators import Kind, ask
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import ClientError, TopicNotFound, refusal
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from tailrace.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from tailrace.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponsePartition,
)

UNKNOWN = -1
AVAILABLE = "available"
PARKED = "parked"  # it waits for its time, or to become a dead letter
FINISHED = "finished"
_STATES = {0: AVAILABLE, 1: "acquired", 2: FINISHED, 3: PARKED, 4: FINISHED, 5: PARKED}


class State(NamedTuple):
    """Of a message: available, acquired, parked or finished. `attempt` is how often it has been delivered."""

    name: str
    attempt: int

    @property
    def is_finished(self) -> bool:
        return self.name == FINISHED


class QueueFacts(NamedTuple):
    """What only a tailrace broker tells. `oldest_ms` is the timestamp of the oldest unfinished message, if any;
    `attempts` is how many unfinished messages have been delivered so often.
    """

    in_flight: int
    parked: int
    oldest_ms: int | None
    attempts: Mapping[int, int]
    dead_lettered: int
    expired: int
    lost: int
    states: Sequence[tuple[int, int, State]] = ()  # of unfinished messages: first and last offset; ascending


class ShareOffset(NamedTuple):
    """Where a partition starts: all before is finished. `start` is None while the group has not begun there;
    `unfinished` is None where the broker does not tell; `facts` is None if it is not ours.
    """

    start: int | None
    unfinished: int | None
    facts: QueueFacts | None

    def state_of(self, offset: int) -> State | None:
        """The state of a message from `start` on; None where the broker does not tell."""
        if self.facts is None:
            return None
        for first, last, state in self.facts.states:
            if first <= offset <= last:
                return state
        listed = self.facts.states[-1][1] if self.facts.states else -1
        return State(FINISHED if offset < listed else AVAILABLE, 0)  # what has been written since, was not delivered


def offsets(cluster: Cluster, group: str, *, states_max: int = 0) -> dict[TopicPartition, ShareOffset]:
    """Returns all partitions in which the group has a place. Raises Refused if there is no such group. `states_max` is
    for how many unfinished messages of each partition the broker is asked for their states.
    """
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)], states_max=states_max
    )

    def check(response: DescribeShareGroupOffsetsResponse) -> ClientError | None:
        (found,) = response.groups
        if found.error_code:
            return refusal(f"group {group}", found.error_code, found.error_message)
        codes = (one.error_code for topic in found.topics for one in topic.partitions)
        return next((refusal(f"offsets of group {group}", code) for code in codes if code), None)

    retry = cluster.retry(f"reading offsets of group {group}")
    answer = ask(cluster, Kind.GROUP, group, request, DescribeShareGroupOffsetsResponse, (0, 1), check, retry)
    return {
        TopicPartition(topic.topic_name, one.partition_index): _offset(one)
        for topic in answer.groups[0].topics
        for one in topic.partitions
    }


def _offset(found: DescribeShareGroupOffsetsResponsePartition) -> ShareOffset:
    queue = found.queue
    facts = queue and QueueFacts(
        queue.in_flight,
        queue.parked,
        _known(queue.oldest_ms),
        {one.attempt: one.records for one in queue.attempts},
        queue.dead_lettered,
        queue.expired,
        queue.lost,
        [
            (one.first_offset, one.last_offset, State(_STATES.get(one.state, AVAILABLE), one.delivery_count))
            for one in queue.states
        ],
    )
    return ShareOffset(_known(found.start_offset), _known(found.lag), facts or None)


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def alter(cluster: Cluster, group: str, starts: Mapping[TopicPartition, int], *, is_purge: bool = False) -> None:
    """Sets where the group starts; it is made if there is none. Raises Refused while it has members, TopicNotFound for
    a partition that there is not. `is_purge` says why messages are skipped, for the loss ledger of a tailrace broker.
    """
    topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
    for partition, start in sorted(starts.items()):
        topic = topics.setdefault(partition.topic, AlterShareGroupOffsetsRequestTopic(topic_name=partition.topic))
        topic.partitions.append(
            AlterShareGroupOffsetsRequestPartition(partition_index=partition.partition, start_offset=start)
        )
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=list(topics.values()), is_purge=is_purge)

    def check(response: AlterShareGroupOffsetsResponse) -> ClientError | None:
        if response.error_code:
            return refusal(f"group {group}", response.error_code, response.error_message)
        for topic in response.responses:
            for one in topic.partitions:
                if one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return TopicNotFound(topic.topic_name, one.partition_index)
                if one.error_code:
                    where = f"{topic.topic_name}-{one.partition_index} of group {group}"
                    return refusal(where, one.error_code, one.error_message)
        return None

    retry = cluster.retry(f"moving group {group}")
    ask(cluster, Kind.GROUP, group, request, AlterShareGroupOffsetsResponse, (0, 0), check, retry)


def delete(cluster: Cluster, group: str, topics: Iterable[str]) -> None:
    """Makes the group forget these topics. Raises Refused while it has members."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    )

    def check(response: DeleteShareGroupOffsetsResponse) -> ClientError | None:
        if response.error_code:
            return refusal(f"group {group}", response.error_code, response.error_message)
        for topic in response.responses:
            if topic.error_code:
                return refusal(f"{topic.topic_name} of group {group}", topic.error_code, topic.error_message)
        return None

    retry = cluster.retry(f"changing group {group}")
    ask(cluster, Kind.GROUP, group, request, DeleteShareGroupOffsetsResponse, (0, 0), check, retry)
