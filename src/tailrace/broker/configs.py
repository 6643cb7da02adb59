"""Configs: one registry for the file, the flags, the topics and DescribeConfigs.

A topic's value is its own where it has one, else the broker's for all topics, else the default. A broker's value is the
one set at run time, for it alone or else for all brokers, else the one it was started with, else the default. Names and
defaults are Kafka's, but where docs/DEVIATIONS.md says otherwise; ours begin with `tailrace.`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from enum import IntEnum
from itertools import chain, dropwhile
from typing import Any, NamedTuple

from tailrace.broker.config_keys import NUMBERS_BY_NAME, REPLICAS, ConfigKey, ConfigType, InvalidConfig, Value, parts_of
from tailrace.broker.foreign_configs import Family, family_of
from tailrace.log.config import LogConfig
from tailrace.records.compression import Codec
from tailrace.records.recompression import Target

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


class ConfigSource(IntEnum):
    """Where a value comes from, in Kafka's numbers."""

    TOPIC = 1
    BROKER_AT_RUN_TIME = 2
    ALL_BROKERS_AT_RUN_TIME = 3
    BROKER_AT_START = 4
    DEFAULT = 5
    LOGGER = 6


_BY_ITSELF = "-1 leaves that to the operating system."
_ONE_REPLICA = "Taken and ignored: there is one replica."
_NO_REMOTE = "Taken and ignored: there is no remote storage."


def _boolean(name: str, broker_key: str | None, default: bool, doc: str, *, only: str | None = None) -> ConfigKey:
    choices = () if only is None else (only,)
    return ConfigKey(name, ConfigType.BOOLEAN, str(default).lower(), doc, choices=choices, broker_key=broker_key)


