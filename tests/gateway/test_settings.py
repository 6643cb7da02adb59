"""The gateway's configs: the same as the broker's, and checked."""

import pytest

from tailrace.broker.configs.keys import InvalidConfig
from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.configs.tables import BROKER_KEYS
from tailrace.gateway.settings import DEFAULTS, BadSetting, settings_from

# The names of all of them, for tests/broker/test_each_config.py, with a value that takes effect.
VALUES = {
    "tailrace.http.access.log": ("true", "access_log", True),
    "tailrace.http.body.max.bytes": ("1024", "body_bytes_max", 1024),
    "tailrace.http.hosts": ("a.example, B.example", "hosts", ("a.example", "b.example")),
    "tailrace.http.idempotency.keys": ("7", "idempotency_keys", 7),
    "tailrace.http.idempotency.ms": ("1000", "idempotency_ms", 1000),
    "tailrace.http.waiting.max": ("0", "waiting_max", 0),
}
BAD = [
    ("tailrace.http.access.log", "yes"),
    ("tailrace.http.body.max.bytes", "1023"),
    ("tailrace.http.body.max.bytes", "4MB"),
    ("tailrace.http.idempotency.keys", "0"),
    ("tailrace.http.idempotency.ms", "-1"),
    ("tailrace.http.waiting.max", ""),
]


def test_names_and_defaults_are_those_of_the_broker() -> None:
    of_broker = {key.name: key.default or "" for key in BROKER_KEYS.values() if key.name.startswith("tailrace.http.")}
    assert of_broker == DEFAULTS


@pytest.mark.parametrize("name", VALUES)
def test_each_config_has_its_effect(name: str) -> None:
    text, field, expected = VALUES[name]
    settings = settings_from({name: text})
    assert getattr(settings, field) == expected
    assert settings != settings_from({})


@pytest.mark.parametrize(("name", "text"), BAD)
def test_bad_values_are_refused_by_the_gateway_and_by_the_broker(name: str, text: str) -> None:
    with pytest.raises(BadSetting, match=name):
        settings_from({name: text})
    with pytest.raises(InvalidConfig, match=name):
        BrokerConfigs({name: text})


def test_no_client_can_change_them() -> None:
    assert not any(BROKER_KEYS[name].is_dynamic for name in DEFAULTS)


def test_an_unknown_config_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"tailrace\.http\.host is not a config"):
        settings_from({"tailrace.http.host": "a"})
