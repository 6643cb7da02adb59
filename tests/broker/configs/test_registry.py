"""The registry of configs: Kafka's names and defaults, what values are taken, and which one counts."""

import pytest

from tailrace.broker.configs.keys import BYTES_MAX, ConfigType, InvalidConfig
from tailrace.broker.configs.registry import (
    BACKLOG_PREFIX,
    BacklogConfig,
    BacklogPolicy,
    BrokerConfigs,
    ConfigSource,
    broker_key,
    check_backlog,
    topic_config,
    topic_entry,
    topic_key,
)
from tailrace.broker.configs.tables import BROKER_KEYS, TOPIC_KEYS
from tailrace.log.layout.config import LogConfig

# What Kafka 4.3.1 answers to DescribeConfigs of a topic without configs of its own: value, type, the broker's name.
# The answer lacks that name for flush.ms, retention.ms, segment.jitter.ms and segment.ms: Kafka's brokers have no
# default under it.
KAFKA = """
cleanup.policy                           delete               7 log.cleanup.policy
compression.gzip.level                   -1                   3 compression.gzip.level
compression.lz4.level                    9                    3 compression.lz4.level
compression.type                         producer             2 compression.type
compression.zstd.level                   3                    3 compression.zstd.level
delete.retention.ms                      86400000             5 log.cleaner.delete.retention.ms
file.delete.delay.ms                     60000                5 log.segment.delete.delay.ms
flush.messages                           9223372036854775807  5 log.flush.interval.messages
flush.ms                                 9223372036854775807  5 log.flush.interval.ms
follower.replication.throttled.replicas  ''                   7 -
index.interval.bytes                     4096                 3 log.index.interval.bytes
leader.replication.throttled.replicas    ''                   7 -
local.retention.bytes                    -2                   5 log.local.retention.bytes
local.retention.ms                       -2                   5 log.local.retention.ms
max.compaction.lag.ms                    9223372036854775807  5 log.cleaner.max.compaction.lag.ms
max.message.bytes                        1048588              3 message.max.bytes
message.timestamp.after.max.ms           3600000              5 log.message.timestamp.after.max.ms
message.timestamp.before.max.ms          9223372036854775807  5 log.message.timestamp.before.max.ms
message.timestamp.type                   CreateTime           2 log.message.timestamp.type
min.cleanable.dirty.ratio                0.5                  6 log.cleaner.min.cleanable.ratio
min.compaction.lag.ms                    0                    5 log.cleaner.min.compaction.lag.ms
min.insync.replicas                      1                    3 min.insync.replicas
preallocate                              false                1 log.preallocate
remote.log.copy.disable                  false                1 -
remote.log.delete.on.disable             false                1 -
remote.storage.enable                    false                1 -
retention.bytes                          -1                   5 log.retention.bytes
retention.ms                             604800000            5 log.retention.ms
segment.bytes                            1073741824           3 log.segment.bytes
segment.index.bytes                      10485760             3 log.index.size.max.bytes
segment.jitter.ms                        0                    5 log.roll.jitter.ms
segment.ms                               604800000            5 log.roll.ms
unclean.leader.election.enable           false                1 unclean.leader.election.enable
"""


def test_topic_configs_have_kafkas_names_defaults_and_types() -> None:
    ours = [
        (key.name, key.default or "''", str(int(key.type)), key.broker_key or "-")
        for key in TOPIC_KEYS.values()
        if not key.name.startswith("tailrace.")
    ]
    assert ours == [tuple(line.split()) for line in KAFKA.strip().splitlines()]


def test_every_config_accepts_its_default_and_is_documented() -> None:
    for key in (*TOPIC_KEYS.values(), *BROKER_KEYS.values()):
        key.parse(key.default)
        assert key.doc
        assert key.doc.endswith((".", "…"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"policy": "hold"}, "needs the groups"),
        ({"policy": "reject", "groups": "a"}, "needs a limit"),
        ({"policy": "backpressure", "groups": "a"}, "needs a limit"),
        ({"groups": "a"}, "no effect with the policy drop"),
        ({"policy": "hold", "groups": ",".join(map(str, range(101)))}, "names 101 groups, and may name 100"),
    ],
    ids=["no groups", "reject without limit", "backpressure without limit", "groups that drop", "many groups"],
)
def test_a_backlog_policy_that_contradicts_itself_is_refused(overrides: dict[str, str], message: str) -> None:
    given = {BACKLOG_PREFIX + name: text for name, text in overrides.items()}
    with pytest.raises(InvalidConfig, match=message):
        check_backlog(topic_config(given, BrokerConfigs()).backlog)


