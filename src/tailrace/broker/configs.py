"""Configs: one registry for the file, the flags, the topics and DescribeConfigs.

A topic's value is its own where it has one, else the broker's for all topics, else the default. A broker's value is the
one set at run time, for it alone or else for all brokers, else the one it was started with, else the default. Names and
defaults are Kafka's, but where docs/DEVIATIONS.md says otherwise; ours begin with `tailrace.`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple

from tailrace.broker.config_keys import ConfigKey, ConfigType, InvalidConfig, Value
from tailrace.log.config import LogConfig

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


class ConfigSource(IntEnum):
    """Where a value comes from, in Kafka's numbers."""

    TOPIC = 1
    BROKER_AT_RUN_TIME = 2
    ALL_BROKERS_AT_RUN_TIME = 3
    BROKER_AT_START = 4
    DEFAULT = 5


_RETENTION = "Kept and shown; takes effect with the release that brings retention."
_COMPACTION = "Kept and shown; takes effect with the release that brings compaction."
_ONE_REPLICA = "Taken and ignored: there is one replica."
_NO_REMOTE = "Taken and ignored: there is no remote storage."
_AS_SENT = "Taken and ignored: batches stay as they were sent."


def _boolean(name: str, broker_key: str | None, default: bool, doc: str, *, only: str | None = None) -> ConfigKey:
    choices = () if only is None else (only,)
    return ConfigKey(name, ConfigType.BOOLEAN, str(default).lower(), doc, choices=choices, broker_key=broker_key)


def _int(
    name: str, broker_key: str | None, default: int, minimum: int, doc: str, *, maximum: int | None = None
) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, str(default), doc, minimum, maximum, broker_key=broker_key)


def _long(name: str, broker_key: str | None, default: int, minimum: int, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.LONG, str(default), doc, minimum, broker_key=broker_key)


def _ratio(name: str, broker_key: str | None, default: float, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.DOUBLE, str(default), doc, 0, 1, broker_key=broker_key)


def _text(name: str, broker_key: str | None, default: str, choices: str, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.STRING, default, doc, choices=tuple(choices.split()), broker_key=broker_key)


def _list(name: str, broker_key: str | None, default: str, choices: str, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.LIST, default, doc, choices=tuple(choices.split()), broker_key=broker_key)


# Name, the broker's name for it, default, the least it may be; what it is for. In the order of their names.
# fmt: off
_TOPIC_KEYS = (
    _list("cleanup.policy", "log.cleanup.policy", "delete", "delete compact",
        f"What becomes of old segments. {_RETENTION}"),
    _int("compression.gzip.level", "compression.gzip.level", -1, -1, f"Of the codec. {_AS_SENT}", maximum=9),
    _int("compression.lz4.level", "compression.lz4.level", 9, 1, f"Of the codec. {_AS_SENT}", maximum=17),
    _text("compression.type", "compression.type", "producer", "producer",
        "The codec batches are kept in: their producer's. Others are refused until the broker can compress."),
    _int("compression.zstd.level", "compression.zstd.level", 3, -131072, f"Of the codec. {_AS_SENT}", maximum=22),
    _long("delete.retention.ms", "log.cleaner.delete.retention.ms", DAY_MS, 0,
        f"For how long a deleted key is remembered. {_COMPACTION}"),
    _long("file.delete.delay.ms", "log.segment.delete.delay.ms", 60_000, 0,
        "Taken and ignored: files go as soon as their log can do without them; readers that have one open keep it."),
    _long("flush.messages", "log.flush.interval.messages", LONG_MAX, 1,
        "After how many records a partition is flushed although nobody waits for it; after 32 MB in any case."),
    _long("flush.ms", "log.flush.interval.ms", LONG_MAX, 0,
        "After what time a partition is flushed although nobody waits for it; after a second in any case."),
    _list("follower.replication.throttled.replicas", None, "", "", _ONE_REPLICA),
    _int("index.interval.bytes", "log.index.interval.bytes", 4096, 0,
        "How many bytes of a segment lie between two entries of its index."),
    _list("leader.replication.throttled.replicas", None, "", "", _ONE_REPLICA),
    _long("local.retention.bytes", "log.local.retention.bytes", -2, -2, _NO_REMOTE),
    _long("local.retention.ms", "log.local.retention.ms", -2, -2, _NO_REMOTE),
    _long("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", LONG_MAX, 1,
        f"After what time a record is compacted at the latest. {_COMPACTION}"),
    _int("max.message.bytes", "message.max.bytes", 1_048_588, 0,
        "The largest batch a producer may send, compressed or not."),
    _long("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", HOUR_MS, 0,
        "How far a record's timestamp may lie in the future."),
    _long("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", LONG_MAX, 0,
        "How far a record's timestamp may lie in the past."),
    _text("message.timestamp.type", "log.message.timestamp.type", "CreateTime", "CreateTime LogAppendTime",
        "Whether a record keeps its producer's time, or gets the broker's."),
    _ratio("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", 0.5,
        f"How much of a log is new when it is compacted. {_COMPACTION}"),
    _long("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", 0, 0,
        f"For how long a record is not compacted. {_COMPACTION}"),
    _int("min.insync.replicas", "min.insync.replicas", 1, 1, _ONE_REPLICA),
    _boolean("preallocate", "log.preallocate", False, "Taken and ignored: files grow as they are written."),
    _boolean("remote.log.copy.disable", None, False, _NO_REMOTE),
    _boolean("remote.log.delete.on.disable", None, False, _NO_REMOTE),
    _boolean("remote.storage.enable", None, False, "There is no remote storage: true is refused.", only="false"),
    _long("retention.bytes", "log.retention.bytes", -1, -1,
        f"How much of a partition is kept; -1 is all. {_RETENTION}"),
    _long("retention.ms", "log.retention.ms", WEEK_MS, -1,
        f"For how long records are kept; -1 is for ever. {_RETENTION}"),
    _int("segment.bytes", "log.segment.bytes", 1 << 30, 1 << 20, "How large a segment grows before the next begins."),
    _int("segment.index.bytes", "log.index.size.max.bytes", 10 << 20, 4,
        "Taken and ignored: an index is as large as its entries."),
    _long("segment.jitter.ms", "log.roll.jitter.ms", 0, 0,
        "Taken and ignored: segments roll with the appends, which come when they come."),
    _long("segment.ms", "log.roll.ms", WEEK_MS, 1, "How old a segment grows before the next append begins another."),
    _boolean("unclean.leader.election.enable", "unclean.leader.election.enable", False, _ONE_REPLICA),
)
# fmt: on
TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _TOPIC_KEYS}

