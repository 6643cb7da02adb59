from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, a_batch, produce_request, resolved
from compactions import compact
from share_fetches import GROUP, Worker, begin_group, set_configs
from transactions import TransactionalProducer

from tailrace.broker.queues.delivery.fetches import ShareFetch
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_acknowledge import ACCEPT, RELEASE
from tailrace.records.batch import split

LOCK_MS = 30_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        yield broker


@pytest.fixture
def topic_id(broker: LocalBroker) -> bytes:
    topic_id = broker.create_topic()
    begin_group(broker, topic_id)
    return topic_id


def queue_of(broker: LocalBroker, topic_id: bytes, index: int = 0, group: str = GROUP) -> QueuePartition:
    queue = broker.broker.queues.find(group, topic_id, index)
    assert queue is not None
    return queue


def state_of(broker: LocalBroker, topic_id: bytes, index: int = 0) -> SharePartition:
    state = queue_of(broker, topic_id, index).state
    assert state is not None
    return state


# What is delivered


def test_members_share_a_partition_message_by_message(broker: LocalBroker, topic_id: bytes) -> None:
    for n in range(6):
        broker.produce(b"%d" % n)
    workers = [Worker(broker, topic_id, name) for name in "abc"]
    deliveries = [worker.fetch(max_records=2) for worker in workers]
    assert [delivery.values for delivery in deliveries] == [[b"0", b"1"], [b"2", b"3"], [b"4", b"5"]]
    assert all(set(delivery.counts) == {1} for delivery in deliveries)
    assert Worker(broker, topic_id, "d").fetch().offsets == []


def test_two_groups_get_everything_each(broker: LocalBroker, topic_id: bytes) -> None:
    begin_group(broker, topic_id, group="others")
    broker.produce(b"a", b"b")
    first, second = Worker(broker, topic_id), Worker(broker, topic_id, group="others")
    assert first.fetch().values == second.fetch().values == [b"a", b"b"]
    first.accept(0)
    assert second.release(0) == ErrorCode.NONE


