"""Records of share groups: byte for byte Kafka's, in both directions."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import parts
import pytest

from tailrace.broker.groups.consumer_records import MemberTargetValue, TargetEpochValue, TargetPartitions
from tailrace.broker.groups.records import Change, UnreadableRecord, decode, encode
from tailrace.broker.groups.share_records import (
    DeletedTopic,
    ShareAssignmentChanged,
    ShareAssignmentValue,
    ShareChange,
    ShareEpochChanged,
    ShareEpochValue,
    ShareMemberChanged,
    ShareMemberValue,
    SharePartitions,
    ShareTargetChanged,
    ShareTargetEpochChanged,
    StatePartitionsChanged,
    StatePartitionsValue,
    StateTopic,
)
from tailrace.records.record import Record, encode_batch

TIME = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
MEMBER: dict[str, Any] = {"client_id": "c", "client_host": "/127.0.0.1", "subscribed_names": ["t"]}
TOPIC = StateTopic(topic_id=TOPIC_ID, topic_name="t", partitions=[0])

# By the schemas of Kafka 4.3.
KAFKAS: list[tuple[Change, str, str]] = [
    (
        ShareMemberChanged("g", "m", ShareMemberValue(**MEMBER)),
        "000a00016700016d",
        "00000002630b2f3132372e302e302e3102027400",
    ),
    (
        ShareMemberChanged("g", "m", ShareMemberValue(**MEMBER, rack_id="r")),
        "000a00016700016d",
        "0000027202630b2f3132372e302e302e3102027400",
    ),
    (ShareEpochChanged("g", ShareEpochValue(epoch=2, metadata_hash=5)), "000b000167", "000000000002000000000000000500"),
    (
        ShareTargetEpochChanged("g", TargetEpochValue(assignment_epoch=2, assignment_timestamp=1000)),
        "000c000167",
        "00000000000201000800000000000003e8",
    ),
    (
        ShareTargetChanged(
            "g", "m", MemberTargetValue(topic_partitions=[TargetPartitions(topic_id=TOPIC_ID, partitions=[0, 1])])
        ),
        "000d00016700016d",
        "000002000102030405060708090a0b0c0d0e0f0300000000000000010000",
    ),
    (
        ShareAssignmentChanged(
            "g",
            "m",
            ShareAssignmentValue(
                member_epoch=2,
                previous_member_epoch=1,
                assigned=[SharePartitions(topic_id=TOPIC_ID, partitions=[0, 1])],
            ),
        ),
        "000e00016700016d",
        "000000000002000000010002000102030405060708090a0b0c0d0e0f0300000000000000010000",
    ),
    (
        StatePartitionsChanged("g", StatePartitionsValue(initialized=[TOPIC])),
        "000f000167",
        "00000102000102030405060708090a0b0c0d0e0f02740200000000000100",
    ),
]


@pytest.mark.parametrize(("change", "key", "value"), KAFKAS)
def test_a_record_is_written_and_read_as_kafka_does(change: ShareChange, key: str, value: str) -> None:
    record = Record(0, TIME, bytes.fromhex(key), bytes.fromhex(value))
    assert encode(change, TIME) == record
    assert decode(record) == change


@pytest.mark.parametrize(("change", "key", "value"), KAFKAS)
def test_a_change_without_a_value_is_a_record_without_one(change: ShareChange, key: str, value: str) -> None:
    removed = change._replace(value=None)
    record = Record(0, TIME, bytes.fromhex(key))
    assert encode(removed, TIME) == record
    assert decode(record) == removed


@pytest.mark.parametrize(("change", "key", "value"), KAFKAS)
def test_a_record_that_ends_too_early_is_unreadable(change: ShareChange, key: str, value: str) -> None:
    whole = bytes.fromhex(value)
    for length in range(len(whole)):
        with pytest.raises(UnreadableRecord):
            decode(Record(0, TIME, bytes.fromhex(key), whole[:length]))


@pytest.mark.needs("kafka")
def test_kafka_s_dump_tool_reads_our_records(tmp_path: Path) -> None:
    states = StatePartitionsValue(
        initializing=[TOPIC], initialized=[TOPIC], deleting=[DeletedTopic(topic_id=TOPIC_ID, topic_name="u")]
    )
    changes = [change for change, _, _ in KAFKAS] + [StatePartitionsChanged("g", states)]
    records = [encode(change, TIME)._replace(offset=number) for number, change in enumerate(changes)]
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(encode_batch(records))
    command = ["java", "-cp", f"{parts.kafka_jars()}/*", "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder"]
    said = subprocess.run([*command, "--files", str(segment)], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\| offset: \d+ .* key: (\{.*\}) payload: (.*)$", said, flags=re.MULTILINE)

    of_group, of_member = {"group": "g"}, {"group": "g", "member": "m"}
    keys = [json.loads(key) for key, _ in found]
    assert [int(key["type"]) for key in keys] == [10, 10, 11, 12, 13, 14, 15, 15]
    assert [list(key["data"].values()) for key in keys] == [
        list((of_member if int(key["type"]) in (10, 13, 14) else of_group).values()) for key in keys
    ]
    uuid = "AAECAwQFBgcICQoLDA0ODw"
    member = {"clientId": "c", "clientHost": "/127.0.0.1", "subscribedTopicNames": ["t"]}
    topic = {"topicId": uuid, "topicName": "t", "partitions": [0]}
    assert [json.loads(payload)["data"] for _, payload in found] == [
        {"rackId": None, **member},
        {"rackId": "r", **member},
        {"epoch": 2, "metadataHash": 5},
        {"assignmentEpoch": 2, "assignmentTimestamp": 1000},
        {"topicPartitions": [{"topicId": uuid, "partitions": [0, 1]}]},
        {
            "memberEpoch": 2,
            "previousMemberEpoch": 1,
            "state": 0,
            "assignedPartitions": [{"topicId": uuid, "partitions": [0, 1]}],
        },
        {"initializingTopics": [], "initializedTopics": [topic], "deletingTopics": []},
        {
            "initializingTopics": [topic],
            "initializedTopics": [topic],
            "deletingTopics": [{"topicId": uuid, "topicName": "u"}],
        },
    ]
