"""Configs: one registry for the file, the flags, the topics and DescribeConfigs.

A topic's value is its own where it has one, else the broker's for all topics, else the default. A broker's value is the
one set at run time, else the one it was started with, else the default. Names and defaults are Kafka's, but where
docs/DEVIATIONS.md says otherwise; ours begin with `tailrace.`.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from tailrace.broker.config_keys import ConfigKey, ConfigType, InvalidConfig, Value
from tailrace.log.config import LogConfig

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
WEEK_MS = 7 * 24 * 3600 * 1000


class ConfigSource(IntEnum):
    """Where a value comes from, in Kafka's numbers."""

    TOPIC = 1
    BROKER_AT_RUN_TIME = 2
    ALL_BROKERS_AT_RUN_TIME = 3
    BROKER_AT_START = 4
    DEFAULT = 5


_LATER = "Kept and shown; it takes effect with the release that brings retention and compaction."

TOPIC_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            "cleanup.policy",
            LIST,
            "delete",
            f"What becomes of old segments. {_LATER}",
            choices=("delete", "compact"),
            broker_key="log.cleanup.policy",
        ),
        ConfigKey(
            "compression.type",
            STRING,
            "producer",
            "The codec batches are kept in: as the producer sent them.",
            choices=("producer",),
            broker_key="compression.type",
        ),
        ConfigKey(
            "index.interval.bytes",
            INT,
            "4096",
            "How many bytes of a segment lie between two entries of its index.",
            minimum=0,
            broker_key="log.index.interval.bytes",
        ),
        ConfigKey(
            "max.message.bytes",
            INT,
            "1048588",
            "The largest batch a producer may send, compressed or not.",
            minimum=0,
            broker_key="message.max.bytes",
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            LONG,
            "3600000",
            "How far a record's timestamp may lie in the future.",
            minimum=0,
            broker_key="log.message.timestamp.after.max.ms",
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            LONG,
            str(LONG_MAX),
            "How far a record's timestamp may lie in the past.",
            minimum=0,
            broker_key="log.message.timestamp.before.max.ms",
        ),
        ConfigKey(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            "Whether a record keeps its producer's time, or gets the broker's.",
            choices=("CreateTime", "LogAppendTime"),
            broker_key="log.message.timestamp.type",
        ),
        ConfigKey(
            "min.insync.replicas",
            INT,
            "1",
            "Taken and shown; there is one replica.",
            minimum=1,
            broker_key="min.insync.replicas",
        ),
        ConfigKey(
            "retention.bytes",
            LONG,
            "-1",
            f"How much of a partition is kept; -1 is all. {_LATER}",
            minimum=-1,
            broker_key="log.retention.bytes",
        ),
        ConfigKey(
            "retention.ms",
            LONG,
            str(WEEK_MS),
            f"For how long records are kept; -1 is for ever. {_LATER}",
            minimum=-1,
            broker_key="log.retention.ms",
        ),
        ConfigKey(
            "segment.bytes",
            INT,
            str(1 << 30),
            "How large a segment grows before the next begins.",
            minimum=1 << 20,
            broker_key="log.segment.bytes",
        ),
        ConfigKey(
            "segment.ms",
            LONG,
            str(WEEK_MS),
            "How old a segment grows before the next append begins another.",
            minimum=1,
            broker_key="log.roll.ms",
        ),
    )
}

