"""DeleteTopics (key 20): deletes topics by name, or from version 6 on by id."""

from tailrace.protocol.fields import array, int16, int32, string, uuid
from tailrace.protocol.message import message, structure


@structure
class DeleteTopicState:
    name: str | None = string(versions="6+", null="6+", default=None)
    topic_id: bytes = uuid(versions="6+")


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = array(DeleteTopicState, versions="6+")
    topic_names: list[str] = array(string, versions="0-5", ignorable=True)
    timeout_ms: int = int32()


@structure
class DeletableTopicResult:
    name: str | None = string(null="6+")
    topic_id: bytes = uuid(versions="6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(versions="5+", null="5+", default=None, ignorable=True)


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
