"""Decorators that turn a class with declared fields into a message: slots, a constructor, a specification.

    @message(key=3, versions="0-13", flexible="9+")
    class MetadataRequest:
        topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, null="1+")

A message has versions of its own and perhaps an API key; a structure is a part of messages and has the version of
the message that it is in. Importing a message class costs little: its constructor is compiled when the first
instance is made, its readers and writers when the first one is read or written.
"""

from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from tailrace.protocol.codegen import Source
from tailrace.protocol.fields import Empty, Field, Fresh

T = TypeVar("T")

VERSION_MAX = 0x7FFF  # an int16 on the wire
_UNSET: Any = object()


class Versions:
    """A range of versions, both ends included."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __repr__(self) -> str:
        return f"{self.first}-{self.last}"


_parsed: dict[str | None, Versions] = {None: Versions(0, -1)}


def parse_versions(text: str | None) -> Versions:
    """Returns the range that "4+", "0-12" or "7" means; an empty one for None."""
    found = _parsed.get(text)
    if found is None:
        assert text is not None
        first, dash, last = text.partition("-")
        if text.endswith("+"):
            found = Versions(int(text[:-1]), VERSION_MAX)
        else:
            found = Versions(int(first), int(last if dash else first))
        _parsed[text] = found
    return found


class Specification:
    """What a message class declares. A structure has neither key nor versions of its own."""

    __slots__ = ("fields", "flexible", "key", "versions")

    def __init__(self, fields: dict[str, Field], versions: Versions, flexible: Versions, key: int | None) -> None:
        self.fields = fields
        self.versions = versions
        self.flexible = flexible
        self.key = key


class Structure:
    """The base of all messages and structures. Two are equal if all fields are. `repr` leaves out fields at their
    default.
    """

    __slots__: tuple[str, ...] = ()
    __specification__: Specification

    def __init__(self, **values: Any) -> None:
        """Replaces itself by a compiled constructor, and calls that."""
        made = type(self)
        made.__init__ = _compile_constructor(made)  # type: ignore[method-assign]
        made.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        plain = type(self)()
        values = ((name, getattr(self, name)) for name in self.__slots__)
        shown = ", ".join(f"{name}={value!r}" for name, value in values if value != getattr(plain, name))
        return f"{type(self).__name__}({shown})"


def specification_of(made: type[Any]) -> Specification:
    specification: Specification = made.__specification__
    return specification


def versions_of(made: type[Any]) -> Versions:
    """Returns the versions of a message class that can be read and written."""
    return specification_of(made).versions


def is_flexible(made: type[Any], version: int) -> bool:
    """Returns whether this version of a message has compact lengths and tagged fields (KIP-482)."""
    return version in specification_of(made).flexible


def has_field(field: Field, version: int) -> bool:
    return version in parse_versions(field.versions)


def may_be_null(field: Field, version: int) -> bool:
    return version in parse_versions(field.null)


def tagged_fields(made: type[Any], version: int) -> list[tuple[str, Field]]:
    """Returns the tagged fields of this version, with their names, in the order of their tags."""
    fields = specification_of(made).fields.items()
    found = [(name, field) for name, field in fields if field.tag is not None and has_field(field, version)]
    return sorted(found, key=lambda named: named[1].tag or 0)


@dataclass_transform(kw_only_default=True)
def structure(described: type[T]) -> type[T]:
    """Declares a part of messages, with slots and a constructor with keyword arguments."""
    return _build(described, None, None, None)


@dataclass_transform(kw_only_default=True)
def message(*, versions: str, flexible: str | None = None, key: int | None = None) -> Callable[[type[T]], type[T]]:
    """Declares a whole message: the body of a request or response; or, without a key, of a record of our own."""
    return lambda described: _build(described, versions, flexible, key)


def _build(described: type[T], versions: str | None, flexible: str | None, key: int | None) -> type[T]:
    fields: dict[str, Field] = {}
    namespace: dict[str, Any] = {}
    for name, value in vars(described).items():
        if isinstance(value, Field):
            fields[name] = value
        elif name not in ("__dict__", "__weakref__"):
            namespace[name] = value
    namespace["__slots__"] = tuple(fields)
    namespace["__specification__"] = Specification(fields, parse_versions(versions), parse_versions(flexible), key)
    made: Any = type(described.__name__, (Structure,), namespace)
    return made  # type: ignore[no-any-return]


def default_text(field: Field, source: Source) -> str:
    """Returns an expression for the field's default. It creates a new object each time if the default is mutable."""
    if field.default is Empty:
        return "[]"
    if field.default is Fresh:
        return f"{source.name(field.of.__name__, field.of)}()"
    return repr(field.default)


def _compile_constructor(made: type[Any]) -> Callable[..., None]:
    source = Source(f"{made.__name__}()", {"_UNSET": _UNSET})
    fields = specification_of(made).fields
    changing = {name: default_text(field, source) for name, field in fields.items() if isinstance(field.default, type)}
    parameters = [f"{name}={'_UNSET' if name in changing else repr(field.default)}" for name, field in fields.items()]
    with source.block(f"def __init__(self, {', '.join(['*', *parameters]) if parameters else ''}):"):
        for name in fields:
            value = f"{changing[name]} if {name} is _UNSET else {name}" if name in changing else name
            source.line(f"self.{name} = {value}")
        if not fields:
            source.line("pass")
    return source.function("__init__")
