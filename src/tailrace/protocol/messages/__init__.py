"""The messages that we speak, by API key: this list, with the versions that each class declares, is all of it."""

from enum import IntEnum
from typing import Any

from tailrace.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from tailrace.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tailrace.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tailrace.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tailrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tailrace.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tailrace.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tailrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tailrace.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tailrace.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tailrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tailrace.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from tailrace.protocol.messages.produce import ProduceRequest, ProduceResponse
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


REQUESTS: dict[int, type[Any]] = {
    ApiKey.PRODUCE: ProduceRequest,
    ApiKey.FETCH: FetchRequest,
    ApiKey.LIST_OFFSETS: ListOffsetsRequest,
    ApiKey.METADATA: MetadataRequest,
    ApiKey.OFFSET_COMMIT: OffsetCommitRequest,
    ApiKey.OFFSET_FETCH: OffsetFetchRequest,
    ApiKey.FIND_COORDINATOR: FindCoordinatorRequest,
    ApiKey.JOIN_GROUP: JoinGroupRequest,
    ApiKey.HEARTBEAT: HeartbeatRequest,
    ApiKey.LEAVE_GROUP: LeaveGroupRequest,
    ApiKey.SYNC_GROUP: SyncGroupRequest,
    ApiKey.DESCRIBE_GROUPS: DescribeGroupsRequest,
    ApiKey.LIST_GROUPS: ListGroupsRequest,
    ApiKey.API_VERSIONS: ApiVersionsRequest,
    ApiKey.CREATE_TOPICS: CreateTopicsRequest,
    ApiKey.DELETE_TOPICS: DeleteTopicsRequest,
    ApiKey.DELETE_RECORDS: DeleteRecordsRequest,
    ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest,
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest,
    ApiKey.ALTER_CONFIGS: AlterConfigsRequest,
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest,
    ApiKey.DELETE_GROUPS: DeleteGroupsRequest,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsRequest,
    ApiKey.OFFSET_DELETE: OffsetDeleteRequest,
    ApiKey.DESCRIBE_CLUSTER: DescribeClusterRequest,
    ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesRequest,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsRequest,
}


RESPONSES: dict[int, type[Any]] = {
    ApiKey.PRODUCE: ProduceResponse,
    ApiKey.FETCH: FetchResponse,
    ApiKey.LIST_OFFSETS: ListOffsetsResponse,
    ApiKey.METADATA: MetadataResponse,
    ApiKey.OFFSET_COMMIT: OffsetCommitResponse,
    ApiKey.OFFSET_FETCH: OffsetFetchResponse,
    ApiKey.FIND_COORDINATOR: FindCoordinatorResponse,
    ApiKey.JOIN_GROUP: JoinGroupResponse,
    ApiKey.HEARTBEAT: HeartbeatResponse,
    ApiKey.LEAVE_GROUP: LeaveGroupResponse,
    ApiKey.SYNC_GROUP: SyncGroupResponse,
    ApiKey.DESCRIBE_GROUPS: DescribeGroupsResponse,
    ApiKey.LIST_GROUPS: ListGroupsResponse,
    ApiKey.API_VERSIONS: ApiVersionsResponse,
    ApiKey.CREATE_TOPICS: CreateTopicsResponse,
    ApiKey.DELETE_TOPICS: DeleteTopicsResponse,
    ApiKey.DELETE_RECORDS: DeleteRecordsResponse,
    ApiKey.INIT_PRODUCER_ID: InitProducerIdResponse,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochResponse,
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsResponse,
    ApiKey.ALTER_CONFIGS: AlterConfigsResponse,
    ApiKey.CREATE_PARTITIONS: CreatePartitionsResponse,
    ApiKey.DELETE_GROUPS: DeleteGroupsResponse,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsResponse,
    ApiKey.OFFSET_DELETE: OffsetDeleteResponse,
    ApiKey.DESCRIBE_CLUSTER: DescribeClusterResponse,
    ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesResponse,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsResponse,
}
