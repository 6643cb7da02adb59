"""What the OpenAPI page says of topics and messages."""

from typing import Any

from tailrace.gateway.http.parameters import Parameter, integer, string
from tailrace.gateway.topics.messages import MESSAGES_MAX

NAME_LENGTH_MAX = 249
PARTITION_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1

_TEXT = {"type": ["string", "null"]}
_HEADER_PART: dict[str, Any] = {
    "anyOf": [
        _TEXT,
        {
            "type": "object",
            "properties": {"base64": {"type": "string", "contentEncoding": "base64"}},
            "required": ["base64"],
            "additionalProperties": False,
        },
    ]
}
_HEADERS: dict[str, Any] = {
    "type": "array",
    "items": {"type": "array", "items": _HEADER_PART, "minItems": 2, "maxItems": 2},
    "description": "Pairs of a name, a text, and a value. A value that is not UTF-8 is an object with `base64`.",
}
_BASE64 = {"type": "string", "contentEncoding": "base64"}
_PARTITION = {"type": "integer", "minimum": 0, "maximum": PARTITION_MAX}
_OFFSET = {"type": "integer", "minimum": 0}

WRITTEN_MESSAGE: dict[str, Any] = {
    "type": "object",
    "description": (
        "A text is stored as UTF-8, null as no key or no value, any other JSON value as compact JSON, and base64 as "
        "the bytes that it encodes. `value` or `value_base64` has to be there."
    ),
    "properties": {
        "key": {"description": "Messages with the same key go to the same partition, in order."},
        "key_base64": _BASE64,
        "value": {},
        "value_base64": _BASE64,
        "headers": {**_HEADERS, "type": ["array", "null"]},
        "partition": {**_PARTITION, "type": ["integer", "null"]},
        "timestamp": {
            "type": ["integer", "null"],
            "minimum": -1,
            "maximum": _LONG_MAX,
            "description": "Milliseconds since 1970; the time of the request unless given.",
        },
        "topic": {"description": "Ignored, so that a message that was read can be written again."},
        "offset": {"description": "Ignored."},
    },
    "additionalProperties": False,
}
WRITTEN_MESSAGES: dict[str, Any] = {
    "type": "object",
    "properties": {"messages": {"type": "array", "items": WRITTEN_MESSAGE, "minItems": 1, "maxItems": MESSAGES_MAX}},
    "required": ["messages"],
    "additionalProperties": False,
}
READ_MESSAGE: dict[str, Any] = {
    "type": "object",
    "description": "Keys and values that are not UTF-8 are in `key_base64` and `value_base64`.",
    "properties": {
        "partition": _PARTITION,
        "offset": _OFFSET,
        "timestamp": {"type": "integer"},
        "key": _TEXT,
        "key_base64": _BASE64,
        "value": _TEXT,
        "value_base64": _BASE64,
        "headers": _HEADERS,
    },
    "required": ["partition", "offset", "timestamp", "headers"],
    "additionalProperties": False,
}
PRODUCED: dict[str, Any] = {
    "type": "object",
    "description": "Where each message of the request is, in the same order.",
    "properties": {
        "messages": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"partition": _PARTITION, "offset": {"type": ["integer", "null"], "minimum": 0}},
                "required": ["partition", "offset"],
            },
        }
    },
    "required": ["messages"],
}
PAGE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "messages": {"type": "array", "items": READ_MESSAGE},
        "next_offset": {**_OFFSET, "description": "Where the next page begins: `from` of the next request."},
        "end": {**_OFFSET, "description": "The offset after the last message that can be read."},
    },
    "required": ["messages", "next_offset", "end"],
}
TOPICS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "topics": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "partitions": {"type": "integer"},
                    "internal": {"type": "boolean"},
                },
                "required": ["name", "partitions", "internal"],
            },
        },
        "next": {"type": ["string", "null"], "description": "`after` of the next request; null at the end."},
    },
    "required": ["topics", "next"],
}
TOPIC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "internal": {"type": "boolean"},
        "partitions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "partition": _PARTITION,
                    "start": {"type": ["integer", "null"], "description": "The first offset."},
                    "end": {
                        "type": ["integer", "null"],
                        "description": "The offset after the last committed message; null if it cannot be read.",
                    },
                },
                "required": ["partition", "start", "end"],
            },
        },
    },
    "required": ["name", "internal", "partitions"],
}


def _name(given: str) -> str:
    legal = given and len(given) <= NAME_LENGTH_MAX and given.isascii() and given not in (".", "..")
    if not legal or not given.translate(_PUNCTUATION).isalnum():
        raise ValueError(f"a topic's name has 1 to {NAME_LENGTH_MAX} letters, digits, '.', '_' and '-'")
    return given


_PUNCTUATION = str.maketrans("._-", "aaa")
TOPIC_NAME = Parameter(
    "topic",
    "The name of the topic.",
    {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX, "pattern": "^(?!\\.{1,2}$)[a-zA-Z0-9._-]+$"},
    _name,
)
LIST_MAX = integer("max", "How many to return.", 1, 10_000, 1000)
AFTER = string("after", "Return those whose names come after this one.", 1000, "")
