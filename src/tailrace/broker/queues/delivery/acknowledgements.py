"""The acknowledgements of a request: decided for each share partition, and written as one batch."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.records import NotSaved
from tailrace.broker.queues.delivery.sessions import MEMBER_ID_LENGTH_MAX, Member
from tailrace.broker.queues.names import TopicPartitionId
from tailrace.broker.queues.partition.states import AckBatch, AckType
from tailrace.broker.queues.queue_partition import Decided, QueuePartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_acknowledge import AcknowledgeTopic
from tailrace.protocol.messages.share_fetch import FetchTopic

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.queues.coordinator import QueueCoordinator

LOCK_MS_MAX = 3_600_000


class Acknowledgements(NamedTuple):
    """What a request says of records, by partition; and for how long it renews locks, if not as its group does."""

    batches: Mapping[TopicPartitionId, list[AckBatch]]
    is_renewal: bool  # whether RENEW is among the types that it may have
    lock_ms: int | None = None


def member_of(group_id: str | None, member_id: str | None) -> Member:
    """Raises Refused."""
    if not group_id:
        raise Refused(ErrorCode.INVALID_REQUEST, "a share group has a name")
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"a member id has 1 to {MEMBER_ID_LENGTH_MAX} characters")
    return Member(group_id, member_id)


def batches_by_place(topics: Iterable[AcknowledgeTopic | FetchTopic]) -> dict[TopicPartitionId, list[AckBatch]]:
    """Returns what a request says of each partition, perhaps nothing. A client may name one several times."""
    found: dict[TopicPartitionId, list[AckBatch]] = {}
    for topic in topics:
        for one in topic.partitions:
            batches = found.setdefault((topic.topic_id, one.partition_index), [])
            for batch in one.acknowledgement_batches:
                batches.append(AckBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types))
    return found


def lock_ms_of(given: int) -> int | None:
    """Returns for how long a request asks for locks, None if it does not."""
    return min(max(given, 1), LOCK_MS_MAX) if given > 0 else None


def acknowledge(given: Acknowledgements, member: Member, broker: "Broker") -> dict[TopicPartitionId, Refused | None]:
    """Carries acknowledgements out. Those of one partition count as a whole, or not at all: returns the error of each
    partition.
    """
    queues = broker.queues
    errors: dict[TopicPartitionId, Refused | None] = {}
    decided: list[tuple[TopicPartitionId, Decided]] = []
    for place, batches in given.batches.items():
        errors[place] = None
        try:
            queue = _queue_of(member.group, place, broker)
            decided.append((place, _decide(queue, batches, given, member, queues)))
        except Refused as error:
            errors[place] = error
    try:
        queues.write([one for _, one in decided])
    except NotSaved as error:
        errors |= dict.fromkeys((place for place, _ in decided), error)
    return errors


def _decide(
    queue: QueuePartition, batches: list[AckBatch], given: Acknowledgements, member: Member, queues: "QueueCoordinator"
) -> Decided:
    """Raises Refused."""
    if not given.is_renewal and any(AckType.RENEW in batch.types for batch in batches):
        raise Refused(ErrorCode.INVALID_REQUEST, "a renewal needs is_renew_ack")
    if queue.state is None:
        raise Refused(ErrorCode.INVALID_RECORD_STATE, "no record was acquired")
    lock_ms = given.lock_ms or queues.groups[member.group].settings.lock_ms
    return queue, queue.state.acknowledge(member.member_id, batches, queues.steady_ms, lock_ms)


def _queue_of(group: str, place: TopicPartitionId, broker: "Broker") -> QueuePartition:
    """Raises Refused."""
    topic_id, index = place
    if topic_id not in broker.metadata.topics_by_id:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    queue = broker.queues.find(group, topic_id, index)
    if queue is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{group!r} has nothing of this partition")
    return queue
