"""ShareAcknowledge (key 79): what became of records that a member of a share group has acquired.

Behaviour: records are accepted, released, rejected, or their locks renewed. What a request says of one partition counts
as a whole, or not at all. The response is sent when the outcome is on disk. The last request of a session releases what
the member still holds; so does the end of its connection.

Versions 1-2.
    2   renewal, and the time for which records are locked in the response
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.queues.delivery.acknowledgements import (
    Acknowledgements,
    acknowledge,
    batches_by_place,
    lock_ms_of,
    member_of,
)
from tailrace.broker.queues.names import TopicPartitionId
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fetch_wire import FINAL_EPOCH, INITIAL_EPOCH
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

FRAME_BYTES_MAX = 2 << 20
ELEMENTS_MAX = 50_000  # 60 ms, if all are ranges of one record


def share_acknowledge(
    request: ShareAcknowledgeRequest, call: Call, broker: "Broker"
) -> ShareAcknowledgeResponse | DelayedResponse[ShareAcknowledgeResponse]:
    queues = broker.queues
    try:
        queues.begin(call)
        member = member_of(request.group_id, request.member_id)
        epoch = request.share_session_epoch
        if epoch == INITIAL_EPOCH:
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session begins with a ShareFetch")
        if epoch == FINAL_EPOCH:
            session = queues.sessions.finish(member)
        else:
            session = queues.sessions.go_on(member, epoch, call.connection)
    except Refused as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    given = Acknowledgements(
        batches_by_place(request.topics), request.is_renew_ack, lock_ms_of(request.lock_duration_ms)
    )
    errors = acknowledge(given, member, broker)
    if epoch == FINAL_EPOCH:
        queues.sessions.close(session)
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=given.lock_ms or queues.settings_of(member.group).lock_ms,
        responses=_topics(errors),
    )
    return queues.when_safe(response)


def _topics(errors: dict[TopicPartitionId, Refused | None]) -> list[ShareAcknowledgeTopicResponse]:
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), refusal in errors.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
        data = PartitionData(partition_index=index)
        if refusal is not None:
            data.error_code, data.error_message = refusal.code, refusal.message
        topic.partitions.append(data)
    return list(topics.values())


API = Api(ApiKey.SHARE_ACKNOWLEDGE, share_acknowledge, FRAME_BYTES_MAX, ELEMENTS_MAX)
