"""IncrementalAlterConfigs: what changes, what is refused, and that it holds at once and for good."""

from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, resolved

from tailrace.broker.metadata.config_changes import Operation
from tailrace.broker.metadata.records import ConfigChanged
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.testing.faulty_files import FaultyFiles

VERSIONS = range(2)
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = Operation

Change = tuple[str, int, str | None]


def resource(kind: int, name: str, *changes: Change) -> AlterConfigsResource:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def alter(broker: LocalBroker, *resources: AlterConfigsResource, version: int = 1, **fields: Any) -> list[int]:
    response = broker.ask(IncrementalAlterConfigsRequest(resources=list(resources), **fields), version)
    assert [(one.resource_type, one.resource_name) for one in response.responses] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    assert all(bool(one.error_message) == bool(one.error_code) for one in response.responses)
    return [one.error_code for one in response.responses]


def alter_topic(broker: LocalBroker, *changes: Change, version: int = 1) -> int:
    return alter(broker, resource(TOPIC, "orders", *changes), version=version)[0]


def own(broker: LocalBroker, name: str = "orders") -> dict[str, str]:
    return broker.broker.metadata.topics[name].overrides


# Topics


@pytest.mark.parametrize("version", VERSIONS)
def test_a_config_is_set_and_taken_back(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert alter_topic(broker, ("retention.ms", SET, "7"), ("segment.ms", SET, " 9 "), version=version) == 0
        assert own(broker) == {"retention.ms": "7", "segment.ms": "9"}
        assert alter_topic(broker, ("retention.ms", DELETE, None), version=version) == 0
        assert own(broker) == {"segment.ms": "9"}


def test_it_holds_for_the_next_append(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert broker.produce(b"x" * 2000).error_code == 0
        alter_topic(broker, ("max.message.bytes", SET, "1000"), ("segment.ms", SET, "77"), ("flush.ms", SET, "5"))
        assert broker.produce(b"x" * 2000).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (broker.log().config.segment_ms, broker.log().config.flush_ms) == (77, 5)
        alter_topic(broker, ("max.message.bytes", DELETE, None))
        assert broker.produce(b"x" * 2000).error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_lists_are_added_to_and_taken_from(tmp_path: Path, version: int) -> None:
    """Pitfall 40."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for operation, value, result in [
            (APPEND, "compact", "delete,compact"),  # behind the default
            (APPEND, "compact,delete", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "nothing", "compact"),
            (SUBTRACT, "compact", ""),
            (SET, "delete, compact", "delete,compact"),
        ]:
            assert alter_topic(broker, ("cleanup.policy", operation, value), version=version) == 0
            assert own(broker) == {"cleanup.policy": result}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "-2"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", APPEND, "7"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SUBTRACT, "7"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", 4, "7"), ErrorCode.INVALID_REQUEST),
        (("cleanup.policy", APPEND, "burn"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", APPEND, None), ErrorCode.INVALID_REQUEST),
        (("compression.type", SET, "brotli"), ErrorCode.INVALID_CONFIG),
        (("log.retention.ms", SET, "7"), ErrorCode.INVALID_CONFIG),
        (("nothing", SET, "7"), ErrorCode.INVALID_CONFIG),
        (("max.compaction.lag.ms", SET, "1"), ErrorCode.INVALID_CONFIG),  # the topic's min.compaction.lag.ms is 2
    ],
)
def test_what_is_not_a_config_is_refused_with_all_that_came_with_it(
    tmp_path: Path, version: int, change: Change, code: ErrorCode
) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", min_compaction_lag_ms="2")
        assert alter_topic(broker, ("segment.ms", SET, "9"), change, version=version) == code
        assert own(broker) == {"min.compaction.lag.ms": "2"}


def test_a_list_does_not_grow_without_end(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        many = [",".join(f"{partition}:{broker}" for partition in range(3000)) for broker in range(3)]
        codes = [alter_topic(broker, ("leader.replication.throttled.replicas", APPEND, some)) for some in many]
        assert codes == [0, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_CONFIG], "32,767 bytes are the most"


def test_a_config_that_is_changed_twice_is_refused(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert alter_topic(broker, ("segment.ms", SET, "9"), ("segment.ms", DELETE, None)) == ErrorCode.INVALID_REQUEST
        assert own(broker) == {}


def test_what_is_not_there_can_be_taken_back(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert alter_topic(broker, ("retention.ms", DELETE, None), ("nothing", DELETE, "7")) == 0


def test_what_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", segment_ms="9")
        before = broker.broker.metadata_log.log.end_offset
        assert alter_topic(broker, ("retention.ms", DELETE, None), ("segment.ms", SET, "9")) == 0
        assert alter_topic(broker) == 0
        assert broker.broker.metadata_log.log.end_offset == before


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_REQUEST),
        ("__tailrace_metadata", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_topics_that_are_not_there_or_internal_are_refused(
    tmp_path: Path, version: int, name: str, code: ErrorCode
) -> None:
    with LocalBroker(tmp_path) as broker:
        assert alter(broker, resource(TOPIC, name, ("retention.ms", SET, "7")), version=version) == [code]


def test_resources_stand_for_themselves_and_each_is_named_once(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        for name in ("a", "b"):
            broker.create_topic(name)
        change: Change = ("retention.ms", SET, "7")
        resources = [resource(TOPIC, name, change) for name in ("a", "b", "nobody", "a")]
        invalid = ErrorCode.INVALID_REQUEST
        assert alter(broker, *resources) == [invalid, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, invalid]
        assert (own(broker, "a"), own(broker, "b")) == ({}, {"retention.ms": "7"})


@pytest.mark.parametrize("version", VERSIONS)
def test_validate_only_changes_nothing(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        good = resource(TOPIC, "orders", ("retention.ms", SET, "7"))
        bad = resource(BROKER, "", ("log.retention.ms", SET, "soon"))
        assert alter(broker, good, bad, version=version, validate_only=True) == [0, ErrorCode.INVALID_REQUEST]
        assert own(broker) == {}


# Brokers


@pytest.mark.parametrize("version", VERSIONS)
def test_a_brokers_value_holds_for_topics_that_have_none(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("plain")
        broker.create_topic("orders", max_message_bytes="500")
        broker.produce(b"a", topic="plain")
        all_brokers = resource(BROKER, "", ("message.max.bytes", SET, "1000"), ("log.roll.ms", SET, "5"))
        assert alter(broker, all_brokers, version=version) == [0]
        topics = broker.broker.metadata.topics
        assert (topics["plain"].config.max_message_bytes, topics["orders"].config.max_message_bytes) == (1000, 500)
        assert broker.log("plain").config.segment_ms == topics["orders"].config.log.segment_ms == 5
        this_one = resource(BROKER, "1", ("message.max.bytes", SET, "2000"))
        assert alter(broker, this_one, version=version) == [0]
        assert topics["plain"].config.max_message_bytes == 2000, "its own counts before the one for all"
        assert alter(broker, resource(BROKER, "1", ("message.max.bytes", DELETE, None)), version=version) == [0]
        assert topics["plain"].config.max_message_bytes == 1000


def test_to_take_back_what_only_a_start_sets_is_no_error(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"num.partitions": "3"}) as broker:
        assert alter(broker, resource(BROKER, "1", ("num.partitions", DELETE, None))) == [0]
        assert broker.broker.configs.number("num.partitions") == 3


def test_one_of_kafkas_that_means_nothing_here_is_refused_with_the_reason(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        changes = [resource(BROKER, "1", ("num.io.threads", SET, "8"))]
        (answer,) = broker.ask(IncrementalAlterConfigsRequest(resources=changes), 1).responses
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "num.io.threads is not supported: one loop" in answer.error_message


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize("key", ["node.id", "num.partitions", "socket.request.max.bytes"])
def test_what_a_start_needs_to_know_cannot_be_changed(tmp_path: Path, version: int, name: str, key: str) -> None:
    with LocalBroker(tmp_path) as broker:
        request = IncrementalAlterConfigsRequest(
            resources=[resource(BROKER, name, (key, SET, "7"), ("log.roll.ms", SET, "5"))]
        )
        (response,) = broker.ask(request, version).responses
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert key in response.error_message
        assert broker.broker.configs.at_run_time == {}


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("2", ("log.roll.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
        ("one", ("log.roll.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.roll.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        ("", ("nothing", SET, "5"), ErrorCode.INVALID_REQUEST),
        ("", ("log.roll.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_is_not_a_brokers_config_is_refused(tmp_path: Path, name: str, change: Change, code: ErrorCode) -> None:
    with LocalBroker(tmp_path) as broker:
        assert alter(broker, resource(BROKER, name, change)) == [code]


def test_lists_of_brokers_are_added_to(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        assert alter(broker, resource(BROKER, "", ("log.cleanup.policy", APPEND, "compact"))) == [0]
        assert broker.broker.configs.entry("log.cleanup.policy").text == "delete,compact"


@pytest.mark.parametrize("kind", [0, 16, 99])
def test_other_types_have_no_configs(tmp_path: Path, kind: int) -> None:
    with LocalBroker(tmp_path) as broker:
        assert alter(broker, resource(kind, "1", ("log.roll.ms", SET, "5"))) == [ErrorCode.INVALID_REQUEST]


# When it is answered, and what is left


def test_it_is_answered_when_it_is_on_disk(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        request = IncrementalAlterConfigsRequest(resources=[resource(TOPIC, "orders", ("segment.ms", SET, "9"))])
        answers = resolved(broker.begin(request, 1))
        assert not answers
        broker.run_jobs()
        assert answers[0].responses[0].error_code == 0


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_configs_survive(tmp_path: Path, how: str) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        topic = resource(TOPIC, "orders", ("segment.ms", SET, "9"))
        both = [
            resource(BROKER, "", ("message.max.bytes", SET, "10")),
            resource(BROKER, "1", ("log.roll.ms", SET, "3")),
        ]
        assert alter(broker, topic, *both) == [0, 0, 0]
        getattr(broker, how)()
        assert own(broker) == {"segment.ms": "9"}
        assert broker.broker.configs.at_run_time == {"": {"message.max.bytes": "10"}, "1": {"log.roll.ms": "3"}}
        assert broker.log().config.segment_ms == 9
        assert broker.broker.metadata.topics["orders"].config.max_message_bytes == 10


def test_a_value_for_another_broker_is_kept_and_does_not_count_here(tmp_path: Path) -> None:
    """A metadata log may be another broker's, too: see the design, decision 11."""
    with LocalBroker(tmp_path) as broker:
        change = ConfigChanged(resource_type=BROKER, resource_name="2", key="message.max.bytes", value="10")
        broker.broker.metadata_log.write([change], broker.now_ms)
        assert broker.broker.configs.number("message.max.bytes") == 1_048_588


def test_a_disk_that_is_full_refuses_it(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        files.fail("write_at", ENOSPC)
        assert alter_topic(broker, ("segment.ms", SET, "9")) == ErrorCode.KAFKA_STORAGE_ERROR
        assert own(broker) == {}
