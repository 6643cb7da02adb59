"""Records of `__consumer_offsets`: byte for byte Kafka's, in both directions; what is not ours is passed over."""

import json
import re
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import parts
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.values import fields_at, messages, texts

from tailrace.broker.groups.records import (
    GroupMetadataValue,
    GroupRemoved,
    GroupSaved,
    MemberMetadata,
    OfAnotherKind,
    OffsetCommitted,
    OffsetCommitValue,
    OffsetRemoved,
    UnreadableRecord,
    decode,
    encode_group,
    encode_offset,
    partition_of,
)
from tailrace.protocol import codec
from tailrace.records.record import Record, encode_batch

TIME = 1_700_000_000_000
TOPIC_ID = b"0123456789abcdef"

# Written by Kafka 4.3.1's own classes (org.apache.kafka.coordinator.group.generated): of the two messages below as much
# as each version has.
LEGACY_OFFSET_KEY = bytes.fromhex("000000076772c3bc70706500066f726465727300000007")
OFFSET_KEY = bytes.fromhex("000100076772c3bc70706500066f726465727300000007")
GROUP_KEY = bytes.fromhex("000200076772c3bc707065")
OFFSETS = [
    bytes.fromhex("00000000011f71fb04cb00046e6f74650000018bcfe56800"),
    bytes.fromhex("00010000011f71fb04cb00046e6f74650000018bcfe568000000018bcfe58f0f"),
    bytes.fromhex("00020000011f71fb04cb00046e6f74650000018bcfe56800"),
    bytes.fromhex("00030000011f71fb04cb0000000500046e6f74650000018bcfe56800"),
    bytes.fromhex("00040000011f71fb04cb00000005056e6f74650000018bcfe5680001001030313233343536373839616263646566"),
]
GROUPS = [
    bytes.fromhex(
        "00000008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d31000163000a2f3132372e302e302e310000afc8"
        "00000003000102000000010300036d2d32000000022f68000000010000000000000000"
    ),
    bytes.fromhex(
        "00010008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d31000163000a2f3132372e302e302e31000493e0"
        "0000afc800000003000102000000010300036d2d32000000022f68ffffffff000000010000000000000000"
    ),
    bytes.fromhex(
        "00020008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568010000000200036d2d31000163000a2f3132372e30"
        "2e302e31000493e00000afc800000003000102000000010300036d2d32000000022f68ffffffff000000010000000000000000"
    ),
    bytes.fromhex(
        "00030008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568010000000200036d2d310003692d31000163000a2f"
        "3132372e302e302e31000493e00000afc800000003000102000000010300036d2d32ffff000000022f68ffffffff00000001000000000000"
        "0000"
    ),
    bytes.fromhex(
        "000409636f6e73756d6572000000030672616e6765046d2d310000018bcfe5680103046d2d3104692d3102630b2f3132372e302e302e3100"
        "0493e00000afc804000102020300046d2d320001032f68ffffffff0000000101010000"
    ),
]
NOBODY = bytes.fromhex("0003000000000000ffffffffffffffffffffffff00000000")

OFFSET = OffsetCommitValue(
    offset=1_234_567_890_123,
    leader_epoch=5,
    metadata="note",
    commit_timestamp=TIME,
    expire_timestamp=TIME + 9_999,
    topic_id=TOPIC_ID,
)
MEMBER = MemberMetadata(
    member_id="m-1",
    group_instance_id="i-1",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout=300_000,
    session_timeout=45_000,
    subscription=b"\0\1\2",
    assignment=b"\3",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m-1",
    current_state_timestamp=TIME + 1,
    members=[MEMBER, MemberMetadata(member_id="m-2", client_host="/h", session_timeout=1)],
)


def only_of(version: int, value: Any) -> Any:
    """As much of the structure as this version has, the rest at its defaults."""
    kept = {name: getattr(value, name) for name in fields_at(type(value), version)}
    if "members" in kept:
        kept["members"] = [only_of(version, member) for member in kept["members"]]
    return type(value)(**kept)


each_version = pytest.mark.parametrize("version", range(5))


@each_version
def test_offsets_that_kafka_wrote_are_read(version: int) -> None:
    expected = only_of(version, OFFSET)
    for key in (LEGACY_OFFSET_KEY, OFFSET_KEY):
        read = decode(Record(0, TIME, key, OFFSETS[version]))
        assert read == OffsetCommitted("grüppe", "orders", 7, expected)
        assert decode(Record(0, TIME, key)) == OffsetRemoved("grüppe", "orders", 7)
    assert codec.encode(expected, version) == OFFSETS[version][2:]