# Those of brokers alone, which have to be known at the start.
# fmt: off
_STATIC_KEYS = (
    _boolean("auto.create.topics.enable", None, True, "Whether a topic comes into being when a client asks for it."),
    _long("connections.max.idle.ms", None, 600_000, -1, "A connection on which nothing moves for so long is closed."),
    _int("default.replication.factor", None, 1, 1, _ONE_REPLICA),
    _boolean("delete.topic.enable", None, True, "Whether topics can be deleted."),
    _int("fetch.max.bytes", None, 55 << 20, 1024, "The largest answer to one Fetch."),
    _int("group.initial.rebalance.delay.ms", None, 3_000, 0,
        "How long the first rebalance of a group waits for more members, each time that one has come."),
    _int("group.max.session.timeout.ms", None, 1_800_000, 1, "For how long a member may be silent at most."),
    _int("group.max.size", None, INT_MAX, 1, "How many members a group may have."),
    _int("group.min.session.timeout.ms", None, 6_000, 1, "The shortest silence after which a member may be put out."),
    _int("max.connections", None, 10_000, 1, "How many connections there may be at once."),
    _int("max.connections.per.ip", None, INT_MAX, 1, "How many connections one address may hold."),
    _int("max.incremental.fetch.session.cache.slots", None, 1000, 0, "How many fetch sessions are remembered."),
    _int("node.id", None, 1, 0, "The number of this broker."),
    _int("num.partitions", None, 1, 1, "How many partitions a topic has if nobody says."),
    _int("offset.metadata.max.bytes", None, 4096, 0,
        "How many characters a note may have that a client commits with an offset."),
    _int("offsets.topic.num.partitions", None, 1, 1,
        "How many partitions the log of groups has, when it is created; with one, all commits share a flush."),
    _int("producer.id.expiration.ms", None, DAY_MS, 1, "After what time without a batch a producer is forgotten."),
    _int("socket.request.max.bytes", None, 100 << 20, 1, "The largest request that is read."),
    _long("tailrace.inflight.bytes", None, 512 << 20, 1 << 20,
        "How many bytes of requests the broker holds at once, of all connections."),
    _long("tailrace.scrub.bytes.per.second", None, 8 << 20, 0,
        "How much of what is on disk is read again in a second, to find rot before a reader does; 0 is nothing."),
    _long("tailrace.scrub.interval.ms", None, WEEK_MS, 1000,
        "How often all of it is read again, at the most; if that takes longer, it begins anew when it is done."),
    _int("tailrace.write.timeout.ms", None, 30_000, 1,
        "A client that takes nothing of its answer, or does not go on with its request, for so long is disconnected."),
)
# fmt: on
BROKER_KEYS: dict[str, ConfigKey] = {
    **{key.name: key._replace(is_dynamic=False) for key in _STATIC_KEYS},
    **{key.broker_key: key._replace(name=key.broker_key, broker_key=None) for key in _TOPIC_KEYS if key.broker_key},
}