def _int(
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


def _long(name: str, broker_key: str | None, default: int, minimum: int, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.LONG, str(default), doc, minimum, broker_key=broker_key)


def _hours(name: str, default: str | None, minimum: int, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, default, doc, minimum, unit=HOUR_MS)


def _minutes(name: str, default: str | None, minimum: int, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, default, doc, minimum, unit=MINUTE_MS)


def _ratio(name: str, broker_key: str | None, default: float, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.DOUBLE, str(default), doc, 0, 1, broker_key=broker_key)


def _rate(name: str, broker_key: str | None, default: float, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.DOUBLE, str(default), doc, broker_key=broker_key)


def _text(name: str, broker_key: str | None, default: str | None, choices: str, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.STRING, default, doc, choices=tuple(choices.split()), broker_key=broker_key)


def _list(name: str, broker_key: str | None, default: str | None, choices: str, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.LIST, default, doc, choices=tuple(choices.split()), broker_key=broker_key)


# Name, the broker's name for it, default, the least it may be; what it is for. In the order of their names.
# fmt: off
_TOPIC_KEYS = (
    _list("cleanup.policy", "log.cleanup.policy", "delete", "delete compact",
        "What becomes of old segments: deleted by retention.ms and retention.bytes, compacted by key, or both."),
    _int("compression.gzip.level", "compression.gzip.level", -1, -1,
        "How hard gzip tries, where compression.type is gzip; -1 is its own default.", choices="-1 1 2 3 4 5 6 7 8 9"),
    _int("compression.lz4.level", "compression.lz4.level", 9, 1,
        "How hard lz4 tries, where compression.type is lz4.", maximum=17),
    _text("compression.type", "compression.type", "producer", "uncompressed zstd lz4 snappy gzip producer",
        "The codec batches are kept in. One that came in another is recompressed; with `producer` they stay as sent."),
    _int("compression.zstd.level", "compression.zstd.level", 3, -131072,
        "How hard zstd tries, where compression.type is zstd.", maximum=22),
    _long("delete.retention.ms", "log.cleaner.delete.retention.ms", DAY_MS, 0,
        "For how long a tombstone, and a transaction's marker, stays once it was compacted."),
    _long("file.delete.delay.ms", "log.segment.delete.delay.ms", 60_000, 0,
        "Taken and ignored: files go as soon as their log can do without them; readers that have one open keep it."),
    _long("flush.messages", "log.flush.interval.messages", LONG_MAX, 1,
        "After how many records a partition is flushed although nobody waits for it; after 32 MB in any case."),
    _long("flush.ms", "log.flush.interval.ms", LONG_MAX, 0,
        "After what time a partition is flushed although nobody waits for it; after a second in any case."),
    _list("follower.replication.throttled.replicas", None, "", "", _ONE_REPLICA)._replace(pattern=REPLICAS),
    _int("index.interval.bytes", "log.index.interval.bytes", 4096, 0,
        "How many bytes of a segment lie between two entries of its index."),
    _list("leader.replication.throttled.replicas", None, "", "", _ONE_REPLICA)._replace(pattern=REPLICAS),
    _long("local.retention.bytes", "log.local.retention.bytes", -2, -2, _NO_REMOTE),
    _long("local.retention.ms", "log.local.retention.ms", -2, -2, _NO_REMOTE),
    _long("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", LONG_MAX, 1,
        "After what time a record is compacted at the latest: the active segment rolls for it, too."),
    _int("max.message.bytes", "message.max.bytes", 1_048_588, 0,
        "The largest batch a producer may send, compressed or not."),
    _long("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", HOUR_MS, 0,
        "How far a record's timestamp may lie in the future."),
    _long("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", LONG_MAX, 0,
        "How far a record's timestamp may lie in the past."),
    _text("message.timestamp.type", "log.message.timestamp.type", "CreateTime", "CreateTime LogAppendTime",
        "Whether a record keeps its producer's time, or gets the broker's."),
    _ratio("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", 0.5,
        "How much of what could be compacted is new when it is, as a share of its bytes."),
    _long("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", 0, 0,
        "For how long a record is not compacted, counted from its timestamp."),
    _int("min.insync.replicas", "min.insync.replicas", 1, 1, _ONE_REPLICA),
    _boolean("preallocate", "log.preallocate", False, "Taken and ignored: files grow as they are written."),
    _boolean("remote.log.copy.disable", None, False, _NO_REMOTE),
    _boolean("remote.log.delete.on.disable", None, False, _NO_REMOTE),
    _boolean("remote.storage.enable", None, False, "There is no remote storage: true is refused.", only="false"),
    _long("retention.bytes", "log.retention.bytes", -1, -1,
        "How much of a partition is kept, in whole segments: at least so much, where there was more. -1 is all."),
    _long("retention.ms", "log.retention.ms", WEEK_MS, -1,
        "For how long records are kept: a segment goes when its newest record is older. -1 is for ever."),
    _int("segment.bytes", "log.segment.bytes", 1 << 30, 1 << 20, "How large a segment grows before the next begins."),
    _int("segment.index.bytes", "log.index.size.max.bytes", 10 << 20, 4,
        "How large the indexes of a segment grow before the next begins."),
    _long("segment.jitter.ms", "log.roll.jitter.ms", 0, 0,
        "By how much sooner a segment may be too old, each by another part of it, so that not all roll at once."),
    _long("segment.ms", "log.roll.ms", WEEK_MS, 1, "How old a segment grows before the next append begins another."),
    _boolean("unclean.leader.election.enable", "unclean.leader.election.enable", False, _ONE_REPLICA),
)
# fmt: on
TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _TOPIC_KEYS}

