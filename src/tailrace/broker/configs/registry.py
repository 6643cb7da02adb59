"""The config registry: one set of keys for the file, the flags, the topics and DescribeConfigs.

The value of a topic config is the topic's own, else the broker's for all topics, else the default. The value of a
broker config is the one set at run time, for this broker or else for all brokers, else the one given at the start, else
the default. Names and defaults are Kafka's, except where docs/DEVIATIONS.md says otherwise; ours begin with
`tailrace.`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum
from itertools import chain, dropwhile
from typing import Any, NamedTuple

from tailrace.broker.configs.groups import check_consumer_configs
from tailrace.broker.configs.ignored import Family, check_ignored, family_of
from tailrace.broker.configs.keys import ConfigKey, InvalidConfig, UnknownConfig, Value, parts_of
from tailrace.broker.configs.tables import BROKER_KEYS, SYNONYMS, TOPIC_KEYS
from tailrace.log.layout.config import LogConfig
from tailrace.records.compression import Codec
from tailrace.records.recompression import Target


class ConfigSource(IntEnum):
    """The source of a value, in Kafka's numbers."""

    TOPIC = 1
    BROKER_AT_RUN_TIME = 2
    ALL_BROKERS_AT_RUN_TIME = 3
    BROKER_AT_START = 4
    DEFAULT = 5
    LOGGER = 6
    GROUP = 8


class Entry(NamedTuple):
    """The value of a config at one of its sources."""

    key: ConfigKey
    text: str | None
    source: ConfigSource

    @property
    def value(self) -> Value:
        return self.key.parse(self.text)

    @property
    def text_in_units(self) -> str | None:
        """The value in the unit of the config that this one is a synonym of: hours in milliseconds. Below 0 is no
        limit.
        """
        if self.key.unit == 1 or self.text is None:
            return self.text
        return str(max(-1, int(self.text) * self.key.unit))


def topic_key(name: str) -> ConfigKey:
    """Returns the topic config of that name. Raises InvalidConfig if there is none."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        of_broker = {key.broker_key: key.name for key in TOPIC_KEYS.values()}
        raise _unknown("topic", name, of_broker.get(name), TOPIC_KEYS)
    return key


def broker_key(name: str) -> ConfigKey:
    """Returns the broker config of that name. Raises InvalidConfig if there is none, or if it is Kafka's and unused."""
    key = BROKER_KEYS.get(name)
    if key is None:
        if (family := family_of(name)) is not None:
            raise InvalidConfig(f"{name[:250]} is not supported: {family.reason}")
        of_topic = TOPIC_KEYS[name].broker_key if name in TOPIC_KEYS else None
        raise _unknown("broker", name, of_topic, BROKER_KEYS)
    return key


def _unknown(whose: str, name: str, meant: str | None, names: Iterable[str]) -> UnknownConfig:
    from difflib import get_close_matches  # imported late: only misspelled names need it

    shown = name[:250]
    near = [meant] if meant is not None else get_close_matches(shown, names, 1)
    hint = f". Did you mean {near[0]}?" if near else ""
    return UnknownConfig(f"there is no {whose} config {shown!r}{hint}")


def _ignored_family(name: str) -> Family | None:
    family = family_of(name) if name not in BROKER_KEYS else None
    return None if family is None or family.is_refused else family


# What a new Kafka sets for all brokers by itself (4.1 and later, KIP-966), so that clients find it there: at the value
# that the broker was started with.
_SET_FOR_ALL_BROKERS = ("min.insync.replicas",)


