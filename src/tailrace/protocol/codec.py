"""Decodes and encodes messages, with functions that `compile_reader` and `compile_writer` generate.

A function per message class and version is compiled on first use. Decoding hostile bytes raises `Malformed` and nothing
else, and allocates no more than the message can fill.
"""

import struct
from typing import Any, TypeVar

from tailrace.protocol.compile_reader import Reader, compile_reader, has_records
from tailrace.protocol.compile_writer import Writer, compile_writer
from tailrace.protocol.errors import Malformed
from tailrace.protocol.message import is_flexible, versions_of
from tailrace.protocol.primitives import Buffer, Encoded, Slice

__all__ = ["ELEMENTS_MAX", "Buffer", "Encoded", "Part", "Slice", "decode", "encode", "encode_parts", "encode_structure"]

T = TypeVar("T")
Part = Buffer | Slice

ELEMENTS_MAX = 250_000  # array elements and tagged fields of one message; each takes some hundred bytes of memory
COPIED_BYTES_MAX = 65_536  # up to this size a message is copied to `bytes`, which Python indexes faster than a view

_readers: dict[tuple[type[Any], int], Reader] = {}
_writers: dict[tuple[type[Any], int], Writer] = {}
_structure_writers: dict[tuple[type[Any], int, bool], Writer] = {}
_without_records: set[type[Any]] = set()


def decode(
    message: type[T],
    version: int,
    buffer: Buffer,
    position: int = 0,
    *,
    elements: int = ELEMENTS_MAX,
    more_may_follow: bool = False,
) -> T:
    """Decodes the message from `position` to the end of the buffer. Records in it are views of the buffer.

    Raises Malformed unless the bytes are exactly one message of this version, with at most `elements` elements.
    `more_may_follow` permits further bytes, as Kafka does in requests: librdkafka sends some behind its Metadata
    request.
    """
    read = _readers.get((message, version)) or _reader(message, version)
    end = len(buffer)
    if message in _without_records and end <= COPIED_BYTES_MAX:
        buffer = bytes(buffer)
    try:
        value, position = read(buffer, position, end, elements)
    except Malformed as error:
        raise Malformed(f"{message.__name__} v{version}: {error}") from None
    except (struct.error, IndexError) as error:
        raise Malformed(f"{message.__name__} v{version} ends too early: {error}") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"{message.__name__} v{version} has a string that is not UTF-8: {error.reason}") from None
    if position != end and not more_may_follow:
        raise Malformed(f"{end - position} extra bytes behind {message.__name__} v{version}")
    return value  # type: ignore[no-any-return]


def encode(message: object, version: int) -> bytes:
    """Encodes the message in this version. Raises ValueError if the version cannot represent a value. Records must be
    in memory.
    """
    parts: list[Any] = []
    _write(message, version, parts, [])
    return b"".join(parts)


def encode_parts(message: object, version: int) -> list[Part]:
    """Encodes the message as a list of parts: its own bytes and, between them, records as they were given, without a
    copy.

    Records of a few KB and less are copied into the bytes around them.
    """
    parts: list[Any] = []
    seams: list[int] = []
    _write(message, version, parts, seams)
    merged: list[Part] = []
    start = 0
    for seam in seams:
        merged.append(b"".join(parts[start:seam]))
        merged.append(parts[seam])
        start = seam + 1
    if start < len(parts):
        merged.append(b"".join(parts[start:]))
    return merged


def encode_structure(element: object, message: type[Any], version: int) -> bytes:
    """Encodes one structure as an element of an array of that message, for later use in an `Encoded`."""
    parts: list[Any] = []
    key = (type(element), version, is_flexible(message, version))
    write = _structure_writers.get(key)
    if write is None:
        write = _structure_writers[key] = compile_writer(*key)
    _call(write, element, parts, [])
    return b"".join(parts)


def _write(message: object, version: int, parts: list[Any], seams: list[int]) -> None:
    kind = type(message)
    _call(_writers.get((kind, version)) or _writer(kind, version), message, parts, seams)


def _call(write: Writer, message: object, parts: list[Any], seams: list[int]) -> None:
    try:
        write(message, parts, seams)
    except struct.error as error:
        raise ValueError(f"{type(message).__name__}: {error}") from error


def _reader(message: type[Any], version: int) -> Reader:
    if version not in versions_of(message):
        raise Malformed(f"{message.__name__} has versions {versions_of(message)}, not {version}")
    if not has_records(message):
        _without_records.add(message)
    read = _readers[message, version] = compile_reader(message, version, is_flexible(message, version))
    return read


def _writer(message: type[Any], version: int) -> Writer:
    if version not in versions_of(message):
        raise ValueError(f"{message.__name__} has versions {versions_of(message)}, not {version}")
    write = _writers[message, version] = compile_writer(message, version, is_flexible(message, version))
    return write
