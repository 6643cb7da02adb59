"""Our bytes against kio's, for every version of every message: the same in both directions.

kio gets bytes that we know to be well formed only: it ends the whole process on some that are not.
"""

import dataclasses
import datetime
import importlib
import io
import re
import uuid
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from protocol.values import EACH_NAME, EACH_VERSION, fields_at, is_own_tag, messages, reset_own_tags

from tailrace.protocol.codec import decode, encode, encode_parts
from tailrace.protocol.errors import ErrorCode

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
KIO_NAMES = {
    "EntryResult": "EntryData",
    "QuorumPartition": "PartitionData",
    "QuorumTopic": "TopicData",
}  # of structures that have another name here
any_values = settings(max_examples=11, deadline=None, suppress_health_check=list(HealthCheck))


def kio_module(message: type[Any], version: int) -> ModuleType:
    matched = re.fullmatch(r"(\w+)(Request|Response)", message.__name__)
    assert matched is not None
    api, side = matched.groups()
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", api).lower()
    return importlib.import_module(f"kio.schema.{name}.v{version}.{side.lower()}")


def to_kio(value: Any, version: int, module: ModuleType) -> Any:
    """The same structure as kio has it: its fields come in the same order, some under other names."""
    name = type(value).__name__
    kind = getattr(module, KIO_NAMES.get(name, name))
    ours = {field: kind for field, kind in fields_at(type(value), version).items() if not is_own_tag(kind)}
    theirs = dataclasses.fields(kind)
    assert len(ours) == len(theirs), f"{list(ours)} here, {[field.name for field in theirs]} there"
    values = {}
    for name, field in zip(ours, theirs, strict=True):
        plain = getattr(value, name)
        if plain is None and ours[name].kind == "nested" and ours[name].tag is not None:
            continue  # kio has its default
        values[field.name] = _to_kio(plain, field.metadata.get("kafka_type"), version, module)
    return kind(**values)


def _to_kio(value: Any, kind: str | None, version: int, module: ModuleType) -> Any:
    if isinstance(value, list):
        return tuple(_to_kio(element, kind, version, module) for element in value)
    if value is None or kind is None:
        return None if value is None else to_kio(value, version, module)
    conversions = {
        "uuid": lambda: uuid.UUID(bytes=value) if any(value) else None,
        "error_code": lambda: KioErrorCode(value),
        "timedelta_i64": lambda: datetime.timedelta(milliseconds=value),
        "timedelta_i32": lambda: datetime.timedelta(milliseconds=value),
        "datetime_i64": lambda: None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value),
        "records": lambda: bytes(value),
    }
    return conversions[kind]() if kind in conversions else value


def kio_bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


@pytest.mark.parametrize(("message", "version"), EACH_VERSION, ids=EACH_NAME)
@given(data=st.data())
@any_values
def test_what_we_write_is_what_kio_writes_and_we_read_it_back(message: type[Any], version: int, data: Any) -> None:
    value = data.draw(messages(message, version))
    reset_own_tags(value, version)  # kio reads no others than Kafka's
    theirs = to_kio(value, version, kio_module(message, version))
    written = encode(value, version)
    assert written == kio_bytes(theirs)
    parts: list[Any] = encode_parts(value, version)
    assert b"".join(parts) == written

    read = decode(message, version, memoryview(written))
    assert read == value
    assert encode(read, version) == written
    assert kio_bytes(entity_reader(type(theirs))(written, 0)[0]) == written


@pytest.mark.parametrize(("message", "version"), EACH_VERSION, ids=EACH_NAME)
def test_a_message_made_without_arguments_is_all_defaults(message: type[Any], version: int) -> None:
    assert decode(message, version, encode(message(), version)) == message()


def test_the_table_of_errors_agrees_with_kio() -> None:
    ours = {int(code): (code.name, code.retriable) for code in ErrorCode}
    assert ours == {int(code): (code.name.upper(), code.retriable) for code in KioErrorCode}
