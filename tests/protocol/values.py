"""Messages for tests: which there are, and any value that a version of one can carry."""

from typing import Any

from hypothesis import strategies as st

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Field
from tailrace.protocol.message import Structure, parse_versions, specification_of, versions_of
from tailrace.protocol.messages import REQUESTS, RESPONSES

OWN_TAGS_FROM = 10_000  # Kafka's own tags are far below
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
MESSAGES: list[type[Any]] = [*REQUESTS.values(), *RESPONSES.values()]
EACH_VERSION = [
    (message, version)
    for message in MESSAGES
    for version in range(versions_of(message).first, versions_of(message).last + 1)
]
EACH_NAME = [f"{message.__name__}-v{version}" for message, version in EACH_VERSION]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["", "x" * 126, "y" * 127, "é" * 200]
)
blobs = st.binary(max_size=40) | st.sampled_from([b"", b"r" * 127, b"r" * 20_000])


def fields_at(structure: type[Any], version: int) -> dict[str, Field]:
    """The fields that this version has, in their order."""
    fields = specification_of(structure).fields.items()
    return {name: field for name, field in fields if version in parse_versions(field.versions)}


def is_own_tag(field: Field) -> bool:
    return field.tag is not None and field.tag >= OWN_TAGS_FROM


def reset_own_tags(value: Any, version: int) -> None:
    """Takes the tagged fields that are ours out of a message."""
    for name, field in fields_at(type(value), version).items():
        held = getattr(value, name)
        if is_own_tag(field):
            setattr(value, name, field.default)
        for inner in held if isinstance(held, list) else [held]:
            if isinstance(inner, Structure):
                reset_own_tags(inner, version)


def full(structure: type[Any], version: int) -> Any:
    """A message with two elements in every array, every tagged field and nothing null or at its default."""
    return structure(**{name: _full(field, version) for name, field in fields_at(structure, version).items()})


def _full(field: Field, version: int) -> Any:
    if field.kind == "array":
        element = field.of
        return [full(element, version) if isinstance(element, type) else _full(element, version) for _ in range(2)]
    if field.kind == "nested":
        return full(field.of, version)
    others = {
        "boolean": True,
        "string": "abc",
        "byte_string": b"bytes",
        "records": b"records",
        "uuid": b"0123456789abcdef",
    }
    return others.get(field.kind, 5)


def messages(message: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Any message of this version, with the other fields at their defaults."""
    return _structures(message, version)


def _structures(structure: type[Any], version: int) -> st.SearchStrategy[Any]:
    values = {name: _values(name, field, version) for name, field in fields_at(structure, version).items()}
    return st.builds(structure, **values)


def _values(name: str, field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _present(name, field, version)
    if field.kind == "nested" and field.tag is not None:
        # Written or not, it means the same; None is how it is read.
        return st.none() | values.filter(lambda value: value != type(value)())
    if version in parse_versions(field.null) and (field.tag is None or field.default is None):
        return st.none() | values
    return values


def _present(name: str, field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.kind == "array":
        element = field.of
        of = _structures(element, version) if isinstance(element, type) else _values("", element, version)
        return st.lists(of, max_size=3)
    if field.kind == "nested":
        return _structures(field.of, version)
    return _primitives(name, field.kind)


def _primitives(name: str, kind: str) -> st.SearchStrategy[Any]:
    if name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if name in ("timestamp", "log_append_time_ms"):
        return st.just(-1) | st.integers(0, 250_000_000_000_000)  # what kio can hold as a date
    if name == "transaction_start_time_ms":
        return st.integers(0, 250_000_000_000_000)
    if name in ("retention_time_ms", "session_lifetime_ms"):
        return st.integers(-1_000_000_000_000, 1_000_000_000_000)  # what it holds as a duration, to the millisecond
    if kind == "uint16":
        return st.integers(0, (1 << 16) - 1)
    if kind in BITS:
        limit = 1 << BITS[kind] - 1
        return st.integers(-limit, limit - 1)
    others = {
        "boolean": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "string": texts,
        "byte_string": blobs,
        "records": blobs,
        "uuid": st.binary(min_size=16, max_size=16),
    }
    return others[kind]
