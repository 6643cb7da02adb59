import contextlib
import threading
import time

import pytest
from client.conftest import create_topic, delete_topic, options, write
from client.fakes import HANG_UP, FakeBroker, once

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import BadAnswer, GaveUp, OffsetOutOfRange, Refused, TopicRecreated
from tailrace.client.long_poll import wait_for_more
from tailrace.client.offsets import EARLIEST, LATEST, Found, earliest, latest, list_offsets
from tailrace.client.options import Isolation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse
from tailrace.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

T = 1_700_000_000_000


def delete_records(cluster: Cluster, topic: str, before: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=5000)
    answer = cluster.ask_any(request, DeleteRecordsResponse, cluster.retry("deleting records"))
    assert answer.topics[0].partitions[0].error_code == 0


def test_offsets_of_many_partitions(cluster: Cluster, topic: str) -> None:
    create_topic(cluster, topic + "-more", partitions=5)
    write(cluster, topic + "-more", b"a", b"b", partition=3, timestamp=T)
    write(cluster, topic, b"a")
    partitions = [TopicPartition(topic + "-more", n) for n in range(5)] + [TopicPartition(topic, 0)]
    assert latest(cluster, partitions) == {
        where: {3: 2}.get(where.partition, int(where.topic == topic)) for where in partitions
    }
    assert earliest(cluster, partitions) == dict.fromkeys(partitions, 0)
    assert latest(cluster, partitions, Isolation.READ_COMMITTED) == latest(cluster, partitions)
    assert list_offsets(cluster, {}) == {}


def test_the_offset_of_a_time(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, b"a", b"b", b"c", timestamp=T)
    where = TopicPartition(topic, 0)
    assert list_offsets(cluster, {where: T + 1}) == {where: Found(1, T + 1)}
    assert list_offsets(cluster, {where: T + 3}) == {where: None}
    assert list_offsets(cluster, {where: EARLIEST}) == {where: Found(0, -1)}
    assert list_offsets(cluster, {where: LATEST}) == {where: Found(3, -1)}


