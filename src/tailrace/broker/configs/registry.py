"""The config registry: one set of keys for the file, the flags, the topics and DescribeConfigs.

A topic's value is its own where it has one, else the broker's for all topics, else the default. A broker's value is the
one set at run time, for it alone or else for all brokers, else the one it was started with, else the default. Names and
defaults are Kafka's, but where docs/DEVIATIONS.md says otherwise; ours begin with `tailrace.`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import chain, dropwhile
from typing import Any, NamedTuple

from tailrace.broker.configs.ignored import Family, check_ignored, family_of
from tailrace.broker.configs.keys import ConfigKey, InvalidConfig, Value, parts_of
from tailrace.broker.configs.tables import BROKER_KEYS, SYNONYMS, TOPIC_KEYS
from tailrace.log.layout.config import LogConfig
from tailrace.records.compression import Codec
from tailrace.records.recompression import Target


class ConfigSource(IntEnum):
    """Where a value comes from, in Kafka's numbers."""

    TOPIC = 1
    BROKER_AT_RUN_TIME = 2
    ALL_BROKERS_AT_RUN_TIME = 3
    BROKER_AT_START = 4
    DEFAULT = 5
    LOGGER = 6


class Entry(NamedTuple):
    """A config as it stands somewhere, or as it stands now."""

    key: ConfigKey
    text: str | None
    source: ConfigSource

    @property
    def value(self) -> Value:
        return self.key.parse(self.text)

    @property
    def text_in_units(self) -> str | None:
        """As the config says it that this one stands in for: hours in milliseconds. What is below 0 is no limit."""
        if self.key.unit == 1 or self.text is None:
            return self.text
        return str(max(-1, int(self.text) * self.key.unit))


def topic_key(name: str) -> ConfigKey:
    """Raises InvalidConfig for a name that no topic config has."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        of_broker = {key.broker_key: key.name for key in TOPIC_KEYS.values()}
        raise _unknown("topic", name, of_broker.get(name), TOPIC_KEYS)
    return key


def broker_key(name: str) -> ConfigKey:
    """Raises InvalidConfig for a name that no broker config has, and for Kafka's that mean nothing here."""
    key = BROKER_KEYS.get(name)
    if key is None:
        if (family := family_of(name)) is not None:
            raise InvalidConfig(f"{name[:250]} has no place here: {family.reason}")
        of_topic = TOPIC_KEYS[name].broker_key if name in TOPIC_KEYS else None
        raise _unknown("broker", name, of_topic, BROKER_KEYS)
    return key


def _unknown(whose: str, name: str, meant: str | None, names: Iterable[str]) -> InvalidConfig:
    from difflib import get_close_matches  # for those who misspell: no start waits for it

    shown = name[:250]
    near = [meant] if meant is not None else get_close_matches(shown, names, 1)
    hint = f": is it {near[0]}?" if near else ""
    return InvalidConfig(f"there is no {whose} config {shown!r}{hint}")


def _ignored_family(name: str) -> Family | None:
    family = family_of(name) if name not in BROKER_KEYS else None
    return None if family is None or family.is_refused else family


