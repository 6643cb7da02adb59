"""DeleteTopics (key 20): deletes topics with all their records.

Behaviour: the deletion is written to the metadata log; when it is on disk, the logs are removed, and waiting fetches
are answered. The response is sent when the names can be used again. The files are deleted after that. A crash at any
point leaves a topic whole, or deleted: the next start completes the deletion. Internal topics cannot be deleted.

Versions 1-6.
    3   TOPIC_DELETION_DISABLED is understood      5   error messages; refused if a quota is used up
    6   topics by id, or by name
Not done: `timeout_ms`; the response is sent when it is done.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.backlog.ledger import Actor
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import Topic
from tailrace.broker.metadata.topic_changes import delete_topic
from tailrace.broker.quotas.mutations import Mutations
from tailrace.log.layout.errors import LogError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

BY_TOPIC_ID = 6
DISABLED_FROM = 3
REFUSED_FROM = 5


def delete_topics(
    request: DeleteTopicsRequest, call: Call, broker: "Broker"
) -> DeleteTopicsResponse | DelayedResponse[DeleteTopicsResponse]:
    response = DeleteTopicsResponse()
    deletions: list[Topic] = []
    changes = []
    mutations = Mutations(call, broker, refused_from=REFUSED_FROM)
    for wanted, count in _counted(request, call.version, broker).items():
        name, topic_id = wanted
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        response.responses.append(result)
        try:
            topic = _topic(name, topic_id, count, call, broker)
            change = delete_topic(topic)
            mutations.add(topic.partition_count)
        except Refused as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        changes.append(change)
        result.name, result.topic_id = topic.name, topic.topic_id
        deletions.append(topic)
    response.throttle_time_ms = mutations.throttle_time_ms
    if not changes or not broker.metadata_log.write_or_refuse(changes, response.responses, call.now_ms):
        return response
    return TopicDeletion(response, deletions, call, broker)


Wanted = tuple[str | None, bytes]


def _counted(request: DeleteTopicsRequest, version: int, broker: "Broker") -> dict[Wanted, int]:
    """Returns the requested topics, and how often each of them is requested."""
    if version < BY_TOPIC_ID:
        request.topics = [DeleteTopicState(name=name) for name in request.topic_names]
    wanted = [(state.name, state.topic_id) for state in request.topics]
    counts = Counter(_meant(name, topic_id, broker) for name, topic_id in wanted)
    return {one: counts[_meant(*one, broker)] for one in wanted}


def _meant(name: str | None, topic_id: bytes, broker: "Broker") -> Wanted | bytes:
    """Returns the topic's id if it exists: a topic may be requested by its name, and by its id, too."""
    topic = broker.metadata.topics.get(name or "") or broker.metadata.topics_by_id.get(topic_id)
    return topic.topic_id if topic is not None else (name, topic_id)


def _topic(name: str | None, topic_id: bytes, count: int, call: Call, broker: "Broker") -> Topic:
    """Returns the topic if it may be deleted. Raises Refused."""
    if not broker.configs.flag("delete.topic.enable"):
        is_understood = call.version >= DISABLED_FROM
        code = ErrorCode.TOPIC_DELETION_DISABLED if is_understood else ErrorCode.INVALID_REQUEST
        raise Refused(code, "delete.topic.enable is false")
    if (name is None) == (topic_id == ZERO_UUID):
        raise Refused(ErrorCode.INVALID_REQUEST, "a topic must be named by either its name or its id")
    if count > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, f"the topic appears {count} times in the request")
    if name is None:
        topic, unknown = broker.metadata.topics_by_id.get(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic, unknown = broker.metadata.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        raise Refused(unknown, unknown.text)
    return topic


class TopicDeletion(DelayedResponse[DeleteTopicsResponse]):
    """The response, sent when the names of the topics can be used again."""

    __slots__ = ("_actor", "_broker", "_now_ms", "_response", "_topics")

    def __init__(self, response: DeleteTopicsResponse, topics: Sequence[Topic], call: Call, broker: "Broker") -> None:
        super().__init__()
        self._actor = Actor(call.client_id)
        self._now_ms = call.now_ms
        self._response = response
        self._topics = topics
        self._broker = broker
        broker.metadata_log.when_settled().when_resolved(self._is_settled)

    def _is_settled(self, error: LogError | None) -> None:
        """Removes the logs, now that the deletion is on disk: a power cut cannot bring a topic back without its log."""
        if error is not None:
            return  # the process is about to stop
        removed = self._broker.remove_logs(self._topics, self._now_ms, self._actor)
        removed.when_resolved(lambda _: self.resolve(self._response))


API = Api(
    ApiKey.DELETE_TOPICS,
    delete_topics,
    elements_max=10_000,  # 100 ms, if they have no logs
)
