"""One config key: its name, type, default, valid values and documentation. The tables are in `tables`."""

import math
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

Value = bool | int | float | str | None

BYTES_MAX = 32_767  # of a value: Kafka's limit, and that of a string in a record of the metadata log

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")  # `int` would accept other digits, and underscores
_LIMIT = re.compile(r"[0-9]{1,9}")
_WEBHOOK_URL = re.compile(r"(https?://.+)?")
_REPLICAS = re.compile(r"\s*(\*\s*|([0-9]{1,9}:[0-9]{1,9}\s*(,\s*|$))*)")
_NUMBER = re.compile(r"[+-]?[0-9.]{1,40}([eE][+-]?[0-9]{1,4})?")


class InvalidConfig(Exception):
    """An unknown name, or an invalid value. The message says what is valid."""


class UnknownConfig(InvalidConfig):
    """No config has this name."""


@lru_cache(maxsize=8)  # every connection asks
def limits_by_address(text: str) -> Mapping[str, int]:
    """Parses `10.0.0.7:200,[::1]:50` to limits by address. Raises ValueError."""
    limits = {}
    for part in parts_of(text):
        from ipaddress import ip_address  # imported late: most starts do not need it

        address, _, limit = part.rpartition(":")
        if not _LIMIT.fullmatch(limit):
            raise ValueError(f"{limit!r} is not a number")
        limits[str(ip_address(address.strip().strip("[]")))] = int(limit)
    return limits


def _are_limits_by_address(text: str) -> bool:
    try:
        limits_by_address(text)
    except ValueError:
        return False
    return True


def _is_command(text: str) -> bool:
    if not text:
        return True
    import json  # imported late: most brokers have no command

    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, list) and bool(found) and all(isinstance(one, str) for one in found) and bool(found[0])


class TextFormat(NamedTuple):
    """The format of a whole value, and its description for messages."""

    fits: Callable[[str], object]
    words: str


LIMITS_BY_ADDRESS = TextFormat(
    _are_limits_by_address,
    "address:number, comma-separated; host names are not resolved",
)
WEBHOOK_URL = TextFormat(_WEBHOOK_URL.fullmatch, "a URL that begins with http:// or https://")
COMMAND = TextFormat(
    _is_command, 'a JSON array of the program and its arguments, such as ["/usr/local/bin/page", "--team", "data"]'
)
REPLICAS = TextFormat(_REPLICAS.fullmatch, "*, or partition:broker, comma-separated")


class ConfigType(IntEnum):
    """Kafka's numbers for the types of configs, as DescribeConfigs sends them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


_BITS = {ConfigType.INT: 31, ConfigType.SHORT: 15, ConfigType.LONG: 63}  # without the sign


class ConfigKey(NamedTuple):
    name: str
    type: ConfigType
    default: str | None
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    # For a topic config: the broker config that applies if the topic has no value of its own.
    broker_key: str | None = None
    is_dynamic: bool = True
    form: TextFormat | None = None
    is_secret: bool = False  # clients do not get its value
    unit: int = 1  # for a synonym of a config in milliseconds: its unit, in milliseconds

    def parse(self, text: str | None) -> Value:
        """Parses `text`. Raises InvalidConfig if this config does not accept it."""
        if text is None:
            return None
        if len(text) > BYTES_MAX // 4 and len(text.encode()) > BYTES_MAX:
            raise self.refuse(text, f"a string of at most {BYTES_MAX} bytes")
        text = text.strip()
        value = _PARSERS[self.type](self, text)
        if self.choices:
            self._require_choice(text)
        if self.form is not None and not self.form.fits(text):
            raise self.refuse(text, self.form.words)
        return value

    def tidy(self, text: str) -> str:
        """Normalises a value for storage: removes spaces around it, and around the elements of a list."""
        return ",".join(parts_of(text)) if self.type is ConfigType.LIST else text.strip()

    def _require_choice(self, text: str) -> None:
        for part in parts_of(text) if self.type is ConfigType.LIST else [text]:
            if part not in self.choices:
                raise self.refuse(text, f"one of {', '.join(self.choices)}" if self.choices[1:] else self.choices[0])

    def refuse(self, text: str, wanted: str) -> InvalidConfig:
        shown = text if len(text) <= 100 else f"{text[:100]}…"
        return InvalidConfig(f"{self.name} cannot be {shown!r}: it must be {wanted}")


def parts_of(text: str) -> list[str]:
    """The elements of a list's value. An empty one has none."""
    return [part for part in (part.strip() for part in text.split(",")) if part]


def _parse_boolean(key: ConfigKey, text: str) -> Value:
    if text.lower() not in ("true", "false"):
        raise key.refuse(text, "true or false")
    return text.lower() == "true"


def _parse_number(key: ConfigKey, text: str) -> Value:
    if not _WHOLE_NUMBER.fullmatch(text):
        raise key.refuse(text, "a whole number")
    value = int(text)
    bits = _BITS[key.type]
    lowest = -(1 << bits) if key.minimum is None else key.minimum
    highest = (1 << bits) - 1 if key.maximum is None else key.maximum
    if not lowest <= value <= highest:
        raise key.refuse(text, f"a number from {lowest} to {highest}")
    return value


def _parse_double(key: ConfigKey, text: str) -> Value:
    try:
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
    except ValueError:
        value = math.nan
    lowest = -math.inf if key.minimum is None else key.minimum
    highest = math.inf if key.maximum is None else key.maximum
    if not lowest <= value <= highest:  # no comparison with nan is true
        raise key.refuse(text, f"a number from {lowest} to {highest}")
    return value


def _parse_text(key: ConfigKey, text: str) -> Value:
    return text


_PARSERS: dict[ConfigType, Callable[[ConfigKey, str], Value]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_text,
    ConfigType.INT: _parse_number,
    ConfigType.SHORT: _parse_number,
    ConfigType.LONG: _parse_number,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_text,
}
