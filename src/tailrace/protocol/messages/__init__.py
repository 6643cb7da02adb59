"""The messages of the protocol, one module per API: the table of API keys and their versions.

Each API has a module of its own name, which is imported when its messages are first used. The classes declare their
versions, and the table repeats them (a test compares the two), so that ApiVersions, every client's first request, needs
none of these modules.
"""

from enum import IntEnum
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from tailrace.protocol.message import Versions, parse_versions
from tailrace.util.lazy import LazyMapping


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
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Spoken(NamedTuple):
    versions: Versions
    flexible: Versions
    advertised_from: int  # below the first version that is served, where clients require that


def _spoken(versions: str, flexible: str | None = None, *, advertised_from: int | None = None) -> Spoken:
    served = parse_versions(versions)
    return Spoken(served, parse_versions(flexible), served.first if advertised_from is None else advertised_from)


SPOKEN: dict[int, Spoken] = {
    ApiKey.PRODUCE: _spoken("3-13", "9+", advertised_from=0),
    ApiKey.FETCH: _spoken("4-18", "12+"),
    ApiKey.LIST_OFFSETS: _spoken("1-11", "6+"),
    ApiKey.METADATA: _spoken("0-13", "9+"),
    ApiKey.OFFSET_COMMIT: _spoken("2-10", "8+"),
    ApiKey.OFFSET_FETCH: _spoken("1-10", "6+"),
    ApiKey.FIND_COORDINATOR: _spoken("0-6", "3+"),
    ApiKey.JOIN_GROUP: _spoken("0-9", "6+"),
    ApiKey.HEARTBEAT: _spoken("0-4", "4+"),
    ApiKey.LEAVE_GROUP: _spoken("0-5", "4+"),
    ApiKey.SYNC_GROUP: _spoken("0-5", "4+"),
    ApiKey.DESCRIBE_GROUPS: _spoken("0-6", "5+"),
    ApiKey.LIST_GROUPS: _spoken("0-5", "3+"),
    ApiKey.SASL_HANDSHAKE: _spoken("0-1"),
    ApiKey.API_VERSIONS: _spoken("0-4", "3+"),
    ApiKey.CREATE_TOPICS: _spoken("2-7", "5+"),
    ApiKey.DELETE_TOPICS: _spoken("1-6", "4+"),
    ApiKey.DELETE_RECORDS: _spoken("0-2", "2+"),
    ApiKey.INIT_PRODUCER_ID: _spoken("0-5", "2+"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _spoken("2-4", "4+"),
    ApiKey.ADD_PARTITIONS_TO_TXN: _spoken("0-3", "3+"),
    ApiKey.ADD_OFFSETS_TO_TXN: _spoken("0-4", "3+"),
    ApiKey.END_TXN: _spoken("0-5", "3+"),
    ApiKey.WRITE_TXN_MARKERS: _spoken("1-2", "1+"),
    ApiKey.TXN_OFFSET_COMMIT: _spoken("0-5", "3+"),
    ApiKey.DESCRIBE_ACLS: _spoken("1-3", "2+"),
    ApiKey.CREATE_ACLS: _spoken("1-3", "2+"),
    ApiKey.DELETE_ACLS: _spoken("1-3", "2+"),
    ApiKey.DESCRIBE_CONFIGS: _spoken("1-4", "4+"),
    ApiKey.ALTER_CONFIGS: _spoken("0-2", "2+"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _spoken("1-2", "2+"),
    ApiKey.DESCRIBE_LOG_DIRS: _spoken("1-5", "2+"),
    ApiKey.SASL_AUTHENTICATE: _spoken("0-2", "2+"),
    ApiKey.CREATE_PARTITIONS: _spoken("0-3", "2+"),
    ApiKey.DELETE_GROUPS: _spoken("0-2", "2+"),
    ApiKey.ELECT_LEADERS: _spoken("0-2", "2+"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _spoken("0-1", "1+"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _spoken("0-1", "0+"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _spoken("0", "0+"),
    ApiKey.OFFSET_DELETE: _spoken("0"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _spoken("0-1", "1+"),
    ApiKey.ALTER_CLIENT_QUOTAS: _spoken("0-1", "1+"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _spoken("0", "0+"),
    ApiKey.DESCRIBE_QUORUM: _spoken("0-2", "0+"),
    ApiKey.DESCRIBE_CLUSTER: _spoken("0-2", "0+"),
    ApiKey.DESCRIBE_PRODUCERS: _spoken("0", "0+"),
    ApiKey.DESCRIBE_TRANSACTIONS: _spoken("0", "0+"),
    ApiKey.LIST_TRANSACTIONS: _spoken("0-2", "0+"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _spoken("0-1", "0+"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _spoken("0-1", "0+"),
    ApiKey.LIST_CONFIG_RESOURCES: _spoken("0-1", "0+"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _spoken("0", "0+"),
    ApiKey.SHARE_GROUP_HEARTBEAT: _spoken("1", "0+"),
    ApiKey.SHARE_GROUP_DESCRIBE: _spoken("1", "0+"),
    ApiKey.SHARE_FETCH: _spoken("1-2", "0+"),
    ApiKey.SHARE_ACKNOWLEDGE: _spoken("1-2", "0+"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _spoken("0-1", "0+"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _spoken("0", "0+"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _spoken("0", "0+"),
}


def _class_of(kind: str, key: int) -> type[Any]:
    """Returns the class of an API, such as DescribeGroupsRequest in `describe_groups`."""
    name = ApiKey(key).name
    found: type[Any] = getattr(import_module(f"{__name__}.{name.lower()}"), name.title().replace("_", "") + kind)
    return found


REQUESTS = LazyMapping(SPOKEN, partial(_class_of, "Request"))
RESPONSES = LazyMapping(SPOKEN, partial(_class_of, "Response"))