# Those of brokers alone, which have to be known at the start.
# fmt: off
_STATIC_KEYS = (
    _list("advertised.listeners", None, None, "",
        "What clients are told to connect to, one for each listener; where nothing is said, the address they came by."),
    _boolean("auto.create.topics.enable", None, True, "Whether a topic comes into being when a client asks for it."),
    _int("broker.id", None, 1, 0, "The number of this broker, as Kafka called it before node.id."),
    _text("broker.rack", None, None, "", "Where this broker stands: clients are told."),
    _long("connections.max.idle.ms", None, 600_000, -1, "A connection on which nothing moves for so long is closed."),
    _int("default.replication.factor", None, 1, 1, _ONE_REPLICA),
    _boolean("delete.topic.enable", None, True, "Whether topics can be deleted."),
    _int("fetch.max.bytes", None, 55 << 20, 1024, "The largest answer to one Fetch."),
    _int("group.initial.rebalance.delay.ms", None, 3_000, 0,
        "How long the first rebalance of a group waits for more members, each time that one has come."),
    _int("group.max.session.timeout.ms", None, 1_800_000, 1, "For how long a member may be silent at most."),
    _int("group.max.size", None, INT_MAX, 1, "How many members a group may have."),
    _int("group.min.session.timeout.ms", None, 6_000, 1, "The shortest silence after which a member may be put out."),
    _list("listeners", None, "PLAINTEXT://127.0.0.1:9092", "", "Where clients connect: as `--listen`."),
    _long("log.cleaner.backoff.ms", None, 15_000, 0,
        "How long compaction waits before it looks again, where no log was due."),
    _long("log.cleaner.dedupe.buffer.size", None, 128 << 20, 1 << 20,
        "Memory for the keys of one pass, 24 bytes each. With more of them it ends early, and another one follows."),
    _boolean("log.cleaner.enable", None, True, "Whether logs are compacted at all."),
    _ratio("log.cleaner.io.buffer.load.factor", None, 0.9, "How full the memory for keys may get."),
    _int("log.cleaner.io.buffer.size", None, 512 << 10, 0,
        "Taken and ignored: a pass reads and writes by the megabyte."),
    _rate("log.cleaner.io.max.bytes.per.second", None, 1.7976931348623157e308,
        "How fast compaction may read and write, both together."),
    _int("log.cleaner.threads", None, 1, 0,
        "Taken and ignored: one log is compacted at a time, in a process of its own."),
    _list("log.dir", None, "./tailrace-data", "", "Where logs are kept: as `--data`."),
    _list("log.dirs", None, None, "", "The same. There is one directory."),
    _int("log.flush.offset.checkpoint.interval.ms", None, 60_000, 1,
        "How often what is derived from logs is saved: so much is read again, at most, after a crash."),
    _long("log.retention.check.interval.ms", None, 300_000, 1, "How often retention looks for what may be deleted."),
    _hours("log.retention.hours", "168", -1, "As log.retention.ms, in hours."),
    _minutes("log.retention.minutes", None, -1, "As log.retention.ms, in minutes; counts more than hours."),
    _hours("log.roll.hours", "168", 1, "As log.roll.ms, in hours."),
    _hours("log.roll.jitter.hours", "0", 0, "As log.roll.jitter.ms, in hours."),
    _int("max.incremental.fetch.session.cache.slots", None, 1000, 0, "How many fetch sessions are remembered."),
    _int("max.request.partition.size.limit", None, 2000, 1,
        "How many partitions there are in one answer to DescribeTopicPartitions."),
    _int("node.id", None, 1, 0, "The number of this broker."),
    _int("num.partitions", None, 1, 1, "How many partitions a topic has if nobody says."),
    _int("offset.metadata.max.bytes", None, 4096, 0,
        "How many characters a note may have that a client commits with an offset."),
    _int("offsets.topic.num.partitions", None, 1, 1,
        "How many partitions the log of groups has, when it is created; with one, all commits share a flush."),
    _int("offsets.topic.segment.bytes", None, 100 << 20, 1 << 20,
        "How large a segment of the log of groups grows, from when it is created."),
    _int("quota.window.num", None, 11, 1,
        "A client may do at once what its quota allows in one window less than so many; else it has to wait."),
    _int("quota.window.size.seconds", None, 1, 1, "How long one of these windows is."),
    _boolean("remote.log.storage.system.enable", None, False, "There is no remote storage: true is refused.",
        only="false"),
    _int("socket.listen.backlog.size", None, 1024, 1, "How many connections may wait to be accepted."),
    _int("socket.receive.buffer.bytes", None, -1, -1, f"The kernel's buffer for what a client sends. {_BY_ITSELF}"),
    _int("socket.request.max.bytes", None, 100 << 20, 1, "The largest request that is read."),
    _int("socket.send.buffer.bytes", None, -1, -1, f"The kernel's buffer for what a client is sent. {_BY_ITSELF}"),
    _long("tailrace.inflight.bytes", None, 512 << 20, 1 << 20,
        "How many bytes of requests the broker holds at once, of all connections."),
    _long("tailrace.scrub.bytes.per.second", None, 8 << 20, 0,
        "How much of what is on disk is read again in a second, to find rot before a reader does; 0 is nothing."),
    _long("tailrace.scrub.interval.ms", None, WEEK_MS, 1000,
        "How often all of it is read again, at the most; if that takes longer, it begins anew when it is done."),
    _int("tailrace.write.timeout.ms", None, 30_000, 1,
        "A client that takes nothing of its answer, or does not go on with its request, for so long is disconnected."),
)
# Those of brokers alone that can be changed at run time.
_DYNAMIC_KEYS = (
    _int("max.connection.creation.rate", None, INT_MAX, 1, "How many connections are accepted in a second."),
    _int("max.connections", None, 10_000, 0, "How many connections there may be at once."),
    _int("max.connections.per.ip", None, INT_MAX, 0, "How many connections one address may hold."),
    _text("max.connections.per.ip.overrides", None, "", "",
        "The same for single addresses: `10.0.0.7:200,10.0.0.8:50`.")._replace(pattern=NUMBERS_BY_NAME),
    _int("producer.id.expiration.ms", None, DAY_MS, 1, "After what time without a batch a producer is forgotten."),
    _long("tailrace.disk.budget.bytes", None, -1, -1,
        "How many bytes all logs may take: beyond, the oldest segments of all topics go, but for those that are kept "
        "for ever, compacted, internal or active. -1 is no limit."),
    _int("tailrace.disk.budget.percent", None, -1, -1,
        "The same as a share of the disk; the smaller one counts. -1 is no limit.", maximum=100),
    _long("tailrace.disk.reserve.bytes", None, -1, -1,
        "How much of the disk stays free: with less, producers are told to try again, until there is half as much "
        "more. -1 is 1 GiB, or 5 % of the disk if that is less."),
)
# fmt: on
# A broker's config in milliseconds, and those that stand in for it where it is not given, the first one that is.
SYNONYMS = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
}


