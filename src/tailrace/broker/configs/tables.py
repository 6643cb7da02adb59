"""The tables of config keys, of topics and of brokers. `keys` explains the columns, `registry` finds the values."""

from tailrace.broker.configs.group_tables import GROUP_KEYS, OF_ALL_GROUPS
from tailrace.broker.configs.keys import COMMAND, LIMITS_BY_ADDRESS, REPLICAS, WEBHOOK_URL, ConfigKey
from tailrace.broker.configs.rows import (
    DAY_MS,
    HOUR_MS,
    INT_MAX,
    LONG_MAX,
    MINUTE_MS,
    WEEK_MS,
    boolean_key,
    hours_key,
    int_key,
    list_key,
    long_key,
    minutes_key,
    rate_key,
    ratio_key,
    text_key,
)

_BY_ITSELF = "-1 is the operating system's default."
_ONE_REPLICA = "Accepted and ignored: there is one replica."
_NO_REMOTE = "Accepted and ignored: there is no remote storage."

# Columns: name, broker config with its default, default, minimum, documentation. Sorted by name.
# fmt: off
_TOPIC_KEYS = (
    list_key("cleanup.policy", "log.cleanup.policy", "delete", "delete compact",
        "What happens to old segments: deleted by retention.ms and retention.bytes, compacted by key, or both."),
    int_key("compression.gzip.level", "compression.gzip.level", -1, -1,
        "Level of gzip, if compression.type is gzip; -1 is gzip's default.", choices="-1 1 2 3 4 5 6 7 8 9"),
    int_key("compression.lz4.level", "compression.lz4.level", 9, 1,
        "Level of lz4, if compression.type is lz4.", maximum=17),
    text_key("compression.type", "compression.type", "producer", "uncompressed zstd lz4 snappy gzip producer",
        "The codec that batches are stored in. Other batches are recompressed; `producer` keeps them as sent."),
    int_key("compression.zstd.level", "compression.zstd.level", 3, -131072,
        "Level of zstd, if compression.type is zstd.", maximum=22),
    long_key("delete.retention.ms", "log.cleaner.delete.retention.ms", DAY_MS, 0,
        "How long tombstones and transaction markers are kept after they were compacted."),
    boolean_key("errors.deadletterqueue.group.enable", None, False,
        "Whether share groups may write the records that they give up to this topic."),
    long_key("file.delete.delay.ms", "log.segment.delete.delay.ms", 60_000, 0,
        "Accepted and ignored: files are deleted at once; readers that have one open keep it."),
    long_key("flush.messages", "log.flush.interval.messages", LONG_MAX, 1,
        "How many records may be unflushed while no client waits for a flush; 32 MB in any case."),
    long_key("flush.ms", "log.flush.interval.ms", LONG_MAX, 0,
        "How long records may be unflushed while no client waits for a flush; a second in any case."),
    list_key("follower.replication.throttled.replicas", None, "", "", _ONE_REPLICA)._replace(form=REPLICAS),
    int_key("index.interval.bytes", "log.index.interval.bytes", 4096, 0,
        "Bytes of a segment between two entries of its index."),
    list_key("leader.replication.throttled.replicas", None, "", "", _ONE_REPLICA)._replace(form=REPLICAS),
    long_key("local.retention.bytes", "log.local.retention.bytes", -2, -2, _NO_REMOTE),
    long_key("local.retention.ms", "log.local.retention.ms", -2, -2, _NO_REMOTE),
    long_key("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", LONG_MAX, 1,
        "The time after which a record is compacted at the latest; rolls the active segment if necessary."),
    int_key("max.message.bytes", "message.max.bytes", 1_048_588, 0,
        "The largest batch a producer may send, compressed or not."),
    long_key("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", HOUR_MS, 0,
        "How far a record's timestamp may be in the future."),
    long_key("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", LONG_MAX, 0,
        "How far a record's timestamp may be in the past."),
    text_key("message.timestamp.type", "log.message.timestamp.type", "CreateTime", "CreateTime LogAppendTime",
        "Whether records keep the producer's timestamp, or get the broker's."),
    ratio_key("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", 0.5,
        "A log is compacted when this share of its bytes is new since the last time."),
    long_key("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", 0, 0,
        "How long a record is not compacted, counted from its timestamp."),
    int_key("min.insync.replicas", "min.insync.replicas", 1, 1, _ONE_REPLICA),
    boolean_key("preallocate", "log.preallocate", False,
        "Accepted and ignored: fast-growing logs get 8 MiB of disk in advance anyway."),
    boolean_key("remote.log.copy.disable", None, False, _NO_REMOTE),
    boolean_key("remote.log.delete.on.disable", None, False, _NO_REMOTE),
    boolean_key("remote.storage.enable", None, False, "There is no remote storage: true is refused.", only="false"),
    long_key("retention.bytes", "log.retention.bytes", -1, -1,
        "How many bytes of a partition are kept at least; older whole segments are deleted. -1 is no limit."),
    long_key("retention.ms", "log.retention.ms", WEEK_MS, -1,
        "How long records are kept: a segment is deleted when its newest record is older. -1 is for ever."),
    int_key("segment.bytes", "log.segment.bytes", 1 << 30, 1 << 20, "The size at which a new segment begins."),
    int_key("segment.index.bytes", "log.index.size.max.bytes", 10 << 20, 4,
        "The size of a segment's indexes at which a new segment begins."),
    long_key("segment.jitter.ms", "log.roll.jitter.ms", 0, 0,
        "The largest random reduction of segment.ms, so that segments do not all roll at once."),
    long_key("segment.ms", "log.roll.ms", WEEK_MS, 1, "The age at which the next append begins a new segment."),
    long_key("tailrace.backlog.bytes", None, -1, -1,
        "How many bytes a group of tailrace.backlog.groups may be behind in one partition; -1 is no limit."),
    long_key("tailrace.backlog.expiry.ms", None, WEEK_MS, 1,
        "After what time without a member or a commit a group no longer holds or slows the topic."),
    list_key("tailrace.backlog.groups", None, "", "",
        "The consumer groups, at most 100, that the policy applies to; other groups never hold or slow the topic."),
    long_key("tailrace.backlog.ms", None, -1, -1,
        "How old the first unread record of a group of tailrace.backlog.groups may be; -1 is no limit."),
    text_key("tailrace.backlog.policy", None, "drop", "drop hold backpressure reject",
        "What happens to records that a slow group has not read: retention deletes them (drop), keeps them up to the "
        "limit (hold), and producers are slowed (backpressure) or refused (reject) when the limit is reached."),
    boolean_key("tailrace.delay.headers", None, False,
        "Whether share groups deliver a record at the time in its header x-deliver-at, or x-delay-ms after its "
        "timestamp."),
    long_key("tailrace.delivery.delay.ms", None, 0, 0,
        "How long after its timestamp a record is delivered to share groups."),
    long_key("tailrace.message.ttl.ms", None, -1, -1,
        "How long after its timestamp a record is no longer delivered to share groups; -1 is no limit."),
    text_key("tailrace.priority", None, "none", "none partition",
        "`partition`: share groups get the records of partition 0 first, then those of partition 1, and so on."),
    boolean_key("tailrace.ttl.headers", None, False,
        "Whether a record is no longer delivered to share groups after the time in its header x-expires-at, or "
        "x-ttl-ms after its timestamp."),
    boolean_key("unclean.leader.election.enable", "unclean.leader.election.enable", False, _ONE_REPLICA),
)
# fmt: on
TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _TOPIC_KEYS}

