"""AlterShareGroupOffsets (key 91): moves the start of partitions of a share group that has no members.

Behaviour: all records from the new start on are available, however often they were delivered before. A group that does
not exist is created. What a move forward leaves unfinished is recorded as lost, in `__tailrace_losses`; a tagged field
of ours (10000) says that it was a purge. The response is sent when all of it is on disk. An offset behind the end of
the log is refused with OFFSET_OUT_OF_RANGE.

Versions 0.
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.backlog.ledger import Actor
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import Topic
from tailrace.broker.queues.offsets import move
from tailrace.facts.losses import LossReason
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, call: Call, broker: "Broker"
) -> AlterShareGroupOffsetsResponse | DelayedResponse[AlterShareGroupOffsetsResponse]:
    response = AlterShareGroupOffsetsResponse()
    try:
        broker.groups.begin(call)
        broker.queues.begin(call)
        if not request.group_id:
            raise Refused(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        broker.groups.empty_share_group(request.group_id, make=True)
    except Refused as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    reason = LossReason.PURGED if request.is_purge else LossReason.RESET_FORWARD
    for wanted in request.topics:
        topic = broker.topic(wanted.topic_name)
        results = AlterShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name)
        if topic is not None:
            results.topic_id = topic.topic_id
        response.responses.append(results)
        results.partitions += [
            _alter(request.group_id, topic, one, reason, Actor(call.client_id), broker) for one in wanted.partitions
        ]
    return broker.ledger.when_noted(broker.groups.when_share_safe(response, request.group_id))


def _alter(
    group_id: str,
    topic: Topic | None,
    wanted: AlterShareGroupOffsetsRequestPartition,
    reason: LossReason,
    actor: Actor,
    broker: "Broker",
) -> AlterShareGroupOffsetsResponsePartition:
    result = AlterShareGroupOffsetsResponsePartition(partition_index=wanted.partition_index)
    partition = topic.partition(wanted.partition_index) if topic is not None and not topic.is_internal else None
    if partition is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result
    try:
        move(group_id, partition, wanted.start_offset, reason, actor, broker)
    except Refused as error:
        result.error_code, result.error_message = error.code, error.message
    return result


API = Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alter_share_group_offsets, frame_bytes_max=1 << 20, elements_max=3_000)
