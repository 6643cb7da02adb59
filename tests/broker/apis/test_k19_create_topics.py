"""CreateTopics: what is created, what is refused, and that it is on disk before it is answered."""

from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, resolved

from tailrace.broker.configs.registry import ConfigSource
from tailrace.broker.configs.tables import TOPIC_KEYS
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tailrace.testing.faulty_files import FaultyFiles

VERSIONS = range(2, 8)


def topic(
    name: str = "orders",
    partitions: int = -1,
    replicas: int = -1,
    placed: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    """A config is written with underscores for its dots."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(partition_index=n, broker_ids=on) for n, on in (placed or {}).items()],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def create(broker: LocalBroker, *topics: CreatableTopic, version: int = 7, **fields: Any) -> dict[str, Any]:
    """The results by their names."""
    response = broker.ask(CreateTopicsRequest(topics=list(topics), **fields), version)
    assert len({result.name for result in response.topics}) == len(response.topics)
    return {result.name: result for result in response.topics}


def refusal(broker: LocalBroker, wanted: CreatableTopic, version: int = 7) -> int:
    result = create(broker, wanted, version=version)[wanted.name]
    assert result.error_message
    assert (result.num_partitions, result.replication_factor, result.topic_id) == (-1, -1, ZERO_UUID)
    return int(result.error_code)


# What is created


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_created_as_the_request_says(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        result = create(broker, topic("orders", 3, 1, retention_ms="1000"), version=version)["orders"]
        made = broker.broker.metadata.topics["orders"]
        assert (result.error_code, result.error_message) == (0, None)
        assert (made.partition_count, made.overrides) == (3, {"retention.ms": "1000"})
        assert result.topic_id == (made.topic_id if version >= 7 else ZERO_UUID)
        assert (result.num_partitions, result.replication_factor) == ((3, 1) if version >= 5 else (-1, -1))
        assert len(result.configs) == (len(TOPIC_KEYS) if version >= 5 else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_minus_one_is_the_default_in_every_version(tmp_path: Path, version: int) -> None:
    """Pitfall 41."""
    with LocalBroker(tmp_path, {"num.partitions": "4"}) as broker:
        assert create(broker, topic("orders"), version=version)["orders"].error_code == 0
        assert broker.broker.metadata.topics["orders"].partition_count == 4


def test_the_answer_has_every_config_and_where_its_value_comes_from(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"log.segment.bytes": "5000000"}) as broker:
        configs = create(broker, topic("orders", retention_ms=" 1000 "))["orders"].configs
        found = {config.name: (config.value, config.config_source) for config in configs}
        assert list(found) == sorted(TOPIC_KEYS)
        assert found["retention.ms"] == ("1000", ConfigSource.TOPIC)
        assert found["segment.bytes"] == ("5000000", ConfigSource.BROKER_AT_START)
        assert found["cleanup.policy"] == ("delete", ConfigSource.DEFAULT)


def test_partitions_may_be_placed_one_by_one_on_this_broker(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        assert create(broker, topic("orders", placed={1: [1], 0: [1], 2: [1]}))["orders"].num_partitions == 3


def test_it_can_be_used_as_soon_as_it_is_answered(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        create(broker, topic("orders"))
        assert broker.produce(b"first").base_offset == 0
        assert broker.values() == [b"first"]


def test_nothing_is_on_disk_for_a_topic_until_its_first_record(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        create(broker, topic("orders", 100))
        assert not list(tmp_path.glob("orders-*"))


def test_a_topic_id_is_not_zero_and_no_two_are_alike(tmp_path: Path) -> None:
    """Pitfall 11."""
    with LocalBroker(tmp_path) as broker:
        results = create(broker, *(topic(f"topic-{n}") for n in range(50)))
        ids = {result.topic_id for result in results.values()}
        assert len(ids) == 50
        assert ZERO_UUID not in ids


def test_one_request_is_one_batch_of_the_metadata_log(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        log = broker.broker.metadata_log.log
        before = log.end_offset
        broker.hold_jobs = True
        broker.begin(CreateTopicsRequest(topics=[topic(f"topic-{n}", retention_ms="7") for n in range(10)]), 7)
        assert log.end_offset == before + 20
        piece = log.begin_flush()
        assert piece is not None
        piece.run()
        piece.finish()
        found = log.read(before, 1)
        assert found is not None
        with found:
            assert found.next_offset == before + 20, "a crash leaves all of them or none"


# When it is answered


def test_it_is_answered_when_it_is_on_disk(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.hold_jobs = True
        answers = resolved(broker.begin(CreateTopicsRequest(topics=[topic()]), 7))
        assert not answers
        broker.run_jobs()
        assert answers[0].topics[0].error_code == 0


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_topics_and_their_configs_survive(tmp_path: Path, how: str) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = create(broker, topic("orders", 3, segment_bytes="2000000"))["orders"].topic_id
        getattr(broker, how)()
        made = broker.broker.metadata.topics["orders"]
        assert (made.topic_id, made.partition_count) == (topic_id, 3)
        assert made.config.log.segment_bytes == 2_000_000


def test_a_disk_that_is_full_refuses_all_of_them(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        files.fail("write_at", ENOSPC)
        results = create(broker, topic("orders"), topic("bad name"))
        assert results["orders"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert results["bad name"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "orders" not in broker.broker.metadata.topics
        assert create(broker, topic("orders"))["orders"].error_code == 0


# What is refused


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__tailrace_metadata"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("with_dots"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("orders", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("orders", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("orders", 100_001), ErrorCode.INVALID_PARTITIONS),
        (topic("orders", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("orders", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("orders", 1, -1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("orders", -1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("orders", placed={0: [2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", placed={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", placed={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", placed={0: [1], 2: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", no_such_config="1"), ErrorCode.INVALID_CONFIG),
        (topic("orders", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("orders", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (topic("orders", compression_type="brotli"), ErrorCode.INVALID_CONFIG),
        (topic("orders", remote_storage_enable="true"), ErrorCode.INVALID_CONFIG),
        (topic("orders", min_compaction_lag_ms="10", max_compaction_lag_ms="5"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_a_topic_is_refused(tmp_path: Path, version: int, wanted: Any, code: ErrorCode) -> None:
    with LocalBroker(tmp_path) as broker:
        create(broker, topic("taken"), topic("with.dots"))
        before = broker.broker.metadata.describe()
        assert refusal(broker, wanted, version) == code
        assert broker.broker.metadata.describe() == before


def test_the_refusal_of_more_replicas_says_that_there_is_one_broker(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        assert "one broker" in create(broker, topic("orders", 1, 3))["orders"].error_message


def test_a_partition_that_is_placed_twice_is_refused(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        twice = topic("orders", placed={0: [1]})
        twice.assignments *= 2
        assert refusal(broker, twice) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("version", VERSIONS)
def test_every_topic_has_one_result_and_one_that_is_refused_holds_up_no_other(tmp_path: Path, version: int) -> None:
    """Pitfall 41."""
    with LocalBroker(tmp_path) as broker:
        results = create(broker, topic("a"), topic("twice"), topic("b b"), topic("twice"), topic("c"), version=version)
        codes = {name: result.error_code for name, result in results.items()}
        assert codes == {
            "a": 0,
            "twice": ErrorCode.INVALID_REQUEST,
            "b b": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "c": 0,
        }
        assert sorted(broker.broker.metadata.topics) == ["__tailrace_metadata", "a", "c"]


def test_of_two_topics_that_collide_as_metrics_the_second_is_refused(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        results = create(broker, topic("a.b"), topic("a_b"))
        assert results["a.b"].error_code == 0
        assert results["a_b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", VERSIONS)
def test_validate_only_says_the_same_and_creates_nothing(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        results = create(
            broker, topic("a", 3), topic("b", 0), topic("a.b"), topic("a_b"), version=version, validate_only=True
        )
        assert [result.error_code for result in results.values()] == [
            0,
            ErrorCode.INVALID_PARTITIONS,
            0,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert results["a"].num_partitions == (3 if version >= 5 else -1)
        assert results["a"].topic_id == ZERO_UUID
        assert list(broker.broker.metadata.topics) == ["__tailrace_metadata"]