class BrokerConfigs:
    """The broker's own values: those it was started with, and over them those set at run time."""

    def __init__(self, at_start: Mapping[str, str] | None = None) -> None:
        """Raises InvalidConfig, with the first of `at_start` that is not known or not valid."""
        given = dict(at_start or {})
        self.ignored = {name: family.reason for name in given if (family := _ignored_family(name)) is not None}
        for name in self.ignored:
            check_ignored(name, given[name])
        self.at_start = {name: text for name, text in given.items() if name not in self.ignored}
        self.at_run_time: dict[str, dict[str, str]] = {}  # by the name of a broker; "" is all of them
        for name, text in self.at_start.items():
            broker_key(name).parse(text)
        self.node_name = self._number_of_broker()
        self._topic_defaults: TopicConfig | None = None
        self._check_together()

    def _check_together(self) -> None:
        """Raises InvalidConfig where one value makes no sense beside another."""
        if self.number("group.min.session.timeout.ms") > self.number("group.max.session.timeout.ms"):
            raise InvalidConfig("group.min.session.timeout.ms is more than group.max.session.timeout.ms")

    def check_with(self, broker: str, changes: Mapping[str, str | None]) -> None:
        """Raises InvalidConfig where topics could not have what would hold after these changes at run time."""
        after = BrokerConfigs(self.at_start)
        after.at_run_time = {name: dict(values) for name, values in self.at_run_time.items()}
        for name, text in changes.items():
            after.set_at_run_time(broker, name, text)
        _ = after.topic_defaults  # parses all of it

    def _number_of_broker(self) -> str:
        """Afterwards both names that Kafka has for it have the same value."""
        names = ("node.id", "broker.id")
        given = {str(broker_key(name).parse(self.at_start[name])) for name in names if name in self.at_start}
        if len(given) > 1:
            raise InvalidConfig(f"node.id and broker.id are the same, and cannot be {' and '.join(sorted(given))}")
        for number in given:
            self.at_start.update(dict.fromkeys(names, number))
        return given.pop() if given else str(broker_key("node.id").default)

    def set_at_run_time(self, broker: str, name: str, text: str | None) -> None:
        """Of one broker, or with "" of all of them; None takes it back."""
        values = self.at_run_time.setdefault(broker, {})
        if text is None:
            values.pop(name, None)
        else:
            values[name] = text
        if not values:
            del self.at_run_time[broker]
        self._topic_defaults = None

    def layers(self, name: str) -> Iterator[Entry]:
        """Every value that the config has somewhere; behind its own also those that stand in for it. The first one
        counts.
        """
        key = broker_key(name)
        if name not in SYNONYMS:
            return self._layers((key,))
        own = dropwhile(lambda entry: entry.key.name != name, self.layers_with_synonyms(name))
        return chain([first], own) if (first := next(own, None)) else iter([Entry(key, None, ConfigSource.DEFAULT)])

    def layers_with_synonyms(self, name: str) -> Iterator[Entry]:
        """The same for topics, to which it makes no difference under which name it is given."""
        return self._layers([broker_key(synonym) for synonym in SYNONYMS.get(name, (name,))])

    def _layers(self, keys: Sequence[ConfigKey]) -> Iterator[Entry]:
        for values, source in (
            (self.at_run_time.get(self.node_name, {}), ConfigSource.BROKER_AT_RUN_TIME),
            (self.at_run_time.get("", {}), ConfigSource.ALL_BROKERS_AT_RUN_TIME),
            (self.at_start, ConfigSource.BROKER_AT_START),
        ):
            for key in keys:
                if key.name in values:
                    yield Entry(key, values[key.name], source)
        yield Entry(keys[-1], keys[-1].default, ConfigSource.DEFAULT)

    def entry(self, name: str) -> Entry:
        return next(self.layers(name))

    def entries(self) -> Iterable[Entry]:
        return map(self.entry, sorted(BROKER_KEYS))

    def number(self, name: str) -> int:
        value = self.entry(name).value
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str:
        return self.entry(name).text or ""

    def ratio(self, name: str) -> float:
        value = self.entry(name).value
        assert isinstance(value, float)
        return value

    def flag(self, name: str) -> bool:
        return bool(self.entry(name).value)

    @property
    def quota_window_s(self) -> int:
        """What a quota allows in this time may be done at once: all windows but the one that is not over yet."""
        return (self.number("quota.window.num") - 1) * self.number("quota.window.size.seconds")

    @property
    def topic_defaults(self) -> "TopicConfig":
        """What holds for a topic that says nothing itself."""
        if self._topic_defaults is None:
            texts = {name: topic_entry(name, {}, self).text or "" for name in (*_FIELDS, *_LOG_FIELDS)}
            log = LogConfig(producer_id_expiration_ms=self.number("producer.id.expiration.ms"))
            self._topic_defaults = _with(TopicConfig(0, 0, 0, False, False, log, _target({}, self)), texts)
        return self._topic_defaults


