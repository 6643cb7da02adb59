"""For each API, the well-formed requests that cost the most: as many elements as it takes, of the slowest kind.

They speak of a broker with many topics, one of many partitions, and many groups.
"""

from typing import Any

from brokers import a_batch, from_offset
from raw_client import NOW_AND_THEN_MS

from tailrace.broker.apis.registry import APIS
from tailrace.protocol.messages import alter_client_quotas as quota
from tailrace.protocol.messages import alter_partition_reassignments as moving
from tailrace.protocol.messages import create_partitions as partitions
from tailrace.protocol.messages import create_topics as creation
from tailrace.protocol.messages import delete_records as records
from tailrace.protocol.messages import delete_topics as deletion
from tailrace.protocol.messages import describe_configs as configs
from tailrace.protocol.messages import describe_topic_partitions as descriptions
from tailrace.protocol.messages import fetch, list_offsets, metadata, offset_for_leader_epoch, produce
from tailrace.protocol.messages import incremental_alter_configs as alteration
from tailrace.protocol.messages import offset_commit as commits
from tailrace.protocol.messages import offset_delete as forgetting
from tailrace.protocol.messages import offset_fetch as offsets
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest
from tailrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tailrace.protocol.messages.describe_producers import DescribeProducersRequest
from tailrace.protocol.messages.describe_producers import TopicRequest as DescribedProducers
from tailrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tailrace.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tailrace.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tailrace.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tailrace.protocol.messages.list_groups import ListGroupsRequest

TOPICS = 2000  # t0, t1, …
MANY = "many"  # a topic
MANY_PARTITIONS = 10_000
WITH_DATA = 50  # partitions of it that have a log
GROUPS = 300  # group-0, group-1, …
COMMITTED = 100  # partitions of the large topic, by each group

Worst = dict[str, tuple[Any, int]]


def worst_requests() -> Worst:
    """By name: the request and its version. In an order in which none spoils the next."""
    return {**_reading(), **_configs(), **_administration(), **_of_groups(), **_changing()}


def _reading() -> Worst:
    names = [metadata.MetadataRequestTopic(name=f"unknown-{n}") for n in range(limit(3))]
    known = [metadata.MetadataRequestTopic(name=f"t{n}") for n in range(TOPICS)]
    return {
        "metadata: unknown names": (metadata.MetadataRequest(topics=names, allow_auto_topic_creation=False), 12),
        "metadata: all with operations": (
            metadata.MetadataRequest(topics=known, include_topic_authorized_operations=True),
            12,
        ),
        "fetch: one partition again and again": (_fetch([from_offset(0, 0)] * (limit(1) - 1)), 12),
        "fetch: parked": (_fetch([from_offset(0, n + WITH_DATA) for n in range(limit(1) - WITH_DATA)], 10), 12),
        "fetch: a topic for each partition": (
            fetch.FetchRequest(
                max_wait_ms=0,
                topics=[fetch.FetchTopic(topic=f"t{n}", partitions=[from_offset(0)]) for n in range(limit(1) // 2)],
            ),
            12,
        ),
        "list offsets: the end": (_offsets(-1), 7),
        "list offsets: a time": (_offsets(5), 7),
        "epochs": (
            offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                topics=[
                    offset_for_leader_epoch.OffsetForLeaderTopic(
                        topic=MANY,
                        partitions=[
                            offset_for_leader_epoch.OffsetForLeaderPartition(partition=n, leader_epoch=0)
                            for n in range(min(limit(23) - 1, MANY_PARTITIONS))
                        ],
                    )
                ]
            ),
            4,
        ),
        "describe partitions: unknown names": (
            descriptions.DescribeTopicPartitionsRequest(
                topics=[descriptions.TopicRequest(name=f"unknown-{n}") for n in range(limit(75))],
                response_partition_limit=2000,
            ),
            0,
        ),
        "describe partitions: all": (
            descriptions.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000),
            0,
        ),
    }


def commit_request(group: str, count: int) -> Any:
    """Of as many partitions of the large topic."""
    partitions = [
        commits.OffsetCommitRequestPartition(partition_index=n, committed_offset=n, committed_metadata="x")
        for n in range(count)
    ]
    topics = [commits.OffsetCommitRequestTopic(name=MANY, partitions=partitions)]
    return commits.OffsetCommitRequest(group_id=group, topics=topics)


