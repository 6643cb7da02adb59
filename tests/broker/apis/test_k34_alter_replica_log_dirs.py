"""AlterReplicaLogDirs: to where a replica is, and to nowhere else. The same was asked of Kafka 4.3.1."""

from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

UNKNOWN, NO_DIRECTORY = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LOG_DIR_NOT_FOUND


def move(broker: LocalBroker, version: int, *dirs: tuple[str, dict[str, list[int]]]) -> dict[str, dict[int, int]]:
    asked: list[Any] = [
        AlterReplicaLogDir(
            path=path, topics=[AlterReplicaLogDirTopic(name=one, partitions=topics[one]) for one in topics]
        )
        for path, topics in dirs
    ]
    response = broker.ask(AlterReplicaLogDirsRequest(dirs=asked), version)
    return {
        result.topic_name: {one.partition_index: one.error_code for one in result.partitions}
        for result in response.results
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_may_go_to_where_it_is(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", 2)
        here = broker.broker.directory.path
        assert move(broker, version, (here, {"orders": [0, 1, 1]})) == {"orders": {0: 0, 1: 0}}
        assert move(broker, version, (here, {"orders": [2, -1], "others": [0]})) == {
            "orders": {2: UNKNOWN, -1: UNKNOWN},
            "others": {0: UNKNOWN},
        }
        assert move(broker, version) == {}


@pytest.mark.parametrize("path", ["/nowhere", "relative", ""])
def test_another_directory_is_unknown_also_for_a_topic_that_is(tmp_path: Path, path: str) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", 1)
        here = broker.broker.directory.path
        expected = {"orders": {0: NO_DIRECTORY}, "others": {0: NO_DIRECTORY}}
        assert move(broker, 2, (here, {"orders": [0]}), (path, {"orders": [0], "others": [0]})) == expected
