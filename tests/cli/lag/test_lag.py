"""`tailrace lag`, run as a user runs it, against a broker of ours and against Apache Kafka."""

import contextlib
import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from cli.lag.conftest import OURS
from confluent_kafka import Consumer, Producer, TopicPartition
from waits import until

from tailrace.facts.lag import BEAT_KEY, Beat, GroupLag, LagRow
from tailrace.monitor.figures.lag import LagTracker
from tailrace.monitor.sources.connection import connect
from tailrace.monitor.sources.kafka_facts import KafkaFacts
from tailrace.monitor.sources.tailrace_facts import facts_about

Run = Callable[..., tuple[str, str]]
Commit = Callable[[str, str, int], None]
pytestmark = pytest.mark.timeout(150)

FIELDS = [
    *("group", "topic", "partition", "committed", "start", "end", "lag_records", "lag_bytes", "bytes_exact"),
    *("lag_seconds", "produce_rate", "consume_rate", "catchup_seconds", "loss_seconds", "loss_low_seconds", "rule"),
    *("state", "unread_lost", "estimate", "as_of"),
]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def report(run: Run, group: str, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("lag", group, "--json", "--sample", "200ms", *arguments)[0])
    return found


def row_of(run: Run, group: str) -> dict[str, Any]:
    (row,) = report(run, group)["groups"]
    return dict(row)


def test_lag_seconds_are_the_age_of_the_first_unread_message(
    run: Run, new_topic: Any, unused: str, commit: Commit, produce: Any, is_ours: bool
) -> None:
    topic, now = new_topic(), now_ms()
    stamps = [now - 1000 * seconds for seconds in (5000, 4000, 3000, 200, 100)]
    produce(topic, stamps, compression_type="lz4")
    for offset, stamp in ((1, stamps[1]), (3, stamps[3])):
        commit(unused, topic, offset)
        asked = now_ms()
        row = row_of(run, unused)
        assert list(row) == FIELDS
        assert 0 <= row["lag_seconds"] - (asked - stamp) / 1000 <= (now_ms() - asked) / 1000 + 1
        assert (row["committed"], row["lag_records"], row["end"]) == (offset, 5 - offset, 5)
        assert row["lag_bytes"] > 0
        assert (row["estimate"], row["bytes_exact"]) == (not is_ours, is_ours)
    assert report(run, unused)["source"] == ("tailrace" if is_ours else "kafka")


def test_a_group_that_has_read_all_of_an_idle_topic_is_not_behind(
    run: Run, ten: str, unused: str, commit: Commit
) -> None:
    commit(unused, ten, 10)
    row = row_of(run, unused)
    assert (row["lag_records"], row["lag_bytes"], row["lag_seconds"], row["state"]) == (0, 0, 0, "ok")
    assert (row["loss_seconds"], row["rule"], row["catchup_seconds"]) == (None, None, 0)