class BrokerConfigs:
    """The broker's own values: those given at the start, overridden by those set at run time."""

    def __init__(self, at_start: Mapping[str, str] | None = None) -> None:
        """Raises InvalidConfig for the first of `at_start` that is unknown or invalid."""
        given = dict(at_start or {})
        self.ignored = {name: family.reason for name in given if (family := _ignored_family(name)) is not None}
        for name in self.ignored:
            check_ignored(name, given[name])
        self.at_start = {name: text for name, text in given.items() if name not in self.ignored}
        self.at_run_time: dict[str, dict[str, str]] = {}  # by broker name; "" is all brokers
        for name, text in self.at_start.items():
            broker_key(name).parse(text)
        self.node_name = self._number_of_broker()
        self._topic_defaults: TopicConfig | None = None
        self._check_together()

    def _check_together(self) -> None:
        """Raises InvalidConfig if two values contradict each other."""
        if self.number("group.min.session.timeout.ms") > self.number("group.max.session.timeout.ms"):
            raise InvalidConfig("group.min.session.timeout.ms is greater than group.max.session.timeout.ms")
        check_consumer_configs(self)

    def check_with(self, broker: str, changes: Mapping[str, str | None]) -> None:
        """Raises InvalidConfig if topics or groups could not have the values that result from these changes."""
        after = BrokerConfigs(self.at_start)
        after.at_run_time = {name: dict(values) for name, values in self.at_run_time.items()}
        for name, text in changes.items():
            after.set_at_run_time(broker, name, text)
        _ = after.topic_defaults  # parses all values
        check_consumer_configs(after)

    def _number_of_broker(self) -> str:
        """Gives both of Kafka's names for the broker's number the same value."""
        names = ("node.id", "broker.id")
        given = {str(broker_key(name).parse(self.at_start[name])) for name in names if name in self.at_start}
        if len(given) > 1:
            raise InvalidConfig(f"node.id and broker.id are synonyms, and cannot be both {' and '.join(sorted(given))}")
        for number in given:
            self.at_start.update(dict.fromkeys(names, number))
        return given.pop() if given else str(broker_key("node.id").default)

    def set_at_run_time(self, broker: str, name: str, text: str | None) -> None:
        """Sets a value at run time for one broker, or with "" for all; None removes it."""
        values = self.at_run_time.setdefault(broker, {})
        if text is None:
            values.pop(name, None)
        else:
            values[name] = text
        if not values:
            del self.at_run_time[broker]
        self._topic_defaults = None

    @property
    def for_all_brokers(self) -> dict[str, str]:
        """The configs that were set at run time for all brokers, or count as such."""
        by_itself = {name: self.at_start.get(name, BROKER_KEYS[name].default or "") for name in _SET_FOR_ALL_BROKERS}
        return by_itself | self.at_run_time.get("", {})

    def layers(self, name: str) -> Iterator[Entry]:
        """Yields every value that the config has at any source, followed by those of its synonyms. The first one
        counts.
        """
        key = broker_key(name)
        if name not in SYNONYMS:
            return self._layers((key,))
        own = dropwhile(lambda entry: entry.key.name != name, self.layers_with_synonyms(name))
        return chain([first], own) if (first := next(own, None)) else iter([Entry(key, None, ConfigSource.DEFAULT)])

    def layers_with_synonyms(self, name: str) -> Iterator[Entry]:
        """The same for topics, for which the name of the synonym does not matter."""
        return self._layers([broker_key(synonym) for synonym in SYNONYMS.get(name, (name,))])

    def _layers(self, keys: Sequence[ConfigKey]) -> Iterator[Entry]:
        for values, source in (
            (self.at_run_time.get(self.node_name, {}), ConfigSource.BROKER_AT_RUN_TIME),
            (self.for_all_brokers, ConfigSource.ALL_BROKERS_AT_RUN_TIME),
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
        """How long a client may use its quota at once: all windows but the current one."""
        return (self.number("quota.window.num") - 1) * self.number("quota.window.size.seconds")

    @property
    def topic_defaults(self) -> "TopicConfig":
        """The values for a topic without its own."""
        if self._topic_defaults is None:
            texts = {name: topic_entry(name, {}, self).text or "" for name in (*_FIELDS, *_LOG_FIELDS)}
            log = LogConfig(producer_id_expiration_ms=self.number("producer.id.expiration.ms"))
            empty = TopicConfig(0, 0, 0, False, False, log, BacklogConfig(), _target({}, self))
            self._topic_defaults = _with(empty, texts)
        return self._topic_defaults


def topic_layers(name: str, overrides: Mapping[str, str], broker: BrokerConfigs) -> Iterator[Entry]:
    """Yields every value that a topic config has, the broker's under the broker's name. The first one counts."""
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


class BacklogPolicy(StrEnum):
    """What happens to records that a named group has not read: see `broker/backlog`."""

    DROP = "drop"
    HOLD = "hold"
    BACKPRESSURE = "backpressure"
    REJECT = "reject"


class BacklogConfig(NamedTuple):
    """The backlog policy of a topic; limits are per partition, and -1 is none."""

    policy: BacklogPolicy = BacklogPolicy.DROP
    groups: tuple[str, ...] = ()
    bytes_max: int = -1
    age_ms_max: int = -1
    expiry_ms: int = 0

    @property
    def limits_producers(self) -> bool:
        """Whether producers are slowed or refused: for every append of such a topic the backlog is measured."""
        return bool(self.groups) and self.policy in (BacklogPolicy.REJECT, BacklogPolicy.BACKPRESSURE)


class TopicConfig(NamedTuple):
    """The topic configs that the hot path needs, parsed once."""

    max_message_bytes: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    needs_keys: bool  # every record needs a key: compaction would lose one without
    deletes: bool  # retention deletes records
    log: LogConfig
    backlog: BacklogConfig
    target: Target | None  # codec to store batches in; None keeps the producer's

    @property
    def takes_batches_as_they_are(self) -> bool:
        """Whether batches are stored as sent, apart from the stamped fields, without a check of their records."""
        return not self.needs_keys and self.target is None and not self.log.log_append_time


_FIELDS = {
    "cleanup.policy": "needs_keys",
    "max.message.bytes": "max_message_bytes",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
}
BACKLOG_PREFIX = "tailrace.backlog."
BACKLOG_GROUPS_MAX = 100  # of a topic: each append that is measured takes some 2 µs for each of them
_BACKLOG_NAMES = ("policy", "groups", "bytes", "ms", "expiry.ms")
# Topics with a type of their own use the level, too: it is more than a part of the default type.
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
    """Returns one shared object for all topics without overrides: ten thousand topics may be created at once."""
    if not overrides:
        return broker.topic_defaults
    config = _with(broker.topic_defaults, overrides)
    if any(name.startswith(BACKLOG_PREFIX) for name in overrides):
        config = config._replace(backlog=backlog_config(overrides, broker))
    if overrides.keys().isdisjoint(COMPRESSION_KEYS):
        return config
    return config._replace(target=_target(overrides, broker))


def backlog_config(overrides: Mapping[str, str], broker: BrokerConfigs) -> BacklogConfig:
    """Returns the policy in the overrides, even if they contradict each other: they are replayed one by one.
    `check_backlog` finds contradictions.
    """
    texts = {name: topic_entry(BACKLOG_PREFIX + name, overrides, broker).text or "" for name in _BACKLOG_NAMES}
    groups = tuple(dict.fromkeys(parts_of(texts["groups"])))
    limits = (int(texts["bytes"]), int(texts["ms"]), int(texts["expiry.ms"]))
    return BacklogConfig(BacklogPolicy(texts["policy"]), groups, *limits)


def check_backlog(config: BacklogConfig) -> None:
    """Raises InvalidConfig where a policy lacks what it needs, or names too many groups."""
    policy, groups = config.policy, config.groups
    if policy is BacklogPolicy.DROP and groups:
        raise InvalidConfig("tailrace.backlog.groups has no effect with the policy drop: choose another one, or none")
    if policy is not BacklogPolicy.DROP and not groups:
        raise InvalidConfig(f"the policy {policy} needs the groups it applies to: set tailrace.backlog.groups")
    if len(groups) > BACKLOG_GROUPS_MAX:
        raise InvalidConfig(f"tailrace.backlog.groups names {len(groups)} groups, and may name {BACKLOG_GROUPS_MAX}")
    if config.limits_producers and config.bytes_max < 0 and config.age_ms_max < 0:
        raise InvalidConfig(f"the policy {policy} needs a limit: set tailrace.backlog.bytes or tailrace.backlog.ms")


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