def test_a_topic_may_name_a_hundred_groups() -> None:
    groups = tuple(map(str, range(100)))
    given = {"tailrace.backlog.policy": "hold", "tailrace.backlog.groups": ",".join(groups)}
    config = topic_config(given, BrokerConfigs()).backlog
    check_backlog(config)
    assert config.groups == groups


def test_a_backlog_policy_is_read_from_the_configs_of_a_topic() -> None:
    texts = {"policy": "reject", "groups": "a, b,a", "bytes": "10", "expiry.ms": "7"}
    config = topic_config({BACKLOG_PREFIX + name: text for name, text in texts.items()}, BrokerConfigs())
    check_backlog(config.backlog)
    assert config.backlog == BacklogConfig(BacklogPolicy.REJECT, ("a", "b"), 10, -1, 7)


def test_the_defaults_are_those_of_the_log() -> None:
    assert BrokerConfigs().topic_defaults.log == LogConfig()


def test_brokers_can_set_every_topic_config_for_all_topics_also_at_run_time() -> None:
    for key in TOPIC_KEYS.values():
        if key.broker_key is not None:
            of_broker = broker_key(key.broker_key)
            default = next(BrokerConfigs().layers_with_synonyms(key.broker_key)).text_in_units
            assert (of_broker.type, default, of_broker.is_dynamic) == (key.type, key.default, True)


# Values


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 42 ", 42),
        ("retention.ms", "+7", 7),
        ("preallocate", "TRUE", True),
        ("preallocate", "false", False),
        ("cleanup.policy", "", ""),
        ("cleanup.policy", "compact, delete", "compact, delete"),
        ("min.cleanable.dirty.ratio", "0", 0.0),
        ("min.cleanable.dirty.ratio", "1e-3", 0.001),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("segment.bytes", str(1 << 20), 1 << 20),
        ("max.message.bytes", str((1 << 31) - 1), (1 << 31) - 1),
        ("flush.messages", str((1 << 63) - 1), (1 << 63) - 1),
        ("leader.replication.throttled.replicas", "0:1, 1:1", "0:1, 1:1"),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("leader.replication.throttled.replicas", "", ""),
        ("remote.storage.enable", "false", False),
    ],
)
def test_values_that_are_taken(name: str, text: str, value: object) -> None:
    assert topic_key(name).parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", ""),
        ("retention.ms", "-2"),
        ("retention.ms", "1.5"),
        ("retention.ms", "1_000"),
        ("retention.ms", "٣"),
        ("retention.ms", "9" * 5000),
        ("retention.ms", str(1 << 63)),
        ("max.message.bytes", str(1 << 31)),
        ("segment.bytes", str((1 << 20) - 1)),
        ("preallocate", "yes"),
        ("cleanup.policy", "compact,burn"),
        ("compression.type", "brotli"),
        ("compression.type", ""),
        ("compression.gzip.level", "10"),
        ("compression.gzip.level", "0"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "inf"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "1.2.3"),
        ("min.cleanable.dirty.ratio", ""),
        ("message.timestamp.type", "createtime"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "x"),
        ("leader.replication.throttled.replicas", "0:1 1:1"),
        ("leader.replication.throttled.replicas", "x" * (BYTES_MAX + 1)),
        ("leader.replication.throttled.replicas", "€" * (BYTES_MAX // 2)),
    ],
)
def test_values_that_are_refused_with_what_would_be_taken(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name} .* it must be ") as refused:
        topic_key(name).parse(text)
    assert len(str(refused.value)) < 400


def test_a_value_is_kept_without_spaces() -> None:
    assert topic_key("cleanup.policy").tidy(" compact ,, delete ") == "compact,delete"
    assert topic_key("retention.ms").tidy(" 7 ") == "7"
    assert TOPIC_KEYS["cleanup.policy"].type is ConfigType.LIST


def test_names_that_nobody_knows_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"no topic config 'log.retention.ms'"):
        topic_key("log.retention.ms")
    with pytest.raises(InvalidConfig, match=r"no broker config 'retention.ms'"):
        broker_key("retention.ms")


