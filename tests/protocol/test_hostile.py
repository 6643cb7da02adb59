"""Bytes that nobody should send: reading them raises Malformed or gives a message, and takes little memory."""

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.values import EACH_NAME, EACH_VERSION, full

from tailrace.protocol.codec import ELEMENTS_MAX, decode, encode
from tailrace.protocol.errors import Malformed
from tailrace.protocol.frame import read_request_header
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest
from tailrace.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.protocol.messages.produce import ProduceRequest

# What a length, a count, a tag or a marker might be replaced with: null, the largest, a bit more than there is.
REPLACEMENTS = [
    b"\x00",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff",
]
HUGE = b"\xff\xff\xff\xff\x0f"  # 2^32 - 1 as a compact length
ELEVEN_EMPTY_NAMES = struct.pack(">i", 11) + bytes(22) + bytes(4)


def read_or_refuse(message: type[Any], version: int, data: bytes) -> None:
    """Any other exception fails the test."""
    with suppress(Malformed):
        decode(message, version, data)


def peak_bytes(message: type[Any], version: int, data: bytes) -> int:
    """The most memory that refusing these bytes took, besides what is compiled once."""
    read_or_refuse(message, version, data)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decode(message, version, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("message", "version"), EACH_VERSION, ids=EACH_NAME)
def test_a_message_cut_anywhere_is_malformed(message: type[Any], version: int) -> None:
    data = encode(full(message, version), version)
    for end in range(len(data)):
        with pytest.raises(Malformed):
            decode(message, version, data[:end])


@pytest.mark.parametrize(("message", "version"), EACH_VERSION, ids=EACH_NAME)
def test_a_message_with_a_byte_too_many_is_malformed(message: type[Any], version: int) -> None:
    with pytest.raises(Malformed, match="behind"):
        decode(message, version, encode(full(message, version), version) + b"\0")


def replaced(data: bytes) -> Iterator[bytes]:
    for position in range(len(data)):
        left = len(data) - position
        for replacement in [*REPLACEMENTS, bytes([left & 0x7F]), bytes([left + 1 & 0x7F])]:
            yield data[:position] + replacement + data[position + len(replacement) :]


@pytest.mark.parametrize(("message", "version"), EACH_VERSION, ids=EACH_NAME)
def test_a_message_with_any_length_replaced_is_read_or_malformed(message: type[Any], version: int) -> None:
    for data in replaced(encode(full(message, version), version)):
        read_or_refuse(message, version, data)


