"""AlterReplicaLogDirs (key 34): moves replicas between the log directories of a broker.

Behaviour: there is one log directory. A replica that is to go where it is stays there, which is no error; any other
directory is unknown. A partition named twice is answered once, for the directory that was named last.

Versions 1-2.
    2   flexible
Not done: nothing, with one directory.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, call: Call, broker: "Broker"
) -> AlterReplicaLogDirsResponse:
    targets = {
        (topic.name, index): target.path
        for target in request.dirs
        for topic in target.topics
        for index in topic.partitions
    }
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), path in targets.items():
        result = results.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        code = _outcome(name, index, path, broker)
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _outcome(name: str, index: int, path: str, broker: "Broker") -> int:
    if path != broker.directory.path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = broker.topic(name)
    is_there = topic is not None and 0 <= index < topic.partition_count
    return 0 if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, alter_replica_log_dirs, frame_bytes_max=1 << 20)
