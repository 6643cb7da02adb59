"""A message as a line of JSON, and back: `tail --json` writes what `produce --json` reads. Pure.

`util/json_messages` has the form. The names are those of `tailrace log dump`.
"""

import json
from typing import TYPE_CHECKING

from tailrace.cli.common import output
from tailrace.util.json_messages import NO_TIMESTAMP, BadMessage, Headers, Row, from_object, parse, to_object

if TYPE_CHECKING:
    from tailrace.cli.common.client import Message

__all__ = ["NO_TIMESTAMP", "BadMessage", "Headers", "Row", "from_json", "of_message", "to_json"]


def of_message(message: "Message") -> Row:
    timestamp = message.timestamp()[1]
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    return Row(message.key(), message.value(), _headers_of(message), timestamp, partition, topic, offset)


def to_json(row: Row) -> str:
    return json.dumps({"topic": row.topic, **to_object(row)}, ensure_ascii=False)


def from_json(line: bytes) -> Row:
    """The message a line of JSON describes. Raises BadMessage."""
    return from_object(parse(line))


def _headers_of(message: "Message") -> Headers:
    try:
        headers = message.headers()
    except (SystemError, UnicodeDecodeError):  # confluent-kafka's ways to say that a name is not UTF-8
        where = f"{message.topic()} [{message.partition()}] at offset {message.offset()}"
        output.warn(f"{where}: a header's name is not UTF-8; its headers are left out")
        return ()
    items = headers.items() if isinstance(headers, dict) else headers or ()
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in items)
