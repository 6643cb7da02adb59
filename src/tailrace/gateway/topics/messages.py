"""The messages in a request: one as JSON, many as JSON, or the body itself as the value. Pure.

`util/json_messages` has the form of a message. A value or a key that is neither text nor null is stored as JSON.
"""

from tailrace.gateway.http.problems import Problem
from tailrace.records.batch import NO_TIMESTAMP
from tailrace.records.record import Record
from tailrace.util import json_messages
from tailrace.util.json_messages import BadMessage, Row

JSON = "application/json"
# What a web page may send to any origin without being asked: a body of these types is refused.
SIMPLE_TYPES = frozenset(("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"))
MESSAGES_MAX = 10_000


def media_type_of(content_type: str) -> str:
    """Returns the type without parameters. Raises Problem for one that is refused."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in SIMPLE_TYPES:
        named = f"Content-Type {media_type}" if media_type else "a body without Content-Type"
        raise Problem(
            "unsupported-media-type",
            f"{named} is not taken: send {JSON}, or application/octet-stream for a body that is the message itself",
        )
    return media_type


def rows_in(body: bytes) -> list[Row]:
    """Returns the messages of a JSON body. Raises Problem."""
    try:
        given = json_messages.parse(body)
    except BadMessage as error:
        raise Problem("bad-request", f"the body: {error}") from None
    if not (isinstance(given, dict) and "messages" in given):
        return [_row(given, "the message")]
    listed = given["messages"]
    if given.keys() != {"messages"} or not isinstance(listed, list) or not listed:
        raise Problem("bad-request", 'the body has "messages": then that is a list with messages, and all there is')
    if len(listed) > MESSAGES_MAX:
        raise Problem("too-large", f"a request may have {MESSAGES_MAX} messages")
    return [_row(one, f"message {n}") for n, one in enumerate(listed)]


def _row(given: object, which: str) -> Row:
    try:
        return json_messages.from_object(given, json_values=True)
    except BadMessage as error:
        raise Problem("bad-request", f"{which}: {error}") from None


def record_of(row: Row) -> Record:
    timestamp = NO_TIMESTAMP if row.timestamp is None else row.timestamp
    return Record(0, timestamp, row.key, row.value, row.headers)


def row_of(record: Record, partition: int) -> Row:
    return Row(record.key, record.value, tuple(record.headers), record.timestamp, partition, None, record.offset)
