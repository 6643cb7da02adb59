import secrets

import pytest

from tailrace.client.admin.configs import alter_broker_configs, broker_configs
from tailrace.client.admin.quotas import alter_quotas, quotas
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import BrokerNotFound, Refused


def test_quotas_of_an_entity_are_set_read_and_removed(cluster: Cluster) -> None:
    client = {"client-id": f"client-{secrets.token_hex(4)}"}
    alter_quotas(cluster, client, {"producer_byte_rate": 1000.0, "request_percentage": 12.5})
    assert quotas(cluster, client) == [(client, {"producer_byte_rate": 1000.0, "request_percentage": 12.5})]
    alter_quotas(cluster, client, {"producer_byte_rate": None}, validate_only=True)
    alter_quotas(cluster, client, {"request_percentage": None})
    assert quotas(cluster, client, strict=True) == [(client, {"producer_byte_rate": 1000.0})]
    with pytest.raises(Refused, match="nosuch"):
        alter_quotas(cluster, client, {"nosuch": 1.0})
    alter_quotas(cluster, client, {"producer_byte_rate": None})
    assert quotas(cluster, client) == []


def test_configs_of_one_broker_and_of_all_are_set_and_taken_back(cluster: Cluster) -> None:
    for broker in (1, None):
        alter_broker_configs(cluster, broker, {"max.connections": "2000"}, validate_only=True)
        alter_broker_configs(cluster, broker, {"max.connections": "2000"})
        assert broker_configs(cluster, broker)["max.connections"].value == "2000"
        alter_broker_configs(cluster, broker, {"max.connections": None})
    assert "max.connections" not in broker_configs(cluster, None)
    with pytest.raises(Refused, match=r"num\.partitions"):
        alter_broker_configs(cluster, None, {"num.partitions": "2"})


def test_a_broker_that_is_not_there_is_named_with_those_that_are(cluster: Cluster) -> None:
    with pytest.raises(BrokerNotFound, match=r"no broker 77; its brokers are 1\Z"):
        broker_configs(cluster, 77)
