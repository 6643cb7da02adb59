"""The tables of config keys of groups, and of brokers for all groups. `keys` explains the columns.

The name of a group config begins with the kind of groups that it applies to; those of dead letters, and ours, apply to
share groups.
"""

import re

from tailrace.broker.configs.durations import is_offset_reset
from tailrace.broker.configs.keys import ConfigKey, ConfigType, TextFormat
from tailrace.broker.configs.rows import (
    DAY_MS,
    HOUR_MS,
    INT_MAX,
    MINUTE_MS,
    boolean_key,
    int_key,
    list_key,
    ratio_key,
    text_key,
)

OFFSET_RESET = TextFormat(is_offset_reset, "earliest, latest, or by_duration: and an ISO 8601 duration such as PT1H")
TOPIC_NAME = TextFormat(
    re.compile(r"(?!__|\.\.?$)[a-zA-Z0-9._-]{0,249}").fullmatch,
    "a topic name that does not begin with __, or empty",
)
_LOCKS_MAX = 1_000_000
_ATTEMPTS_MAX = 25  # Kafka's; a state has room for 31

# Columns: name, broker config with its default, default, minimum, documentation. Sorted by name.
# fmt: off
_GROUP_KEYS = (
    int_key("consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms", 1_000, 0,
        "The shortest time between two new assignments of a consumer group: members that join in the meantime share "
        "one."),
    int_key("consumer.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms", 5_000, 1,
        "How often members of a consumer group send a heartbeat."),
    int_key("consumer.session.timeout.ms", "group.consumer.session.timeout.ms", 45_000, 1,
        "How long a member of a consumer group may be silent before it is removed."),
    boolean_key("errors.deadletterqueue.copy.record.enable", None, True,
        "Whether a dead letter has the key, value and headers of its record, or only headers that say which record it "
        "was and why it was given up."),
    text_key("errors.deadletterqueue.topic.name", None, "", "",
        "The topic that takes the records a share group gives up. It must have errors.deadletterqueue.group.enable. "
        "Empty is none.")._replace(form=TOPIC_NAME),
    int_key("share.assignment.interval.ms", "group.share.assignment.interval.ms", 1_000, 0,
        "The shortest time between two new assignments of a share group: members that join in the meantime share one."),
    text_key("share.auto.offset.reset", None, "latest", "",
        "Where a share group begins to read a partition: `earliest`, `latest`, or `by_duration:` and an ISO 8601 "
        "duration, such as `by_duration:PT1H` for the records of the last hour.")._replace(form=OFFSET_RESET),
    int_key("share.delivery.count.limit", "group.share.delivery.count.limit", 5, 2,
        "How often a record is delivered at most. After that it is given up.", maximum=_ATTEMPTS_MAX),
    int_key("share.heartbeat.interval.ms", "group.share.heartbeat.interval.ms", 5_000, 1,
        "How often members of a share group send a heartbeat."),
    text_key("share.isolation.level", None, "read_uncommitted", "read_committed read_uncommitted",
        "Whether a share group gets the records of aborted and open transactions."),
    int_key("share.partition.max.record.locks", "group.share.partition.max.record.locks", 2_000, 100,
        "How many records of a partition may be with the members of a share group at once.", maximum=_LOCKS_MAX),
    int_key("share.record.lock.duration.ms", "group.share.record.lock.duration.ms", 30_000, 1,
        "How long a member may work on a record, before the record goes to another one.", maximum=HOUR_MS),
    boolean_key("share.renew.acknowledge.enable", None, True, "Whether members may extend that time."),
    int_key("share.session.timeout.ms", "group.share.session.timeout.ms", 45_000, 1,
        "How long a member of a share group may be silent before it is removed."),
    int_key("tailrace.share.lock.max.total.ms", None, 12 * HOUR_MS, 1,
        "How long a member may keep a record in total, however often it extends the time."),
    text_key("tailrace.share.order", None, "none", "none key",
        "`key`: records with the same key are delivered one after another, each when the one before it is finished."),
    int_key("tailrace.share.parked.max", None, 1_000_000, 0,
        "How many records of a partition may wait for their time, to be retried or delivered later. With more, a "
        "partition delivers only records that it has delivered before.", maximum=10_000_000),
    int_key("tailrace.share.retry.delay.max.ms", None, 10 * MINUTE_MS, 0,
        "The longest delay before a record is delivered again.", maximum=7 * DAY_MS),
    int_key("tailrace.share.retry.delay.ms", None, 0, 0,
        "The delay before a record is delivered for the second time.", maximum=7 * DAY_MS),
    ratio_key("tailrace.share.retry.jitter", None, 0.2,
        "By how much a delay is longer or shorter at random, as a share of itself."),
    ConfigKey("tailrace.share.retry.multiplier", ConfigType.DOUBLE, "2", "What the delay is multiplied with for each "
        "further delivery.", 1, 100),
)
_OF_CONSUMER_GROUPS = (
    list_key("group.consumer.assignors", None, "uniform,range", "uniform range",
        "The assignors that members of consumer groups may ask for. The first one is used where no member asks."),
    int_key("group.consumer.max.assignment.interval.ms", None, 15_000, 0,
        "The longest consumer.assignment.interval.ms."),
    int_key("group.consumer.max.heartbeat.interval.ms", None, 15_000, 1, "The longest consumer.heartbeat.interval.ms."),
    int_key("group.consumer.max.session.timeout.ms", None, 60_000, 1, "The longest consumer.session.timeout.ms."),
    int_key("group.consumer.max.size", None, INT_MAX, 1, "How many members a consumer group may have."),
    text_key("group.consumer.migration.policy", None, "bidirectional", "bidirectional upgrade downgrade disabled",
        "Whether a group with members may change its protocol: from classic to consumer (`upgrade`), from consumer to "
        "classic (`downgrade`), both, or not at all."),
    int_key("group.consumer.min.assignment.interval.ms", None, 0, 0, "The shortest consumer.assignment.interval.ms."),
    int_key("group.consumer.min.heartbeat.interval.ms", None, 5_000, 1, "The shortest consumer.heartbeat.interval.ms."),
    int_key("group.consumer.min.session.timeout.ms", None, 45_000, 1, "The shortest consumer.session.timeout.ms."),
    int_key("group.consumer.regex.refresh.interval.ms", None, 600_000, 10_000,
        "Accepted and ignored: patterns are matched again as soon as topics come or go."),
)
_OF_SHARE_GROUPS = (
    boolean_key("errors.deadletterqueue.auto.create.topics.enable", None, False,
        "Topics for dead letters are not created by themselves: true is refused. `tailrace queue create` makes one.",
        only="false"),
    text_key("errors.deadletterqueue.topic.name.prefix", None, "", "",
        "What the name of a share group's errors.deadletterqueue.topic.name begins with.")._replace(form=TOPIC_NAME),
    list_key("group.share.assignors", None, "simple", "simple", "The assignor of share groups: there is one."),
    int_key("group.share.max.assignment.interval.ms", None, 15_000, 0, "The longest share.assignment.interval.ms."),
    int_key("group.share.max.delivery.count.limit", None, 10, 5, "The largest share.delivery.count.limit.",
        maximum=_ATTEMPTS_MAX),
    int_key("group.share.max.heartbeat.interval.ms", None, 15_000, 1, "The longest share.heartbeat.interval.ms."),
    int_key("group.share.max.partition.max.record.locks", None, 4_000, 2_000,
        "The largest share.partition.max.record.locks.", maximum=_LOCKS_MAX),
    int_key("group.share.max.record.lock.duration.ms", None, MINUTE_MS, 30_000,
        "The longest share.record.lock.duration.ms.", maximum=HOUR_MS),
    int_key("group.share.max.session.timeout.ms", None, 60_000, 1, "The longest share.session.timeout.ms."),
    int_key("group.share.max.share.sessions", None, 2_000, 1,
        "How many share sessions the broker keeps: one for each member that fetches."),
    int_key("group.share.max.size", None, 200, 1, "How many members a share group may have.", maximum=1_000),
    int_key("group.share.min.assignment.interval.ms", None, 0, 0, "The shortest share.assignment.interval.ms."),
    int_key("group.share.min.delivery.count.limit", None, 2, 2, "The smallest share.delivery.count.limit.", maximum=5),
    int_key("group.share.min.heartbeat.interval.ms", None, 5_000, 1, "The shortest share.heartbeat.interval.ms."),
    int_key("group.share.min.partition.max.record.locks", None, 100, 100,
        "The smallest share.partition.max.record.locks.", maximum=2_000),
    int_key("group.share.min.record.lock.duration.ms", None, 1_000, 1, "The shortest share.record.lock.duration.ms.",
        maximum=30_000),
    int_key("group.share.min.session.timeout.ms", None, 45_000, 1, "The shortest share.session.timeout.ms."),
)
# fmt: on
GROUP_KEYS: dict[str, ConfigKey] = {key.name: key for key in _GROUP_KEYS}
OF_ALL_GROUPS = (*_OF_CONSUMER_GROUPS, *_OF_SHARE_GROUPS)  # broker configs; none can change at run time
