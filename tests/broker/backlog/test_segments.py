"""`__tailrace_segments`: what the broker publishes about the segments of each partition, and when."""

from errno import EIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from backlogs import commit
from brokers import LocalBroker
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.backlog import segments as publisher
from tailrace.broker.backlog.segments import joined
from tailrace.broker.core.topics import SEGMENTS_TOPIC
from tailrace.facts import segments
from tailrace.facts.segments import PartitionFact, SegmentFact
from tailrace.log.layout.errors import StorageError
from tailrace.log.retention import Reason
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.records.batch import split
from tailrace.records.record import Record, decode_records

RECORDS_OF_A_SEGMENT_EACH: dict[str, Any] = {"segment_ms": "1"}


def fill(broker: LocalBroker, count: int, topic: str = "orders", partition: int = 0) -> None:
    for number in range(count):
        assert broker.produce(b"%d" % number, topic=topic, partition=partition).error_code == 0
        broker.now_ms += 10


def raw(broker: LocalBroker) -> list[Record]:
    """All records of the topic, also those that compaction would remove."""
    broker.run_jobs()
    if broker.broker.topic(SEGMENTS_TOPIC) is None:
        return []
    piece = broker.log(SEGMENTS_TOPIC).read(0, 1 << 26)
    if piece is None:
        return []
    with piece:
        data = piece.read()
    return [record for position, _ in split(data) for record in decode_records(data, position)]


def published(broker: LocalBroker) -> list[PartitionFact]:
    return [segments.decode(record.value) for record in raw(broker) if record.value is not None]


def last(broker: LocalBroker) -> PartitionFact:
    return published(broker)[-1]


def alter(broker: LocalBroker, kind: int, name: str, **configs: str) -> None:
    changes = [AlterableConfig(name=key.replace("_", "."), config_operation=0, value=configs[key]) for key in configs]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    assert broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0


def test_a_roll_publishes_the_segments_as_they_are(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"log.retention.check.interval.ms": "7000"}) as broker:
        topic_id = broker.create_topic(retention_ms="86400000", retention_bytes="1000000", **RECORDS_OF_A_SEGMENT_EACH)
        first_ms = broker.now_ms
        fill(broker, 3)
        total = broker.broker.sizes.total
        broker.tick()
        (fact,) = published(broker)
        assert (fact.topic, fact.topic_id, fact.partition, fact.start) == ("orders", topic_id.hex(), 0, 0)
        sizes = [segment.size for segment in broker.log().segments]
        assert fact.segments == tuple(
            SegmentFact(number, number + 1, sizes[number], first_ms + 10 * number) for number in range(3)
        )
        assert (fact.retention_ms, fact.retention_bytes, fact.segment_ms) == (86_400_000, 1_000_000, 1)
        assert (fact.deletes, fact.compacts, fact.policy, fact.hold_groups) == (True, False, "drop", ())
        assert (fact.tick_ms, fact.tick_at, fact.at) == (7000, broker.now_ms + 7000, broker.now_ms)
        assert fact.active_since == first_ms + 20
        assert fact.all_logs_bytes == total
        assert fact.key == raw(broker)[0].key


