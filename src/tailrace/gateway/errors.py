"""What clients of the gateway are told about an error of Kafka's."""

from tailrace.client.errors import (
    ClientError,
    NotAuthorized,
    NotOffered,
    OffsetOutOfRange,
    Refused,
    TopicNotFound,
)
from tailrace.gateway.http.problems import Problem
from tailrace.gateway.kafka.threads import Busy
from tailrace.protocol.errors import ErrorCode

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_MISTAKES = frozenset(
    {
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.POLICY_VIOLATION,
    }
)


def problem_of(error: Exception) -> Problem | None:
    """Returns the problem for an error of the client; None for an error that it does not raise."""
    if isinstance(error, Busy):
        return Problem("too-many-requests", "too many requests wait for the cluster")
    if isinstance(error, TopicNotFound):
        return Problem("topic-not-found", str(error))
    if isinstance(error, OffsetOutOfRange):
        return Problem("offset-out-of-range", str(error), further={"earliest": error.earliest, "end": error.latest})
    if isinstance(error, NotOffered):
        return Problem("not-supported", str(error))
    if isinstance(error, Refused):
        return Problem(_code_of(error), str(error))
    return Problem("unavailable", str(error)) if isinstance(error, ClientError) else None


def _code_of(error: Refused) -> str:
    if isinstance(error, NotAuthorized):
        return "forbidden"
    if error.code in _TOO_LARGE:
        return "too-large"
    if error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return "too-many-requests"
    return "bad-request" if error.code in _MISTAKES else "unavailable"