def test_whole_batches_are_sent_and_a_member_holds_what_is_named(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(*(b"%d" % n for n in range(10)))
    first = Worker(broker, topic_id).fetch(max_records=4)
    assert first.acquired == [(0, 9, 1)], "the batch in which the limit lies"
    assert len(first.values) == 10


def test_the_limit_may_be_strict(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(*(b"%d" % n for n in range(10)))
    worker = Worker(broker, topic_id)
    deliveries = [worker.fetch(max_records=4, share_acquire_mode=1) for _ in range(4)]
    assert [delivery.acquired for delivery in deliveries] == [[(0, 3, 1)], [(4, 7, 1)], [(8, 9, 1)], []]
    assert [delivery.values for delivery in deliveries] == [
        [b"0", b"1", b"2", b"3"],
        [b"4", b"5", b"6", b"7"],
        [b"8", b"9"],
        [],
    ]


def test_ranges_end_with_batches_where_they_are_large_enough(broker: LocalBroker, topic_id: bytes) -> None:
    for _ in range(4):
        broker.produce(b"a", b"b")
    assert Worker(broker, topic_id).fetch(batch_size=4).acquired == [(0, 3, 1), (4, 7, 1)]
    assert Worker(broker, topic_id).fetch(batch_size=0).acquired == []


def test_only_the_batches_of_acquired_records_are_sent(broker: LocalBroker, topic_id: bytes) -> None:
    for n in range(6):
        broker.produce(b"%d" % n * 30_000)
    worker = Worker(broker, topic_id)
    assert len(worker.fetch().offsets) == 6
    worker.release(2, 3)
    delivery = Worker(broker, topic_id, "b").fetch()
    assert delivery.offsets == [2, 3]
    assert [header.base_offset for _, header in split(delivery.only.records)] == [2, 3]


def test_released_records_far_apart_come_one_after_the_other(broker: LocalBroker, topic_id: bytes) -> None:
    for n in range(8):
        broker.produce(b"%d" % n * 40_000)
    worker, other = Worker(broker, topic_id), Worker(broker, topic_id, "b")
    assert len(worker.fetch().offsets) == 8
    worker.release(0, 1, 7)
    delivery = other.fetch()
    assert delivery.offsets == [0, 1]
    assert len(delivery.only.records) < 100_000, "what lies between is not sent"
    assert other.fetch().offsets == [7]


def test_a_record_larger_than_the_limit_is_delivered(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(b"x" * 5_000)
    broker.produce(b"y" * 5_000)
    assert [len(value) for value in Worker(broker, topic_id).fetch(max_bytes=100).values] == [5_000]


def test_only_the_first_partition_may_exceed_the_limit(broker: LocalBroker) -> None:
    topic_id = broker.create_topic(partitions=2)
    begin_group(broker, topic_id, (0, 1))
    for index in range(2):
        broker.produce(b"x" * 5_000, partition=index)
    worker = Worker(broker, topic_id, partitions=(0, 1))
    assert len(worker.fetch(max_bytes=6_000).values) == 1
    assert len(worker.fetch(max_bytes=6_000).values) == 1


def test_the_limit_of_records_is_for_all_partitions(broker: LocalBroker) -> None:
    topic_id = broker.create_topic(partitions=3)
    begin_group(broker, topic_id, (0, 1, 2))
    for index in range(3):
        broker.produce(b"a", b"b", partition=index)
    worker = Worker(broker, topic_id, partitions=(0, 1, 2))
    assert [len(worker.fetch(max_records=3, share_acquire_mode=1).offsets) for _ in range(3)] == [3, 3, 0]


def test_each_partition_comes_first_in_turn(broker: LocalBroker) -> None:
    topic_id = broker.create_topic(partitions=3)
    begin_group(broker, topic_id, (0, 1, 2))
    for index in range(3):
        for _ in range(5):
            broker.produce(b"a", partition=index)
    worker = Worker(broker, topic_id, partitions=(0, 1, 2))
    worker.fetch(max_records=0)
    served = [place[1] for _ in range(6) for place in worker.fetch(max_records=1).partitions]
    assert sorted(served) == [0, 0, 1, 1, 2, 2]


def test_a_limit_of_locks_holds_members_back_until_records_are_finished(broker: LocalBroker, topic_id: bytes) -> None:
    set_configs(broker, share_partition_max_record_locks="100")
    for n in range(300):
        broker.produce(b"%d" % n)
    worker, other = Worker(broker, topic_id), Worker(broker, topic_id, "b")
    assert len(worker.fetch().offsets) == 100
    assert other.fetch().offsets == []
    worker.acknowledge((1, 99, [ACCEPT]))
    assert len(other.fetch().offsets) == 99, "the first record is slow, and holds up no other"


def test_one_slow_record_never_stalls_a_partition(broker: LocalBroker, topic_id: bytes) -> None:
    """In Kafka, one at the start of 2,000 finished ones does."""
    for _ in range(30):
        broker.produce(*(b"x" for _ in range(100)))
    slow, fast = Worker(broker, topic_id, "slow"), Worker(broker, topic_id, "fast")
    assert slow.fetch(max_records=1, share_acquire_mode=1).offsets == [0]
    done = 0
    while offsets := fast.fetch().offsets:
        fast.acknowledge((offsets[0], offsets[-1], [ACCEPT]))
        done += len(offsets)
    assert done == 2_999
    assert slow.accept(0) == ErrorCode.NONE
    assert state_of(broker, topic_id).start_offset == 3_000


def test_a_record_that_kills_its_members_takes_no_others_with_it(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(*(b"%d" % n for n in range(5)))
    for number in range(3):
        worker = Worker(broker, topic_id, str(number))
        worker.fetch()
        worker.disconnect()
    seen = []
    for number in range(3, 6):
        worker = Worker(broker, topic_id, str(number))
        seen.append(worker.fetch().offsets)
    assert seen == [[0], [1], [2]], "one by one, as each may be the one that kills"


# Acknowledgements with a fetch


def test_a_fetch_acknowledges_before_it_acquires(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(b"a", b"b")
    worker = Worker(broker, topic_id)
    worker.fetch()
    delivery = worker.fetch({(topic_id, 0): [(0, 0, [ACCEPT]), (1, 1, [RELEASE])]})
    assert delivery.acquired == [(1, 1, 2)]
    assert delivery.only.acknowledge_error_code == ErrorCode.NONE
    bad = worker.fetch({(topic_id, 0): [(0, 1, [ACCEPT]), (1, 1, [ACCEPT])]})
    assert bad.only.acknowledge_error_code == ErrorCode.INVALID_REQUEST
    assert bad.only.error_code == ErrorCode.NONE


def test_the_same_topic_and_partition_may_be_named_twice(broker: LocalBroker, topic_id: bytes) -> None:
    """librdkafka names a partition to be added apart from one with acknowledgements."""
    broker.produce(b"a", b"b")
    worker = Worker(broker, topic_id)
    worker.fetch()
    request = worker.fetch_request({(topic_id, 0): [(0, 0, [ACCEPT])]})
    request.topics += worker.fetch_request({(topic_id, 0): [(1, 1, [RELEASE])]}).topics
    request.topics += worker.fetch_request(places=[(topic_id, 0)]).topics
    response = broker.ask(request, 2, connection=worker.connection)
    ((data,),) = (topic.partitions for topic in response.responses)
    assert data.acknowledge_error_code == ErrorCode.NONE
    assert [(one.first_offset, one.delivery_count) for one in data.acquired_records] == [(1, 2)]


def test_a_renewal_fetches_nothing(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(b"a", b"b")
    worker = Worker(broker, topic_id)
    assert worker.fetch(max_records=1, share_acquire_mode=1).offsets == [0]
    broker.tick(20_000)
    delivery = worker.renew(0)
    assert (delivery.error_code, delivery.offsets) == (ErrorCode.NONE, [])
    assert delivery.only.acknowledge_error_code == ErrorCode.NONE
    broker.tick(20_000)
    assert Worker(broker, topic_id, "b").fetch().offsets == [1]


@pytest.mark.parametrize("limit", ["max_wait_ms", "min_bytes", "max_bytes", "max_records"])
def test_a_renewal_with_a_limit_is_refused(broker: LocalBroker, topic_id: bytes, limit: str) -> None:
    broker.produce(b"a")
    worker = Worker(broker, topic_id)
    worker.fetch()
    assert worker.renew(0, **{limit: 1}).error_code == ErrorCode.INVALID_REQUEST


def test_the_first_request_of_a_session_acknowledges_nothing(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    assert worker.fetch({(topic_id, 0): [(0, 0, [ACCEPT])]}).error_code == ErrorCode.INVALID_REQUEST


# Sessions


def test_a_response_names_new_partitions_and_then_those_with_news(broker: LocalBroker) -> None:
    topic_id = broker.create_topic(partitions=3)
    begin_group(broker, topic_id, (0, 1, 2))
    worker = Worker(broker, topic_id, partitions=(0, 1))
    assert list(worker.fetch().partitions) == [(topic_id, 0), (topic_id, 1)]
    assert list(worker.fetch().partitions) == []
    assert list(worker.fetch(places=[(topic_id, 2)]).partitions) == [(topic_id, 2)]
    broker.produce(b"a", partition=1)
    assert list(worker.fetch().partitions) == [(topic_id, 1)]


def test_a_forgotten_partition_is_not_fetched(broker: LocalBroker) -> None:
    topic_id = broker.create_topic(partitions=2)
    begin_group(broker, topic_id, (0, 1))
    worker = Worker(broker, topic_id, partitions=(0, 1))
    worker.fetch()
    worker.fetch(forgotten=[(topic_id, 0), (topic_id, 7)])
    for index in range(2):
        broker.produce(b"a", partition=index)
    assert list(worker.fetch().partitions) == [(topic_id, 1)]


def test_a_session_that_begins_anew_keeps_what_was_acquired_until_its_locks_run_out(
    broker: LocalBroker, topic_id: bytes
) -> None:
    broker.produce(b"a", b"b")
    worker = Worker(broker, topic_id)
    worker.fetch()
    assert worker.fetch(epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert worker.fetch(epoch=0).offsets == []
    assert worker.accept(0) == ErrorCode.NONE
    broker.tick(LOCK_MS + 1)
    assert worker.fetch().offsets == [1]


def test_a_session_that_does_not_exist_is_refused(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    assert worker.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert worker.fetch(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_last_fetch_of_a_session_acknowledges_and_releases(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(b"a", b"b", b"c")
    worker = Worker(broker, topic_id)
    worker.fetch()
    delivery = worker.fetch({(topic_id, 0): [(0, 0, [ACCEPT])]}, epoch=-1)
    assert (delivery.error_code, delivery.offsets) == (ErrorCode.NONE, [])
    assert delivery.only.acknowledge_error_code == ErrorCode.NONE
    assert Worker(broker, topic_id, "b").fetch().acquired == [(1, 2, 2)]


def test_the_epoch_of_a_session_wraps(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    worker.fetch()
    session = broker.broker.queues.sessions._sessions[GROUP, "a"]  # type: ignore[index]
    session.epoch = worker.epoch = (1 << 31) - 1
    assert worker.fetch().error_code == ErrorCode.NONE
    worker.epoch = 1
    assert worker.fetch().error_code == ErrorCode.NONE


def test_a_lost_connection_releases_at_once_and_counts(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(b"a", b"b")
    worker, other = Worker(broker, topic_id), Worker(broker, topic_id, "b")
    worker.fetch()
    waiting = other.begin_fetch()
    assert not waiting.is_answered
    worker.disconnect()
    assert waiting.delivery.acquired == [(0, 1, 2)]
    assert worker.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    broker.kill()
    broker.tick(1)
    assert set(Worker(broker, topic_id, "c").fetch().counts) == {2}, "it is on disk"


def test_a_session_goes_with_the_connection_that_uses_it(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(b"a")
    worker = Worker(broker, topic_id)
    worker.fetch()
    earlier, worker.connection = worker.connection, broker.broker.clients.connect()
    worker.fetch()
    earlier.close()
    assert worker.accept(0) == ErrorCode.NONE, "it was not released"


def test_the_number_of_sessions_is_limited(tmp_path: Path) -> None:
    configs = {"group.share.max.share.sessions": "200"}
    with LocalBroker(tmp_path, configs) as broker:
        topic_id = broker.create_topic()
        begin_group(broker, topic_id)
        workers = [Worker(broker, topic_id, str(number)) for number in range(200)]
        for worker in workers:
            assert worker.fetch().error_code == ErrorCode.NONE
        late = Worker(broker, topic_id, "late").begin_fetch()
        assert not late.is_answered, "or the client would ask again at once"
        assert late.expire().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        workers[0].disconnect()
        assert Worker(broker, topic_id, "late").fetch().error_code == ErrorCode.NONE
        assert workers[1].fetch(epoch=0).error_code == ErrorCode.NONE, "in place of its earlier one"


# Waiting


def test_a_fetch_waits_for_records_and_is_answered_when_they_are_on_disk(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    waiting = worker.begin_fetch()
    assert not waiting.is_answered
    broker.hold_jobs = True
    broker.begin(produce_request(a_batch(b"a")), 12)
    assert not waiting.is_answered
    broker.run_flushes()
    assert waiting.delivery.values == [b"a"]


def test_one_of_many_that_wait_gets_a_record_and_the_first_one_first(broker: LocalBroker, topic_id: bytes) -> None:
    waiting = [Worker(broker, topic_id, str(number)).begin_fetch() for number in range(5)]
    broker.produce(b"a")
    broker.produce(b"b")
    assert [one.is_answered for one in waiting] == [True, True, False, False, False]
    assert [one.delivery.values for one in waiting[:2]] == [[b"a"], [b"b"]]


def test_a_fetch_that_waits_for_too_long_gets_nothing(broker: LocalBroker, topic_id: bytes) -> None:
    waiting = Worker(broker, topic_id).begin_fetch()
    assert waiting.delayed is not None
    assert waiting.delayed.wait_ms == 500
    delivery = waiting.expire()
    assert (delivery.error_code, delivery.offsets) == (ErrorCode.NONE, [])
    assert not broker.partition().waiting_fetches
    broker.produce(b"a")
    assert Worker(broker, topic_id, "b").fetch().values == [b"a"]


def test_a_fetch_behind_which_others_wait_answers_with_what_there_is(broker: LocalBroker, topic_id: bytes) -> None:
    waiting = Worker(broker, topic_id).begin_fetch(min_bytes=100_000)
    broker.produce(b"a")
    assert not waiting.is_answered
    assert waiting.delayed is not None
    waiting.delayed.hurry()
    assert waiting.delivery.values == [b"a"]


def test_a_fetch_waits_for_enough_bytes_and_holds_nothing_meanwhile(broker: LocalBroker, topic_id: bytes) -> None:
    waiting = Worker(broker, topic_id).begin_fetch(min_bytes=5_000)
    broker.produce(b"a" * 3_000)
    assert not waiting.is_answered
    assert state_of(broker, topic_id).in_flight == 0
    broker.produce(b"a" * 3_000)
    assert waiting.delivery.offsets == [0, 1]


@pytest.mark.parametrize("how", ["release", "time", "leave", "settings"])
def test_a_waiting_fetch_is_woken_when_records_become_free(broker: LocalBroker, topic_id: bytes, how: str) -> None:
    set_configs(broker, share_partition_max_record_locks="100")
    for n in range(150):
        broker.produce(b"%d" % n)
    worker = Worker(broker, topic_id)
    assert len(worker.fetch().offsets) == 100
    waiting = Worker(broker, topic_id, "b").begin_fetch(max_records=1, share_acquire_mode=1)
    assert not waiting.is_answered
    if how == "release":
        worker.release(7)
    elif how == "time":
        broker.tick(LOCK_MS + 1)
    elif how == "leave":
        worker.leave()
    else:
        set_configs(broker, share_partition_max_record_locks="200")
    expected = {"release": 7, "time": 0, "leave": 0, "settings": 100}[how]
    assert waiting.delivery.offsets == [expected]


def test_a_client_that_is_gone_acquires_nothing(broker: LocalBroker, topic_id: bytes) -> None:
    waiting = Worker(broker, topic_id).begin_fetch()
    assert waiting.delayed is not None
    waiting.delayed.abandon()
    broker.produce(b"a")
    assert state_of(broker, topic_id).in_flight == 0
    assert not broker.partition().waiting_fetches


def test_a_new_session_ends_a_fetch_of_the_one_before(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    waiting = worker.begin_fetch()
    assert worker.fetch(epoch=0).error_code == ErrorCode.NONE
    assert waiting.delivery.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_fetch_with_acknowledgements_waits_for_the_disk_first(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(b"a")
    worker = Worker(broker, topic_id)
    worker.fetch()
    broker.hold_jobs = True
    waiting = worker.begin_fetch({(topic_id, 0): [(0, 0, [RELEASE])]}, max_wait_ms=0)
    assert not waiting.is_answered
    broker.run_flushes()
    assert waiting.delivery.acquired == [(0, 0, 2)]


# Where a group begins


@pytest.mark.parametrize(
    ("reset", "expected"),
    [("earliest", [b"old", b"young", b"new"]), ("latest", [b"new"]), ("by_duration:PT1H", [b"young", b"new"])],
)
def test_a_group_begins_where_its_config_says(tmp_path: Path, reset: str, expected: list[bytes]) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        broker.produce(b"old")
        broker.tick(7_200_000)
        broker.produce(b"young")
        begin_group(broker, topic_id, share_auto_offset_reset=reset)
        broker.kill()
        broker.tick(7_200_000)
        broker.produce(b"new")
        assert Worker(broker, topic_id).fetch().values == expected, "the restart has not moved it"


def test_a_group_whose_start_was_still_sought_begins_where_it_would_have(tmp_path: Path) -> None:
    from tailrace.broker.queues.starts import FindStartJob

    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        broker.produce(b"a")
        held = broker.hold(FindStartJob)
        begin_group(broker, topic_id, share_auto_offset_reset="by_duration:PT1H")
        worker = Worker(broker, topic_id)
        waiting = worker.begin_fetch()
        assert not waiting.is_answered
        assert len(held) == 1
        broker._held.clear()
        broker.kill()
        broker.tick(1)
        assert Worker(broker, topic_id).fetch().values == [b"a"]


def test_a_partition_that_the_group_has_no_state_of_is_an_error(broker: LocalBroker, topic_id: bytes) -> None:
    other = broker.create_topic("other")
    places = [(topic_id, 0), (topic_id, 1), (other, 0), (b"?" * 16, 0)]
    delivery = Worker(broker, topic_id).fetch(places=places)
    assert {place: one.error_code for place, one in delivery.partitions.items()} == {
        (topic_id, 0): ErrorCode.NONE,
        (topic_id, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (other, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (b"?" * 16, 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }


# Topics and logs that change


def test_a_partition_is_added_while_members_fetch(broker: LocalBroker, topic_id: bytes) -> None:
    from tailrace.broker.metadata.topic_changes import add_partitions

    worker = Worker(broker, topic_id)
    worker.fetch()
    topic = broker.broker.metadata.topics["orders"]
    broker.broker.metadata_log.write([add_partitions(topic, 2)], broker.now_ms)
    broker.broker.queues.initialize(GROUP, topic_id, [0, 1], 2)
    broker.produce(b"a", partition=1)
    assert worker.fetch(places=[(topic_id, 1)]).values == [b"a"]


def test_a_topic_that_is_made_anew_has_another_queue(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(b"a", b"b")
    worker = Worker(broker, topic_id)
    worker.fetch()
    worker.accept(0)
    waiting = worker.begin_fetch()
    broker.delete_topic()
    assert waiting.delivery.only.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.broker.queues.find(GROUP, topic_id, 0) is None
    anew = broker.create_topic()
    begin_group(broker, anew)
    broker.produce(b"c")
    assert Worker(broker, anew).fetch().values == [b"c"]
    broker.kill()
    broker.tick(1)
    assert Worker(broker, anew).fetch().values == [b"c"]
    assert {queue.key.topic_id for queue in broker.broker.queues.all()} == {anew}


def test_records_that_are_deleted_before_they_are_finished_are_lost(broker: LocalBroker, topic_id: bytes) -> None:
    for n in range(10):
        broker.produce(b"%d" % n)
    worker = Worker(broker, topic_id)
    assert worker.fetch(max_records=4).offsets == [0, 1, 2, 3]
    worker.accept(0)
    worker.release(1)
    delete_before(broker, 6)
    assert Worker(broker, topic_id, "b").fetch().offsets == [6, 7, 8, 9]
    assert worker.accept(2) == ErrorCode.NONE, "a member that has it in hand may finish it"
    assert worker.release(3) == ErrorCode.NONE
    assert state_of(broker, topic_id).start_offset == 6
    outcomes = queue_of(broker, topic_id).outcomes
    assert outcomes.lost == 4, "1, 4 and 5 at once, and 3 when it was released"


def delete_before(broker: LocalBroker, offset: int) -> None:
    from tailrace.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=[wanted])], timeout_ms=1000)
    (topic,) = broker.ask(request, 2).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE


def test_what_compaction_has_taken_is_finished_without_a_member(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic(cleanup_policy="compact")
        begin_group(broker, topic_id)
        produce_keys(broker, [b"a"] * 40 + [b"b"] + [b"a"] * 40 + [b"c"])
        broker.log().roll()
        broker.restart()
        broker.tick(1)
        compact(broker.log(), broker.now_ms)
        produce_keys(broker, [b"d"])
        worker, seen = Worker(broker, topic_id), []
        while delivery := worker.fetch().offsets:
            worker.acknowledge((delivery[0], delivery[-1], [ACCEPT]))
            seen += delivery
        assert {40, 80, 81, 82} <= set(seen)
        assert len(seen) < 60, "large gaps were not handed out"
        assert state_of(broker, topic_id).start_offset == 83


def test_a_strict_limit_may_end_before_the_next_record_that_compaction_has_left(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic(cleanup_policy="compact")
        begin_group(broker, topic_id)
        produce_keys(broker, [b"a"] + [b"b"] * 4 + [b"c"])
        broker.log().roll()
        broker.restart()
        broker.tick(1)
        compact(broker.log(), broker.now_ms)
        produce_keys(broker, [b"d"])
        worker, seen = Worker(broker, topic_id), list[int]()
        for _ in range(20):
            delivery = worker.fetch(max_records=1, share_acquire_mode=1)
            assert delivery.error_code == ErrorCode.NONE
            if not delivery.partitions:
                break
            for first, last, _ in delivery.acquired:
                worker.acknowledge((first, last, [ACCEPT]))
            seen += delivery.offsets
        assert {0, 4, 5, 6} <= set(seen)
        assert state_of(broker, topic_id).start_offset == 7


def produce_keys(broker: LocalBroker, keys: list[bytes]) -> None:
    from tailrace.records.record import Record, encode_batch

    for key in keys:
        data = encode_batch([Record(0, broker.now_ms, key, b"x")])
        broker.ask(produce_request(data), 12)


# Transactions


def committed_only(broker: LocalBroker, topic_id: bytes) -> Worker:
    set_configs(broker, share_isolation_level="read_committed")
    return Worker(broker, topic_id)


def test_members_of_committed_records_skip_aborted_ones(broker: LocalBroker, topic_id: bytes) -> None:
    worker = committed_only(broker, topic_id)
    producer = TransactionalProducer(broker)
    broker.produce(b"plain")
    producer.produce(b"aborted", b"aborted too")
    producer.abort()
    producer.produce(b"committed")
    producer.commit()
    producer.produce(b"open")
    seen = []
    for _ in range(4):
        delivery = worker.fetch()
        seen += delivery.values
        if delivery.offsets:
            worker.acknowledge((delivery.offsets[0], delivery.offsets[-1], [ACCEPT]))
    assert seen == [b"plain", b"committed"]
    waiting = worker.begin_fetch()
    assert not waiting.is_answered
    producer.commit()
    assert waiting.delivery.values == [b"open"]
    worker.accept(*waiting.delivery.offsets)
    broker.kill()
    broker.tick(1)
    assert Worker(broker, topic_id, "b").fetch().offsets in ([], [broker.log().end_offset - 1])


def test_members_of_all_records_get_aborted_ones_too(broker: LocalBroker, topic_id: bytes) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"aborted")
    producer.abort()
    producer.produce(b"open")
    worker, seen = Worker(broker, topic_id), []
    for _ in range(3):
        delivery = worker.fetch()
        seen += delivery.values
        for offset in delivery.offsets:
            worker.accept(offset)
    assert seen == [b"aborted", b"open"]


# Reading from a disk


def cold(monkeypatch: pytest.MonkeyPatch, broker: LocalBroker) -> None:
    """Nothing is ever in memory, as on a file system that cannot tell."""
    from tailrace.log.segment.segment import WouldWait

    log = broker.log()
    read = log.read

    def read_slowly(offset: int, max_bytes: int, *, up_to: int | None = None, wait: bool = True) -> Any:
        if not wait:
            raise WouldWait
        return read(offset, max_bytes, up_to=up_to, wait=wait)

    monkeypatch.setattr(log, "read", read_slowly)


def test_records_that_are_not_in_memory_are_read_in_a_thread(
    broker: LocalBroker, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce(b"a", b"b")
    cold(monkeypatch, broker)
    broker.hold_jobs = True
    waiting = Worker(broker, topic_id).begin_fetch(max_wait_ms=0)
    other = Worker(broker, topic_id, "b").begin_fetch()
    assert not waiting.is_answered
    assert state_of(broker, topic_id).in_flight == 0
    broker.run_jobs()
    assert waiting.delivery.values == [b"a", b"b"]
    assert not other.is_answered
    broker.hold_jobs = False
    broker.produce(b"c")
    assert other.delivery.values == [b"c"]


def test_a_client_that_is_gone_while_a_thread_reads_leaves_the_records_to_others(
    broker: LocalBroker, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce(b"a")
    cold(monkeypatch, broker)
    broker.hold_jobs = True
    worker = Worker(broker, topic_id)
    waiting = worker.begin_fetch()
    other = Worker(broker, topic_id, "b").begin_fetch()
    assert waiting.delayed is not None
    waiting.delayed.abandon()
    worker.connection.close()
    broker.run_jobs()
    assert other.delivery.acquired == [(0, 0, 1)]


def test_what_a_thread_has_read_for_nothing_is_released(
    broker: LocalBroker, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce(b"a" * 100_000)
    cold(monkeypatch, broker)
    broker.hold_jobs = True
    worker = Worker(broker, topic_id)
    waiting = worker.begin_fetch()
    worker.connection.close()
    broker.hold_jobs = False
    broker.run_jobs()
    assert waiting.delivery.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    broker.delete_topic()
    broker.run_jobs()
    assert not list(Path(broker.path).glob("orders*")), "no file is pinned"


def test_damaged_records_are_an_error_and_nothing_is_skipped(broker: LocalBroker, topic_id: bytes) -> None:
    broker.produce(b"a" * 1000)
    broker.produce(b"b")
    path = Path(broker.path) / "orders-0" / f"{0:020d}.log"
    broker.close()
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    broker.open()
    broker.tick(1)
    delivery = Worker(broker, topic_id).fetch()
    assert delivery.only.error_code == ErrorCode.CORRUPT_MESSAGE
    assert state_of(broker, topic_id).start_offset == 0


def test_the_response_of_a_fetch_pins_no_file_once_it_is_dropped(broker: LocalBroker, topic_id: bytes) -> None:
    from tailrace.broker.fetch.reads import release_records

    broker.produce(b"a" * 100_000)
    worker = Worker(broker, topic_id)
    (response,) = resolved(broker.begin(worker.fetch_request(), 2, connection=worker.connection))
    release_records(response)
    broker.delete_topic()
    broker.run_jobs()
    assert not list(Path(broker.path).glob("orders*"))


def test_an_unexpected_error_of_a_waiting_fetch_is_its_own(
    broker: LocalBroker, topic_id: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is woken by the request of another client, which goes on."""
    waiting = Worker(broker, topic_id).begin_fetch()
    later = Worker(broker, topic_id, "b").begin_fetch()
    monkeypatch.setattr(ShareFetch, "_respond", failing_once(ShareFetch._respond))
    assert broker.produce(b"a").error_code == ErrorCode.NONE
    assert waiting.delivery.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert later.delivery.values == [b"a"]
    assert "unexpected error while handling a ShareFetch" in caplog.text


def failing_once(function: Callable[..., None]) -> Callable[..., None]:
    calls = []

    def call(fetch: ShareFetch, look: Any) -> None:
        calls.append(fetch)
        if len(calls) == 1:
            look.release()
            raise RuntimeError("unforeseen")
        function(fetch, look)

    return call
