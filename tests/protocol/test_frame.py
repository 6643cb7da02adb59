"""Headers: which of them have tagged fields, and what can be answered although it cannot be read."""

import io
import struct

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from tailrace.protocol.codec import encode
from tailrace.protocol.errors import Malformed
from tailrace.protocol.frame import RequestHeader, decode_response, encode_request, read_request_header, response_header
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse


@pytest.mark.parametrize(("version", "kio_header"), [(8, KioHeader1), (9, KioHeader2)])
@pytest.mark.parametrize("client_id", ["a client", "", None, "é" * 200])
def test_a_header_is_what_kio_writes(version: int, kio_header: type, client_id: str | None) -> None:
    buffer = io.BytesIO()
    theirs = kio_header(
        request_api_key=i16(3), request_api_version=i16(version), correlation_id=i32(77), client_id=client_id
    )
    entity_writer(kio_header)(buffer, theirs)
    header = buffer.getvalue()
    assert read_request_header(header) == RequestHeader(3, version, 77, client_id, len(header))
    frame = encode_request(MetadataRequest(), version, 77, client_id)
    body = encode(MetadataRequest(), version)
    assert frame == struct.pack(">i", len(header) + len(body)) + header + body


def test_tagged_fields_of_a_header_are_skipped() -> None:
    data = struct.pack(">hhih", 3, 9, 1, 1) + b"c" + b"\x01\x63\x03abc" + b"body"
    assert data[read_request_header(memoryview(data)).body :] == b"body"


@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.API_VERSIONS, 5), (ApiKey.API_VERSIONS, 0x7FFF), (999, 0), (ApiKey.METADATA, -1)]
)
def test_nothing_behind_the_client_id_is_looked_at_where_we_lack_the_version(key: int, version: int) -> None:
    data = struct.pack(">hhih", key, version, 5, 1) + b"c" + b"\xff\xff\xff\xff\xff\xff\xff"
    assert read_request_header(data) == RequestHeader(key, version, 5, "c", 11)


@pytest.mark.parametrize("size", [-2, -32_768, 2, 32_767])
def test_a_client_id_of_an_impossible_length_is_malformed(size: int) -> None:
    with pytest.raises(Malformed, match="client id"):
        read_request_header(struct.pack(">hhih", 3, 1, 0, size) + b"c")


def test_a_client_id_that_is_no_utf_8_is_malformed() -> None:
    with pytest.raises(Malformed, match="UTF-8"):
        read_request_header(struct.pack(">hhih", 3, 1, 0, 1) + b"\xff")


def test_a_header_cut_anywhere_is_malformed() -> None:
    whole = encode_request(MetadataRequest(), 12, 1, "client")[4:]
    for end in range(read_request_header(whole).body):
        with pytest.raises(Malformed):
            read_request_header(whole[:end])


def test_only_flexible_answers_have_tags_in_their_header() -> None:
    assert response_header(ApiKey.METADATA, 8, 7) == b"\0\0\0\7"
    assert response_header(ApiKey.METADATA, 9, 7) == b"\0\0\0\7\0"


@pytest.mark.parametrize("version", [0, 2, 3, 4, 99])
def test_the_answer_to_api_versions_has_the_oldest_header(version: int) -> None:
    assert response_header(ApiKey.API_VERSIONS, version, 7) == b"\0\0\0\7"


@pytest.mark.parametrize("version", [8, 9])
def test_a_client_reads_what_a_broker_answers(version: int) -> None:
    answer = MetadataResponse(controller_id=5)
    frame = response_header(ApiKey.METADATA, version, -3) + encode(answer, version)
    assert decode_response(MetadataResponse, version, frame) == (-3, answer)
    for end in range(len(frame)):
        with pytest.raises(Malformed):
            decode_response(MetadataResponse, version, frame[:end])


def test_a_client_reads_the_answer_to_api_versions() -> None:
    answer = ApiVersionsResponse(throttle_time_ms=1)
    frame = response_header(ApiKey.API_VERSIONS, 4, 1) + encode(answer, 4)
    assert decode_response(ApiVersionsResponse, 4, frame) == (1, answer)


def test_a_request_to_api_versions_has_tags_in_its_header() -> None:
    frame = encode_request(ApiVersionsRequest(client_software_name="x"), 4, 1, None)
    assert frame[4:15] == struct.pack(">hhih", 18, 4, 1, -1) + b"\0"