def topic_layers(name: str, overrides: Mapping[str, str], broker: BrokerConfigs) -> Iterator[Entry]:
    """Every value that a topic's config has somewhere, the broker's under the broker's name. The first one counts."""
    key = topic_key(name)
    if name in overrides:
        yield Entry(key, overrides[name], ConfigSource.TOPIC)
    if key.broker_key is not None:
        yield from broker.layers_with_synonyms(key.broker_key)
    else:
        yield Entry(key, key.default, ConfigSource.DEFAULT)


def topic_entry(name: str, overrides: Mapping[str, str], broker: BrokerConfigs) -> Entry:
    found = next(topic_layers(name, overrides, broker))
    return Entry(topic_key(name), found.text_in_units, found.source)


class TopicConfig(NamedTuple):
    """What the hot path asks of a topic, parsed once."""

    max_message_bytes: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    needs_keys: bool  # of every record: compaction would lose one that has none
    deletes: bool  # by retention
    log: LogConfig
    target: Target | None  # what batches are to be kept in; None is as they were sent

    @property
    def takes_batches_as_they_are(self) -> bool:
        """Whether nobody looks into them, or changes more of them than what is stamped."""
        return not self.needs_keys and self.target is None and not self.log.log_append_time


_FIELDS = {
    "cleanup.policy": "needs_keys",
    "max.message.bytes": "max_message_bytes",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
}
# A level counts for topics that have a type of their own, too: it is more than a part of their defaults.
COMPRESSION_KEYS = ("compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level")
_LOG_FIELDS = {
    "segment.bytes": "segment_bytes",
    "segment.index.bytes": "segment_index_bytes",
    "segment.jitter.ms": "segment_jitter_ms",
    "segment.ms": "segment_ms",
    "index.interval.bytes": "index_interval_bytes",
    "message.timestamp.type": "log_append_time",
    "delete.retention.ms": "delete_retention_ms",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "max.compaction.lag.ms": "max_compaction_lag_ms",
    "min.cleanable.dirty.ratio": "min_cleanable_dirty_ratio",
    "flush.messages": "flush_messages",
    "flush.ms": "flush_ms",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
}


def topic_config(overrides: Mapping[str, str], broker: BrokerConfigs) -> TopicConfig:
    """For all topics that do not say otherwise it is one object: ten thousand of them may be made at once."""
    if not overrides:
        return broker.topic_defaults
    config = _with(broker.topic_defaults, overrides)
    if overrides.keys().isdisjoint(COMPRESSION_KEYS):
        return config
    return config._replace(target=_target(overrides, broker))


def _target(overrides: Mapping[str, str], broker: BrokerConfigs) -> Target | None:
    kind = topic_entry("compression.type", overrides, broker).value
    if kind == "producer":
        return None
    codec = Codec.NONE if kind == "uncompressed" else Codec[str(kind).upper()]
    level = None
    if (name := f"compression.{kind}.level") in COMPRESSION_KEYS:
        value = topic_entry(name, overrides, broker).value
        assert isinstance(value, int)
        level = None if name == "compression.gzip.level" and value == -1 else value
    return Target(codec, level)


def _with(config: TopicConfig, texts: Mapping[str, str]) -> TopicConfig:
    own = {field: _parsed(name, texts[name]) for name, field in _FIELDS.items() if name in texts}
    log = {field: _parsed(name, texts[name]) for name, field in _LOG_FIELDS.items() if name in texts}
    if "cleanup.policy" in texts:
        own["deletes"] = "delete" in parts_of(texts["cleanup.policy"])
    if log:
        own["log"] = config.log._replace(**log)
    return config._replace(**own) if own else config


def _parsed(name: str, text: str) -> Any:
    value = TOPIC_KEYS[name].parse(text)
    if name == "message.timestamp.type":
        return value == "LogAppendTime"
    return "compact" in text if name == "cleanup.policy" else value
