"""The gateway's configs, `tailrace.http.*`: names, defaults, and what a value must be.

The broker has the same ones in its tables, and passes their values to the gateway that it starts.
"""

from collections.abc import Mapping
from typing import NamedTuple

DEFAULTS: dict[str, str] = {
    "tailrace.http.access.log": "false",
    "tailrace.http.body.max.bytes": str(4 << 20),
    "tailrace.http.hosts": "",
    "tailrace.http.idempotency.keys": "1000000",
    "tailrace.http.idempotency.ms": "86400000",
    "tailrace.http.waiting.max": "2000",
}
_SMALLEST = {
    "tailrace.http.body.max.bytes": 1024,
    "tailrace.http.idempotency.keys": 1,
    "tailrace.http.idempotency.ms": 1000,
}


class BadSetting(Exception):
    """A config of the gateway is unknown or invalid."""


class Settings(NamedTuple):
    access_log: bool
    body_bytes_max: int
    hosts: tuple[str, ...]
    idempotency_keys: int
    idempotency_ms: int
    waiting_max: int


def settings_from(configs: Mapping[str, str]) -> Settings:
    """Raises BadSetting."""
    for name in configs:
        if name not in DEFAULTS:
            raise BadSetting(f"{name} is not a config of the gateway: there are {', '.join(sorted(DEFAULTS))}")
    texts = {**DEFAULTS, **configs}
    return Settings(
        access_log=_truth(texts, "tailrace.http.access.log"),
        body_bytes_max=_number(texts, "tailrace.http.body.max.bytes"),
        hosts=tuple(part for text in texts["tailrace.http.hosts"].split(",") if (part := text.strip().lower())),
        idempotency_keys=_number(texts, "tailrace.http.idempotency.keys"),
        idempotency_ms=_number(texts, "tailrace.http.idempotency.ms"),
        waiting_max=_number(texts, "tailrace.http.waiting.max"),
    )


def _number(texts: Mapping[str, str], name: str) -> int:
    text = texts[name].strip()
    least = _SMALLEST.get(name, 0)
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise BadSetting(f"{name} cannot be {text!r}: write a whole number, {least} or more")
    return int(text)


def _truth(texts: Mapping[str, str], name: str) -> bool:
    text = texts[name].strip().lower()
    if text not in ("true", "false"):
        raise BadSetting(f"{name} cannot be {text!r}: write true or false")
    return text == "true"
