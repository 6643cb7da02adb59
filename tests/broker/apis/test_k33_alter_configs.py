"""AlterConfigs: what is named is set, what is not goes back to its default."""

from pathlib import Path

import pytest
from brokers import LocalBroker

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource

TOPIC, BROKER = 2, 4
VERSIONS = range(3)


def altered(
    broker: LocalBroker, name: str, version: int = 2, kind: int = TOPIC, *, validate_only: bool = False, **values: str
) -> int:
    configs = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    response = broker.ask(AlterConfigsRequest(resources=[resource], validate_only=validate_only), version)
    (result,) = response.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return int(result.error_code)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_named_goes_back_to_its_default(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(retention_ms="1000", segment_ms="5000")
        assert altered(broker, "orders", version, retention_ms="2000") == 0
        broker.kill()
        assert broker.broker.metadata.topics["orders"].overrides == {"retention.ms": "2000"}
        assert altered(broker, "orders", version) == 0
        assert broker.broker.metadata.topics["orders"].overrides == {}


def test_nothing_is_changed_where_one_value_is_refused_or_only_asked_about(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(retention_ms="1000")
        assert altered(broker, "orders", retention_ms="soon") == ErrorCode.INVALID_CONFIG
        assert altered(broker, "orders", segment_ms="5000", validate_only=True) == 0
        assert broker.broker.metadata.topics["orders"].overrides == {"retention.ms": "1000"}


def test_what_is_not_there_or_not_for_clients_is_refused(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        assert altered(broker, "nobody", retention_ms="1") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert altered(broker, "__tailrace_metadata", retention_ms="1") == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert altered(broker, "1", kind=BROKER, node_id="2") == ErrorCode.INVALID_REQUEST
        assert altered(broker, "x", kind=99) == ErrorCode.INVALID_REQUEST


def test_a_brokers_configs_are_replaced_too(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        assert altered(broker, "", kind=BROKER, log_retention_ms="1000", message_max_bytes="5000") == 0
        assert altered(broker, "", kind=BROKER, log_retention_ms="2000") == 0
        assert broker.broker.configs.at_run_time == {"": {"log.retention.ms": "2000"}}