@pytest.mark.parametrize("at_start", [{"nothing": "1"}, {"num.partitions": "0"}, {"node.id": "one"}])
def test_a_broker_does_not_start_with_what_it_does_not_know(at_start: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        BrokerConfigs(at_start)


# Which one counts


def test_a_broker_config_comes_from_the_broker_all_brokers_the_start_or_the_default() -> None:
    configs = BrokerConfigs({"log.roll.ms": "4", "node.id": "7"})
    configs.set_at_run_time("", "log.roll.ms", "3")
    configs.set_at_run_time("8", "log.roll.ms", "1")
    configs.set_at_run_time("7", "log.roll.ms", "2")
    assert [(entry.text, entry.source) for entry in configs.layers("log.roll.ms")] == [
        ("2", ConfigSource.BROKER_AT_RUN_TIME),
        ("3", ConfigSource.ALL_BROKERS_AT_RUN_TIME),
        ("4", ConfigSource.BROKER_AT_START),
        ("168", ConfigSource.DEFAULT),
    ]
    for left, broker in (("3", "7"), ("4", "")):
        configs.set_at_run_time(broker, "log.roll.ms", None)
        assert configs.entry("log.roll.ms").text == left
    assert configs.at_run_time == {"8": {"log.roll.ms": "1"}}


def test_a_topics_value_is_its_own_else_the_brokers() -> None:
    configs = BrokerConfigs({"log.roll.ms": "4"})
    assert topic_entry("segment.ms", {"segment.ms": "1"}, configs)[1:] == ("1", ConfigSource.TOPIC)
    inherited = topic_entry("segment.ms", {}, configs)
    assert (inherited.key.name, inherited.text, inherited.source) == ("segment.ms", "4", ConfigSource.BROKER_AT_START)
    assert topic_entry("remote.log.copy.disable", {}, configs).source == ConfigSource.DEFAULT


def test_topics_that_say_nothing_share_one_config() -> None:
    configs = BrokerConfigs()
    first = topic_config({}, configs)
    assert topic_config({}, configs) is first
    assert topic_config({"preallocate": "true"}, configs) is first, "which has nothing for appends"
    configs.set_at_run_time("", "log.roll.ms", "7")
    assert topic_config({}, configs).log.segment_ms == 7
    assert first.log.segment_ms != 7


def test_what_an_append_obeys_comes_from_the_topic_where_it_says_so() -> None:
    configs = BrokerConfigs(
        {"log.segment.bytes": "2000000", "message.max.bytes": "9", "producer.id.expiration.ms": "5"}
    )
    overrides = {
        "max.message.bytes": "1",
        "message.timestamp.before.max.ms": "2",
        "message.timestamp.after.max.ms": "3",
        "message.timestamp.type": "LogAppendTime",
        "segment.ms": "4",
        "index.interval.bytes": "5",
        "flush.messages": "6",
        "flush.ms": "7",
    }
    config = topic_config(overrides, configs)
    assert config[:3] == (1, 2, 3)
    assert config.log == LogConfig(
        segment_bytes=2_000_000,
        segment_ms=4,
        index_interval_bytes=5,
        log_append_time=True,
        producer_id_expiration_ms=5,
        flush_messages=6,
        flush_ms=7,
    )


# What is Kafka's, and means nothing here


def test_a_config_of_kafkas_that_has_no_effect_is_taken_at_the_start_and_said() -> None:
    configs = BrokerConfigs({"num.io.threads": "8", "num.partitions": "2"})
    assert configs.at_start == {"num.partitions": "2"}
    assert list(configs.ignored) == ["num.io.threads"]


@pytest.mark.parametrize(
    "name",
    ["ssl.keystore.location", "sasl.enabled.mechanisms", "authorizer.class.name", "create.topic.policy.class.name"],
)
def test_one_that_its_author_counts_on_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{name} is not supported: "):
        BrokerConfigs({name: "x"})


MAP = "listener.security.protocol.map"
STOCK = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT, SASL_SSL:SASL_SSL"


@pytest.mark.parametrize("text", ["", "PLAINTEXT:PLAINTEXT", "CLIENTS:plaintext", STOCK])
def test_a_map_of_listeners_that_promises_nothing_is_taken(text: str) -> None:
    """The stock one is in the file that comes with Kafka."""
    assert list(BrokerConfigs({MAP: text}).ignored) == [MAP]


@pytest.mark.parametrize("text", ["PLAINTEXT:SASL_SSL", f"{STOCK},CLIENTS:SSL", "PLAINTEXT:PLAINTEXT,PLAINTEXT: ssl"])
def test_a_map_that_makes_a_listener_seem_secure_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{MAP} cannot be '.*': TLS, SASL and ACLs are not supported"):
        BrokerConfigs({MAP: text})


def test_remote_storage_is_refused() -> None:
    assert not BrokerConfigs({"remote.log.storage.system.enable": "false"}).ignored
    with pytest.raises(InvalidConfig):
        BrokerConfigs({"remote.log.storage.system.enable": "true"})


def test_both_names_of_a_brokers_number_say_the_same() -> None:
    assert BrokerConfigs({"broker.id": "7"}).number("node.id") == 7
    assert BrokerConfigs({"node.id": "7"}).number("broker.id") == 7
    with pytest.raises(InvalidConfig, match="7 and 8"):
        BrokerConfigs({"node.id": "7", "broker.id": "8"})


def test_the_shortest_silence_of_a_member_is_not_longer_than_the_longest() -> None:
    with pytest.raises(InvalidConfig, match="is greater than"):
        BrokerConfigs({"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"})


@pytest.mark.parametrize("text", ["", "10.0.0.7:0", "10.0.0.7:200,10.0.0.8:50", "::1:7", "[::1]:7, 10.0.0.7:1"])
def test_limits_by_address(text: str) -> None:
    assert broker_key("max.connections.per.ip.overrides").parse(text) == text


@pytest.mark.parametrize(
    "text", ["a", "a:1", "::1", "10.0.0.7", "10.0.0.7:", "10.0.0.7:b", "10.0.0.7:1,b", ":1", "10.0.0.7:-1"]
)
def test_what_are_no_limits_by_address(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"address:number.* host names are not resolved"):
        broker_key("max.connections.per.ip.overrides").parse(text)


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_no_limit_locks_everyone_out(name: str) -> None:
    with pytest.raises(InvalidConfig, match="from 1 to"):
        broker_key(name).parse("0")


# Hours and minutes

HOUR_MS, MINUTE_MS = 3_600_000, 60_000


@pytest.mark.parametrize(
    ("at_start", "retention_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 3 * MINUTE_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "2", "log.retention.minutes": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "2"}, -1),
    ],
)
def test_retention_is_given_in_milliseconds_minutes_or_hours_and_the_finest_counts(
    at_start: dict[str, str], retention_ms: int
) -> None:
    configs = BrokerConfigs(at_start)
    assert configs.topic_defaults.log.retention_ms == retention_ms
    assert topic_entry("retention.ms", {}, configs).value == retention_ms
    assert topic_config({"retention.ms": "9"}, configs).log.retention_ms == 9


def test_segments_roll_by_hours_too() -> None:
    assert BrokerConfigs({"log.roll.hours": "2"}).topic_defaults.log.segment_ms == 2 * HOUR_MS
    assert BrokerConfigs({"log.roll.hours": "2", "log.roll.ms": "7"}).topic_defaults.log.segment_ms == 7
    jitter = topic_entry("segment.jitter.ms", {}, BrokerConfigs({"log.roll.jitter.hours": "1"}))
    assert (jitter.text, jitter.source) == (str(HOUR_MS), ConfigSource.BROKER_AT_START)


def test_what_is_set_at_run_time_in_milliseconds_counts_more_than_hours_at_the_start() -> None:
    configs = BrokerConfigs({"log.retention.hours": "2"})
    configs.set_at_run_time("", "log.retention.ms", "7")
    assert configs.topic_defaults.log.retention_ms == 7
    configs.set_at_run_time("", "log.retention.ms", None)
    assert configs.topic_defaults.log.retention_ms == 2 * HOUR_MS
    for name in ("log.retention.hours", "log.retention.minutes", "log.roll.hours", "log.roll.jitter.hours"):
        assert not BROKER_KEYS[name].is_dynamic, "as in Kafka"


@pytest.mark.parametrize(
    ("policy", "deletes", "needs_keys"),
    [("delete", True, False), ("compact", False, True), ("compact,delete", True, True), ("", False, False)],
)
def test_what_a_cleanup_policy_means(policy: str, deletes: bool, needs_keys: bool) -> None:
    config = topic_config({"cleanup.policy": policy}, BrokerConfigs())
    assert (config.deletes, config.needs_keys) == (deletes, needs_keys)
