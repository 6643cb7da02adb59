"""The bodies of requests to queues: read and checked by the same schemas that the OpenAPI page shows. Pure."""

from collections.abc import Mapping
from typing import Any

from tailrace.gateway.http.problems import Problem
from tailrace.gateway.queues.lease_ids import LENGTH
from tailrace.gateway.topics.schemas import READ_MESSAGE
from tailrace.util import json_messages
from tailrace.util.json_messages import BadMessage

MESSAGES_MAX = 1000
LEASE_S_MAX = 3600
WAIT_S_MAX = 60
DELAY_S_MAX = 604_800
REASON_LENGTH_MAX = 1000

_LEASE_SECONDS: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": LEASE_S_MAX, "default": 30}
_LEASES: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string", "maxLength": LENGTH},
    "minItems": 1,
    "maxItems": MESSAGES_MAX,
}


def _body(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    needs = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **needs}


LEASE = _body(
    {
        "max": {"type": "integer", "minimum": 1, "maximum": MESSAGES_MAX, "default": 1},
        "wait_seconds": {"type": "integer", "minimum": 0, "maximum": WAIT_S_MAX, "default": 0},
        "lease_seconds": _LEASE_SECONDS,
    }
)
ACK = _body({"leases": _LEASES}, "leases")
NACK = _body(
    {
        "leases": _LEASES,
        "delay_seconds": {"type": "integer", "minimum": 0, "maximum": DELAY_S_MAX, "default": 0},
        "reject": {"type": "boolean", "default": False},
        "reason": {"type": ["string", "null"], "maxLength": REASON_LENGTH_MAX, "default": None},
    },
    "leases",
)
EXTEND = _body({"leases": _LEASES, "lease_seconds": _LEASE_SECONDS}, "leases")

LEASED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "messages": {
            "type": "array",
            "items": {
                **READ_MESSAGE,
                "properties": {
                    "lease": {"type": "string"},
                    "attempt": {"type": "integer", "minimum": 1, "description": "The number of this delivery."},
                    "expires_ms": {"type": "integer", "description": "Milliseconds since 1970."},
                    **READ_MESSAGE["properties"],
                },
                "required": ["lease", "attempt", "expires_ms", *READ_MESSAGE["required"]],
            },
        }
    },
    "required": ["messages"],
}
DONE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "done": {"type": "integer", "description": "Leases for which it was done."},
        "failed": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "lease": {"type": "string"},
                    "reason": {"type": "string", "enum": ["expired", "unknown"]},
                },
                "required": ["lease", "reason"],
            },
        },
    },
    "required": ["done", "failed"],
}
_TYPES: dict[str, Any] = {"integer": int, "boolean": bool, "string": str, "array": list}


def read(body: bytes, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the members of a body, those that are left out by their defaults. Raises Problem."""
    try:
        given = json_messages.parse(body) if body.strip() else {}
    except BadMessage as error:
        raise Problem("bad-request", f"the body: {error}") from None
    if not isinstance(given, dict):
        raise Problem("bad-request", "the body is no JSON object")
    properties: Mapping[str, Any] = schema["properties"]
    if unknown := given.keys() - properties.keys():
        raise Problem("bad-request", f"the body has {min(unknown)[:100]!r}; known are {', '.join(properties)}")
    for name in schema.get("required", ()):
        if name not in given:
            raise Problem("bad-request", f"the body has no {name!r}")
    return {name: _checked(name, given.get(name, of.get("default")), of) for name, of in properties.items()}


def _checked(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    """Raises Problem."""
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None and "null" in types:
        return None
    kind = types[0]
    if not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        raise Problem("bad-request", f"{name} is no {kind}")
    if kind == "integer" and not schema["minimum"] <= value <= schema["maximum"]:
        raise Problem("bad-request", f"{name} is a number from {schema['minimum']} to {schema['maximum']}")
    if kind == "string" and len(value) > schema["maxLength"]:
        raise Problem("bad-request", f"{name} has at most {schema['maxLength']} characters")
    if kind == "array":
        if not schema["minItems"] <= len(value) <= schema["maxItems"]:
            raise Problem("bad-request", f"{name} has {schema['minItems']} to {schema['maxItems']} entries")
        for one in value:
            _checked(f"one of {name}", one, schema["items"])
    return value