def test_all_leaders_are_asked_at_once(faked: Cluster, fake: FakeBroker, another_fake: FakeBroker) -> None:
    fake.topics["orders"] = [[], []]
    fake.leaders["orders", 1] = another_fake.node_id
    both = threading.Barrier(2)

    def together(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        both.wait(5)
        return fake.list_offsets(request)

    for broker in fake.nodes:
        broker.answers[ListOffsetsRequest] = together
    partitions = [TopicPartition("orders", n) for n in range(2)]
    assert latest(faked, partitions) == dict.fromkeys(partitions, 0)


def test_an_error_that_does_not_pass_is_raised_with_the_partition(faked: Cluster, fake: FakeBroker) -> None:
    def refuse(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        answer = fake.list_offsets(request)
        answer.topics[0].partitions[0].error_code = 4242
        return answer

    fake.answers[ListOffsetsRequest] = refuse
    with pytest.raises(Refused, match="orders-0: unknown error code 4242"):
        latest(faked, [TopicPartition("orders", 0)])


def test_an_answer_without_what_was_asked_is_asked_for_again(faked: Cluster, fake: FakeBroker) -> None:
    fake.answers[ListOffsetsRequest] = once(
        lambda request, version: ListOffsetsResponse(),
        lambda request, version: HANG_UP,
        lambda request, version: fake.list_offsets(request),
    )
    where = TopicPartition("orders", 0)
    assert latest(faked, [where]) == {where: 0}


def test_a_log_without_an_end_is_asked_again(faked: Cluster, fake: FakeBroker) -> None:
    def without(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        answer = fake.list_offsets(request)
        answer.topics[0].partitions[0].offset = -1
        return answer

    fake.answers[ListOffsetsRequest] = once(without, lambda request, version: fake.list_offsets(request))
    where = TopicPartition("orders", 0)
    assert latest(faked, [where]) == {where: 0}
    fake.answers[ListOffsetsRequest] = without
    assert list_offsets(faked, {where: T}) == {where: None}


# Waiting


def test_waiting_ends_when_something_is_written(cluster: Cluster, topic: str) -> None:
    where = TopicPartition(topic, 0)
    write(cluster, topic, b"a")
    timer = threading.Timer(0.2, write, [cluster, topic, b"b", b"c"])
    before = time.monotonic()
    timer.start()
    assert wait_for_more(cluster, {where: 1}, 300) == {where: 3}  # longer than a test may take
    assert time.monotonic() - before > 0.1
    timer.join()


def test_what_is_there_already_is_told_at_once(cluster: Cluster, topic: str) -> None:
    where = TopicPartition(topic, 0)
    write(cluster, topic, b"a", b"b")
    assert wait_for_more(cluster, {where: 0}, 300) == {where: 2}
    assert wait_for_more(cluster, {where: 1}, 300) == {where: 2}


def test_nothing_comes_and_the_timeout_ends_it(cluster: Cluster, topic: str) -> None:
    before = time.monotonic()
    assert wait_for_more(cluster, {TopicPartition(topic, 0): 0}, 0.2) == {}
    assert time.monotonic() - before > 0.15
    assert wait_for_more(cluster, {}, 300) == {}


def test_a_long_wait_does_not_hold_up_other_requests(cluster: Cluster, topic: str) -> None:
    where = TopicPartition(topic, 0)
    waiting = threading.Thread(target=wait_for_more, args=(cluster, {where: 0}, 300))
    waiting.start()
    time.sleep(0.1)
    try:
        assert latest(cluster, [where]) == {where: 0}
        assert waiting.is_alive()
    finally:
        write(cluster, topic, b"a")
        waiting.join()


def test_the_first_leader_that_has_more_ends_it(faked: Cluster, fake: FakeBroker, another_fake: FakeBroker) -> None:
    fake.topics["orders"] = [[], []]
    fake.leaders["orders", 1] = another_fake.node_id
    release = threading.Event()

    def park(request: FetchRequest, version: int) -> FetchResponse:
        release.wait(5)
        return fake.fetch(request)

    fake.answers[FetchRequest] = park
    another_fake.answers[FetchRequest] = lambda request, version: another_fake.fetch(request, high_watermark=9)
    first, second = (TopicPartition("orders", n) for n in range(2))
    try:
        assert wait_for_more(faked, {first: 0, second: 5}, 4) == {second: 9}
        assert latest(faked, [first]) == {first: 0}, "it goes over a connection that nothing waits in"
    finally:
        release.set()


def test_only_what_is_committed_counts_if_only_that_is_read(fake: FakeBroker) -> None:
    fake.answers[FetchRequest] = lambda request, version: fake.fetch(request, high_watermark=9, last_stable_offset=4)
    where = TopicPartition("orders", 0)
    with contextlib.closing(Cluster(options(fake.bootstrap, isolation_level="read_committed"))) as cluster:
        assert wait_for_more(cluster, {where: 3}, 1) == {where: 4}
        assert wait_for_more(cluster, {where: 4}, 0.05) == {}


def test_a_position_that_is_gone_is_named(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, b"a", b"b", b"c")
    delete_records(cluster, topic, 2)
    where = TopicPartition(topic, 0)
    with pytest.raises(OffsetOutOfRange, match="begins at offset 2: offsets 1 to 1 are gone"):
        wait_for_more(cluster, {where: 1}, 5)
    with pytest.raises(OffsetOutOfRange, match="ends at offset 3, before offset 8") as error:
        wait_for_more(cluster, {where: 8}, 5)
    assert (error.value.earliest, error.value.latest) == (2, 3)


def test_a_topic_made_again_is_noticed_or_read_as_it_is(cluster: Cluster, topic: str) -> None:
    before = cluster.topic(topic).topic_id
    delete_topic(cluster, topic)
    create_topic(cluster, topic)
    where = TopicPartition(topic, 0)
    write(cluster, topic, b"a")
    with pytest.raises(TopicRecreated):
        wait_for_more(cluster, {where: 0}, 5, topic_ids={topic: before})
    assert wait_for_more(cluster, {where: 0}, 5) == {where: 1}


def test_a_leader_that_hangs_up_or_is_none_is_asked_again(faked: Cluster, fake: FakeBroker) -> None:
    fake.answers[FetchRequest] = once(
        lambda request, version: HANG_UP,
        lambda request, version: fake.fetch(request, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        lambda request, version: fake.fetch(request, high_watermark=1),
    )
    where = TopicPartition("orders", 0)
    assert wait_for_more(faked, {where: 0}, 5) == {where: 1}


def test_a_leader_that_stays_away_is_given_up_in_the_time_of_retries(fake: FakeBroker) -> None:
    fake.answers[FetchRequest] = lambda request, version: HANG_UP
    with (
        contextlib.closing(Cluster(options(fake.bootstrap, default_api_timeout_ms="300"))) as cluster,
        pytest.raises(GaveUp, match=r"waiting for records: .*closed by the broker"),
    ):
        wait_for_more(cluster, {TopicPartition("orders", 0): 0}, 0.05)


def test_partitions_that_nobody_asked_for_are_no_answer(faked: Cluster, fake: FakeBroker) -> None:
    def other(request: FetchRequest, version: int) -> FetchResponse:
        answer = fake.fetch(request)
        answer.responses[0].partitions[0].partition_index = 5
        return answer

    fake.answers[FetchRequest] = other
    with pytest.raises(BadAnswer, match="that was not asked for"):
        wait_for_more(faked, {TopicPartition("orders", 0): 0}, 1)
