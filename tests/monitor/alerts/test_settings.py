"""The monitor's configs: the same as the broker's, and checked."""

import pytest

from tailrace.broker.configs.keys import InvalidConfig
from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.configs.tables import BROKER_KEYS
from tailrace.monitor.alerts.settings import DEFAULTS, BadSetting, settings_from

# The names of all of them, for tests/broker/test_each_config.py, with a value that takes effect.
VALUES = {
    "tailrace.monitor.interval.ms": ("2000", "interval_ms", 2000),
    "tailrace.monitor.series.max": ("7", "series_max", 7),
    "tailrace.alert.webhook.url": ("http://localhost/x", "webhook_url", "http://localhost/x"),
    "tailrace.alert.webhook.format": ("slack", "webhook_format", "slack"),
    "tailrace.alert.command": ('["a", "b"]', "command", ("a", "b")),
    "tailrace.alert.loss.seconds": ("1", "loss", 1),
    "tailrace.alert.lag.seconds": ("2", "lag", 2),
    "tailrace.alert.stopped.seconds": ("3", "stopped", 3),
    "tailrace.alert.disk.seconds": ("4", "disk", 4),
    "tailrace.alert.idle.ms": ("5", "idle_ms", 5),
}
BAD = [
    ("tailrace.alert.webhook.url", "ftp://example.org"),
    ("tailrace.alert.webhook.url", "example.org"),
    ("tailrace.alert.webhook.format", "xml"),
    ("tailrace.alert.command", "page --now"),
    ("tailrace.alert.command", "[]"),
    ("tailrace.alert.command", '["a", 1]'),
    ("tailrace.alert.command", '"a"'),
    ("tailrace.alert.lag.seconds", "-1"),
    ("tailrace.alert.lag.seconds", "soon"),
    ("tailrace.monitor.interval.ms", "10"),
    ("tailrace.alert.idle.ms", "0"),
]


def test_names_and_defaults_are_those_of_the_broker() -> None:
    of_broker = {
        key.name: key.default or ""
        for key in BROKER_KEYS.values()
        if key.name.startswith(("tailrace.monitor.", "tailrace.alert."))
    }
    assert of_broker == DEFAULTS


@pytest.mark.parametrize("name", VALUES)
def test_each_config_has_its_effect(name: str) -> None:
    text, field, expected = VALUES[name]
    settings = settings_from({name: text})
    assert getattr(settings, field, None) == expected or getattr(settings.thresholds, field) == expected
    assert settings != settings_from({})


@pytest.mark.parametrize(("name", "text"), BAD)
def test_bad_values_are_refused_by_the_monitor_and_by_the_broker(name: str, text: str) -> None:
    with pytest.raises(BadSetting, match=name):
        settings_from({name: text})
    with pytest.raises(InvalidConfig, match=name):
        BrokerConfigs({name: text})


def test_no_client_can_change_them() -> None:
    assert not any(BROKER_KEYS[name].is_dynamic for name in DEFAULTS)


def test_an_unknown_config_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"tailrace\.alert\.lags is not a config"):
        settings_from({"tailrace.alert.lags": "1"})