class Entry(NamedTuple):
    """A config as it stands somewhere, or as it stands now."""

    key: ConfigKey
    text: str | None
    source: ConfigSource

    @property
    def value(self) -> Value:
        return self.key.parse(self.text)


def topic_key(name: str) -> ConfigKey:
    """Raises InvalidConfig for a name that no topic config has."""
    return _known(TOPIC_KEYS, name, "topic")


def broker_key(name: str) -> ConfigKey:
    return _known(BROKER_KEYS, name, "broker")


def _known(keys: Mapping[str, ConfigKey], name: str, whose: str) -> ConfigKey:
    key = keys.get(name)
    if key is None:
        raise InvalidConfig(f"there is no {whose} config {name[:250]!r}")
    return key


class BrokerConfigs:
    """The broker's own values: those it was started with, and over them those set at run time."""

    def __init__(self, at_start: Mapping[str, str] | None = None) -> None:
        """Raises InvalidConfig, with the first of `at_start` that is not known or not valid."""
        self.at_start = dict(at_start or {})
        self.at_run_time: dict[str, dict[str, str]] = {}  # by the name of a broker; "" is all of them
        for name, text in self.at_start.items():
            broker_key(name).parse(text)
        node_id = broker_key("node.id")
        self.node_name = str(node_id.parse(self.at_start.get(node_id.name, node_id.default)))
        self._topic_defaults: TopicConfig | None = None

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
        """Every value that the config has somewhere. The first one counts."""
        key = broker_key(name)
        for values, source in (
            (self.at_run_time.get(self.node_name, {}), ConfigSource.BROKER_AT_RUN_TIME),
            (self.at_run_time.get("", {}), ConfigSource.ALL_BROKERS_AT_RUN_TIME),
            (self.at_start, ConfigSource.BROKER_AT_START),
        ):
            if name in values:
                yield Entry(key, values[name], source)
        yield Entry(key, key.default, ConfigSource.DEFAULT)

    def entry(self, name: str) -> Entry:
        return next(self.layers(name))

    def entries(self) -> Iterable[Entry]:
        return map(self.entry, sorted(BROKER_KEYS))

    def number(self, name: str) -> int:
        value = self.entry(name).value
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        return bool(self.entry(name).value)

    @property
    def topic_defaults(self) -> "TopicConfig":
        """What holds for a topic that says nothing itself."""
        if self._topic_defaults is None:
            texts = {name: topic_entry(name, {}, self).text or "" for name in (*_FIELDS, *_LOG_FIELDS)}
            log = LogConfig(producer_id_expiration_ms=self.number("producer.id.expiration.ms"))
            self._topic_defaults = _with(TopicConfig(0, 0, 0, False, log), texts)
        return self._topic_defaults


def topic_layers(name: str, overrides: Mapping[str, str], broker: BrokerConfigs) -> Iterator[Entry]:
    """Every value that a topic's config has somewhere, the broker's under the broker's name. The first one counts."""
    key = topic_key(name)
    if name in overrides:
        yield Entry(key, overrides[name], ConfigSource.TOPIC)
    if key.broker_key is not None:
        yield from broker.layers(key.broker_key)
    else:
        yield Entry(key, key.default, ConfigSource.DEFAULT)


def topic_entry(name: str, overrides: Mapping[str, str], broker: BrokerConfigs) -> Entry:
    return next(topic_layers(name, overrides, broker))._replace(key=topic_key(name))


class TopicConfig(NamedTuple):
    """What the hot path asks of a topic, parsed once."""

    max_message_bytes: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    needs_keys: bool  # of every record: compaction would lose one that has none
    log: LogConfig


_FIELDS = {
    "cleanup.policy": "needs_keys",
    "max.message.bytes": "max_message_bytes",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
}
_LOG_FIELDS = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "index.interval.bytes": "index_interval_bytes",
    "message.timestamp.type": "log_append_time",
    "flush.messages": "flush_messages",
    "flush.ms": "flush_ms",
}


def topic_config(overrides: Mapping[str, str], broker: BrokerConfigs) -> TopicConfig:
    """For all topics that do not say otherwise it is one object: ten thousand of them may be made at once."""
    return _with(broker.topic_defaults, overrides) if overrides else broker.topic_defaults


def _with(config: TopicConfig, texts: Mapping[str, str]) -> TopicConfig:
    own = {field: _parsed(name, texts[name]) for name, field in _FIELDS.items() if name in texts}
    log = {field: _parsed(name, texts[name]) for name, field in _LOG_FIELDS.items() if name in texts}
    if log:
        own["log"] = replace(config.log, **log)
    return config._replace(**own) if own else config


def _parsed(name: str, text: str) -> Any:
    value = TOPIC_KEYS[name].parse(text)
    if name == "message.timestamp.type":
        return value == "LogAppendTime"
    return "compact" in text if name == "cleanup.policy" else value
