"""Request and response headers, and the length in front of both.

A flexible request has a header with tagged fields, and so has its response. The exception is the response to
ApiVersions: a client reads it before it knows what the broker supports.
"""

import struct
from typing import NamedTuple, TypeVar

from tailrace.protocol.codec import decode, encode
from tailrace.protocol.errors import Malformed
from tailrace.protocol.message import is_flexible, specification_of
from tailrace.protocol.messages import SPOKEN, ApiKey
from tailrace.protocol.primitives import TAGS_MAX, Buffer, skip_tags

T = TypeVar("T")

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhih")  # key, version, correlation id, length of the client id
_RESPONSE = struct.Struct(">i")
_RESPONSE_WITH_TAGS = struct.Struct(">ix")  # the tags: none

# The flexible versions of each API, by key and version.
_FLEXIBLE = frozenset(
    (int(key), version)
    for key, spoken in SPOKEN.items()
    for version in range(spoken.versions.first, spoken.versions.last + 1)
    if version in spoken.flexible
)


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int  # where the message begins


def read_request_header(buffer: Buffer) -> RequestHeader:
    """Decodes the header of a request without its length. Raises Malformed if it is invalid.

    If the API or version is unknown, nothing behind the client id is read: the broker can respond to such a request,
    but not read its body.
    """
    try:
        key, version, correlation_id, size = _REQUEST.unpack_from(buffer)
        client_id, position = _client_id(buffer, size)
        if (key, version) in _FLEXIBLE:
            tags = buffer[position]
            position += 1
            if tags:
                position, _ = skip_tags(tags, buffer, position, len(buffer), TAGS_MAX)
    except (struct.error, IndexError):
        raise Malformed(f"{len(buffer)} bytes are too few for a request header") from None
    return RequestHeader(key, version, correlation_id, client_id, position)


def _client_id(buffer: Buffer, size: int) -> tuple[str | None, int]:
    start = _REQUEST.size
    if size == -1:
        return None, start
    end = start + size
    if size < 0 or end > len(buffer):
        raise Malformed(f"a client id of {size} bytes, but {len(buffer) - start} are left")
    try:
        return str(buffer[start:end], "utf-8"), end
    except UnicodeDecodeError:
        raise Malformed("the client id is not UTF-8") from None


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Returns the bytes between the length and the body of a response to that request."""
    if (api_key, version) in _FLEXIBLE and api_key != ApiKey.API_VERSIONS:
        return _RESPONSE_WITH_TAGS.pack(correlation_id)
    return _RESPONSE.pack(correlation_id)


def encode_request(message: object, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encodes a whole request, with its length, as a client sends it."""
    kind = type(message)
    key = specification_of(kind).key
    if key is None:
        raise ValueError(f"{kind.__name__} is not a request")
    name = b"" if client_id is None else client_id.encode()
    header = _REQUEST.pack(key, version, correlation_id, -1 if client_id is None else len(name)) + name
    if is_flexible(kind, version):
        header += b"\0"
    body = encode(message, version)
    return _LENGTH.pack(len(header) + len(body)) + header + body


def decode_response(message: type[T], version: int, frame: Buffer) -> tuple[int, T]:
    """Decodes a response without its length, as a client reads it. Returns the correlation id and the message."""
    try:
        (correlation_id,) = _RESPONSE.unpack_from(frame)
        position = _RESPONSE.size
        if specification_of(message).key != ApiKey.API_VERSIONS and is_flexible(message, version):
            tags = frame[position]
            position, _ = skip_tags(tags, frame, position + 1, len(frame), TAGS_MAX)
    except (struct.error, IndexError):
        raise Malformed(f"{len(frame)} bytes are too few for a response header") from None
    return correlation_id, decode(message, version, frame, position)
