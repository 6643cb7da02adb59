"""Records of consumer groups: byte for byte Kafka's, in both directions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.values import messages, texts

from tailrace.broker.groups.consumer_records import (
    AssignedPartitions,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerChange,
    GroupEpochChanged,
    GroupEpochValue,
    MemberAssignmentChanged,
    MemberAssignmentValue,
    MemberChanged,
    MemberTargetChanged,
    MemberTargetValue,
    MemberValue,
    PatternResolved,
    PatternValue,
    TargetEpochChanged,
    TargetEpochValue,
    TargetPartitions,
)
from tailrace.broker.groups.record_kinds import KINDS
from tailrace.broker.groups.records import UnreadableRecord, decode, encode
from tailrace.records.record import Record

TIME = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
MEMBER: dict[str, Any] = {"client_id": "c", "client_host": "/127.0.0.1", "subscribed_names": ["t"]}
MEMBER["rebalance_timeout_ms"] = 300_000
CLASSIC = ClassicMemberMetadata(session_timeout_ms=45_000, protocols=[ClassicProtocol(name="range", metadata=b"xx")])

# By the schemas of Kafka 4.3.
KAFKAS = [
    (
        GroupEpochChanged("g", GroupEpochValue(epoch=2, metadata_hash=5)),
        "0003000167",
        "0000000000020100080000000000000005",
    ),
    (
        MemberChanged("g", "m", MemberValue(**MEMBER)),
        "000500016700016d",
        "0000000002630b2f3132372e302e302e3102027400000493e00000",
    ),
    (
        MemberChanged("g", "m", MemberValue(**MEMBER, subscribed_pattern="", classic=CLASSIC)),
        "000500016700016d",
        "0000000002630b2f3132372e302e302e3102027401000493e000010011010000afc8020672616e67650378780000",
    ),
    (
        TargetEpochChanged("g", TargetEpochValue(assignment_epoch=2, assignment_timestamp=1000)),
        "0006000167",
        "00000000000201000800000000000003e8",
    ),
    (
        MemberTargetChanged(
            "g",
            "m",
            MemberTargetValue(topic_partitions=[TargetPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]),
        ),
        "000700016700016d",
        "000002000102030405060708090a0b0c0d0e0f0300000000000000010000",
    ),
    (
        MemberAssignmentChanged(
            "g",
            "m",
            MemberAssignmentValue(
                member_epoch=2,
                previous_member_epoch=1,
                assigned=[AssignedPartitions(topic_id=TOPIC_ID, partitions=[0, 1], assignment_epochs=[2, 2])],
            ),
        ),
        "000800016700016d",
        "000000000002000000010002000102030405060708090a0b0c0d0e0f0300000000000000010100090300000002000000020100",
    ),
    (
        PatternResolved("g", "a.*", PatternValue(topics=["ab"], version=3, timestamp=1000)),
        "00100001670003612e2a",
        "000002036162000000000000000300000000000003e800",
    ),
]


@pytest.mark.parametrize(("change", "key", "value"), KAFKAS)
def test_a_record_is_written_and_read_as_kafka_does(change: ConsumerChange, key: str, value: str) -> None:
    record = Record(0, TIME, bytes.fromhex(key), bytes.fromhex(value))
    assert encode(change, TIME) == record
    assert decode(record) == change


@pytest.mark.parametrize(("change", "key", "value"), KAFKAS)
def test_a_change_without_a_value_is_a_record_without_one(change: ConsumerChange, key: str, value: str) -> None:
    removed = change._replace(value=None)
    record = Record(0, TIME, bytes.fromhex(key))
    assert encode(removed, TIME) == record
    assert decode(record) == removed


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), group=texts, other=texts)
def test_a_record_is_read_as_it_was_written(kind: int, data: st.DataObject, group: str, other: str) -> None:
    described = KINDS[kind]
    value = data.draw(st.none() | messages(described.value, 0))
    names = [group, other][: len(described.change._fields) - 1]
    made: Any = described.change
    change = made(*names, value)
    assert decode(encode(change, TIME)) == change


@pytest.mark.parametrize(("change", "key", "value"), KAFKAS)
def test_a_record_that_ends_too_early_is_unreadable(change: ConsumerChange, key: str, value: str) -> None:
    whole = bytes.fromhex(value)
    for length in range(len(whole)):
        with pytest.raises(UnreadableRecord):
            decode(Record(0, TIME, bytes.fromhex(key), whole[:length]))