def _of_groups() -> Worst:
    names = [f"group-{n}" for n in range(GROUPS)]
    indexes = list(range(limit(9) - 3))
    one = [offsets.OffsetFetchRequestTopics(name=MANY, partition_indexes=indexes)]
    doomed = [
        forgetting.OffsetDeleteRequestTopic(
            name=MANY,
            partitions=[forgetting.OffsetDeleteRequestPartition(partition_index=n) for n in range(limit(47) - 1)],
        )
    ]
    return {
        "offset commit": (commit_request("large", limit(8) - 1), 8),
        "offset fetch: many partitions": (
            offsets.OffsetFetchRequest(groups=[offsets.OffsetFetchRequestGroup(group_id="large", topics=one)]),
            8,
        ),
        "offset fetch: all of many groups": (
            offsets.OffsetFetchRequest(
                groups=[offsets.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
            ),
            8,
        ),
        "describe groups": (DescribeGroupsRequest(groups=[*names, *names][: limit(15)]), 5),
        "list groups": (ListGroupsRequest(), 4),
        "offset delete": (forgetting.OffsetDeleteRequest(group_id="large", topics=doomed), 0),
        "delete groups": (DeleteGroupsRequest(groups_names=names), 2),
    }


def _configs() -> Worst:
    parts = ",".join(map(str, range(2500)))
    room = APIS[44].frame_bytes_max // (len(parts) + 100)
    return {
        "describe configs: a broker again and again": (_describe_configs(4, lambda n: "1"), 4),
        "describe configs: topics": (_describe_configs(2, lambda n: f"t{n % TOPICS}"), 4),
        "list config resources": (ListConfigResourcesRequest(resource_types=[2] * limit(74)), 1),
        "alter configs: long lists": (_alter("leader.replication.throttled.replicas", 2, parts, room), 1),
        "alter configs": (_alter("retention.ms", 0, "1000", min(limit(44) // 2, TOPICS)), 1),
    }


def _administration() -> Worst:
    indexes = list(range(MANY_PARTITIONS))
    moved = [moving.ReassignablePartition(partition_index=n, replicas=[1]) for n in range(limit(45) // 2 - 1)]
    quotas = [
        quota.EntryData(
            entity=[quota.EntityData(entity_type="client-id", entity_name=f"client-{n}")],
            ops=[quota.OpData(key="producer_byte_rate", value=1e12)],
        )
        for n in range(limit(49) // 3)
    ]
    producers = [DescribedProducers(name=MANY, partition_indexes=indexes[: limit(61) - 1])]
    elected = [TopicPartitions(topic=MANY, partitions=indexes[: limit(43) - 1])]
    return {
        "log directories": (DescribeLogDirsRequest(topics=None), 4),
        "producers": (DescribeProducersRequest(topics=producers), 0),
        "elect leaders": (ElectLeadersRequest(topic_partitions=elected), 2),
        "reassign": (
            moving.AlterPartitionReassignmentsRequest(topics=[moving.ReassignableTopic(name=MANY, partitions=moved)]),
            1,
        ),
        "transactions": (DescribeTransactionsRequest(transactional_ids=["x"] * limit(65)), 0),
        "create acls": (CreateAclsRequest(creations=[AclCreation(principal="User:a")] * limit(30)), 3),
        "users": (DescribeUserScramCredentialsRequest(users=[UserName(name=f"u{n}") for n in range(limit(50))]), 0),
        "alter quotas": (quota.AlterClientQuotasRequest(entries=quotas), 1),
        "describe quotas": (DescribeClientQuotasRequest(components=[]), 1),
    }


def _changing() -> Worst:
    batch = bytes(a_batch(b"x", now_ms=NOW_AND_THEN_MS))
    new = [metadata.MetadataRequestTopic(name=f"new-{n}") for n in range(limit(3))]
    return {
        "produce": (_produce([n % WITH_DATA for n in range(limit(0) - 1)], batch), 12),
        "delete records": (
            records.DeleteRecordsRequest(
                topics=[
                    records.DeleteRecordsTopic(
                        name=MANY,
                        partitions=[
                            records.DeleteRecordsPartition(partition_index=n, offset=0) for n in range(limit(21) - 1)
                        ],
                    )
                ]
            ),
            2,
        ),
        "metadata: names to create": (metadata.MetadataRequest(topics=new), 12),
        "create topics": (
            creation.CreateTopicsRequest(
                topics=[
                    creation.CreatableTopic(name=f"created-{n}", num_partitions=1, replication_factor=1)
                    for n in range(limit(19))
                ]
            ),
            7,
        ),
        "create partitions": (
            partitions.CreatePartitionsRequest(
                topics=[
                    partitions.CreatePartitionsTopic(name=f"t{n}", count=2, assignments=None) for n in range(TOPICS)
                ]
            ),
            3,
        ),
        "delete topics": (
            deletion.DeleteTopicsRequest(
                topics=[deletion.DeleteTopicState(name=f"t{n}") for n in range(min(limit(20), TOPICS))]
            ),
            6,
        ),
    }


def limit(key: int) -> int:
    return APIS[key].elements_max


def _fetch(wanted: list[Any], max_wait_ms: int = 0) -> Any:
    topic = fetch.FetchTopic(topic=MANY, partitions=wanted)
    return fetch.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=50 << 20, topics=[topic])


def _offsets(timestamp: int) -> Any:
    wanted = [
        list_offsets.ListOffsetsPartition(partition_index=n, timestamp=timestamp)
        for n in range(min(limit(2) - 1, MANY_PARTITIONS))
    ]
    return list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(name=MANY, partitions=wanted)])


def _describe_configs(kind: int, name: Any) -> Any:
    resources = [
        configs.DescribeConfigsResource(resource_type=kind, resource_name=name(n), configuration_keys=None)
        for n in range(limit(32))
    ]
    return configs.DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def _alter(key: str, operation: int, value: str, count: int) -> Any:
    change = alteration.AlterableConfig(name=key, config_operation=operation, value=value)
    resources = [
        alteration.AlterConfigsResource(resource_type=2, resource_name=f"t{n}", configs=[change]) for n in range(count)
    ]
    return alteration.IncrementalAlterConfigsRequest(resources=resources)


def _produce(indexes: list[int], batch: bytes) -> Any:
    data = [produce.PartitionProduceData(index=index, records=batch) for index in indexes]
    topic = produce.TopicProduceData(name=MANY, partition_data=data)
    return produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