@each_version
def test_groups_that_kafka_wrote_are_read(version: int) -> None:
    expected = only_of(version, GROUP)
    assert decode(Record(0, TIME, GROUP_KEY, GROUPS[version])) == GroupSaved("grüppe", expected)
    assert decode(Record(0, TIME, GROUP_KEY)) == GroupRemoved("grüppe")
    assert codec.encode(expected, version) == GROUPS[version][2:]


@pytest.mark.parametrize("version", [1, 3, 4])
def test_an_offset_is_written_as_kafka_writes_it(version: int) -> None:
    """In the oldest version that Kafka writes and that has the values."""
    record = encode_offset("grüppe", "orders", 7, only_of(version, OFFSET), TIME)
    assert record == Record(0, TIME, OFFSET_KEY, OFFSETS[version])


def test_an_offset_that_expires_is_written_in_kafkas_version_with_an_expiry() -> None:
    assert encode_offset("grüppe", "orders", 7, OFFSET, TIME).value == OFFSETS[1]


def test_a_group_is_written_as_kafka_writes_it() -> None:
    assert encode_group("grüppe", GROUP, TIME) == Record(0, TIME, GROUP_KEY, GROUPS[3])
    assert encode_group("grüppe", GroupMetadataValue(protocol=None, leader=None), TIME).value == NOBODY


def test_what_is_removed_has_no_value() -> None:
    assert encode_offset("grüppe", "orders", 7, None, TIME) == Record(0, TIME, OFFSET_KEY, None)
    assert encode_group("grüppe", None, TIME) == Record(0, TIME, GROUP_KEY, None)


offsets = st.sampled_from([1, 3, 4]).flatmap(lambda version: messages(OffsetCommitValue, version))
groups = messages(GroupMetadataValue, 3)
keys = st.none() | st.sampled_from([OFFSET_KEY, GROUP_KEY]) | st.binary(max_size=30)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)


@given(texts, texts, int32s, st.none() | offsets)
def test_an_offset_is_read_as_it_was_written(group: str, topic: str, partition: int, value: Any) -> None:
    read = decode(encode_offset(group, topic, partition, value, TIME))
    if value is None:
        assert isinstance(read, OffsetRemoved)
        assert read == OffsetRemoved(group, topic, partition)
    else:
        assert isinstance(read, OffsetCommitted)
        assert read == OffsetCommitted(group, topic, partition, value)


@given(texts, st.none() | groups)
def test_a_group_is_read_as_it_was_written(group: str, value: Any) -> None:
    read = decode(encode_group(group, value, TIME))
    if value is None:
        assert isinstance(read, GroupRemoved)
        assert read == GroupRemoved(group)
    else:
        assert isinstance(read, GroupSaved)
        assert read == GroupSaved(group, value)


