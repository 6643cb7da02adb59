"""A message as a JSON object, and back: the form of `tail --json`, `produce --json` and the HTTP gateway. Pure.

Bytes that are not UTF-8 stand in `key_base64` and `value_base64` instead of `key` and `value`; in `headers`, a list of
pairs, an object {"base64": …} stands in their place. Null stays null. So what is read can be written again unchanged.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import NamedTuple

NO_TIMESTAMP = -1

_WRITTEN = ("key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition")
_KNOWN_OF_READ = ("topic", "offset")  # where a message was; it gets another place
_MAX_TIMESTAMP = (1 << 63) - 1

Headers = tuple[tuple[str, bytes | None], ...]


class BadMessage(ValueError):
    """It cannot be made a message; says why, in words."""


class Row(NamedTuple):
    """A message, with where it is. None stands for what a message yet to be written leaves to others."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def to_object(row: Row) -> dict[str, object]:
    """Returns all of a row but its topic."""
    shown: dict[str, object] = {"partition": row.partition, "offset": row.offset, "timestamp": row.timestamp}
    put_bytes(shown, "key", row.key)
    put_bytes(shown, "value", row.value)
    shown["headers"] = [[name, text_or_base64(value)] for name, value in row.headers]
    return shown


def put_bytes(target: dict[str, object], name: str, data: bytes | None) -> None:
    """Adds `data` to a JSON object under `name` if it is text or null, else under `<name>_base64`: nothing is lost."""
    try:
        target[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        target[f"{name}_base64"] = b64encode(data).decode()


def text_or_base64(data: bytes | None) -> object:
    """The same for a value that has no name: text, null, or an object that has `base64`."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        return {"base64": b64encode(data).decode()}


def parse(text: bytes) -> object:
    """Returns the value of a JSON text. Raises BadMessage."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise BadMessage("it is not UTF-8") from None
    except RecursionError:
        raise BadMessage("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise BadMessage(f"it is no JSON: {error.msg}, at column {error.colno}") from None
    except ValueError as error:  # such as a number of ten thousand digits
        raise BadMessage(f"it is no JSON: {error}") from None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def from_object(given: object, *, json_values: bool = False) -> Row:
    """Returns the message that an object describes. Where it came from (`topic`, `offset`) is no part of it. Raises
    BadMessage.

    With `json_values`, a key or a value that is neither text nor null is stored as JSON.
    """
    if not isinstance(given, dict):
        raise BadMessage('it is no object; expected is {"key": …, "value": …}')
    if unknown := given.keys() - {*_WRITTEN, *_KNOWN_OF_READ}:
        raise BadMessage(f"it has {min(unknown)!r}, which is unknown; known are {', '.join(_WRITTEN)}")
    if not {"value", "value_base64"} & given.keys():
        raise BadMessage('it has no "value"; a message without one has "value": null')
    return Row(
        _bytes(given, "key", json_values),
        _bytes(given, "value", json_values),
        _headers(given.get("headers")),
        _integer(given, "timestamp", NO_TIMESTAMP, _MAX_TIMESTAMP),
        _integer(given, "partition", 0, (1 << 31) - 1),
    )


def _bytes(given: Mapping[str, object], name: str, json_values: bool) -> bytes | None:
    base64 = f"{name}_base64"
    if base64 not in given:
        value = given.get(name)
        if json_values and value is not None and not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return _encoded(value, name)
    if name in given:
        raise BadMessage(f"it has both {name!r} and {base64!r}")
    return _decoded(given[base64], base64)


def _headers(given: object) -> Headers:
    if given is None:
        return ()
    if isinstance(given, dict):
        given = list(given.items())
    if not isinstance(given, list):
        raise BadMessage('"headers" is no list of pairs, such as [["name", "value"]]')
    return tuple(_header(pair) for pair in given)


def _header(pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise BadMessage('"headers" has something that is no pair, such as ["name", "value"]')
    name, value = pair
    if not isinstance(name, str):
        raise BadMessage("a header's name is not text: this client writes no others")
    _encoded(name, "headers")
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return name, _decoded(value["base64"], "base64")
    return name, _encoded(value, f"headers: {name}")


def _encoded(value: object, name: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadMessage(f'"{name}" is neither text nor null; an object or a number is written as text')
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise BadMessage(f'"{name}" has half a character (a lone surrogate)') from None


def _decoded(value: object, name: str) -> bytes:
    try:
        if isinstance(value, str):
            return b64decode(value, validate=True)
    except ValueError:
        pass
    raise BadMessage(f'"{name}" is not base64')


def _integer(given: Mapping[str, object], name: str, lowest: int, highest: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise BadMessage(f'"{name}" is not a whole number from {lowest} on')
    return value