BROKER_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey("node.id", INT, "1", "The number of this broker.", minimum=0, is_dynamic=False),
        ConfigKey(
            "auto.create.topics.enable",
            BOOLEAN,
            "true",
            "Whether a topic comes into being when a client asks for it.",
            is_dynamic=False,
        ),
        ConfigKey("num.partitions", INT, "1", "How many partitions a topic has if nobody says.", minimum=1),
        ConfigKey(
            "default.replication.factor",
            INT,
            "1",
            "Taken and shown; there is one replica.",
            minimum=1,
            is_dynamic=False,
        ),
        ConfigKey("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted.", is_dynamic=False),
        ConfigKey(
            "socket.request.max.bytes",
            INT,
            str(100 << 20),
            "The largest request that is read.",
            minimum=1,
            is_dynamic=False,
        ),
        ConfigKey(
            "connections.max.idle.ms",
            LONG,
            "600000",
            "A connection on which nothing moves for so long is closed.",
            is_dynamic=False,
        ),
        ConfigKey(
            "max.connections", INT, "10000", "How many connections there may be at once.", minimum=1, is_dynamic=False
        ),
        ConfigKey(
            "max.connections.per.ip",
            INT,
            str(INT_MAX),
            "How many connections one address may hold.",
            minimum=1,
            is_dynamic=False,
        ),
        ConfigKey(
            "fetch.max.bytes", INT, str(55 << 20), "The largest answer to one Fetch.", minimum=1024, is_dynamic=False
        ),
        ConfigKey(
            "max.incremental.fetch.session.cache.slots",
            INT,
            "1000",
            "How many fetch sessions are remembered.",
            minimum=0,
            is_dynamic=False,
        ),
        ConfigKey(
            "tailrace.inflight.bytes",
            LONG,
            str(512 << 20),
            "How many bytes of requests the broker holds at once, of all connections.",
            minimum=1 << 20,
            is_dynamic=False,
        ),
        ConfigKey(
            "tailrace.write.timeout.ms",
            INT,
            "30000",
            "A client that takes nothing of its answer for so long is disconnected.",
            minimum=1,
            is_dynamic=False,
        ),
        *(
            topic_key._replace(name=topic_key.broker_key, broker_key=None)
            for topic_key in TOPIC_KEYS.values()
            if topic_key.broker_key is not None
        ),
    )
}


class Entry(NamedTuple):
    """A config as it stands now."""

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
        raise InvalidConfig(f"there is no {whose} config {name!r}")
    return key


class BrokerConfigs:
    """The broker's own values: those it was started with, and over them those set at run time."""

    def __init__(self, at_start: Mapping[str, str] | None = None) -> None:
        """Raises InvalidConfig, with the first of `at_start` that is not known or not valid."""
        self.at_start = dict(at_start or {})
        self.at_run_time: dict[str, str] = {}
        for name, text in self.at_start.items():
            broker_key(name).parse(text)

    def entry(self, name: str) -> Entry:
        key = broker_key(name)
        if name in self.at_run_time:
            return Entry(key, self.at_run_time[name], ConfigSource.ALL_BROKERS_AT_RUN_TIME)
        if name in self.at_start:
            return Entry(key, self.at_start[name], ConfigSource.BROKER_AT_START)
        return Entry(key, key.default, ConfigSource.DEFAULT)

    def entries(self) -> Iterable[Entry]:
        return map(self.entry, sorted(BROKER_KEYS))

    def number(self, name: str) -> int:
        value = self.entry(name).value
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        return bool(self.entry(name).value)


def topic_entry(name: str, overrides: Mapping[str, str], broker: BrokerConfigs) -> Entry:
    key = topic_key(name)
    if name in overrides:
        return Entry(key, overrides[name], ConfigSource.TOPIC)
    if key.broker_key is None:
        return Entry(key, key.default, ConfigSource.DEFAULT)
    inherited = broker.entry(key.broker_key)
    return Entry(key, inherited.text, inherited.source)


class TopicConfig(NamedTuple):
    """What the hot path asks of a topic, parsed once."""

    max_message_bytes: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    log: LogConfig


def topic_config(overrides: Mapping[str, str], broker: BrokerConfigs) -> TopicConfig:
    def number(name: str) -> int:
        value = topic_entry(name, overrides, broker).value
        assert isinstance(value, int)
        return value

    return TopicConfig(
        max_message_bytes=number("max.message.bytes"),
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        log=LogConfig(
            segment_bytes=number("segment.bytes"),
            segment_ms=number("segment.ms"),
            index_interval_bytes=number("index.interval.bytes"),
            log_append_time=topic_entry("message.timestamp.type", overrides, broker).text == "LogAppendTime",
        ),
    )