@pytest.mark.parametrize("kind", [17, 19, 23, 0x7FFF])
def test_records_of_other_kinds_of_group_are_told_apart(kind: int) -> None:
    key = struct.pack(">h", kind) + b"whatever"
    assert decode(Record(0, TIME, key, b"\0\0whatever")) == OfAnotherKind(kind)
    assert decode(Record(0, TIME, key)) == OfAnotherKind(kind)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(None, OFFSETS[3], id="no key"),
        pytest.param(b"", OFFSETS[3], id="an empty key"),
        pytest.param(b"\xff\xff" + OFFSET_KEY[2:], OFFSETS[3], id="a negative kind"),
        pytest.param(OFFSET_KEY + b"\0", OFFSETS[3], id="a key that is too long"),
        pytest.param(OFFSET_KEY, b"", id="an empty value"),
        pytest.param(OFFSET_KEY, b"\0\5" + OFFSETS[4][2:], id="a version to come"),
        pytest.param(OFFSET_KEY, b"\xff\xff" + OFFSETS[3][2:], id="a negative version"),
        pytest.param(OFFSET_KEY, GROUPS[3], id="a group for an offset"),
        pytest.param(GROUP_KEY, OFFSETS[3], id="an offset for a group"),
        pytest.param(GROUP_KEY, GROUPS[3].replace(b"range", b"r\xffnge"), id="text that is none"),
    ],
)
def test_garbage_is_unreadable(key: bytes | None, value: bytes) -> None:
    with pytest.raises(UnreadableRecord, match="record 77 "):
        decode(Record(77, TIME, key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [*((OFFSET_KEY, value) for value in OFFSETS), *((GROUP_KEY, value) for value in GROUPS)],
)
def test_a_record_cut_anywhere_is_unreadable(key: bytes, value: bytes) -> None:
    cut = [(key[:end], value) for end in range(len(key))] + [(key, value[:end]) for end in range(len(value))]
    for one in cut:
        with pytest.raises(UnreadableRecord):
            decode(Record(0, TIME, *one))


@given(keys, st.none() | st.binary(max_size=60))
def test_random_bytes_are_read_or_unreadable(key: bytes | None, value: bytes | None) -> None:
    with suppress(UnreadableRecord):
        decode(Record(0, TIME, key, value))


@pytest.mark.parametrize(
    ("group", "of_50", "of_7"),
    [
        ("", 0, 0),
        ("a", 47, 6),
        ("orders-group", 17, 3),  # whose hash is negative
        ("polygenelubricants", 0, 0),  # whose hash is the least int of all
        ("grüppe", 12, 3),
        ("🚀 rocket", 21, 5),  # two units of UTF-16, then one each
        ("\uffff\uffff\uffff", 5, 6),
        ("x" * 39, 46, 5),
    ],
)
def test_a_group_has_the_partition_that_kafka_gives_it(group: str, of_50: int, of_7: int) -> None:
    """As Kafka 4.3.1 computes them: `Utils.abs(group.hashCode()) % count`."""
    assert (partition_of(group, 50), partition_of(group, 7), partition_of(group, 1)) == (of_50, of_7, 0)


@pytest.mark.needs("kafka")
def test_kafka_s_dump_tool_reads_our_records(tmp_path: Path) -> None:
    records = [
        encode_offset("g", "orders", 7, only_of(3, OFFSET), TIME),
        encode_offset("g", "orders", 7, only_of(4, OFFSET), TIME),
        encode_offset("g", "orders", 7, only_of(1, OFFSET), TIME),
        encode_offset("g", "orders", 7, None, TIME),
        encode_group("g", GROUP, TIME),
        encode_group("g", None, TIME),
    ]
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(encode_batch([record._replace(offset=n) for n, record in enumerate(records)]))
    command = ["java", "-cp", f"{parts.kafka_jars()}/*", "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder"]
    said = subprocess.run([*command, "--files", str(segment)], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\| offset: \d+ .* key: (\{.*\}) payload: (.*)$", said, flags=re.MULTILINE)

    offset_key = {"type": "1", "data": {"group": "g", "topic": "orders", "partition": 7}}
    group_key = {"type": "2", "data": {"group": "g"}}
    assert [json.loads(key) for key, _ in found] == [offset_key] * 4 + [group_key] * 2

    payloads = [None if payload == "<DELETE>" else json.loads(payload) for _, payload in found]
    plain = {"offset": OFFSET.offset, "metadata": "note", "commitTimestamp": TIME}
    assert payloads == [
        {"version": "3", "data": plain | {"leaderEpoch": 5}},
        {"version": "4", "data": plain | {"leaderEpoch": 5, "topicId": "MDEyMzQ1Njc4OWFiY2RlZg"}},
        {"version": "1", "data": plain | {"expireTimestamp": TIME + 9_999}},
        None,
        {
            "version": "3",
            "data": {
                "protocolType": "consumer",
                "generation": 3,
                "protocol": "range",
                "leader": "m-1",
                "currentStateTimestamp": TIME + 1,
                "members": [
                    {
                        "memberId": "m-1",
                        "groupInstanceId": "i-1",
                        "clientId": "c",
                        "clientHost": "/127.0.0.1",
                        "rebalanceTimeout": 300_000,
                        "sessionTimeout": 45_000,
                        "subscription": "AAEC",
                        "assignment": "Aw==",
                    },
                    {
                        "memberId": "m-2",
                        "groupInstanceId": None,
                        "clientId": "",
                        "clientHost": "/h",
                        "rebalanceTimeout": -1,
                        "sessionTimeout": 1,
                        "subscription": "",
                        "assignment": "",
                    },
                ],
            },
        },
        None,
    ]
