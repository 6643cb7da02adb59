"""OffsetDelete (key 47): deletes committed offsets of a group.

Behaviour: offsets of a topic that a member of the group reads are not deleted. What the group had not read is noted in
`__tailrace_losses`. The response is sent when the deletion is on disk.

Versions 0.
Not done: nothing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.broker.backlog.ledger import Actor
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.subscription import CONSUMER
from tailrace.broker.groups.group import Group
from tailrace.broker.groups.share.group import ShareGroup
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def offset_delete(
    request: OffsetDeleteRequest, call: Call, broker: "Broker"
) -> OffsetDeleteResponse | DelayedResponse[OffsetDeleteResponse]:
    try:
        broker.groups.begin(call)
        is_read = _group(request.group_id, broker).is_subscribed
        codes = {
            (topic.name, partition.partition_index): _code(topic.name, partition.partition_index, is_read, broker)
            for topic in request.topics
            for partition in topic.partitions
        }
        deleted = [place for place, code in codes.items() if not code]
        broker.groups.delete_offsets(request.group_id, deleted, Actor(call.client_id))
    except Refused as error:
        return broker.groups.when_safe(OffsetDeleteResponse(error_code=error.code), request.group_id)
    return broker.ledger.when_noted(broker.groups.when_safe(_respond(request, codes), request.group_id))


def _group(group_id: str, broker: "Broker") -> Group:
    group = broker.groups.groups.get(group_id)
    if group is None or isinstance(group, ShareGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r} with committed offsets")
    if group.members and group.protocol_type != CONSUMER:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"{group_id!r} has members, and their subscriptions are unknown")
    return group


def _code(name: str, partition: int, is_read: Callable[[str], bool], broker: "Broker") -> ErrorCode:
    topic = broker.topic(name)
    if topic is None or not 0 <= partition < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read(name) else ErrorCode.NONE


def _respond(request: OffsetDeleteRequest, codes: dict[tuple[str, int], ErrorCode]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(ApiKey.OFFSET_DELETE, offset_delete, elements_max=3_000)
