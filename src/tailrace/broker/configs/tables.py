"""The tables of config keys, of topics and of brokers. `keys` explains the columns, `registry` finds the values."""

from tailrace.broker.configs.keys import COMMAND, LIMITS_BY_ADDRESS, REPLICAS, WEBHOOK_URL, ConfigKey, ConfigType

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


_BY_ITSELF = "-1 is the operating system's default."
_ONE_REPLICA = "Accepted and ignored: there is one replica."
_NO_REMOTE = "Accepted and ignored: there is no remote storage."


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


# Columns: name, broker config with its default, default, minimum, documentation. Sorted by name.
# fmt: off
_TOPIC_KEYS = (
    _list("cleanup.policy", "log.cleanup.policy", "delete", "delete compact",
        "What happens to old segments: deleted by retention.ms and retention.bytes, compacted by key, or both."),
    _int("compression.gzip.level", "compression.gzip.level", -1, -1,
        "Level of gzip, if compression.type is gzip; -1 is gzip's default.", choices="-1 1 2 3 4 5 6 7 8 9"),
    _int("compression.lz4.level", "compression.lz4.level", 9, 1,
        "Level of lz4, if compression.type is lz4.", maximum=17),
    _text("compression.type", "compression.type", "producer", "uncompressed zstd lz4 snappy gzip producer",
        "The codec that batches are stored in. Other batches are recompressed; `producer` keeps them as sent."),
    _int("compression.zstd.level", "compression.zstd.level", 3, -131072,
        "Level of zstd, if compression.type is zstd.", maximum=22),
    _long("delete.retention.ms", "log.cleaner.delete.retention.ms", DAY_MS, 0,
        "How long tombstones and transaction markers are kept after they were compacted."),
    _long("file.delete.delay.ms", "log.segment.delete.delay.ms", 60_000, 0,
        "Accepted and ignored: files are deleted at once; readers that have one open keep it."),
    _long("flush.messages", "log.flush.interval.messages", LONG_MAX, 1,
        "How many records may be unflushed while no client waits for a flush; 32 MB in any case."),
    _long("flush.ms", "log.flush.interval.ms", LONG_MAX, 0,
        "How long records may be unflushed while no client waits for a flush; a second in any case."),
    _list("follower.replication.throttled.replicas", None, "", "", _ONE_REPLICA)._replace(form=REPLICAS),
    _int("index.interval.bytes", "log.index.interval.bytes", 4096, 0,
        "Bytes of a segment between two entries of its index."),
    _list("leader.replication.throttled.replicas", None, "", "", _ONE_REPLICA)._replace(form=REPLICAS),
    _long("local.retention.bytes", "log.local.retention.bytes", -2, -2, _NO_REMOTE),
    _long("local.retention.ms", "log.local.retention.ms", -2, -2, _NO_REMOTE),
    _long("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", LONG_MAX, 1,
        "The time after which a record is compacted at the latest; rolls the active segment if necessary."),
    _int("max.message.bytes", "message.max.bytes", 1_048_588, 0,
        "The largest batch a producer may send, compressed or not."),
    _long("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", HOUR_MS, 0,
        "How far a record's timestamp may be in the future."),
    _long("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", LONG_MAX, 0,
        "How far a record's timestamp may be in the past."),
    _text("message.timestamp.type", "log.message.timestamp.type", "CreateTime", "CreateTime LogAppendTime",
        "Whether records keep the producer's timestamp, or get the broker's."),
    _ratio("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", 0.5,
        "A log is compacted when this share of its bytes is new since the last time."),
    _long("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", 0, 0,
        "How long a record is not compacted, counted from its timestamp."),
    _int("min.insync.replicas", "min.insync.replicas", 1, 1, _ONE_REPLICA),
    _boolean("preallocate", "log.preallocate", False,
        "Accepted and ignored: fast-growing logs get 8 MiB of disk in advance anyway."),
    _boolean("remote.log.copy.disable", None, False, _NO_REMOTE),
    _boolean("remote.log.delete.on.disable", None, False, _NO_REMOTE),
    _boolean("remote.storage.enable", None, False, "There is no remote storage: true is refused.", only="false"),
    _long("retention.bytes", "log.retention.bytes", -1, -1,
        "How many bytes of a partition are kept at least; older whole segments are deleted. -1 is no limit."),
    _long("retention.ms", "log.retention.ms", WEEK_MS, -1,
        "How long records are kept: a segment is deleted when its newest record is older. -1 is for ever."),
    _int("segment.bytes", "log.segment.bytes", 1 << 30, 1 << 20, "The size at which a new segment begins."),
    _int("segment.index.bytes", "log.index.size.max.bytes", 10 << 20, 4,
        "The size of a segment's indexes at which a new segment begins."),
    _long("segment.jitter.ms", "log.roll.jitter.ms", 0, 0,
        "The largest random reduction of segment.ms, so that segments do not all roll at once."),
    _long("segment.ms", "log.roll.ms", WEEK_MS, 1, "The age at which the next append begins a new segment."),
    _long("tailrace.backlog.bytes", None, -1, -1,
        "How many bytes a group of tailrace.backlog.groups may be behind in one partition; -1 is no limit."),
    _long("tailrace.backlog.expiry.ms", None, WEEK_MS, 1,
        "After what time without a member or a commit a group no longer holds or slows the topic."),
    _list("tailrace.backlog.groups", None, "", "",
        "The consumer groups, at most 100, that the policy applies to; other groups never hold or slow the topic."),
    _long("tailrace.backlog.ms", None, -1, -1,
        "How old the first unread record of a group of tailrace.backlog.groups may be; -1 is no limit."),
    _text("tailrace.backlog.policy", None, "drop", "drop hold backpressure reject",
        "What happens to records that a slow group has not read: retention deletes them (drop), keeps them up to the "
        "limit (hold), and producers are slowed (backpressure) or refused (reject) when the limit is reached."),
    _boolean("unclean.leader.election.enable", "unclean.leader.election.enable", False, _ONE_REPLICA),
)
# fmt: on
TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _TOPIC_KEYS}

