"""What the codec promises besides the right bytes: parts, fragments, kinds Kafka does not use here, tracebacks."""

import subprocess
import sys
import traceback
from typing import Any

import pytest

from tailrace.protocol import codec
from tailrace.protocol.codec import Encoded, decode, encode, encode_parts, encode_structure
from tailrace.protocol.fields import array, byte_string, float64, int16, nested, string, uint16, uint32, uuid
from tailrace.protocol.message import message, structure
from tailrace.protocol.messages.describe_share_group_offsets import (
    AttemptCount,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
    QueueFacts,
)
from tailrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from tailrace.protocol.messages.share_fetch import ShareFetchRequest

TOPIC_ID = b"0123456789abcdef"


class FileRange:
    """Stands for bytes in a file: it can say how many, and nothing else."""

    def __init__(self, length: int) -> None:
        self.length = length


def response(*records: Any) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=given) for index, given in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_records_stand_in_the_parts_as_they_were_given(version: int) -> None:
    large, file_range = memoryview(bytes(10_000)), FileRange(7)
    parts = encode_parts(response(large, b"small", file_range, None, b""), version)
    assert [type(part) for part in parts] == [bytes, memoryview, bytes, FileRange, bytes]
    assert parts[1] is large
    assert parts[3] is file_range
    pieces: list[Any] = [b"7 bytes" if part is file_range else part for part in parts]
    filled = b"".join(pieces)
    assert filled == encode(response(large, b"small", b"7 bytes", None, b""), version)


def test_a_message_without_records_is_one_part() -> None:
    assert encode_parts(MetadataRequest(), 12) == [encode(MetadataRequest(), 12)]


def test_records_are_read_as_views_of_the_buffer() -> None:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"batch")])
    buffer = bytearray(encode(ProduceRequest(topic_data=[topic]), 9))
    records = decode(ProduceRequest, 9, buffer).topic_data[0].partition_data[0].records
    buffer[buffer.index(b"batch")] = ord("B")
    assert isinstance(records, memoryview)
    assert records == b"Batch"
    records[1:2] = b"A"
    assert b"BAtch" in buffer


def test_a_message_is_read_from_a_position_on() -> None:
    data = b"header" + encode(MetadataRequest(topics=None), 12)
    for buffer in (data, bytearray(data), memoryview(data)):
        assert decode(MetadataRequest, 12, buffer, 6) == MetadataRequest(topics=None)


@pytest.mark.parametrize("version", [0, 8, 9, 12])
def test_elements_encoded_before_are_written_as_if_they_were_there(version: int) -> None:
    topics = [
        MetadataResponseTopic(name=f"topic {index}", partitions=[MetadataResponsePartition(replica_nodes=[1, 2])])
        for index in range(200)
    ]
    fragments = b"".join(encode_structure(topic, MetadataResponse, version) for topic in topics)
    assert encode(MetadataResponse(topics=Encoded(200, fragments)), version) == encode(
        MetadataResponse(topics=topics), version
    )


def test_encoded_elements_have_a_length_and_nothing_to_see() -> None:
    encoded = Encoded(2, b"ab")
    assert len(encoded) == 2
    assert encoded == Encoded(2, b"ab")
    assert encoded != Encoded(2, b"cd")
    assert repr(encoded) == "Encoded(2, b'ab')"
    with pytest.raises(TypeError):
        list(encoded)


def test_a_value_that_a_version_cannot_carry_is_not_lost_in_silence() -> None:
    with pytest.raises(ValueError, match=r"MetadataRequest\.allow_auto_topic_creation is set, but version 3"):
        encode(MetadataRequest(allow_auto_topic_creation=False), 3)
    named = MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=TOPIC_ID)])
    assert decode(MetadataRequest, 3, encode(named, 3)).topics == [MetadataRequestTopic(name="t")]  # ignorable


def test_a_value_that_does_not_fit_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="MetadataResponse"):
        encode(MetadataResponse(throttle_time_ms=1 << 31), 12)
    with pytest.raises(ValueError, match="uuid"):
        encode(MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"short")]), 12)
    with pytest.raises(ValueError, match="versions 0-13, not 14"):
        encode(MetadataRequest(), 14)


def test_a_tagged_structure_that_is_all_defaults_is_not_written() -> None:
    plain = encode(response(None), 12)
    answer = response(None)
    answer.responses[0].partitions[0].current_leader = LeaderIdAndEpoch()
    assert encode(answer, 12) == plain
    answer.responses[0].partitions[0].current_leader = LeaderIdAndEpoch(leader_id=1)
    assert len(encode(answer, 12)) == len(plain) + 2 + 9
    read = decode(FetchResponse, 12, encode(answer, 12))
    assert read.responses[0].partitions == answer.responses[0].partitions


