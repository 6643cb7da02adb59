"""The field types that message classes are declared with.

Each function here describes one field: the versions that have it, those in which it may be null, its tag if it is a
tagged field, its default, and whether its value may be dropped silently where a version lacks it (`ignorable`).
A version range is "4+", "0-12" or "7". To type checkers a description is the field's default value, so that every
argument of a message's constructor is optional.

Types in Python: numbers, `bool` and `str` for the kinds of these names; 16 raw `bytes` for a uuid; `bytes` for a byte
string; any object that holds bytes for records.
"""

from collections.abc import Callable
from typing import Any

ZERO_UUID = bytes(16)
EVERY = "0+"

# The struct codes of the kinds of a fixed size.
FIXED_CODES = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


class Empty:
    """The default of an array: a new empty list for each message."""


class Fresh:
    """The default of a nested structure that is not nullable: a new one, all defaults, for each message."""


class Field:
    """The description of one field in a message class. Version ranges stay text until the message is compiled."""

    __slots__ = ("default", "ignorable", "kind", "null", "of", "tag", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        default: Any,
        *,
        null: str | None = None,
        tag: int | None = None,
        ignorable: bool = False,
        of: Any = None,
    ) -> None:
        self.kind = kind
        self.versions = versions
        self.default = default
        self.null = null
        self.tag = tag
        self.ignorable = ignorable
        self.of = of  # the structure class, or the Field of a primitive


def boolean(*, versions: str = EVERY, default: bool = False, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("boolean", versions, default, tag=tag, ignorable=ignorable)


def int8(*, versions: str = EVERY, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("int8", versions, default, tag=tag, ignorable=ignorable)


def int16(*, versions: str = EVERY, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("int16", versions, default, tag=tag, ignorable=ignorable)


def uint16(*, versions: str = EVERY, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("uint16", versions, default, tag=tag, ignorable=ignorable)


def int32(*, versions: str = EVERY, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("int32", versions, default, tag=tag, ignorable=ignorable)


def uint32(*, versions: str = EVERY, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("uint32", versions, default, tag=tag, ignorable=ignorable)


def int64(*, versions: str = EVERY, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("int64", versions, default, tag=tag, ignorable=ignorable)


def float64(*, versions: str = EVERY, default: float = 0.0, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("float64", versions, default, tag=tag, ignorable=ignorable)


def uuid(*, versions: str = EVERY, default: bytes = ZERO_UUID, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("uuid", versions, default, tag=tag, ignorable=ignorable)


def string(
    *,
    versions: str = EVERY,
    null: str | None = None,
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    return Field("string", versions, default, null=null, tag=tag, ignorable=ignorable)


def byte_string(
    *,
    versions: str = EVERY,
    null: str | None = None,
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A byte string, which Kafka calls `bytes`."""
    return Field("byte_string", versions, default, null=null, tag=tag, ignorable=ignorable)


def records(*, versions: str = EVERY, null: str | None = EVERY) -> Any:
    """Record batches, not decoded: read as a view of the request; any object that holds bytes can be written."""
    return Field("records", versions, b"" if null is None else None, null=null)


def array(
    of: type[Any] | Callable[[], Any],
    *,
    versions: str = EVERY,
    null: str | None = None,
    default: type[Empty] | None = Empty,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A list of structures, or of one of the other kinds: `array(FetchTopic)`, `array(int32)`."""
    element = of if isinstance(of, type) else of()
    return Field("array", versions, default, null=null, tag=tag, ignorable=ignorable, of=element)


def nested(
    of: type[Any],
    *,
    versions: str = EVERY,
    null: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A single structure. A nullable or tagged one is None by default, and a tagged one that is None is not written."""
    default = Fresh if null is None and tag is None else None
    return Field("nested", versions, default, null=null, tag=tag, ignorable=ignorable, of=of)
