"""One config key: its name, type, default, valid values and documentation. The tables are in `tables`."""

import math
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

Value = bool | int | float | str | None

BYTES_MAX = 32_767  # of a value: Kafka's limit, and that of a string in a record of the metadata log

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")  # `int` would take other digits, and underscores
_LIMIT = re.compile(r"[0-9]{1,9}")
_REPLICAS = re.compile(r"\s*(\*\s*|([0-9]{1,9}:[0-9]{1,9}\s*(,\s*|$))*)")
_NUMBER = re.compile(r"[+-]?[0-9.]{1,40}([eE][+-]?[0-9]{1,4})?")


class InvalidConfig(Exception):
    """A name that is not known, or a value that it does not take. The message says which do."""


@lru_cache(maxsize=8)  # every connection asks
def limits_by_address(text: str) -> Mapping[str, int]:
    """`10.0.0.7:200,[::1]:50`, by the address. Raises ValueError."""
    limits = {}
    for part in parts_of(text):
        from ipaddress import ip_address  # for those who have set this: no other start waits for it

        address, _, limit = part.rpartition(":")
        if not _LIMIT.fullmatch(limit):
            raise ValueError(f"{limit!r} is no number")
        limits[str(ip_address(address.strip().strip("[]")))] = int(limit)
    return limits


def _are_limits_by_address(text: str) -> bool:
    try:
        limits_by_address(text)
    except ValueError:
        return False
    return True


class TextFormat(NamedTuple):
    """What a text has to be as a whole, and how that is said."""

    fits: Callable[[str], object]
    words: str


LIMITS_BY_ADDRESS = TextFormat(
    _are_limits_by_address,
    "address:number, and more of them behind commas; an address is in digits, as names are not looked up",
)
REPLICAS = TextFormat(_REPLICAS.fullmatch, "*, or partition:broker, and more of them behind commas")


class ConfigType(IntEnum):
    """Kafka's numbers for the types of configs, as DescribeConfigs sends them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


_BITS = {ConfigType.INT: 31, ConfigType.SHORT: 15, ConfigType.LONG: 63}  # of a value, beside its sign


class ConfigKey(NamedTuple):
    name: str
    type: ConfigType
    default: str | None
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    # Of a topic's config: the broker's config that stands in where the topic says nothing.
    broker_key: str | None = None
    is_dynamic: bool = True
    form: TextFormat | None = None
    unit: int = 1  # of a broker's config that stands in for one in milliseconds: how many of them it counts by

    def parse(self, text: str | None) -> Value:
        """The value that `text` says. Raises InvalidConfig where it is none that this config takes."""
        if text is None:
            return None
        if len(text) > BYTES_MAX // 4 and len(text.encode()) > BYTES_MAX:
            raise self.refuse(text, f"at most {BYTES_MAX} bytes")
        text = text.strip()
        value = _PARSERS[self.type](self, text)
        if self.choices:
            self._require_choice(text)
        if self.form is not None and not self.form.fits(text):
            raise self.refuse(text, self.form.words)
        return value

    def tidy(self, text: str) -> str:
        """The same value without the spaces around it, and around the parts of a list: how it is kept."""
        return ",".join(parts_of(text)) if self.type is ConfigType.LIST else text.strip()

    def _require_choice(self, text: str) -> None:
        for part in parts_of(text) if self.type is ConfigType.LIST else [text]:
            if part not in self.choices:
                raise self.refuse(text, f"one of {', '.join(self.choices)}" if self.choices[1:] else self.choices[0])

    def refuse(self, text: str, wanted: str) -> InvalidConfig:
        shown = text if len(text) <= 100 else f"{text[:100]}…"
        return InvalidConfig(f"{self.name} cannot be {shown!r}: it takes {wanted}")


def parts_of(text: str) -> list[str]:
    """The parts of a list's value. An empty one has none."""
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