@given(st.sampled_from(EACH_VERSION), st.data())
@settings(max_examples=300, deadline=None)
def test_a_message_with_random_changes_is_read_or_malformed(chosen: tuple[type[Any], int], data: Any) -> None:
    message, version = chosen
    changed = bytearray(encode(full(message, version), version))
    for _ in range(data.draw(st.integers(1, 5))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(message, version, bytes(changed))


@given(st.sampled_from(EACH_VERSION), st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_read_or_malformed(chosen: tuple[type[Any], int], data: bytes) -> None:
    read_or_refuse(*chosen, data)


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_a_request_header_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        assert read_request_header(data).body <= len(data)


@pytest.mark.parametrize(
    ("message", "version", "data"),
    [
        pytest.param(MetadataRequest, 12, HUGE, id="compact count"),
        pytest.param(MetadataRequest, 12, HUGE + bytes(1_000), id="compact count with some bytes"),
        pytest.param(MetadataRequest, 1, b"\x7f\xff\xff\xff", id="count"),
        pytest.param(InitProducerIdRequest, 4, HUGE, id="compact string"),
        pytest.param(ProduceRequest, 9, b"\0\0\1\0\0\0\0\2\1\2\0\0\0\0" + HUGE, id="records"),
        pytest.param(FetchRequest, 16, bytes(21) + b"\1\1\1" + HUGE, id="tags"),
        pytest.param(FetchRequest, 16, bytes(21) + b"\1\1\1\1\5" + HUGE, id="size of a tag"),
    ],
)
def test_a_huge_length_allocates_nothing(message: type[Any], version: int, data: bytes) -> None:
    assert peak_bytes(message, version, data) < 20_000


def test_a_million_tiny_elements_are_refused_before_they_are_made() -> None:
    data = struct.pack(">i", 1_000_000) + bytes(2_000_000) + bytes(4)
    assert peak_bytes(DeleteTopicsRequest, 1, data) < 20_000


def test_the_budget_of_elements_is_one_for_the_whole_message() -> None:
    topics = 600
    topic = bytes(16) + b"\xe9\x07" + bytes(33 * 1_000) + b"\0"  # of a thousand partitions
    data = bytes(21) + b"\xd9\x04" + topic * topics + b"\1\1\0"
    assert topics < ELEMENTS_MAX < topics * 1_000
    with pytest.raises(Malformed, match="too many elements"):
        decode(FetchRequest, 16, data)
    assert len(decode(FetchRequest, 16, data, elements=topics * 1_001).topics) == topics


def test_elements_up_to_the_budget_are_read() -> None:
    assert decode(DeleteTopicsRequest, 1, ELEVEN_EMPTY_NAMES, elements=11).topic_names == [""] * 11
    with pytest.raises(Malformed, match="too many elements"):
        decode(DeleteTopicsRequest, 1, ELEVEN_EMPTY_NAMES, elements=10)


def test_tagged_fields_count_as_elements() -> None:
    data = b"\1\0\0\2" + b"\x08\0" + b"\x09\0"
    assert decode(MetadataRequest, 12, data, elements=2).topics == []
    with pytest.raises(Malformed, match="too many elements"):
        decode(MetadataRequest, 12, data, elements=1)


def test_more_tagged_fields_than_anyone_has_are_malformed() -> None:
    data = b"\1\0\0" + b"\xe9\x07" + b"".join(bytes([tag & 0x7F | 0x80, tag >> 7, 0]) for tag in range(1_001))
    with pytest.raises(Malformed, match="1001 tagged fields"):
        decode(MetadataRequest, 12, data)


@pytest.mark.parametrize("tags", [b"\x02\x08\0\x08\0", b"\x02\x09\0\x08\0"], ids=["twice", "descending"])
def test_tags_must_ascend(tags: bytes) -> None:
    with pytest.raises(Malformed, match="behind tag"):
        decode(MetadataRequest, 12, b"\1\0\0" + tags)


def test_an_unknown_tagged_field_is_skipped() -> None:
    assert decode(MetadataRequest, 12, b"\1\0\0\1\x63\3abc") == MetadataRequest(allow_auto_topic_creation=False)


def test_the_value_of_a_tag_must_end_where_its_size_says() -> None:
    whole = encode(FetchRequest(cluster_id="abc"), 16)
    assert whole.endswith(b"\0\4\4abc")
    with pytest.raises(Malformed, match="tag 0"):
        decode(FetchRequest, 16, whole[:-6] + b"\0\5\4abcd")


@pytest.mark.parametrize("marker", [0, 2, 0x7F, 0x80])
def test_a_marker_before_a_structure_is_one_of_two(marker: int) -> None:
    data = bytearray(encode(DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t")), 0))
    assert data[5] == 1
    data[5] = marker
    with pytest.raises(Malformed, match="marker"):
        decode(DescribeTopicPartitionsRequest, 0, data)


def test_a_string_that_is_no_utf_8_is_malformed() -> None:
    data = encode(MetadataRequest(topics=[MetadataRequestTopic(name="abc")]), 4)
    with pytest.raises(Malformed, match="UTF-8"):
        decode(MetadataRequest, 4, data.replace(b"abc", b"\xff\xfe\xfd"))


def test_a_compact_string_is_no_longer_than_another() -> None:
    text = "x" * 32_768
    with pytest.raises(ValueError, match="32768 bytes"):
        encode(InitProducerIdRequest(transactional_id=text), 4)
    written = b"\x81\x80\x02" + text.encode() + bytes(4 + 8 + 2 + 1)
    with pytest.raises(Malformed, match="32768"):
        decode(InitProducerIdRequest, 4, written)


def test_null_is_refused_where_a_version_has_none() -> None:
    with pytest.raises(Malformed, match="null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None


def test_a_version_that_we_do_not_have_is_malformed() -> None:
    with pytest.raises(Malformed, match="versions 0-13"):
        decode(MetadataRequest, 14, b"\1\0\0\0")
