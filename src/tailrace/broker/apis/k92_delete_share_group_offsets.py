"""DeleteShareGroupOffsets (key 92): forgets topics of a share group that has no members.

Behaviour: what the group has not finished there is recorded as lost, in `__tailrace_losses`. A topic that the group has
no state of is no error. The response is sent when all of it is on disk.

Versions 0.
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.backlog.ledger import Actor
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.queues.offsets import remove
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, call: Call, broker: "Broker"
) -> DeleteShareGroupOffsetsResponse | DelayedResponse[DeleteShareGroupOffsetsResponse]:
    named = dict.fromkeys(one.topic_name for one in request.topics)
    topics = {name: broker.topic(name) for name in named}
    try:
        broker.groups.begin(call)
        broker.queues.begin(call)
        broker.groups.empty_share_group(request.group_id)
        known = [topic for topic in topics.values() if topic is not None]
        remove(request.group_id, known, Actor(call.client_id), broker)
    except Refused as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    response = DeleteShareGroupOffsetsResponse()
    for name, topic in topics.items():
        result = DeleteShareGroupOffsetsResponseTopic(topic_name=name)
        if topic is not None:
            result.topic_id = topic.topic_id
        else:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response.responses.append(result)
    return broker.ledger.when_noted(broker.groups.when_share_safe(response, request.group_id))


API = Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete_share_group_offsets, frame_bytes_max=1 << 20, elements_max=3_000)
