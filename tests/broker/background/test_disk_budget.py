"""The disk budget: past it the oldest segments of all topics go, and nothing that may not."""

import logging
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker

from tailrace.broker.background import disk_budget
from tailrace.broker.backlog.ledger import NotRecorded
from tailrace.broker.backlog.segments import SegmentPublisher
from tailrace.broker.metadata.config_changes import Operation
from tailrace.log.disk.interface import Space
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.jobs import LogJob
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.testing.faulty_files import FaultyFiles

SECOND = 1000
RECORD = b"x" * 1000


@pytest.fixture(autouse=True)
def no_published_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts about such small segments would take more room than the segments."""
    monkeypatch.setattr(SegmentPublisher, "tick", lambda *arguments: None)


def fill(broker: LocalBroker, topic: str, count: int) -> None:
    """Records of a kilobyte, each in a segment of its own, a second apart."""
    for _ in range(count):
        assert broker.produce(RECORD, topic=topic).error_code == 0
        broker.now_ms += SECOND


def set_budget(broker: LocalBroker, value: int, key: str = "tailrace.disk.budget.bytes") -> None:
    change = AlterableConfig(name=key, config_operation=Operation.SET, value=str(value))
    wanted = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    (answer,) = broker.ask(IncrementalAlterConfigsRequest(resources=[wanted]), 1).responses
    assert answer.error_code == 0, answer


def leave(broker: LocalBroker, segments: int) -> None:
    """Room for so many segments, beside the metadata and the loss ledger."""
    internal = sum(broker.log(topic).size for topic in ("__tailrace_metadata", "__tailrace_losses"))
    set_budget(broker, internal + 1000 + segments * broker.log("a").active.size)  # for this change, and for losses


def make(broker: LocalBroker, *topics: str, **configs: Any) -> None:
    broker.create_topic("first")
    broker.produce(b"x", topic="first")
    broker.delete_topic("first")  # from here on there is a loss ledger
    for topic in topics:
        broker.create_topic(topic, segment_ms="1", **configs)


def starts(broker: LocalBroker, *topics: str) -> list[int]:
    return [int(broker.log(topic).start_offset) for topic in topics]


def settle(broker: LocalBroker, ticks: int = 6) -> None:
    for _ in range(ticks):
        broker.tick(250)


def total(broker: LocalBroker) -> int:
    return sum(log.size for log in broker.directory.logs.values())


def test_the_total_is_what_the_logs_have(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        make(broker, "a", "b")
        assert broker.broker.sizes.total == total(broker) > 0
        fill(broker, "a", 5)
        fill(broker, "b", 5)
        assert broker.broker.sizes.total == total(broker) > 10_000
        broker.restart()
        assert broker.broker.sizes.total == total(broker) > 10_000
        broker.delete_topic("a")
        assert 5000 < broker.broker.sizes.total == total(broker) < 10_000


def test_past_the_budget_the_oldest_go_of_whichever_topic(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        make(broker, "a", "b")
        for topic in ("a", "b", "b", "a", "a", "b", "a", "b"):
            fill(broker, topic, 1)
        settle(broker)
        assert starts(broker, "a", "b") == [0, 0]
        for left, expected in ((7, [1, 0]), (6, [1, 1]), (5, [1, 2]), (4, [2, 2]), (3, [3, 2]), (2, [3, 3])):
            leave(broker, left)
            settle(broker)
            assert starts(broker, "a", "b") == expected
        set_budget(broker, 0)
        settle(broker)
        assert starts(broker, "a", "b") == [3, 3], "the active ones stay"


def test_within_the_budget_nothing_goes_and_without_one_neither(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        make(broker, "a")
        fill(broker, "a", 5)
        settle(broker)
        set_budget(broker, total(broker) + 1000)
        settle(broker)
        assert starts(broker, "a") == [0]


def test_what_is_kept_for_ever_compacted_or_internal_is_not_touched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with LocalBroker(tmp_path, {"tailrace.disk.budget.bytes": "0"}) as broker:
        make(broker, "ever", retention_ms="-1")
        make(broker, "nothing", cleanup_policy="")
        make(broker, "sized", retention_ms="-1", retention_bytes="1000000")
        for topic in ("ever", "nothing", "sized"):
            fill(broker, topic, 3)
        topics = ["both", "compact"]
        for topic in topics:
            make(broker, topic)
            fill(broker, topic, 3)
            policy = "compact" if topic == "compact" else "compact,delete"
            broker.broker.metadata.topics[topic].overrides["cleanup.policy"] = policy
            broker.broker.metadata.topics[topic].configure(broker.broker.configs)
        settle(broker)
        assert starts(broker, "ever", "nothing", "both", "compact", "__tailrace_metadata") == [0] * 5
        assert starts(broker, "sized") == [2]
        said = [record.message for record in caplog.records if "disk budget" in record.message]
        assert len(said) == 1
        assert "no segment may be deleted" in said[0]
        broker.tick(disk_budget.SEARCH_AGAIN_MS)
        settle(broker)
        assert len([record for record in caplog.records if "disk budget" in record.message]) == 1, "once"
        assert broker.produce(RECORD, topic="ever").error_code == 0, "no producer is refused for it"


def test_a_share_of_the_disk_is_a_budget_too_and_the_smaller_one_counts(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    files.space_left = Space(180_000, 200_000)
    with LocalBroker(tmp_path, files=files) as broker:
        make(broker, "a")
        settle(broker)
        limit = broker.broker.disk_budget.limit
        assert limit(100_000) == -1
        set_budget(broker, 10, "tailrace.disk.budget.percent")
        assert (limit(100_000), limit(None)) == (10_000, -1)
        set_budget(broker, 8000)
        assert limit(100_000) == 8000
        set_budget(broker, 3, "tailrace.disk.budget.percent")
        assert limit(100_000) == 3000
        fill(broker, "a", 8)
        settle(broker)
        assert broker.broker.sizes.total <= 6000
        assert starts(broker, "a")[0] >= 4


def test_segments_of_an_earlier_process_are_dropped_by_age_too(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        make(broker, "a", "b")
        for topic in ("b", "a", "a", "b", "a", "b"):
            fill(broker, topic, 1)
        broker.restart()
        assert broker.log("a").segments[0].largest_timestamp is None
        leave(broker, 4)
        settle(broker)
        assert starts(broker, "a", "b") == [1, 1]


def test_a_search_takes_as_many_ticks_as_there_are_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_budget, "LOGS_AT_ONCE", 2)
    monkeypatch.setattr(disk_budget, "DROPS_AT_ONCE", 1)
    with LocalBroker(tmp_path) as broker:
        names = ["a", "b", "c", "d", "e"]
        make(broker, *names)
        for name in [*names, *names, *names]:
            fill(broker, name, 1)
        set_budget(broker, 0)
        broker.tick(250)
        assert sum(starts(broker, *names)) == 0
        settle(broker, 3)
        assert 1 <= sum(starts(broker, *names)) < 10
        settle(broker, 12)
        assert starts(broker, *names) == [2] * 5


def test_a_deletion_by_budget_is_logged_counted_and_survives_a_kill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tailrace.broker.background")
    with LocalBroker(tmp_path, {"tailrace.disk.budget.bytes": "4500"}) as broker:
        make(broker, "a")
        fill(broker, "a", 6)
        settle(broker)
        (start,) = starts(broker, "a")
        assert start >= 2
        assert broker.broker.counters.segments_deleted == {"budget": start}
        assert "(budget)" in caplog.text
        broker.kill()
        assert starts(broker, "a") == [start]


def test_a_log_whose_segments_are_being_replaced_is_left_alone_until_they_are(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        make(broker, "a", "b")
        fill(broker, "a", 3)
        fill(broker, "b", 3)
        leave(broker, 5)
        log = broker.log("a")
        log.replacing = LogJob(log)
        settle(broker)
        assert starts(broker, "a", "b") == [0, 1]
        log.replacing = None
        leave(broker, 4)
        settle(broker)
        assert starts(broker, "a", "b") == [1, 1]


def test_a_segment_whose_loss_cannot_be_noted_is_still_the_first_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotRecorded("a fault of this test")

    with LocalBroker(tmp_path) as broker:
        make(broker, "a", "b")
        fill(broker, "a", 4)
        fill(broker, "b", 4)
        with monkeypatch.context() as faulty:
            faulty.setattr(broker.broker.ledger, "note_deletion", refuse)
            leave(broker, 7)
            broker.tick(250)
            assert starts(broker, "a", "b") == [0, 0]
        settle(broker)
        assert starts(broker, "a", "b") == [1, 0]
