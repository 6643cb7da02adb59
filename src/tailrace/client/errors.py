"""Exceptions of the client: one family, each with what to do about it.

Each error keeps what it is about as attributes, so that callers can decide by them, and it can be pickled on its way
from a worker. `is_passing` marks errors that are retried until a deadline; they then become the cause of a `GaveUp`.
"""

from tailrace.protocol.errors import ErrorCode


class ClientError(Exception):
    is_passing = False


class BadOption(ClientError, ValueError):
    """A property that is unknown, or has an invalid value."""


class ConnectionLost(ClientError):
    """The broker closed the connection, does not respond in time, or cannot be reached. The connection is closed."""

    is_passing = True

    def __init__(self, address: str, why: str) -> None:
        super().__init__(address, why)
        self.address, self.why = address, why

    def __str__(self) -> str:
        return f"{self.address}: {self.why}"


class BadAnswer(ClientError):
    """Bytes that no broker sends, or a response to another request. The connection is closed; nothing is retried."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(address, why)
        self.address, self.why = address, why

    def __str__(self) -> str:
        return f"{self.address} does not answer as a Kafka broker does: {self.why}; check host, port, security.protocol"


class TlsFailed(ClientError):
    def __init__(self, address: str, why: str) -> None:
        super().__init__(address, why)
        self.address, self.why = address, why

    def __str__(self) -> str:
        return f"no TLS with {self.address}: {self.why}; check security.protocol, ssl.ca.location and the host's name"


class AuthenticationFailed(ClientError):
    def __init__(self, address: str, why: str) -> None:
        super().__init__(address, why)
        self.address, self.why = address, why

    def __str__(self) -> str:
        return f"{self.address} refuses authentication: {self.why}; check sasl.mechanism, sasl.username, sasl.password"


class NotOffered(ClientError):
    """The broker does not support a request, or not in a version that we can use."""

    def __init__(self, address: str, request: str, wanted: str, offered: str) -> None:
        super().__init__(address, request, wanted, offered)
        self.address, self.request = address, request
        self.wanted, self.offered = wanted, offered

    def __str__(self) -> str:
        return (
            f"{self.address} offers {self.request} in {self.offered}, but {self.wanted} is needed: "
            "the broker is too old, or too new"
        )


class GaveUp(ClientError):
    """A retried operation did not succeed until the deadline; the last error is `__cause__`."""

    def __init__(self, doing: str, seconds: float, why: str) -> None:
        super().__init__(doing, seconds, why)
        self.doing, self.seconds, self.why = doing, seconds, why

    def __str__(self) -> str:
        return (
            f"{self.doing}: given up after {self.seconds:g} s; last: {self.why}. "
            f"Check that the brokers run and can be reached; default.api.timeout.ms sets for how long it is tried"
        )


class Refused(ClientError):
    """An error code in a response; `about` names the operation."""

    def __init__(self, about: str, code: int, said: str | None = None) -> None:
        super().__init__(about, code, said)
        self.about, self.code, self.said = about, code, said

    @property
    def is_passing(self) -> bool:  # type: ignore[override]
        return is_passing(self.code)

    def __str__(self) -> str:
        return f"{self.about}: {describe(self.code)}" + (f" ({self.said})" if self.said else "")


class NotAuthorized(Refused):
    def __str__(self) -> str:
        return f"{super().__str__()}; the user that connects needs an ACL for it"


class TopicNotFound(ClientError):
    def __init__(self, topic: str, partition: int | None = None) -> None:
        super().__init__(topic, partition)
        self.topic, self.partition = topic, partition

    def __str__(self) -> str:
        what = f"topic {self.topic}" if self.partition is None else f"partition {self.partition} of topic {self.topic}"
        return f"there is no {what}; check its name, or create it first"


class BrokerNotFound(ClientError):
    def __init__(self, node_id: int, known: list[int]) -> None:
        super().__init__(node_id, known)
        self.node_id, self.known = node_id, known

    def __str__(self) -> str:
        return f"the cluster has no broker {self.node_id}; its brokers are {', '.join(map(str, self.known)) or 'none'}"


class TopicRecreated(ClientError):
    """The topic of that name is not the one that the offsets belong to."""

    def __init__(self, topic: str, expected: bytes, found: bytes) -> None:
        super().__init__(topic, expected, found)
        self.topic, self.expected, self.found = topic, expected, found

    def __str__(self) -> str:
        return (
            f"topic {self.topic} was deleted and created again: its id was {self.expected.hex()} and is "
            f"{self.found.hex()}; offsets of the old topic mean nothing in the new one, so begin anew"
        )


class OffsetOutOfRange(ClientError):
    """The record at `offset` does not exist; the partition has records from `earliest` to before `latest`."""

    def __init__(self, topic: str, partition: int, offset: int, earliest: int, latest: int) -> None:
        super().__init__(topic, partition, offset, earliest, latest)
        self.topic, self.partition, self.offset = topic, partition, offset
        self.earliest, self.latest = earliest, latest

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        if self.offset < self.earliest:
            return (
                f"{where} begins at offset {self.earliest}: offsets {self.offset} to {self.earliest - 1} are gone, "
                f"by retention or deletion; go on from {self.earliest} if they may be missing"
            )
        return (
            f"{where} ends at offset {self.latest}, before offset {self.offset}: its end was lost, or this is another "
            f"topic of the same name; compare it with where {self.offset} came from"
        )


class EndNotReached(ClientError):
    """Promised records do not exist: the partition ends before `end`."""

    def __init__(self, topic: str, partition: int, position: int, end: int, high_watermark: int) -> None:
        super().__init__(topic, partition, position, end, high_watermark)
        self.topic, self.partition, self.position = topic, partition, position
        self.end, self.high_watermark = end, high_watermark

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} can be read to offset {self.high_watermark} and not to {self.end}: reading "
            f"waited at {self.position}; either its end was lost, or replicas are behind or a transaction is open"
        )


class CorruptRecords(ClientError):
    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(topic, partition, offset, why)
        self.topic, self.partition, self.offset, self.why = topic, partition, offset, why

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} is damaged at offset {self.offset}: {self.why}; "
            f"verify the log on the broker, and read on behind it only if these records may be missing"
        )


class GroupIsActive(ClientError):
    def __init__(self, group: str, why: str) -> None:
        super().__init__(group, why)
        self.group, self.why = group, why

    def __str__(self) -> str:
        return (
            f"group {self.group} has members of its own ({self.why}), so offsets cannot be committed from outside; "
            f"stop its consumers, or use another group"
        )


class ProducerFenced(ClientError):
    """Another producer has taken over, or the broker's state does not fit this one: nothing more may be sent."""

    def __init__(self, about: str, code: int) -> None:
        super().__init__(about, code)
        self.about, self.code = about, code

    def __str__(self) -> str:
        return f"{self.about}: {describe(self.code)}; begin with a new producer, and compare what was written before"


_BY_CODE = {int(code): code for code in ErrorCode}
_NOT_AUTHORIZED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def known(code: int) -> ErrorCode | None:
    """None for codes of newer brokers."""
    return _BY_CODE.get(code)


def describe(code: int) -> str:
    error = known(code)
    return f"unknown error code {code}" if error is None else f"{error.text} ({error.name})"


def is_passing(code: int) -> bool:
    error = known(code)
    return error is not None and error.retriable


def refusal(about: str, code: int, said: str | None = None) -> Refused:
    return (NotAuthorized if code in _NOT_AUTHORIZED else Refused)(about, code, said)
