"""The configs of consumer groups: a group's own value counts, else the broker's for all groups, else the default.

The broker's configs group.consumer.min.* and group.consumer.max.* limit both.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tailrace.broker.configs.keys import ConfigKey, InvalidConfig
from tailrace.broker.configs.tables import GROUP_KEYS

if TYPE_CHECKING:
    from tailrace.broker.configs.registry import BrokerConfigs, Entry

PREFIX = "consumer."


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


def check_group_config(name: str, text: str, configs: "BrokerConfigs") -> None:
    """Raises InvalidConfig for an unknown config, or for a value that the broker does not allow."""
    value = group_key(name).parse(text)
    setting = name.removeprefix(PREFIX)
    lowest = configs.number(f"group.consumer.min.{setting}")
    highest = configs.number(f"group.consumer.max.{setting}")
    assert isinstance(value, int)
    if not lowest <= value <= highest:
        raise InvalidConfig(
            f"{name} cannot be {value}: group.consumer.min.{setting} and .max. allow {lowest} to {highest}"
        )


def check_consumer_configs(configs: "BrokerConfigs") -> None:
    """Raises InvalidConfig if the broker's configs for all consumer groups contradict each other."""
    for name, key in GROUP_KEYS.items():
        assert key.broker_key is not None
        check_group_config(name, str(configs.number(key.broker_key)), configs)
    if configs.number("group.consumer.heartbeat.interval.ms") >= configs.number("group.consumer.session.timeout.ms"):
        raise InvalidConfig("group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms")
    if not configs.text("group.consumer.assignors").strip(" ,"):
        raise InvalidConfig("group.consumer.assignors is empty")


def group_layers(name: str, overrides: Mapping[str, str], configs: "BrokerConfigs") -> "Iterator[Entry]":
    """Yields every value that a group config has, the broker's under the broker's name. The first one counts."""
    from tailrace.broker.configs.registry import ConfigSource, Entry

    key = group_key(name)
    if name in overrides:
        yield Entry(key, overrides[name], ConfigSource.GROUP)
    assert key.broker_key is not None
    yield from configs.layers(key.broker_key)


def group_numbers(overrides: Mapping[str, str], configs: "BrokerConfigs") -> dict[str, int]:
    """Returns the values that apply to a group. A value that the broker no longer allows is brought within limits."""
    return {name: _within(name, overrides.get(name), configs) for name in GROUP_KEYS}


def _within(name: str, text: str | None, configs: "BrokerConfigs") -> int:
    broker_key = GROUP_KEYS[name].broker_key
    assert broker_key is not None
    setting = name.removeprefix(PREFIX)
    value = configs.number(broker_key) if text is None else int(text)
    lowest, highest = (configs.number(f"group.consumer.{end}.{setting}") for end in ("min", "max"))
    return min(max(value, lowest), highest)
