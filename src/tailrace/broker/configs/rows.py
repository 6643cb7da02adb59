"""How a row of the tables is written: one function per type of a config. `keys` explains the columns."""

from tailrace.broker.configs.keys import ConfigKey, ConfigType

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


def boolean_key(name: str, broker_key: str | None, default: bool, doc: str, *, only: str | None = None) -> ConfigKey:
    choices = () if only is None else (only,)
    return ConfigKey(name, ConfigType.BOOLEAN, str(default).lower(), doc, choices=choices, broker_key=broker_key)


def int_key(
    name: str,
    broker_key: str | None,
    default: int,
    minimum: int,
    doc: str,
    *,
    maximum: int | None = None,
    choices: str = "",
) -> ConfigKey:
    return ConfigKey(
        name, ConfigType.INT, str(default), doc, minimum, maximum, tuple(choices.split()), broker_key=broker_key
    )


def long_key(name: str, broker_key: str | None, default: int, minimum: int, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.LONG, str(default), doc, minimum, broker_key=broker_key)


def hours_key(name: str, default: str | None, minimum: int, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, default, doc, minimum, unit=HOUR_MS)


def minutes_key(name: str, default: str | None, minimum: int, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, default, doc, minimum, unit=MINUTE_MS)


def ratio_key(name: str, broker_key: str | None, default: float, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.DOUBLE, str(default), doc, 0, 1, broker_key=broker_key)


def rate_key(name: str, broker_key: str | None, default: str, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.DOUBLE, default, doc, broker_key=broker_key)


def text_key(name: str, broker_key: str | None, default: str | None, choices: str, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.STRING, default, doc, choices=tuple(choices.split()), broker_key=broker_key)


def list_key(name: str, broker_key: str | None, default: str | None, choices: str, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.LIST, default, doc, choices=tuple(choices.split()), broker_key=broker_key)
