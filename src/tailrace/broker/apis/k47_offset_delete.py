"""OffsetDelete (key 47): a group forgets how far it has come with some topics.

Behaviour: of a topic that a member of the group reads, nothing is deleted. The answer leaves when it is on disk.

Versions 0.
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.errors import Refused
from tailrace.broker.groups.classic import ClassicGroup
from tailrace.broker.groups.subscription import CONSUMER
from tailrace.broker.requests import Api, Call
from tailrace.broker.waiting import Later
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
) -> OffsetDeleteResponse | Later[OffsetDeleteResponse]:
    try:
        broker.groups.begin(call)
        group = _group(request.group_id, broker)
        codes = {topic.name: _code(group, topic.name, broker) for topic in request.topics}
        broker.groups.remove_offsets(
            request.group_id,
            [
                (topic.name, partition.partition_index)
                for topic in request.topics
                for partition in topic.partitions
                if not codes[topic.name]
            ],
        )
    except Refused as error:
        return OffsetDeleteResponse(error_code=error.code)
    return broker.groups.when_safe(_respond(request, codes), request.group_id)


def _group(group_id: str, broker: "Broker") -> ClassicGroup:
    group = broker.groups.groups.get(group_id)
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    if group.members and group.protocol_type != CONSUMER:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"{group_id!r} has members, and what they read is not known")
    return group


def _code(group: ClassicGroup, topic: str, broker: "Broker") -> ErrorCode:
    if broker.topic(topic) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if broker.groups.is_reading(group, topic) else ErrorCode.NONE


def _respond(request: OffsetDeleteRequest, codes: dict[str, ErrorCode]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index, error_code=codes[topic.name]
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(ApiKey.OFFSET_DELETE, offset_delete, elements_max=3_000)
