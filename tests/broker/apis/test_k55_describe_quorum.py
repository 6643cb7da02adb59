"""DescribeQuorum: what Kafka 4.3.1 with one node answers to the same requests."""

from pathlib import Path

import pytest
from brokers import ENDPOINT, LocalBroker

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

METADATA = "__cluster_metadata"


def a_request(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            TopicData(topic_name=name, partitions=[PartitionData(partition_index=index) for index in ids])
            for name, ids in topics
        ]
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_this_broker_leads_and_is_the_only_voter(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path, {"node.id": "7"}) as broker:
        broker.create_topic("orders", 1)
        response = broker.ask(a_request((METADATA, [0])), version)
        ((partition,),) = [topic.partitions for topic in response.topics]
        assert (response.error_code, partition.error_code, partition.leader_id) == (0, 0, 7)
        log = broker.broker.metadata_log.log
        assert partition.leader_epoch == log.leader_epoch >= 0
        assert partition.high_watermark == log.high_watermark > 0
        (voter,) = partition.current_voters
        assert (voter.replica_id, voter.log_end_offset) == (7, log.end_offset)
        assert (voter.last_caught_up_timestamp > 0) == (version > 0)
        assert partition.observers == []
        nodes = [(node.node_id, [(one.host, one.port) for one in node.listeners]) for node in response.nodes]
        assert nodes == ([(7, [(ENDPOINT.host, ENDPOINT.port)])] if version == 2 else [])


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "topics",
    [
        [("orders", [0])],
        [(METADATA, [1])],
        [(METADATA, [0, 1])],
        [(METADATA, [0, 0])],
        [(METADATA, [0]), ("orders", [0])],
        [(METADATA, [])],
        [],
    ],
)
def test_with_anything_else_in_a_request_all_of_it_is_unknown(
    tmp_path: Path, version: int, topics: list[tuple[str, list[int]]]
) -> None:
    with LocalBroker(tmp_path) as broker:
        response = broker.ask(a_request(*topics), version)
        assert (response.error_code, response.nodes) == (0, [])
        assert [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in response.topics] == (
            topics
        )
        codes = {one.error_code for topic in response.topics for one in topic.partitions}
        assert codes <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
