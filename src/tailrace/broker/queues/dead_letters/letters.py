"""The records of a dead-letter topic: a record that a share group has given up, and why. Pure.

A dead letter has the key, the value and the headers of its record, unless the group wants no copy or the record can no
longer be read, and these headers, as text. All but the last two are Kafka's:

    __dlq.errors.topic, .partition, .offset   which record it was
    __dlq.errors.group                        of which share group
    __dlq.errors.delivery.count               how often it was delivered
    __dlq.errors.message                      why it was given up, for people
    __dlq.errors.reason                       the same for programs: an `EndReason`
    __dlq.errors.timestamp                    when it was given up, in ms since 1970

A dead letter that is given up in its turn has the headers of its last failure only.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tailrace.broker.queues.partition.states import EndReason
from tailrace.records.decoders import Headers
from tailrace.records.record import Record

PREFIX = "__dlq.errors."
_MESSAGES: Mapping[EndReason, str] = {
    EndReason.REJECTED: "a member of the share group rejected the record",
    EndReason.ATTEMPTS: "the record was delivered as often as its share group allows (share.delivery.count.limit)",
    EndReason.EXPIRED: "the record expired before a member of the share group finished it",
}


class Origin(NamedTuple):
    """The share partition that dead letters come from."""

    group: str
    topic: str
    partition: int


class DeadLetter(NamedTuple):
    """A record that was given up."""

    offset: int
    delivery_count: int
    reason: EndReason
    given_up_ms: int


def reason_of(delivery_count: int, attempts_max: int) -> EndReason:
    """Returns why a record was given up, as far as its state tells."""
    if delivery_count == 0:
        return EndReason.EXPIRED
    return EndReason.ATTEMPTS if delivery_count >= attempts_max else EndReason.REJECTED


def record_of(letter: DeadLetter, origin: Origin, copied: Record | None, now_ms: int) -> Record:
    """Returns the dead letter as a record; `copied` is the record that was given up."""
    headers = tuple((PREFIX + name, text.encode()) for name, text in _headers_of(letter, origin))
    if copied is None:
        return Record(0, now_ms, headers=headers)
    kept = tuple(header for header in copied.headers if not header[0].startswith(PREFIX))
    return Record(0, now_ms, copied.key, copied.value, (*kept, *headers))


def _headers_of(letter: DeadLetter, origin: Origin) -> list[tuple[str, str]]:
    return [
        ("topic", origin.topic),
        ("partition", str(origin.partition)),
        ("offset", str(letter.offset)),
        ("group", origin.group),
        ("delivery.count", str(letter.delivery_count)),
        ("message", _MESSAGES[letter.reason]),
        ("reason", letter.reason),
        ("timestamp", str(letter.given_up_ms)),
    ]


def offset_in(headers: Headers, origin: Origin) -> int | None:
    """Returns the offset of the record that a dead letter is of; None if it is of another share partition, or none."""
    found = {key: value for key, value in headers if key.startswith(PREFIX)}
    expected = (origin.group, origin.topic, str(origin.partition))
    named = tuple(found.get(PREFIX + name) for name in ("group", "topic", "partition"))
    offset = found.get(PREFIX + "offset") or b""
    if named != tuple(text.encode() for text in expected) or not offset.isdigit() or len(offset) > 19:
        return None
    return int(offset)
