"""The configs of groups: a group's own value counts, else the broker's for all groups, else the default.

The broker's configs group.consumer.min.* and .max.*, and group.share.min.* and .max.*, limit both.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.configs.group_tables import GROUP_KEYS
from tailrace.broker.configs.keys import ConfigKey, InvalidConfig, Value
from tailrace.broker.configs.tables import BROKER_KEYS

if TYPE_CHECKING:
    from tailrace.broker.configs.registry import BrokerConfigs, Entry

KINDS = ("consumer", "share")
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"


def group_key(name: str) -> ConfigKey:
    """Returns the group config of that name. Raises InvalidConfig if there is none."""
    key = GROUP_KEYS.get(name)
    if key is None:
        from difflib import get_close_matches  # imported late: only misspelled names need it

        shown = name[:250]
        near = get_close_matches(shown, GROUP_KEYS, 1)
        hint = f". Did you mean {near[0]}?" if near else ""
        raise InvalidConfig(f"there is no group config {shown!r}{hint}")
    return key


class Limits(NamedTuple):
    """The broker's configs that limit a group config."""

    lowest: str
    highest: str


def _limits_of(key: ConfigKey) -> Limits | None:
    kind, _, setting = key.name.partition(".")
    limits = Limits(f"group.{kind}.min.{setting}", f"group.{kind}.max.{setting}")
    return limits if limits.lowest in BROKER_KEYS else None


LIMITS = {name: limits for name, key in GROUP_KEYS.items() if (limits := _limits_of(key)) is not None}


def check_group_config(name: str, text: str, configs: "BrokerConfigs") -> None:
    """Raises InvalidConfig for an unknown config, or for a value that the broker does not allow."""
    value = group_key(name).parse(text)
    if (limits := LIMITS.get(name)) is not None:
        lowest, highest = configs.number(limits.lowest), configs.number(limits.highest)
        assert isinstance(value, int)
        if not lowest <= value <= highest:
            raise InvalidConfig(
                f"{name} cannot be {value}: {limits.lowest} and {limits.highest} allow {lowest} to {highest}"
            )
    prefix = configs.text("errors.deadletterqueue.topic.name.prefix")
    if name == DEAD_LETTER_TOPIC and value and not str(value).startswith(prefix):
        raise InvalidConfig(f"{name} cannot be {value}: errors.deadletterqueue.topic.name.prefix requires {prefix}…")


def check_group(overrides: Mapping[str, str], configs: "BrokerConfigs") -> None:
    """Raises InvalidConfig if the values of a group contradict each other."""
    values = GroupValues(overrides, configs)
    for kind in KINDS:
        names = (f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms")
        heartbeat, session = map(values.number, names)
        if heartbeat >= session:
            raise InvalidConfig(f"{names[0]} is {heartbeat}, and must be less than {names[1]}, which is {session}")


def check_group_defaults(configs: "BrokerConfigs") -> None:
    """Raises InvalidConfig if the broker's configs for all groups contradict each other."""
    for name in LIMITS:
        broker_key = GROUP_KEYS[name].broker_key
        assert broker_key is not None
        check_group_config(name, str(configs.number(broker_key)), configs)
    check_group({}, configs)
    for kind in KINDS:
        if not configs.text(f"group.{kind}.assignors").strip(" ,"):
            raise InvalidConfig(f"group.{kind}.assignors is empty")
    if configs.number("group.share.max.share.sessions") < configs.number("group.share.max.size"):
        raise InvalidConfig("group.share.max.share.sessions is less than group.share.max.size")


def group_layers(name: str, overrides: Mapping[str, str], configs: "BrokerConfigs") -> "Iterator[Entry]":
    """Yields every value that a group config has, the broker's under the broker's name. The first one counts."""
    from tailrace.broker.configs.registry import ConfigSource, Entry

    key = group_key(name)
    if name in overrides:
        yield Entry(key, overrides[name], ConfigSource.GROUP)
    if key.broker_key is not None:
        yield from configs.layers(key.broker_key)
    else:
        yield Entry(key, key.default, ConfigSource.DEFAULT)


class GroupValues:
    """The values that apply to one group, by type. One that the broker no longer allows is brought within limits."""

    def __init__(self, overrides: Mapping[str, str], configs: "BrokerConfigs") -> None:
        self._overrides = overrides
        self._configs = configs

    def number(self, name: str) -> int:
        value = self._value(name)
        assert isinstance(value, int)
        if (limits := LIMITS.get(name)) is None:
            return value
        return min(max(value, self._configs.number(limits.lowest)), self._configs.number(limits.highest))

    def ratio(self, name: str) -> float:
        value = self._value(name)
        assert isinstance(value, float)
        return value

    def flag(self, name: str) -> bool:
        return bool(self._value(name))

    def text(self, name: str) -> str:
        return str(self._value(name) or "")

    def _value(self, name: str) -> Value:
        return next(group_layers(name, self._overrides, self._configs)).value
