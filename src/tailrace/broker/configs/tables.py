"""The tables of config keys, of topics and of brokers. `keys` explains the columns, `registry` finds the values."""

from tailrace.broker.configs.keys import LIMITS_BY_ADDRESS, REPLICAS, ConfigKey, ConfigType

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


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


def _rate(name: str, broker_key: str | None, default: str, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.DOUBLE, default, doc, broker_key=broker_key)


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
    _list("follower.replication.throttled.replicas", None, "", "", _ONE_REPLICA)._replace(form=REPLICAS),
    _int("index.interval.bytes", "log.index.interval.bytes", 4096, 0,
        "How many bytes of a segment lie between two entries of its index."),
    _list("leader.replication.throttled.replicas", None, "", "", _ONE_REPLICA)._replace(form=REPLICAS),
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
    _boolean("preallocate", "log.preallocate", False,
        "Taken and ignored: what grows quickly has 8 MiB of the disk ahead of it anyway."),
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
    _boolean("log.cleaner.enable", None, True, "Whether logs are compacted at all."),
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
    _int("socket.send.buffer.bytes", None, 212_992, -1,
        f"The kernel's buffer for what a client is sent, of which Linux gives no more by default. {_BY_ITSELF} Clients "
        "that are many milliseconds away read faster so; those near by cost the broker up to half as much more."),
    _long("tailrace.inflight.bytes", None, 512 << 20, 1 << 20,
        "How many bytes of requests the broker holds at once, of all connections."),
    _long("tailrace.journal.bytes", None, 32 << 20, 0,
        "How large the journal is, in which little that is waited for is brought to disk, of all partitions at once; 0 "
        "is none: then each partition is synced for itself."),
    _long("tailrace.scrub.bytes.per.second", None, 8 << 20, 0,
        "How much of what is on disk is read again in a second, to find rot before a reader does; 0 is nothing."),
    _long("tailrace.scrub.interval.ms", None, WEEK_MS, 1000,
        "How often all of it is read again, at the most; if that takes longer, it begins anew when it is done."),
    _int("tailrace.write.timeout.ms", None, 30_000, 1,
        "A client that takes nothing of its answer, or does not go on with its request, for so long is disconnected."),
)
# Those of brokers alone that can be changed at run time.
_DYNAMIC_KEYS = (
    _long("log.cleaner.backoff.ms", None, 15_000, 0,
        "How long compaction waits before it looks again, where no log was due."),
    _long("log.cleaner.dedupe.buffer.size", None, 128 << 20, 1 << 20,
        "Memory for the keys of one pass, 24 bytes each. With more of them it ends early, and another one follows."),
    _ratio("log.cleaner.io.buffer.load.factor", None, 0.9, "How full the memory for keys may get."),
    _int("log.cleaner.io.buffer.size", None, 512 << 10, 0,
        "Taken and ignored: a pass reads and writes by the megabyte."),
    _rate("log.cleaner.io.max.bytes.per.second", None, "1.7976931348623157E308",
        "How fast compaction may read and write, both together."),
    _int("log.cleaner.threads", None, 1, 0,
        "Taken and ignored: one log is compacted at a time, in a process of its own."),
    _int("max.connection.creation.rate", None, INT_MAX, 1, "How many connections are accepted in a second."),
    _int("max.connections", None, 10_000, 1, "How many connections there may be at once."),
    _int("max.connections.per.ip", None, INT_MAX, 1, "How many connections one address may hold."),
    _text("max.connections.per.ip.overrides", None, "", "",
        "The same for single addresses: `10.0.0.7:200,10.0.0.8:50`.")._replace(form=LIMITS_BY_ADDRESS),
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