def test_partitions_that_never_rolled_or_do_not_change_publish_nothing(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        fill(broker, 3)
        broker.tick()
        assert raw(broker) == []
        broker.create_topic("rolled", **RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 2, "rolled")
        broker.tick()
        for _ in range(5):
            broker.produce(b"more")
            broker.tick()
        assert [fact.topic for fact in published(broker)] == ["rolled"]


def test_a_partition_publishes_once_a_second_at_most(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        for _ in range(20):
            fill(broker, 3)
            broker.tick(170)  # 200 ms in all
        broker.tick(1000)
        facts = published(broker)
        assert 4 <= len(facts) <= 6
        assert all(later.at - earlier.at >= 1000 for earlier, later in pairwise(facts))
        assert len(facts[-1].segments) == 60, "the last change is not lost"


def test_deletions_publish_the_new_start_also_within_a_segment(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 4)
        broker.tick()
        broker.broker.retention.delete(broker.partition(), 2, Reason.SIZE, broker.now_ms)
        broker.tick()
        assert (last(broker).start, [segment.base for segment in last(broker).segments]) == (2, [2, 3])
        broker.create_topic("one")
        broker.produce(b"a", b"b", b"c", topic="one")
        broker.broker.retention.delete(broker.partition("one"), 2, Reason.SIZE, broker.now_ms)
        broker.tick()
        assert (last(broker).topic, last(broker).start, len(last(broker).segments)) == ("one", 2, 1)


def test_changed_configs_are_published_and_others_are_not(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 2)
        broker.tick()
        alter(broker, 2, "orders", retention_ms="1234567")
        broker.tick()
        assert last(broker).retention_ms == 1_234_567
        alter(broker, 2, "orders", tailrace_backlog_groups="billing", tailrace_backlog_policy="hold")
        broker.tick()
        fact = last(broker)
        assert (fact.policy, fact.hold_groups, fact.hold_expiry_ms) == ("hold", ("billing",), 604_800_000)
        assert fact.hold_signs == (broker.broker.topic("orders").anchors["billing"].at_ms,)  # type: ignore[union-attr]
        commit(broker, "billing", 1)
        committed_ms = broker.now_ms
        broker.tick()
        assert last(broker) == fact, "a sign alone is not published"
        fill(broker, 1)
        broker.tick()
        assert last(broker).hold_signs == (committed_ms,)
        alter(broker, 4, "", tailrace_disk_budget_bytes="123456789")
        broker.tick()
        assert last(broker).budget_bytes == 123_456_789
        count = len(raw(broker))
        broker.create_topic("another")
        broker.tick()
        broker.tick()
        assert len(raw(broker)) == count


def test_a_deleted_topic_leaves_a_tombstone(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 2)
        broker.tick()
        key = raw(broker)[0].key
        broker.delete_topic()
        broker.tick()
        assert [(record.key, record.value) for record in raw(broker)[1:]] == [(key, None)]


def test_a_topic_deleted_before_a_kill_gets_its_tombstone_with_the_next_start(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 2)
        broker.tick()
        broker.delete_topic()
        broker.kill()
        broker.tick()
        broker.tick()
        assert [record.value for record in raw(broker)[1:]] == [None]


def test_topics_of_the_broker_itself_are_not_described(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        for topic in ("__tailrace_lag", "orders"):
            broker.create_topic(topic, **RECORDS_OF_A_SEGMENT_EACH)
            fill(broker, 3, topic)
        broker.tick()
        assert {fact.topic for fact in published(broker)} == {"orders"}


@pytest.mark.parametrize("stop", ["restart", "kill"])
def test_a_start_publishes_what_has_changed_and_one_record_for_its_ticks(tmp_path: Path, stop: str) -> None:
    with LocalBroker(tmp_path) as broker:
        for topic in ("one", "two", "three"):
            broker.create_topic(topic, **RECORDS_OF_A_SEGMENT_EACH)
            fill(broker, 3, topic)
        broker.tick()
        assert len(published(broker)) == 3
        fill(broker, 1, "two")  # not published before the stop
        getattr(broker, stop)()
        for _ in range(3):  # what was published before is read, then ages
            broker.tick()
        again = published(broker)[3:]
        assert len(again) == 2
        assert [len(fact.segments) for fact in again if fact.topic == "two"] == [4]
        assert again[0].tick_at == broker.broker.retention.next_check_ms
        broker.tick()
        assert len(published(broker)) == 5


def test_ages_are_read_from_the_disk_after_a_start(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 4)
        broker.restart()
        assert broker.log().segments_of_unknown_age(9)
        broker.tick()
        broker.tick()
        newest = [segment.newest for segment in last(broker).segments[:-1]]
        assert newest == [broker.now_ms - 2040 + 10 * number for number in range(3)]


def test_ten_thousand_partitions_are_published_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "RECORDS_AT_ONCE", 7)
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=40, **RECORDS_OF_A_SEGMENT_EACH)
        for index in range(40):
            fill(broker, 2, partition=index)
        counts = []
        for _ in range(8):
            before = len(raw(broker))
            broker.tick()
            counts.append(len(raw(broker)) - before)
        assert counts == [7, 7, 7, 7, 7, 5, 0, 0]
        assert {fact.partition for fact in published(broker)} == set(range(40))


def test_a_failed_append_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> object:
        raise StorageError("the disk failed", OSError(EIO, "Input/output error"))

    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 2)
        with monkeypatch.context() as patch:
            patch.setattr(broker.broker.segment_publisher._topic, "append", refuse)
            broker.tick()
        assert raw(broker) == []
        broker.tick(1000)
        assert raw(broker) == []
        broker.tick(10_000)
        assert len(published(broker)) == 1


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1000)), min_size=1, max_size=60), st.integers(3, 20))
def test_joined_segments_cover_the_same_records(given: list[tuple[int, int]], limit: int) -> None:
    base, found = 0, []
    for count, size in given:
        found.append(SegmentFact(base, base + count, size, base))
        base += count
    shown = list(joined(found, limit))
    assert len(shown) <= limit
    assert shown[: limit // 2] == found[: limit // 2]
    assert shown[-1] == found[-1]
    assert [segment.base for segment in shown] == [0, *(segment.next for segment in shown[:-1])]
    assert shown[-1].next == base
    assert sum(segment.size for segment in shown) == sum(size for _, size in given)
    assert all(segment.newest == segment.base for segment in shown)
