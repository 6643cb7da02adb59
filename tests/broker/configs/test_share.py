"""The configs of share groups: Kafka's defaults and limits, the typed settings, and what a topic says to queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.configs.durations import duration_ms, is_offset_reset
from tailrace.broker.configs.group_tables import GROUP_KEYS
from tailrace.broker.configs.groups import LIMITS, check_group, check_group_config
from tailrace.broker.configs.keys import InvalidConfig
from tailrace.broker.configs.registry import BrokerConfigs, QueueConfig, topic_config
from tailrace.broker.configs.share import OffsetReset, RetryDelay, ShareSettings, share_settings

# What Kafka 4.3 and 4.4 say of the configs of a share group, where ours say the same.
KAFKA = {
    "errors.deadletterqueue.topic.name": "",
    "share.assignment.interval.ms": "1000",
    "share.auto.offset.reset": "latest",
    "share.delivery.count.limit": "5",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.partition.max.record.locks": "2000",
    "share.record.lock.duration.ms": "30000",
    "share.renew.acknowledge.enable": "true",
    "share.session.timeout.ms": "45000",
}
OTHERS_OF_KAFKA = {"errors.deadletterqueue.copy.record.enable"}  # true here


def test_share_configs_have_kafkas_names_and_defaults() -> None:
    ours = {name: key.default for name, key in GROUP_KEYS.items() if not name.startswith(("consumer.", "tailrace."))}
    assert ours == KAFKA | dict.fromkeys(OTHERS_OF_KAFKA, "true")


def test_the_settings_of_a_group_without_configs_are_the_defaults() -> None:
    assert share_settings({}, BrokerConfigs()) == ShareSettings()


def test_every_config_of_a_group_is_in_its_settings() -> None:
    overrides = {
        "errors.deadletterqueue.copy.record.enable": "false",
        "errors.deadletterqueue.topic.name": "dlq.images",
        "share.assignment.interval.ms": "0",
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.delivery.count.limit": "3",
        "share.heartbeat.interval.ms": "6000",
        "share.isolation.level": "read_committed",
        "share.partition.max.record.locks": "300",
        "share.record.lock.duration.ms": "2000",
        "share.renew.acknowledge.enable": "false",
        "share.session.timeout.ms": "50000",
        "tailrace.share.lock.max.total.ms": "60000",
        "tailrace.share.order": "key",
        "tailrace.share.parked.max": "10",
        "tailrace.share.retry.delay.max.ms": "9000",
        "tailrace.share.retry.delay.ms": "1000",
        "tailrace.share.retry.jitter": "0.5",
        "tailrace.share.retry.multiplier": "1.5",
    }
    assert set(overrides) == {name for name in GROUP_KEYS if not name.startswith("consumer.")}
    for name, text in overrides.items():
        check_group_config(name, text, BrokerConfigs())
    assert share_settings(overrides, BrokerConfigs({"group.share.max.size": "7"})) == ShareSettings(
        session_timeout_ms=50_000,
        heartbeat_interval_ms=6_000,
        assignment_interval_ms=0,
        size_max=7,
        lock_ms=2_000,
        lock_total_ms_max=60_000,
        attempts_max=3,
        locks_max=300,
        parked_max=10,
        offset_reset=OffsetReset(age_ms=3_600_000),
        reads_committed=True,
        renews=False,
        orders_by_key=True,
        retry=RetryDelay(1_000, 1.5, 9_000, 0.5),
        dead_letter_topic="dlq.images",
        copies_dead_letters=False,
    )


def test_a_group_may_begin_at_the_earliest_record() -> None:
    settings = share_settings({"share.auto.offset.reset": "earliest"}, BrokerConfigs())
    assert settings.offset_reset == OffsetReset(from_earliest=True)


def test_a_value_that_the_broker_no_longer_allows_is_brought_within_limits() -> None:
    overrides = {"share.record.lock.duration.ms": "2000", "share.delivery.count.limit": "9"}
    configs = BrokerConfigs(
        {"group.share.min.record.lock.duration.ms": "15000", "group.share.max.delivery.count.limit": "6"}
    )
    settings = share_settings(overrides, configs)
    assert (settings.lock_ms, settings.attempts_max) == (15_000, 6)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("share.record.lock.duration.ms", "999"),
        ("share.record.lock.duration.ms", "60001"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "99"),
        ("share.partition.max.record.locks", "4001"),
        ("share.session.timeout.ms", "44999"),
        ("share.heartbeat.interval.ms", "15001"),
        ("share.assignment.interval.ms", "15001"),
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration:1h"),
        ("share.isolation.level", "READ_COMMITTED"),
        ("share.renew.acknowledge.enable", "1"),
        ("errors.deadletterqueue.topic.name", "__images"),
        ("errors.deadletterqueue.topic.name", ".."),
        ("errors.deadletterqueue.topic.name", "no spaces"),
        ("errors.deadletterqueue.topic.name", "x" * 250),
        ("tailrace.share.order", "partition"),
        ("tailrace.share.retry.jitter", "1.1"),
        ("tailrace.share.retry.multiplier", "0.9"),
        ("tailrace.share.parked.max", "10000001"),
        ("tailrace.share.lock.max.total.ms", "0"),
        ("share.locks", "1"),
    ],
)
def test_a_value_out_of_range_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot be|there is no group config"):
        check_group_config(name, text, BrokerConfigs())


def test_the_broker_may_require_how_the_name_of_a_dead_letter_topic_begins() -> None:
    configs = BrokerConfigs({"errors.deadletterqueue.topic.name.prefix": "dlq."})
    check_group_config("errors.deadletterqueue.topic.name", "dlq.images", configs)
    check_group_config("errors.deadletterqueue.topic.name", "", configs)
    with pytest.raises(InvalidConfig, match="requires dlq"):
        check_group_config("errors.deadletterqueue.topic.name", "images", configs)


def test_dead_letter_topics_are_not_created_by_themselves() -> None:
    BrokerConfigs({"errors.deadletterqueue.auto.create.topics.enable": "false"})
    with pytest.raises(InvalidConfig):
        BrokerConfigs({"errors.deadletterqueue.auto.create.topics.enable": "true"})


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_the_heartbeats_of_a_group_are_more_frequent_than_its_sessions_are_long(kind: str) -> None:
    configs = BrokerConfigs(
        {f"group.{kind}.min.session.timeout.ms": "5000", f"group.{kind}.min.heartbeat.interval.ms": "1000"}
    )
    check_group({f"{kind}.session.timeout.ms": "6000"}, configs)
    with pytest.raises(InvalidConfig, match="must be less"):
        check_group({f"{kind}.session.timeout.ms": "5000"}, configs)
    check_group({f"{kind}.session.timeout.ms": "5000", f"{kind}.heartbeat.interval.ms": "4000"}, configs)


@pytest.mark.parametrize(
    "given",
    [
        {"group.share.session.timeout.ms": "5000"},
        {"group.share.min.session.timeout.ms": "70000"},
        {"group.share.max.session.timeout.ms": "44000"},
        {"group.share.heartbeat.interval.ms": "20000"},
        {"group.share.min.heartbeat.interval.ms": "6000"},
        {"group.share.max.heartbeat.interval.ms": "4000"},
        {"group.share.heartbeat.interval.ms": "50000", "group.share.max.heartbeat.interval.ms": "50000"},
        {"group.share.assignment.interval.ms": "16000"},
        {"group.share.min.assignment.interval.ms": "2000"},
        {"group.share.max.assignment.interval.ms": "900"},
        {"group.share.delivery.count.limit": "26", "group.share.max.delivery.count.limit": "25"},
        {"group.share.delivery.count.limit": "3", "group.share.min.delivery.count.limit": "4"},
        {"group.share.delivery.count.limit": "7", "group.share.max.delivery.count.limit": "6"},
        {"group.share.record.lock.duration.ms": "500"},
        {"group.share.record.lock.duration.ms": "20000", "group.share.min.record.lock.duration.ms": "30000"},
        {"group.share.max.record.lock.duration.ms": "3600001"},
        {"group.share.partition.max.record.locks": "5000"},
        {"group.share.partition.max.record.locks": "1000", "group.share.min.partition.max.record.locks": "1500"},
        {"group.share.max.partition.max.record.locks": "1000001"},
        {"group.share.max.size": "1001", "group.share.max.share.sessions": "2000"},
        {"group.share.max.share.sessions": "199"},
        {"group.share.assignors": ","},
        {"group.share.assignors": "uniform"},
    ],
)
def test_broker_configs_that_contradict_each_other_are_refused_at_the_start(given: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        BrokerConfigs(given)


def test_every_limited_config_has_limits_of_its_kind() -> None:
    assert len(LIMITS) == 9
    assert all(limits.lowest.startswith(f"group.{name.partition('.')[0]}.min.") for name, limits in LIMITS.items())


# Durations


@given(
    st.tuples(st.integers(0, 99_999), st.integers(0, 999_999), st.integers(0, 9_999_999), st.integers(0, 9_999_999)),
    st.integers(0, 999_999_999),
)
def test_a_duration_is_the_sum_of_its_parts(parts: tuple[int, int, int, int], nanoseconds: int) -> None:
    days, hours, minutes, seconds = parts
    text = f"by_duration:P{days}DT{hours}H{minutes}M{seconds}.{nanoseconds:09}S"
    expected = ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000 + nanoseconds // 1_000_000
    assert duration_ms(text) == duration_ms("by_duration:" + text.partition(":")[2].lower()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("P1D", 86_400_000), ("PT1H", 3_600_000), ("PT0S", 0), ("PT0.5S", 500), ("PT1.S", 1_000), ("+PT+2M", 120_000)],
)
def test_what_java_takes_for_a_duration_is_one(text: str, expected: int) -> None:
    assert duration_ms(f"by_duration:{text}") == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "P1H", "PT1D", "-PT1H", "PT-1H", "1H", "P1Y", "PT1H ", "PT.5S"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert duration_ms(f"by_duration:{text}") is None
    assert not is_offset_reset(f"by_duration:{text}")


# Topics


def test_the_configs_of_a_topic_say_how_queues_deliver_its_records() -> None:
    configs = BrokerConfigs()
    assert configs.topic_defaults.queue == QueueConfig()
    assert not configs.topic_defaults.queue.needs_headers
    overrides = {
        "errors.deadletterqueue.group.enable": "true",
        "tailrace.delay.headers": "true",
        "tailrace.delivery.delay.ms": "5",
        "tailrace.message.ttl.ms": "6",
        "tailrace.priority": "partition",
        "tailrace.ttl.headers": "true",
    }
    queue = topic_config(overrides, configs).queue
    assert queue == QueueConfig(5, True, 6, True, True, True)
    assert queue.needs_headers
    assert topic_config({"tailrace.priority": "none"}, configs).queue == QueueConfig()