def _of_broker(key: ConfigKey) -> ConfigKey:
    """The broker's config for what topics do not say. If it has synonyms, the last of them has the default."""
    assert key.broker_key is not None
    default = None if key.broker_key in SYNONYMS else key.default
    return key._replace(name=key.broker_key, broker_key=None, default=default)


BROKER_KEYS: dict[str, ConfigKey] = {
    **{key.name: key._replace(is_dynamic=False) for key in _STATIC_KEYS},
    **{key.name: key for key in _DYNAMIC_KEYS},
    **{key.broker_key: _of_broker(key) for key in _TOPIC_KEYS if key.broker_key},
}


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
        of_broker = {key.broker_key: key.name for key in _TOPIC_KEYS}
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
        self.at_start = {name: text for name, text in given.items() if name not in self.ignored}
        self.at_run_time: dict[str, dict[str, str]] = {}  # by the name of a broker; "" is all of them
        for name, text in self.at_start.items():
            broker_key(name).parse(text)
        self.node_name = self._number_of_broker()
        self._topic_defaults: TopicConfig | None = None
        self.check_together()

    def check_together(self) -> None:
        """Raises InvalidConfig where one value makes no sense beside another."""
        if self.number("group.min.session.timeout.ms") > self.number("group.max.session.timeout.ms"):
            raise InvalidConfig("group.min.session.timeout.ms is more than group.max.session.timeout.ms")
        if not self.number("max.connections.per.ip") and not self.text("max.connections.per.ip.overrides"):
            raise InvalidConfig("max.connections.per.ip cannot be 0 where max.connections.per.ip.overrides is empty")

    def check_with(self, broker: str, changes: Mapping[str, str | None]) -> None:
        """The same as it would be after these changes at run time."""
        after = BrokerConfigs(self.at_start)
        after.at_run_time = {name: dict(values) for name, values in self.at_run_time.items()}
        for name, text in changes.items():
            after.set_at_run_time(broker, name, text)
        after.check_together()

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


_FIELDS = {
    "cleanup.policy": "needs_keys",
    "max.message.bytes": "max_message_bytes",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
}
_COMPRESSION = ("compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level")
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
    if overrides.keys().isdisjoint(_COMPRESSION):
        return config
    return config._replace(target=_target(overrides, broker))


def _target(overrides: Mapping[str, str], broker: BrokerConfigs) -> Target | None:
    kind = topic_entry("compression.type", overrides, broker).value
    if kind == "producer":
        return None
    codec = Codec.NONE if kind == "uncompressed" else Codec[str(kind).upper()]
    level = None
    if (name := f"compression.{kind}.level") in _COMPRESSION:
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
        own["log"] = replace(config.log, **log)
    return config._replace(**own) if own else config


def _parsed(name: str, text: str) -> Any:
    value = TOPIC_KEYS[name].parse(text)
    if name == "message.timestamp.type":
        return value == "LogAppendTime"
    return "compact" in text if name == "cleanup.policy" else value