# Configs of brokers alone, which must be known at the start.
# fmt: off
_STATIC_KEYS = (
    _list("advertised.listeners", None, None, "",
        "The address that clients connect to, one per listener; without it, the address that they have used."),
    _boolean("auto.create.topics.enable", None, True, "Whether a topic is created when a client asks for it."),
    _int("broker.id", None, 1, 0, "The number of this broker: the older name of node.id."),
    _text("broker.rack", None, None, "", "The rack of this broker, as sent to clients."),
    _long("connections.max.idle.ms", None, 600_000, -1, "An idle connection is closed after this time."),
    _int("default.replication.factor", None, 1, 1, _ONE_REPLICA),
    _boolean("delete.topic.enable", None, True, "Whether topics can be deleted."),
    _int("fetch.max.bytes", None, 55 << 20, 1024, "The largest response to one Fetch."),
    _int("group.initial.rebalance.delay.ms", None, 3_000, 0,
        "How long the first rebalance of a group waits for more members, after each one that joins."),
    _int("group.max.session.timeout.ms", None, 1_800_000, 1, "The longest session timeout that a member may have."),
    _int("group.max.size", None, INT_MAX, 1, "How many members a group may have."),
    _int("group.min.session.timeout.ms", None, 6_000, 1, "The shortest session timeout that a member may have."),
    _list("listeners", None, "PLAINTEXT://127.0.0.1:9092", "", "The addresses to listen on, like `--listen`."),
    _boolean("log.cleaner.enable", None, True, "Whether logs are compacted at all."),
    _list("log.dir", None, "./tailrace-data", "", "The data directory, like `--data`."),
    _list("log.dirs", None, None, "", "The same, as a list. There is one directory."),
    _int("log.flush.offset.checkpoint.interval.ms", None, 60_000, 1,
        "How often indexes and producer state are saved. A crash recovers the logs from there."),
    _long("log.retention.check.interval.ms", None, 300_000, 1, "How often retention checks all logs."),
    _hours("log.retention.hours", "168", -1, "As log.retention.ms, in hours."),
    _minutes("log.retention.minutes", None, -1, "As log.retention.ms, in minutes; overrides the hours."),
    _hours("log.roll.hours", "168", 1, "As log.roll.ms, in hours."),
    _hours("log.roll.jitter.hours", "0", 0, "As log.roll.jitter.ms, in hours."),
    _int("max.incremental.fetch.session.cache.slots", None, 1000, 0, "How many fetch sessions the broker keeps."),
    _int("max.request.partition.size.limit", None, 2000, 1,
        "The largest number of partitions in a DescribeTopicPartitions response."),
    _int("node.id", None, 1, 0, "The number of this broker."),
    _int("num.partitions", None, 1, 1, "How many partitions a new topic has by default."),
    _int("offset.metadata.max.bytes", None, 4096, 0,
        "The largest metadata, in characters, that a client may commit with an offset."),
    _int("offsets.topic.num.partitions", None, 1, 1,
        "How many partitions `__consumer_offsets` is created with; with one, all commits share a flush."),
    _int("offsets.topic.segment.bytes", None, 100 << 20, 1 << 20,
        "The segment size that `__consumer_offsets` is created with."),
    _int("quota.window.num", None, 11, 1,
        "A client may use at once what its quota allows in this number of windows, less one."),
    _int("quota.window.size.seconds", None, 1, 1, "The length of one of these windows."),
    _boolean("remote.log.storage.system.enable", None, False, "There is no remote storage: true is refused.",
        only="false"),
    _int("socket.listen.backlog.size", None, 1024, 1, "How many connections may wait to be accepted."),
    _int("socket.receive.buffer.bytes", None, -1, -1, f"The kernel's receive buffer per connection. {_BY_ITSELF}"),
    _int("socket.request.max.bytes", None, 100 << 20, 1, "The largest request that is read."),
    _int("socket.send.buffer.bytes", None, 212_992, -1,
        f"The kernel's send buffer per connection; the default is Linux' own limit. {_BY_ITSELF} With that, clients "
        "on slow networks read faster, but local ones cost the broker up to 50 % more."),
    _long("tailrace.inflight.bytes", None, 512 << 20, 1 << 20,
        "Memory for requests that are arriving, over all connections."),
    _long("tailrace.journal.bytes", None, 32 << 20, 0,
        "Size of the journal, which writes small appends of all partitions to disk at once; 0 "
        "is no journal: each partition is then synced separately."),
    _long("tailrace.scrub.bytes.per.second", None, 8 << 20, 0,
        "How fast stored data is read again, to find corruption before a consumer does; 0 is never."),
    _long("tailrace.scrub.interval.ms", None, WEEK_MS, 1000,
        "The shortest time from the start of one such round to the next."),
    _text("tailrace.alert.command", None, "", "",
        "A command that each alert starts: a JSON array of arguments, run without a shell, with the alert as JSON on "
        "its standard input. Empty is none.")._replace(form=COMMAND, is_secret=True),
    _long("tailrace.alert.disk.seconds", None, 6 * 3600, 0,
        "Alert `disk_buffer`: the disk can take less than so many seconds of messages at today's rate. 0 is never."),
    _long("tailrace.alert.idle.ms", None, WEEK_MS, 1,
        "A group without members and commits for so long gets one last alert, and then none until it returns."),
    _long("tailrace.alert.lag.seconds", None, 900, 0,
        "Alert `lag_seconds`: a group is more seconds behind. 0 is never."),
    _long("tailrace.alert.loss.seconds", None, 3600, 0,
        "Alert `loss_ahead`: a group begins to miss messages in fewer seconds. 0 is never."),
    _long("tailrace.alert.stopped.seconds", None, 600, 0,
        "Alert `group_stopped`, and the state `stalled`: a group that is behind has not moved for so many seconds."),
    _text("tailrace.alert.webhook.format", None, "json", "json slack", "The form of what the webhook receives."),
    _text("tailrace.alert.webhook.url", None, "", "", "A URL that each alert is posted to. Empty is none.")._replace(
        form=WEBHOOK_URL, is_secret=True),
    _long("tailrace.group.history.interval.ms", None, MINUTE_MS, 1_000,
        "How often the positions of groups that have changed are recorded, for `tailrace group … --at`."),
    _long("tailrace.group.history.ms", None, DAY_MS, MINUTE_MS, "For how long the past positions of groups are kept."),
    _boolean("tailrace.http.access.log", None, False, "Whether the gateway logs each HTTP request, as JSON."),
    _int("tailrace.http.body.max.bytes", None, 4 << 20, 1024, "The longest body of an HTTP request."),
    _list("tailrace.http.hosts", None, "", "",
        "Host names, besides those of this machine, by which HTTP clients may address the gateway and the metrics "
        "page. Requests under other names are refused, so that no web page can reach them by a name of its own."),
    _int("tailrace.http.idempotency.keys", None, 1_000_000, 1,
        "How many values of Idempotency-Key the gateway remembers; with more, it forgets the oldest ones."),
    _long("tailrace.http.idempotency.ms", None, DAY_MS, 1_000,
        "For how long the gateway remembers a value of Idempotency-Key, and the response to it."),
    _int("tailrace.http.waiting.max", None, 2_000, 0,
        "How many HTTP requests may wait for messages at once; more are refused."),
    _boolean("tailrace.monitor.enable", None, True,
        "Whether the broker starts the monitor: a child process that measures lag and raises alerts."),
    _long("tailrace.monitor.interval.ms", None, 15_000, 1_000, "How often the monitor measures."),
    _int("tailrace.monitor.series.max", None, 20_000, 0,
        "How many partitions of groups have metrics of their own; with more, only groups and topics have."),
    _int("tailrace.write.timeout.ms", None, 30_000, 1,
        "A client that neither reads its response nor completes its request for this long is disconnected."),
    _int("transaction.max.timeout.ms", None, 900_000, 1,
        "The longest timeout that a transactional producer may ask for."),
    _int("transaction.state.log.num.partitions", None, 1, 1,
        "How many partitions `__transaction_state` is created with; with one, all transactions share a flush."),
    _int("transaction.state.log.segment.bytes", None, 100 << 20, 1 << 20,
        "The segment size that `__transaction_state` is created with."),
    _int("transactional.id.expiration.ms", None, 604_800_000, 1,
        "A transactional id that was not used for so long is forgotten."),
)
# Configs of brokers alone that can be changed at run time.
_DYNAMIC_KEYS = (
    _long("log.cleaner.backoff.ms", None, 15_000, 0,
        "How long compaction waits after it has found no log to compact."),
    _long("log.cleaner.dedupe.buffer.size", None, 128 << 20, 1 << 20,
        "Memory for the keys of one pass, 24 bytes each. With more keys the pass ends early, and another one follows."),
    _ratio("log.cleaner.io.buffer.load.factor", None, 0.9, "The share of that memory that keys may fill."),
    _int("log.cleaner.io.buffer.size", None, 512 << 10, 0,
        "Accepted and ignored: a pass reads and writes a megabyte at a time."),
    _rate("log.cleaner.io.max.bytes.per.second", None, "1.7976931348623157E308",
        "How fast compaction may read and write, in total."),
    _int("log.cleaner.threads", None, 1, 0,
        "Accepted and ignored: one log is compacted at a time, in a separate process."),
    _int("max.connection.creation.rate", None, INT_MAX, 1, "How many connections are accepted in a second."),
    _int("max.connections", None, 10_000, 1, "How many connections there may be at once."),
    _int("max.connections.per.ip", None, INT_MAX, 1, "How many connections one address may hold."),
    _text("max.connections.per.ip.overrides", None, "", "",
        "The same for single addresses: `10.0.0.7:200,10.0.0.8:50`.")._replace(form=LIMITS_BY_ADDRESS),
    _int("producer.id.expiration.ms", None, DAY_MS, 1, "How long an idle producer id is remembered."),
    _long("tailrace.disk.budget.bytes", None, -1, -1,
        "How many bytes all logs may take. Beyond it, the oldest segments of any topic are deleted, except those kept "
        "for ever, compacted, internal or active ones. -1 is no limit."),
    _int("tailrace.disk.budget.percent", None, -1, -1,
        "The same in percent of the disk; the smaller limit counts. -1 is no limit.", maximum=100),
    _long("tailrace.disk.reserve.bytes", None, -1, -1,
        "How much of the disk stays free. With less, appends are refused until 1.5 times as much is free; producers "
        "retry. -1 is 1 GiB, or 5 % of the disk if that is less."),
)
# fmt: on
# Configs of consumer groups (KIP-848), and of brokers for all of them.
# Columns: name, broker config with its default, default, minimum, documentation. Sorted by name.
# fmt: off
_GROUP_KEYS = (
    _int("consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms", 1_000, 0,
        "The shortest time between two new assignments of a consumer group: members that join in the meantime share "
        "one."),
    _int("consumer.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms", 5_000, 1,
        "How often members of a consumer group send a heartbeat."),
    _int("consumer.session.timeout.ms", "group.consumer.session.timeout.ms", 45_000, 1,
        "How long a member of a consumer group may be silent before it is removed."),
)
_OF_CONSUMER_GROUPS = (
    _list("group.consumer.assignors", None, "uniform,range", "uniform range",
        "The assignors that members of consumer groups may ask for. The first one is used where no member asks."),
    _int("group.consumer.max.assignment.interval.ms", None, 15_000, 0,
        "The longest consumer.assignment.interval.ms."),
    _int("group.consumer.max.heartbeat.interval.ms", None, 15_000, 1, "The longest consumer.heartbeat.interval.ms."),
    _int("group.consumer.max.session.timeout.ms", None, 60_000, 1, "The longest consumer.session.timeout.ms."),
    _int("group.consumer.max.size", None, INT_MAX, 1, "How many members a consumer group may have."),
    _text("group.consumer.migration.policy", None, "bidirectional", "bidirectional upgrade downgrade disabled",
        "Whether a group with members may change its protocol: from classic to consumer (`upgrade`), from consumer to "
        "classic (`downgrade`), both, or not at all."),
    _int("group.consumer.min.assignment.interval.ms", None, 0, 0, "The shortest consumer.assignment.interval.ms."),
    _int("group.consumer.min.heartbeat.interval.ms", None, 5_000, 1, "The shortest consumer.heartbeat.interval.ms."),
    _int("group.consumer.min.session.timeout.ms", None, 45_000, 1, "The shortest consumer.session.timeout.ms."),
    _int("group.consumer.regex.refresh.interval.ms", None, 600_000, 10_000,
        "Accepted and ignored: patterns are matched again as soon as topics come or go."),
)
# fmt: on
# A broker config in milliseconds, and its synonyms: the first one that is given counts.
SYNONYMS = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
}


def _of_broker(key: ConfigKey) -> ConfigKey:
    """Returns the broker config that is a topic config's default. If it has synonyms, the last one has the default."""
    assert key.broker_key is not None
    default = None if key.broker_key in SYNONYMS else key.default
    return key._replace(name=key.broker_key, broker_key=None, default=default)


GROUP_KEYS: dict[str, ConfigKey] = {key.name: key for key in _GROUP_KEYS}


def _of_groups(key: ConfigKey) -> ConfigKey:
    """Returns the broker config that is a group config's default; in Kafka, most of them cannot change at run time."""
    return _of_broker(key)._replace(is_dynamic=key.name == "consumer.assignment.interval.ms")


BROKER_KEYS: dict[str, ConfigKey] = {
    **{key.name: key._replace(is_dynamic=False) for key in (*_STATIC_KEYS, *_OF_CONSUMER_GROUPS)},
    **{key.name: key for key in _DYNAMIC_KEYS},
    **{key.broker_key: _of_broker(key) for key in _TOPIC_KEYS if key.broker_key},
    **{key.broker_key: _of_groups(key) for key in _GROUP_KEYS if key.broker_key},
}