# Configs of brokers alone, which must be known at the start.
# fmt: off
_STATIC_KEYS = (
    list_key("advertised.listeners", None, None, "",
        "The address that clients connect to, one per listener; without it, the address that they have used."),
    boolean_key("auto.create.topics.enable", None, True, "Whether a topic is created when a client asks for it."),
    int_key("broker.id", None, 1, 0, "The number of this broker: the older name of node.id."),
    text_key("broker.rack", None, None, "", "The rack of this broker, as sent to clients."),
    long_key("connections.max.idle.ms", None, 600_000, -1, "An idle connection is closed after this time."),
    int_key("default.replication.factor", None, 1, 1, _ONE_REPLICA),
    boolean_key("delete.topic.enable", None, True, "Whether topics can be deleted."),
    int_key("fetch.max.bytes", None, 55 << 20, 1024, "The largest response to one Fetch."),
    int_key("group.initial.rebalance.delay.ms", None, 3_000, 0,
        "How long the first rebalance of a group waits for more members, after each one that joins."),
    int_key("group.max.session.timeout.ms", None, 1_800_000, 1, "The longest session timeout that a member may have."),
    int_key("group.max.size", None, INT_MAX, 1, "How many members a group may have."),
    int_key("group.min.session.timeout.ms", None, 6_000, 1, "The shortest session timeout that a member may have."),
    list_key("listeners", None, "PLAINTEXT://127.0.0.1:9092", "", "The addresses to listen on, like `--listen`."),
    boolean_key("log.cleaner.enable", None, True, "Whether logs are compacted at all."),
    list_key("log.dir", None, "./tailrace-data", "", "The data directory, like `--data`."),
    list_key("log.dirs", None, None, "", "The same, as a list. There is one directory."),
    int_key("log.flush.offset.checkpoint.interval.ms", None, 60_000, 1,
        "How often indexes and producer state are saved. A crash recovers the logs from there."),
    long_key("log.retention.check.interval.ms", None, 300_000, 1, "How often retention checks all logs."),
    hours_key("log.retention.hours", "168", -1, "As log.retention.ms, in hours."),
    minutes_key("log.retention.minutes", None, -1, "As log.retention.ms, in minutes; overrides the hours."),
    hours_key("log.roll.hours", "168", 1, "As log.roll.ms, in hours."),
    hours_key("log.roll.jitter.hours", "0", 0, "As log.roll.jitter.ms, in hours."),
    int_key("max.incremental.fetch.session.cache.slots", None, 1000, 0, "How many fetch sessions the broker keeps."),
    int_key("max.request.partition.size.limit", None, 2000, 1,
        "The largest number of partitions in a DescribeTopicPartitions response."),
    int_key("node.id", None, 1, 0, "The number of this broker."),
    int_key("num.partitions", None, 1, 1, "How many partitions a new topic has by default."),
    int_key("offset.metadata.max.bytes", None, 4096, 0,
        "The largest metadata, in characters, that a client may commit with an offset."),
    int_key("offsets.topic.num.partitions", None, 1, 1,
        "How many partitions `__consumer_offsets` is created with; with one, all commits share a flush."),
    int_key("offsets.topic.segment.bytes", None, 100 << 20, 1 << 20,
        "The segment size that `__consumer_offsets` is created with."),
    int_key("quota.window.num", None, 11, 1,
        "A client may use at once what its quota allows in this number of windows, less one."),
    int_key("quota.window.size.seconds", None, 1, 1, "The length of one of these windows."),
    boolean_key("remote.log.storage.system.enable", None, False, "There is no remote storage: true is refused.",
        only="false"),
    int_key("socket.listen.backlog.size", None, 1024, 1, "How many connections may wait to be accepted."),
    int_key("socket.receive.buffer.bytes", None, -1, -1, f"The kernel's receive buffer per connection. {_BY_ITSELF}"),
    int_key("socket.request.max.bytes", None, 100 << 20, 1, "The largest request that is read."),
    int_key("socket.send.buffer.bytes", None, 212_992, -1,
        f"The kernel's send buffer per connection; the default is Linux' own limit. {_BY_ITSELF} With that, clients "
        "on slow networks read faster, but local ones cost the broker up to 50 % more."),
    long_key("tailrace.inflight.bytes", None, 512 << 20, 1 << 20,
        "Memory for requests that are arriving, over all connections."),
    long_key("tailrace.journal.bytes", None, 32 << 20, 0,
        "Size of the journal, which writes small appends of all partitions to disk at once; 0 "
        "is no journal: each partition is then synced separately."),
    long_key("tailrace.scrub.bytes.per.second", None, 8 << 20, 0,
        "How fast stored data is read again, to find corruption before a consumer does; 0 is never."),
    long_key("tailrace.scrub.interval.ms", None, WEEK_MS, 1000,
        "The shortest time from the start of one such round to the next."),
    text_key("tailrace.alert.command", None, "", "",
        "A command that each alert starts: a JSON array of arguments, run without a shell, with the alert as JSON on "
        "its standard input. Empty is none.")._replace(form=COMMAND, is_secret=True),
    long_key("tailrace.alert.disk.seconds", None, 6 * 3600, 0,
        "Alert `disk_buffer`: the disk can take less than so many seconds of messages at today's rate. 0 is never."),
    long_key("tailrace.alert.idle.ms", None, WEEK_MS, 1,
        "A group without members and commits for so long gets one last alert, and then none until it returns."),
    long_key("tailrace.alert.lag.seconds", None, 900, 0,
        "Alert `lag_seconds`: a group is more seconds behind. 0 is never."),
    long_key("tailrace.alert.loss.seconds", None, 3600, 0,
        "Alert `loss_ahead`: a group begins to miss messages in fewer seconds. 0 is never."),
    long_key("tailrace.alert.stopped.seconds", None, 600, 0,
        "Alert `group_stopped`, and the state `stalled`: a group that is behind has not moved for so many seconds."),
    text_key("tailrace.alert.webhook.format", None, "json", "json slack", "The form of what the webhook receives."),
    text_key("tailrace.alert.webhook.url", None, "", "", "A URL that each alert is posted to. Empty is none.")._replace(
        form=WEBHOOK_URL, is_secret=True),
    long_key("tailrace.group.history.interval.ms", None, MINUTE_MS, 1_000,
        "How often the positions of groups that have changed are recorded, for `tailrace group … --at`."),
    long_key("tailrace.group.history.ms", None, DAY_MS, MINUTE_MS,
        "For how long the past positions of groups are kept."),
    boolean_key("tailrace.http.access.log", None, False, "Whether the gateway logs each HTTP request, as JSON."),
    int_key("tailrace.http.body.max.bytes", None, 4 << 20, 1024, "The longest body of an HTTP request."),
    list_key("tailrace.http.hosts", None, "", "",
        "Host names, besides those of this machine, by which HTTP clients may address the gateway and the metrics "
        "page. Requests under other names are refused, so that no web page can reach them by a name of its own."),
    int_key("tailrace.http.idempotency.keys", None, 1_000_000, 1,
        "How many values of Idempotency-Key the gateway remembers; with more, it forgets the oldest ones."),
    long_key("tailrace.http.idempotency.ms", None, DAY_MS, 1_000,
        "For how long the gateway remembers a value of Idempotency-Key, and the response to it."),
    int_key("tailrace.http.waiting.max", None, 2_000, 0,
        "How many HTTP requests may wait for messages at once; more are refused."),
    boolean_key("tailrace.monitor.enable", None, True,
        "Whether the broker starts the monitor: a child process that measures lag and raises alerts."),
    long_key("tailrace.monitor.interval.ms", None, 15_000, 1_000, "How often the monitor measures."),
    int_key("tailrace.monitor.series.max", None, 20_000, 0,
        "How many partitions of groups have metrics of their own; with more, only groups and topics have."),
    int_key("tailrace.write.timeout.ms", None, 30_000, 1,
        "A client that neither reads its response nor completes its request for this long is disconnected."),
    int_key("transaction.max.timeout.ms", None, 900_000, 1,
        "The longest timeout that a transactional producer may ask for."),
    int_key("transaction.state.log.num.partitions", None, 1, 1,
        "How many partitions `__transaction_state` is created with; with one, all transactions share a flush."),
    int_key("transaction.state.log.segment.bytes", None, 100 << 20, 1 << 20,
        "The segment size that `__transaction_state` is created with."),
    int_key("transactional.id.expiration.ms", None, 604_800_000, 1,
        "A transactional id that was not used for so long is forgotten."),
)
# Configs of brokers alone that can be changed at run time.
_DYNAMIC_KEYS = (
    long_key("log.cleaner.backoff.ms", None, 15_000, 0,
        "How long compaction waits after it has found no log to compact."),
    long_key("log.cleaner.dedupe.buffer.size", None, 128 << 20, 1 << 20,
        "Memory for the keys of one pass, 24 bytes each. With more keys the pass ends early, and another one follows."),
    ratio_key("log.cleaner.io.buffer.load.factor", None, 0.9, "The share of that memory that keys may fill."),
    int_key("log.cleaner.io.buffer.size", None, 512 << 10, 0,
        "Accepted and ignored: a pass reads and writes a megabyte at a time."),
    rate_key("log.cleaner.io.max.bytes.per.second", None, "1.7976931348623157E308",
        "How fast compaction may read and write, in total."),
    int_key("log.cleaner.threads", None, 1, 0,
        "Accepted and ignored: one log is compacted at a time, in a separate process."),
    int_key("max.connection.creation.rate", None, INT_MAX, 1, "How many connections are accepted in a second."),
    int_key("max.connections", None, 10_000, 1, "How many connections there may be at once."),
    int_key("max.connections.per.ip", None, INT_MAX, 1, "How many connections one address may hold."),
    text_key("max.connections.per.ip.overrides", None, "", "",
        "The same for single addresses: `10.0.0.7:200,10.0.0.8:50`.")._replace(form=LIMITS_BY_ADDRESS),
    int_key("producer.id.expiration.ms", None, DAY_MS, 1, "How long an idle producer id is remembered."),
    long_key("tailrace.disk.budget.bytes", None, -1, -1,
        "How many bytes all logs may take. Beyond it, the oldest segments of any topic are deleted, except those kept "
        "for ever, compacted, internal or active ones. -1 is no limit."),
    int_key("tailrace.disk.budget.percent", None, -1, -1,
        "The same in percent of the disk; the smaller limit counts. -1 is no limit.", maximum=100),
    long_key("tailrace.disk.reserve.bytes", None, -1, -1,
        "How much of the disk stays free. With less, appends are refused until 1.5 times as much is free; producers "
        "retry. -1 is 1 GiB, or 5 % of the disk if that is less."),
    int_key("tailrace.dlq.rate", None, 100, 1,
        "How many records of a share group may become dead letters in a second. With more, its queue waits."),
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


def _of_groups(key: ConfigKey) -> ConfigKey:
    """Returns the broker config that is a group config's default; in Kafka, most of them cannot change at run time."""
    return _of_broker(key)._replace(is_dynamic=key.name.endswith(".assignment.interval.ms"))


BROKER_KEYS: dict[str, ConfigKey] = {
    **{key.name: key._replace(is_dynamic=False) for key in (*_STATIC_KEYS, *OF_ALL_GROUPS)},
    **{key.name: key for key in _DYNAMIC_KEYS},
    **{key.broker_key: _of_broker(key) for key in _TOPIC_KEYS if key.broker_key},
    **{key.broker_key: _of_groups(key) for key in GROUP_KEYS.values() if key.broker_key},
}