@pytest.mark.slow  # cleaners rest for 15 s
def test_lag_seconds_pass_over_what_compaction_has_removed(
    run: Run, bootstrap: str, new_topic: Any, unused: str, commit: Commit
) -> None:
    topic, now = new_topic(cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01"), now_ms()
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, seconds in (("a", 5000), ("a", 4000), ("b", 3000), ("c", 2000)):
        producer.produce(topic, "value", key, timestamp=now - 1000 * seconds)
        assert producer.flush(30) == 0
        time.sleep(0.3)  # so that each has a segment of its own
    commit(unused, topic, 0)
    assert 5000 <= row_of(run, unused)["lag_seconds"] < 5100
    until(lambda: row_of(run, unused)["lag_seconds"] < 4900, 90, 2)
    asked = now_ms()
    row = row_of(run, unused)
    assert 0 <= row["lag_seconds"] - 4000 - (asked - now) / 1000 <= (now_ms() - asked) / 1000 + 1
    assert row["lag_records"] == 4, "an upper bound"


def test_groups_without_members_are_stopped_and_those_with_members_stalled(
    run: Run, new_topic: Any, unused: str, commit: Commit, produce: Any, join: Any
) -> None:
    topic = new_topic(retention_ms="7200000")
    produce(topic, [now_ms() - 3_600_000] * 3)
    commit(unused, topic, 1)
    row = row_of(run, unused)
    assert (row["state"], row["rule"]) == ("stopped", "age")
    assert 3500 < row["loss_low_seconds"] <= 3600
    said, _ = run("lag", unused, "--sample", "200ms", environment={"COLUMNS": "80"})
    assert re.search(r"loses messages in (≥ )?(59 min|1 h)", said)
    join(unused, topic)
    assert row_of(run, unused)["state"] == "stalled"


def test_deleted_messages_are_lost_at_once(
    run: Run, ten: str, unused: str, commit: Commit, delete_before: Callable[[str, int], None]
) -> None:
    commit(unused, ten, 3)
    delete_before(ten, 5)
    row = row_of(run, unused)
    assert (row["unread_lost"], row["lag_records"], row["start"], row["loss_seconds"]) == (2, 5, 5, 0)
    assert "has lost 2 messages" in run("lag", unused, "--sample", "200ms")[0]


def test_unknown_groups_and_bad_options_have_exit_codes(run: Run, unused: str, ten: str, commit: Commit) -> None:
    assert f"there is no group {unused!r}" in run("lag", unused, "--sample", "200ms", code=4)[1]
    assert "--sample takes" in run("lag", "--sample", "soon", code=2)[1]
    assert "--since needs" in run("lag", "--since", "-1h", code=2)[1]
    commit(unused, ten, 3)
    assert report(run, unused, "--topic", "another")["groups"] == []
    assert "committed no offsets" in run("lag", unused, "--topic", "another", "--sample", "200ms")[0]


def test_control_batches_alone_are_no_lag(run: Run, bootstrap: str, new_topic: Any, unused: str) -> None:
    """What Kafka's own tools show as a lag of 1 for ever."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unused})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(5):
        producer.produce(topic, str(number))
    producer.commit_transaction(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": unused})
    consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    row = row_of(run, unused)
    assert (row["end"], row["lag_records"], row["lag_seconds"], row["state"]) == (6, 0, 0, "ok")
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()
    assert row_of(run, unused)["lag_records"] == 2


def test_a_group_that_has_read_all_that_is_committed_has_no_lag(
    run: Run, bootstrap: str, new_topic: Any, unused: str
) -> None:
    """It commits where its last message was, so behind it are markers, aborted messages, and those of an open one."""
    topic, settings = new_topic(), {"bootstrap.servers": bootstrap, "group.id": unused}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unused})
    producer.init_transactions(30)
    consumer = Consumer(settings | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def lag() -> tuple[Any, ...]:
        row = row_of(run, unused)
        return row["committed"], row["lag_records"], row["lag_seconds"], row["state"]

    def send() -> None:
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, str(number))
        assert producer.flush(30) == 0

    send()
    producer.commit_transaction(30)
    assert len(consumer.consume(5, 30)) == 5
    consumer.commit(asynchronous=False)
    assert lag() == (5, 0, 0, "ok")
    send()
    assert lag() == (5, 0, 0, "ok"), "during a transaction"
    producer.abort_transaction(30)
    assert lag() == (5, 0, 0, "ok"), "after one that was aborted"
    send()
    producer.commit_transaction(30)
    committed, records, seconds, _ = lag()
    assert (committed, records > 0, seconds > 0) == (5, True, True)
    assert len(consumer.consume(5, 30)) == 5
    consumer.commit(asynchronous=False)
    assert lag() == (17, 0, 0, "ok")
    consumer.close()


@OURS
def test_both_sources_give_the_same_lag(
    bootstrap: str, new_topic: Any, unused: str, commit: Commit, produce: Any
) -> None:
    topic = new_topic()
    now = now_ms()
    produce(topic, [now - 1000 * age for age in range(500, 100, -1)], compression_type="gzip")
    commit(unused, topic, 123)
    cluster = connect({"bootstrap.servers": bootstrap})
    rows = []
    for facts in (KafkaFacts(cluster, group=unused), facts_about(cluster, group=unused)):
        (found,) = LagTracker().observe(facts.snapshot())
        rows += found.rows
    cluster.close()
    plain, ours = rows
    assert (plain.estimate, ours.estimate) == (True, False)
    for name in ("committed", "start", "end", "lag_records", "unread_at", "unread_lost", "state"):
        assert getattr(plain, name) == getattr(ours, name)
    assert ours.unread_at == now - 1000 * (500 - 123)


@OURS
def test_what_a_monitor_publishes_is_used_while_it_is_fresh(
    run: Run, bootstrap: str, admin: Any, unused: str, ten: str, commit: Commit
) -> None:
    from confluent_kafka.admin import NewTopic

    topic = "__tailrace_lag"
    config = {"cleanup.policy": "compact"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(20)
    row = LagRow("orders", 0, 3, 0, 10, 7, 70, True, now_ms() - 5000, 1.0, 0.0, None, None, None, "ok", 0, False)
    producer = Producer({"bootstrap.servers": bootstrap})

    def publish(at: int) -> None:
        group = GroupLag(unused, at, True, (row,))
        producer.produce(topic, group.encode(), group.key)
        producer.produce(topic, Beat(at, 15_000, "tailrace").encode(), BEAT_KEY)
        assert producer.flush(20) == 0

    try:
        publish(now_ms())
        found = report(run, unused)
        assert (found["rates"], found["source"]) == ("monitor", "tailrace")
        (shown,) = found["groups"]
        assert (shown["lag_records"], shown["produce_rate"]) == (7, 1.0)
        assert 5 <= shown["lag_seconds"] < 50
        commit(f"{unused}-new", ten, 4)
        found = report(run, f"{unused}-new")
        assert (found["rates"], found["groups"][0]["lag_records"]) == ("sampled", 6)
        run("lag", f"{unused}-none", "--sample", "200ms", code=4)
        publish(now_ms() - 100_000)
        run("lag", unused, "--sample", "200ms", code=4)  # two samples know of no such group
    finally:
        admin.delete_topics([topic])[topic].result(20)


@OURS
def test_a_disk_is_full_at_the_reserve_that_is_set(run: Run, bootstrap: str) -> None:
    from tailrace.monitor.sources.connection import connect
    from tailrace.monitor.sources.tailrace_facts import facts_about

    def reserve() -> int:
        with contextlib.closing(connect({"bootstrap.servers": bootstrap})) as cluster:
            return facts_about(cluster).snapshot().reserve

    assert reserve() == -1, "the default"
    run("config", "set", "--set", "tailrace.disk.reserve.bytes=123456")
    try:
        assert reserve() == 123_456
    finally:
        run("config", "set", "--unset", "tailrace.disk.reserve.bytes")


def test_buffers_say_for_how_long_there_is_room(run: Run, new_topic: Any) -> None:
    topic = new_topic(retention_ms="7200000")
    found = json.loads(run("lag", "--buffers", "--topic", topic, "--sample", "200ms", "--json")[0])
    assert found["topics"] == [{"topic": topic, "today_seconds": 7200.0, "full_seconds": 7200.0}]
    assert [list(disk) for disk in found["disks"]] == [["path", "today_seconds", "full_seconds"]]
    assert "2 h" in run("lag", "--buffers", "--topic", topic, "--sample", "200ms")[0]
    assert "exclude each other" in run("lag", "--buffers", "--losses", code=2)[1]


@OURS
def test_watch_goes_on_until_it_is_ended(start: Any, ten: str, unused: str, commit: Commit) -> None:
    commit(unused, ten, 3)
    process = start("lag", unused, "--watch", "--json", "--sample", "200ms")
    found = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert found[0]["at"] < found[1]["at"]
    assert [one["groups"][0]["lag_records"] for one in found] == [7, 7]
