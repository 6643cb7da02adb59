"""Changes of where share groups start, by an operator: only while a group has no members."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.backlog.ledger import Actor
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.broker.queues.partition.states import StateUpdate
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.facts.losses import LossReason
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def move(group_id: str, partition: Partition, start: int, reason: LossReason, actor: Actor, broker: "Broker") -> None:
    """Begins a partition at another offset, all records from there on undelivered. What a move forward leaves
    unfinished is noted as lost. The group exists, and has no members. Raises Refused.
    """
    if partition.unavailable is not None:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(partition.unavailable))
    first, end = partition.start_offset, partition.high_watermark
    if not 0 <= start <= end:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"the partition has offsets {first} to {end}")
    start = max(start, first)
    queues, topic = broker.queues, partition.topic
    queues.initialize(group_id, topic.topic_id, [partition.index], 0, start)
    queue = queues.find(group_id, topic.topic_id, partition.index)
    assert queue is not None
    if queue.state is not None and start > queue.state.start_offset:
        broker.ledger.require_ready()
        lost = queue.unfinished_before(start)
        broker.ledger.note_unfinished(group_id, [lost], reason, queues.now_ms, actor)
    if queue.state is None or queue.state.start_offset != start or queue.state.end_offset != start:
        queues.begin_at(queue, StateUpdate(start))
        queues.wake(queue)
    group = broker.groups.empty_share_group(group_id, make=True)
    group.add_initialized(topic.topic_id, topic.name, [partition.index])


def remove(group_id: str, topics: Sequence[Topic], actor: Actor, broker: "Broker") -> None:
    """Forgets topics of a group, which has no members. What it has not finished there is noted as lost. Raises
    Refused.
    """
    queues = broker.queues
    gone = list(_of_topics(group_id, topics, broker))
    lost = [queue.unfinished_before(queue.partition.high_watermark) for queue in gone]
    broker.ledger.note_unfinished(group_id, lost, LossReason.GROUP_DELETED, queues.now_ms, actor)
    queues.forget(gone)
    broker.groups.empty_share_group(group_id).remove_initialized([topic.topic_id for topic in topics])


def _of_topics(group_id: str, topics: Sequence[Topic], broker: "Broker") -> Iterable[QueuePartition]:
    of_group = broker.queues.groups.get(group_id)
    wanted = {topic.topic_id for topic in topics}
    for (topic_id, _), queue in of_group.partitions.items() if of_group is not None else ():
        if topic_id in wanted:
            yield queue
