"""CreatePartitions: a topic can only grow."""

from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, resolved

from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.testing.faulty_files import FaultyFiles

VERSIONS = range(4)


def grown(name: str, count: int, *placed: list[int], is_placed: bool = False) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in placed]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments if placed or is_placed else None)


def grow(broker: LocalBroker, *topics: CreatePartitionsTopic, version: int = 3, **fields: Any) -> dict[str, int]:
    response = broker.ask(CreatePartitionsRequest(topics=list(topics), **fields), version)
    assert len({result.name for result in response.results}) == len(response.results)
    assert all(bool(result.error_message) == bool(result.error_code) for result in response.results)
    return {result.name: result.error_code for result in response.results}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_has_as_many_partitions_as_it_is_given(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", 2)
        assert broker.broker.partition("orders", 4) is None
        assert grow(broker, grown("orders", 5), version=version) == {"orders": 0}
        assert broker.produce(b"a", partition=4).base_offset == 0


def test_metadata_says_so_at_once(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", 2)
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        assert len(broker.ask(request, 12).topics[0].partitions) == 2
        grow(broker, grown("orders", 3))
        assert len(broker.ask(request, 12).topics[0].partitions) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_new_partitions_may_be_placed_on_this_broker(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", 2)
        assert grow(broker, grown("orders", 4, [1], [1]), version=version) == {"orders": 0}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (grown("orders", 2), ErrorCode.INVALID_PARTITIONS),
        (grown("orders", 1), ErrorCode.INVALID_PARTITIONS),
        (grown("orders", 0), ErrorCode.INVALID_PARTITIONS),
        (grown("orders", -1), ErrorCode.INVALID_PARTITIONS),
        (grown("orders", 100_001), ErrorCode.INVALID_PARTITIONS),
        (grown("nobody", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (grown("__tailrace_metadata", 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (grown("orders", 3, [2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (grown("orders", 3, [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (grown("orders", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (grown("orders", 4, [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (grown("orders", 3, [1], [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (grown("orders", 3, is_placed=True), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, version: int, wanted: Any, code: ErrorCode) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", 2)
        before = broker.broker.metadata.describe()
        assert grow(broker, wanted, version=version) == {wanted.name: code}
        assert broker.broker.metadata.describe() == before


@pytest.mark.parametrize("version", VERSIONS)
def test_every_topic_has_one_result_and_one_that_is_there_twice_is_refused(tmp_path: Path, version: int) -> None:
    """Pitfall 41."""
    with LocalBroker(tmp_path) as broker:
        for name in ("a", "b"):
            broker.create_topic(name)
        codes = grow(broker, grown("a", 2), grown("b", 2), grown("x", 2), grown("a", 3), version=version)
        assert codes == {"a": ErrorCode.INVALID_REQUEST, "b": 0, "x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert broker.broker.metadata.topics["a"].partition_count == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_validate_only_changes_nothing(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", 2)
        codes = grow(broker, grown("orders", 3), grown("x", 2), version=version, validate_only=True)
        assert codes == {"orders": 0, "x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert broker.broker.metadata.topics["orders"].partition_count == 2


def test_it_is_answered_when_it_is_on_disk(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        answers = resolved(broker.begin(CreatePartitionsRequest(topics=[grown("orders", 2)]), 3))
        assert not answers
        broker.run_jobs()
        assert answers[0].results[0].error_code == 0


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_partitions_survive(tmp_path: Path, how: str) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        grow(broker, grown("orders", 3))
        broker.produce(b"a", partition=2)
        getattr(broker, how)()
        assert broker.broker.metadata.topics["orders"].partition_count == 3
        assert broker.values(partition=2) == [b"a"]


def test_a_disk_that_is_full_refuses_it(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        files.fail("write_at", ENOSPC)
        assert grow(broker, grown("orders", 3)) == {"orders": ErrorCode.KAFKA_STORAGE_ERROR}
        assert broker.broker.metadata.topics["orders"].partition_count == 1
