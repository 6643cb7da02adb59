from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker
from share_fetches import GROUP, Worker, set_configs
from share_requests import ShareMember

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    configs = {"group.share.assignment.interval.ms": "0"}
    with LocalBroker(tmp_path, configs) as broker:
        yield broker


@pytest.fixture
def topic_id(broker: LocalBroker) -> bytes:
    """A topic of two partitions, with ten records in the first, and a member of a group that reads them."""
    topic_id = broker.create_topic(partitions=2)
    set_configs(broker, share_auto_offset_reset="earliest")
    ShareMember(broker, "a", "orders").join()
    for n in range(10):
        broker.produce(b"%d" % n)
    return topic_id


def describe(
    broker: LocalBroker,
    topics: dict[str, list[int]] | None = None,
    *,
    group: str = GROUP,
    version: int = 1,
    **fields: Any,
) -> Any:
    """What is said of one group."""
    wanted = None
    if topics is not None:
        wanted = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    named = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted)
    (found,) = broker.ask(DescribeShareGroupOffsetsRequest(groups=[named], **fields), version).groups
    return found


def partitions(found: Any) -> dict[tuple[str, int], Any]:
    assert found.error_code == ErrorCode.NONE
    return {(topic.topic_name, one.partition_index): one for topic in found.topics for one in topic.partitions}


def test_a_group_tells_where_each_partition_starts_and_how_far_it_is_behind(
    broker: LocalBroker, topic_id: bytes
) -> None:
    worker = Worker(broker, topic_id)
    worker.fetch(max_records=6, share_acquire_mode=1)
    worker.accept(0, 1, 3)
    found = describe(broker)
    assert found.topics[0].topic_id == topic_id
    both = partitions(found)
    assert [(place, one.start_offset, one.lag) for place, one in both.items()] == [
        (("orders", 0), 2, 7),
        (("orders", 1), 0, 0),
    ]


def test_the_lag_is_that_of_version_1(broker: LocalBroker, topic_id: bytes) -> None:
    first = partitions(describe(broker, version=0))["orders", 0]
    assert (first.start_offset, first.lag) == (0, -1)


def test_our_clients_are_told_more(broker: LocalBroker, topic_id: bytes) -> None:
    set_configs(broker, tailrace_share_retry_delay_ms="60000", tailrace_share_retry_jitter="0")
    worker = Worker(broker, topic_id)
    worker.fetch(max_records=5, share_acquire_mode=1)
    worker.accept(0)
    worker.release(2)
    broker.tick(1000)
    facts = partitions(describe(broker, states_max=100))["orders", 0].queue
    assert (facts.in_flight, facts.parked) == (3, 1)
    assert facts.oldest_ms == broker.now_ms - 1000
    assert [(one.attempt, one.records) for one in facts.attempts] == [(1, 1)]
    assert [(one.first_offset, one.last_offset, one.state, one.delivery_count) for one in facts.states] == [
        (1, 1, 1, 1),
        (2, 2, 5, 1),
        (3, 4, 1, 1),
        (5, 9, 0, 0),
    ]
    assert partitions(describe(broker))["orders", 0].queue.states == []
    assert partitions(describe(broker))["orders", 1].queue.oldest_ms == -1


def test_states_are_those_of_records_that_are_not_finished(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    worker.fetch(max_records=8, share_acquire_mode=1)
    worker.accept(1, 2, 3, 4, 6)
    found = [
        [(one.first_offset, one.last_offset, one.state) for one in partitions(described)["orders", 0].queue.states]
        for described in (describe(broker, states_max=3), describe(broker, states_max=100))
    ]
    assert found == [[(0, 0, 1), (5, 5, 1), (7, 7, 1)], [(0, 0, 1), (5, 5, 1), (7, 7, 1), (8, 9, 0)]]


def test_partitions_may_be_named(broker: LocalBroker, topic_id: bytes) -> None:
    broker.create_topic("other")
    found = partitions(describe(broker, {"orders": [1, 7, 1], "other": [0], "unknown": [0]}))
    assert {place: (one.start_offset, one.error_code) for place, one in found.items()} == {
        ("orders", 1): (0, ErrorCode.NONE),
        ("orders", 7): (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("other", 0): (-1, ErrorCode.NONE),
        ("unknown", 0): (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }


def test_a_group_that_is_none_is_not_found(broker: LocalBroker, topic_id: bytes) -> None:
    assert describe(broker, group="nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_age_of_a_record_on_a_disk_is_read_in_a_thread(
    broker: LocalBroker, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailrace.log.segment.segment import WouldWait

    log = broker.log()
    read = log.read

    def read_slowly(offset: int, max_bytes: int, *, up_to: int | None = None, wait: bool = True) -> Any:
        if not wait:
            raise WouldWait
        return read(offset, max_bytes, up_to=up_to, wait=wait)

    monkeypatch.setattr(log, "read", read_slowly)
    assert partitions(describe(broker))["orders", 0].queue.oldest_ms == broker.now_ms
