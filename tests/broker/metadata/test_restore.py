"""A broker whose own logs were rotten, and were repaired: what it still knows, and what it can find out again."""

from pathlib import Path

import pytest
from brokers import LocalBroker

from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.tools.locate import locate
from tailrace.log.tools.repair import make_plan
from tailrace.log.tools.repair_steps import carry_out
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tailrace.records.batch import HEADER_SIZE, split

METADATA = "__tailrace_metadata-0"
GROUPS = "__consumer_offsets-0"


def rot(path: Path, wanted: list[int]) -> None:
    """Spoils some batches of a log that nobody has open, and has it repaired."""
    (log,) = path.glob("*.log")
    content = bytearray(log.read_bytes())
    for position, _ in [list(split(bytes(content)))[number] for number in wanted]:
        content[position + HEADER_SIZE : position + HEADER_SIZE + 3] = b"rot"
    log.write_bytes(content)
    files = OperatingSystemFiles()
    carry_out(files, make_plan(files, locate(files, str(path.parent))), str(path.parent), "now")


def batches_with(path: Path, *texts: bytes) -> list[int]:
    (log,) = path.glob("*.log")
    content = log.read_bytes()
    found = list(split(content))
    return [
        number
        for number, (position, header) in enumerate(found)
        if any(text in content[position : position + header.size] for text in texts)
    ]


def test_a_topic_whose_creation_was_lost_comes_back_with_its_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic(partitions=3, segment_bytes="5000000")
        broker.create_topic("other")
        broker.produce(b"kept", partition=1, producer_id=500, producer_epoch=0, base_sequence=0)
        broker.produce(b"also kept", topic="other")
    rot(tmp_path / METADATA, batches_with(tmp_path / METADATA, topic_id))
    with LocalBroker(tmp_path) as broker:
        topic = broker.broker.metadata.topics["orders"]
        assert topic.topic_id == topic_id
        assert topic.partition_count == 2, "as far as there were logs"
        assert broker.values(partition=1) == [b"kept"]
        assert broker.values("other") == [b"also kept"]
        assert "restored from the partitions' logs" in caplog.text
        assert broker.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id > 500
        caplog.clear()
        broker.restart()
        assert "brought back" not in caplog.text, "once is enough"
        assert broker.values(partition=1) == [b"kept"]


def test_all_of_the_metadata_can_be_lost(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"kept")
        broker.kill()
    (log,) = (tmp_path / METADATA).glob("*.log")
    rot(tmp_path / METADATA, list(range(len(list(split(log.read_bytes()))))))
    with LocalBroker(tmp_path) as broker:
        assert broker.values() == [b"kept"]
        assert broker.broker.metadata.cluster_id
        assert broker.broker.metadata.leader_epoch == 1, "epochs are not given twice either"
        broker.produce(b"more")
        broker.kill()
        assert broker.values() == [b"kept", b"more"]


def test_changes_of_a_topic_that_is_unknown_are_passed_over(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        broker.delete_topic()
    created = batches_with(tmp_path / METADATA, topic_id)[:1]
    rot(tmp_path / METADATA, created)
    with LocalBroker(tmp_path) as broker:
        assert "orders" not in broker.broker.metadata.topics


def commit(broker: LocalBroker, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
    broker.ask(OffsetCommitRequest(group_id="readers", topics=[topic]), 8)


def committed(broker: LocalBroker) -> int:
    answer = broker.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="readers", topics=None)]), 8)
    (topic,) = answer.groups[0].topics
    return int(topic.partitions[0].committed_offset)


@pytest.mark.parametrize(("lost", "left"), [(-1, 2), (0, 3)], ids=["the last", "an earlier one"])
def test_a_commit_that_was_lost_leaves_the_one_before_it(tmp_path: Path, lost: int, left: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        for offset in (1, 2, 3):
            commit(broker, offset)
    rot(tmp_path / GROUPS, [batches_with(tmp_path / GROUPS, b"readers")[lost]])
    with LocalBroker(tmp_path) as broker:
        assert committed(broker) == left
        commit(broker, 9)
        broker.restart()
        assert committed(broker) == 9
