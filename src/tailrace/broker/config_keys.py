"""One config: its name, type, default, what values it takes and what it is for. The tables are in `configs.py`."""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

Value = bool | int | float | str | None

_TYPES_OF_NUMBERS = {3: 31, 4: 15, 5: 63}  # the bits a value of this type has


class InvalidConfig(Exception):
    """A name that is not known, or a value that it does not take. The message says which do."""


class ConfigType(IntEnum):
    """Kafka's numbers for the types of configs, as DescribeConfigs sends them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


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

    def parse(self, text: str | None) -> Value:
        """The value that `text` says. Raises InvalidConfig where it is none that this config takes."""
        if text is None:
            return None
        value = _PARSERS[self.type](self, text.strip())
        if self.choices:
            self._require_choice(text.strip())
        return value

    def _require_choice(self, text: str) -> None:
        chosen = [part.strip() for part in text.split(",")] if self.type is ConfigType.LIST else [text]
        for part in chosen:
            if part not in self.choices:
                raise self.refuse(text, f"one of {', '.join(self.choices)}")

    def refuse(self, text: str, wanted: str) -> InvalidConfig:
        return InvalidConfig(f"{self.name} cannot be {text!r}: it takes {wanted}")


def _parse_boolean(key: ConfigKey, text: str) -> Value:
    if text.lower() not in ("true", "false"):
        raise key.refuse(text, "true or false")
    return text.lower() == "true"


def _parse_number(key: ConfigKey, text: str) -> Value:
    try:
        value = int(text)
    except ValueError:
        raise key.refuse(text, "a whole number") from None
    bits = _TYPES_OF_NUMBERS[key.type]
    lowest = -(1 << bits) if key.minimum is None else key.minimum
    highest = (1 << bits) - 1 if key.maximum is None else key.maximum
    if not lowest <= value <= highest:
        raise key.refuse(text, f"a number from {lowest} to {highest}")
    return value


def _parse_double(key: ConfigKey, text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        raise key.refuse(text, "a number") from None


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