@structure
class Owner:
    name: str = string()
    epoch: int = int16(versions="1+", default=-1)


@message(versions="0-1", flexible="1+")
class OurRecord:
    """A message without a key, as our own logs hold them, with the kinds that no Kafka message here has."""

    payload: bytes = byte_string()
    comment: bytes | None = byte_string(null="0+", default=None)
    port: int = uint16()
    checksum: int = uint32()
    share: float = float64()
    ids: list[bytes] = array(uuid)
    names: list[str] = array(string)
    owner: Owner = nested(Owner)
    weights: list[float] = array(float64, versions="1+", tag=3)
    note: bytes = byte_string(versions="1+", tag=1)


@pytest.mark.parametrize("version", [0, 1])
def test_every_kind_of_field_is_read_as_it_was_written(version: int) -> None:
    record = OurRecord(
        payload=b"p" * 300,
        comment=b"",
        port=65_535,
        checksum=0xFFFFFFFF,
        share=0.5,
        ids=[TOPIC_ID, bytes(16)],
        names=["a", "", "c" * 1_000],
        owner=Owner(name="me", epoch=3 if version else -1),
        weights=[0.25, 4.0] if version else [],
        note=b"n" if version else b"",
    )
    data = encode(record, version)
    assert decode(OurRecord, version, data) == record
    assert isinstance(decode(OurRecord, version, memoryview(data)).payload, bytes)
    for end in range(len(data)):
        with pytest.raises(codec.Malformed):
            decode(OurRecord, version, data[:end])


def test_tags_are_written_in_ascending_order() -> None:
    plain = encode(OurRecord(), 1)
    assert encode(OurRecord(weights=[0.0], note=b"n"), 1) == plain[:-1] + b"\x02\x01\x02\x02n\x03\x09\x02" + bytes(8)


def test_a_traceback_shows_the_compiled_line() -> None:
    request: Any = MetadataRequest(topics=[MetadataRequestTopic(name=7)])  # type: ignore[arg-type]
    with pytest.raises(AttributeError) as caught:
        encode(request, 4)
    shown = "".join(traceback.format_exception(caught.value))
    assert "<tailrace: write MetadataRequest v4>" in shown
    assert "data = data.encode()" in shown


@pytest.mark.usefixtures("unmeasured_processes")
def test_importing_the_messages_compiles_nothing() -> None:
    script = (
        "import sys, linecache, tailrace.protocol.frame, tailrace.protocol.codec as codec;"
        "assert not codec._readers and not codec._writers;"
        "assert not [name for name in linecache.cache if 'tailrace:' in name];"
        "assert 'dataclasses' not in sys.modules and 'asyncio' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def tagged(tag: bytes, data: bytes) -> bytes:
    return b"\x01" + tag + bytes([len(data)]) + data


def test_our_tags_of_share_messages_are_written_only_where_they_are_set() -> None:
    """10000 as a varint is 90 4e, and 10001 is 91 4e."""
    plain = encode(ShareFetchRequest(), 2)
    assert plain[-1:] == b"\0"
    leased = ShareFetchRequest(lock_duration_ms=30_000)
    assert encode(leased, 2) == plain[:-1] + tagged(b"\x90\x4e", b"\0\0\x75\x30")
    assert decode(ShareFetchRequest, 2, encode(leased, 2)) == leased

    plain = encode(ShareAcknowledgeRequest(), 1)
    delayed = ShareAcknowledgeRequest(delay_ms=1)
    assert encode(delayed, 1) == plain[:-1] + tagged(b"\x91\x4e", b"\0\0\0\1")
    both = ShareAcknowledgeRequest(lock_duration_ms=0, delay_ms=0)
    assert decode(ShareAcknowledgeRequest, 1, encode(both, 1)) == both


def test_the_facts_of_an_empty_queue_differ_from_no_facts() -> None:
    def described(facts: QueueFacts | None) -> DescribeShareGroupOffsetsResponse:
        partitions = [DescribeShareGroupOffsetsResponsePartition(queue=facts)]
        topics = [DescribeShareGroupOffsetsResponseTopic(partitions=partitions)]
        return DescribeShareGroupOffsetsResponse(groups=[DescribeShareGroupOffsetsResponseGroup(topics=topics)])

    for version in (0, 1):
        for facts in (None, QueueFacts(in_flight=0, parked=0), QueueFacts(in_flight=1, attempts=[AttemptCount()])):
            data = encode(described(facts), version)
            assert decode(DescribeShareGroupOffsetsResponse, version, data) == described(facts)
