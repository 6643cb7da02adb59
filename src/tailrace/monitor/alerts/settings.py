"""The monitor's configs, `tailrace.monitor.*` and `tailrace.alert.*`: names, defaults, and what a value must be.

The broker has the same ones in its tables, and passes their values to the monitor that it starts.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from tailrace.monitor.alerts.rules import Thresholds

DEFAULTS: dict[str, str] = {
    "tailrace.monitor.enable": "true",
    "tailrace.monitor.interval.ms": "15000",
    "tailrace.monitor.series.max": "20000",
    "tailrace.alert.loss.seconds": "3600",
    "tailrace.alert.lag.seconds": "900",
    "tailrace.alert.stopped.seconds": "600",
    "tailrace.alert.disk.seconds": "21600",
    "tailrace.alert.idle.ms": "604800000",
    "tailrace.alert.webhook.url": "",
    "tailrace.alert.webhook.format": "json",
    "tailrace.alert.command": "",
}
_SMALLEST = {"tailrace.monitor.interval.ms": 1000, "tailrace.alert.idle.ms": 1}
_FORMATS = ("json", "slack")


class BadSetting(Exception):
    """A config of the monitor is unknown or invalid."""


class Settings(NamedTuple):
    interval_ms: int
    series_max: int
    thresholds: Thresholds
    webhook_url: str
    webhook_format: str
    command: tuple[str, ...]


def settings_from(configs: Mapping[str, str]) -> Settings:
    """Raises BadSetting."""
    for name in configs:
        if name not in DEFAULTS:
            raise BadSetting(f"{name} is not a config of the monitor: there are {', '.join(sorted(DEFAULTS))}")
    texts = {**DEFAULTS, **configs}
    thresholds = Thresholds(
        loss=_number(texts, "tailrace.alert.loss.seconds"),
        lag=_number(texts, "tailrace.alert.lag.seconds"),
        stopped=_number(texts, "tailrace.alert.stopped.seconds"),
        disk=_number(texts, "tailrace.alert.disk.seconds"),
        idle_ms=_number(texts, "tailrace.alert.idle.ms"),
    )
    form = texts["tailrace.alert.webhook.format"]
    if form not in _FORMATS:
        raise BadSetting(f"tailrace.alert.webhook.format cannot be {form!r}: write json or slack")
    return Settings(
        interval_ms=_number(texts, "tailrace.monitor.interval.ms"),
        series_max=_number(texts, "tailrace.monitor.series.max"),
        thresholds=thresholds,
        webhook_url=_url(texts["tailrace.alert.webhook.url"]),
        webhook_format=form,
        command=_arguments(texts["tailrace.alert.command"]),
    )


def _number(texts: Mapping[str, str], name: str) -> int:
    text = texts[name].strip()
    least = _SMALLEST.get(name, 0)
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise BadSetting(f"{name} cannot be {text!r}: write a whole number, {least} or more")
    return int(text)


def _url(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise BadSetting("tailrace.alert.webhook.url is not a URL: it begins with http:// or https://")
    return text


def _arguments(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    is_list = isinstance(found, list) and bool(found) and all(isinstance(one, str) for one in found)
    if not is_list or not found[0]:
        raise BadSetting(
            f"tailrace.alert.command cannot be {text!r}: write a JSON array of the program and its arguments, as in "
            '["/usr/local/bin/page", "--team", "data"]'
        )
    return tuple(found)
