from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import LocalBroker
from share_fetches import GROUP, Worker, begin_group, set_configs

from tailrace.broker.queues.partition.states import RecordState
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_acknowledge import ACCEPT, GAP, REJECT, RELEASE, RENEW

LOCK_MS = 30_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        yield broker


@pytest.fixture
def topic_id(broker: LocalBroker) -> bytes:
    """A topic with ten records, and a group that begins with the first."""
    topic_id = broker.create_topic()
    broker.produce(*(b"%d" % n for n in range(5)))
    broker.produce(*(b"%d" % n for n in range(5, 10)))
    begin_group(broker, topic_id)
    return topic_id


@pytest.fixture
def worker(broker: LocalBroker, topic_id: bytes) -> Worker:
    """A member that has acquired all of them."""
    worker = Worker(broker, topic_id)
    assert worker.fetch().offsets == list(range(10))
    return worker


def queue_of(broker: LocalBroker, topic_id: bytes, group: str = GROUP) -> QueuePartition:
    queue = broker.broker.queues.find(group, topic_id, 0)
    assert queue is not None
    return queue


def states(broker: LocalBroker, topic_id: bytes) -> list[tuple[RecordState, int]]:
    state = queue_of(broker, topic_id).state
    assert state is not None
    return [state.state_of(offset) for offset in range(10)]


def test_accepted_records_are_finished(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    assert worker.accept(0, 1, 2, 3, 4) == ErrorCode.NONE
    state = queue_of(broker, topic_id).state
    assert state is not None
    assert (state.start_offset, state.in_flight) == (5, 5)
    assert Worker(broker, topic_id, "b").fetch().offsets == []


def test_released_records_are_delivered_again_and_count(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    assert worker.release(3, 7) == ErrorCode.NONE
    assert Worker(broker, topic_id, "b").fetch().acquired == [(3, 3, 2), (7, 7, 2)]


def test_rejected_records_and_gaps_are_not_delivered_again(
    broker: LocalBroker, topic_id: bytes, worker: Worker
) -> None:
    assert worker.reject(0) == ErrorCode.NONE
    assert worker.skip(1) == ErrorCode.NONE
    assert Worker(broker, topic_id, "b").fetch().offsets == []
    state = queue_of(broker, topic_id).state
    assert state is not None
    assert state.start_offset == 2


def test_a_range_has_one_type_or_one_for_each_record(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    mixed = [ACCEPT, RELEASE, GAP, REJECT, ACCEPT]
    assert worker.acknowledge((0, 4, mixed), (5, 8, [ACCEPT])) == ErrorCode.NONE
    assert states(broker, topic_id)[1:] == [
        (RecordState.AVAILABLE, 1),
        (RecordState.ARCHIVED, 1),
        (RecordState.ARCHIVED, 1),
        (RecordState.ACKNOWLEDGED, 1),
        *[(RecordState.ACKNOWLEDGED, 1)] * 4,
        (RecordState.ACQUIRED, 1),
    ]


def test_a_range_may_span_what_was_acquired_at_different_times(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    assert worker.fetch(max_records=1).offsets == [0, 1, 2, 3, 4]
    assert worker.fetch(max_records=1).offsets == [5, 6, 7, 8, 9]
    assert worker.acknowledge((3, 7, [ACCEPT])) == ErrorCode.NONE
    assert [state for state, _ in states(broker, topic_id)[3:8]] == [RecordState.ACKNOWLEDGED] * 5


def test_a_record_is_acknowledged_once(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    assert worker.accept(3) == ErrorCode.NONE
    assert worker.accept(3) == ErrorCode.INVALID_RECORD_STATE
    assert worker.release(3) == ErrorCode.INVALID_RECORD_STATE


def test_a_record_is_acknowledged_by_the_member_that_holds_it(
    broker: LocalBroker, topic_id: bytes, worker: Worker
) -> None:
    other = Worker(broker, topic_id, "b")
    other.fetch()
    assert other.accept(3) == ErrorCode.INVALID_RECORD_STATE
    assert worker.accept(3) == ErrorCode.NONE


def test_a_record_whose_lock_has_run_out_is_delivered_again(
    broker: LocalBroker, topic_id: bytes, worker: Worker
) -> None:
    broker.tick(LOCK_MS - 1)
    assert Worker(broker, topic_id, "b").fetch().offsets == []
    broker.tick(2)
    assert worker.accept(3) == ErrorCode.INVALID_RECORD_STATE
    delivery = Worker(broker, topic_id, "b").fetch()
    assert delivery.offsets == list(range(10))
    assert set(delivery.counts) == {2}


def test_what_lies_before_the_start_is_acknowledged_already(
    broker: LocalBroker, topic_id: bytes, worker: Worker
) -> None:
    worker.accept(0, 1, 2)
    assert worker.accept(0) == ErrorCode.NONE
    assert worker.acknowledge((1, 4, [ACCEPT])) == ErrorCode.NONE
    assert states(broker, topic_id)[5:] == [(RecordState.ACQUIRED, 1)] * 5


def test_what_was_never_acquired_is_an_invalid_request(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    assert worker.accept(10) == ErrorCode.INVALID_REQUEST
    assert worker.acknowledge((8, 12, [ACCEPT])) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ((5, 4, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        ((1, 3, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        ((4, 6, []), ErrorCode.INVALID_REQUEST),
        ((4, 6, [ACCEPT, ACCEPT]), ErrorCode.INVALID_REQUEST),
        ((4, 4, [5]), ErrorCode.INVALID_REQUEST),
        ((4, 4, [-1]), ErrorCode.INVALID_REQUEST),
        ((4, 4, [RENEW]), ErrorCode.INVALID_REQUEST),
        ((9, 10, [ACCEPT]), ErrorCode.INVALID_REQUEST),
    ],
)
def test_one_bad_range_of_three_makes_all_of_them_void(
    broker: LocalBroker, topic_id: bytes, worker: Worker, bad: tuple[int, int, list[int]], code: ErrorCode
) -> None:
    before = states(broker, topic_id)
    assert worker.acknowledge((0, 3, [ACCEPT]), bad, (7, 7, [RELEASE])) == code
    assert states(broker, topic_id) == before


def test_a_bad_partition_does_not_affect_another_one(broker: LocalBroker) -> None:
    topic_id = broker.create_topic(partitions=2)
    for index in range(2):
        broker.produce(b"a", partition=index)
    begin_group(broker, topic_id, partitions=(0, 1))
    worker = Worker(broker, topic_id, partitions=(0, 1))
    assert len(worker.fetch().offsets) == 2
    response = worker.acknowledge_all({(topic_id, 0): [(0, 0, [9])], (topic_id, 1): [(0, 0, [ACCEPT])]})
    codes = {one.partition_index: one.error_code for topic in response.responses for one in topic.partitions}
    assert codes == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}


def test_a_renewed_lock_runs_anew(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    broker.tick(20_000)
    assert worker.say(RENEW, 0, 1, is_renew_ack=True) == ErrorCode.NONE
    broker.tick(20_000)
    assert Worker(broker, topic_id, "b").fetch().offsets == list(range(2, 10))
    assert worker.accept(0, 1) == ErrorCode.NONE
    assert not broker.broker.queues.log.unflushed()


def test_a_renewal_says_so(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    assert worker.say(RENEW, 0) == ErrorCode.INVALID_REQUEST
    assert worker.say(RENEW, 0, version=1) == ErrorCode.INVALID_REQUEST
    assert worker.acknowledge((0, 0, [RENEW]), (1, 1, [ACCEPT]), is_renew_ack=True) == ErrorCode.NONE


def test_a_group_may_forbid_renewals(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    set_configs(broker, share_renew_acknowledge_enable="false")
    assert worker.say(RENEW, 0, is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE


def test_a_client_may_ask_for_locks_of_another_duration(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    delivery = worker.fetch(lock_duration_ms=5_000)
    assert delivery.response.acquisition_lock_timeout_ms == 5_000
    assert worker.say(RENEW, 0, is_renew_ack=True, lock_duration_ms=60_000) == ErrorCode.NONE
    broker.tick(5_001)
    assert Worker(broker, topic_id, "b").fetch().offsets == list(range(1, 10))


@pytest.mark.parametrize("ends", ["release", "time", "connection", "session"])
def test_a_record_is_delivered_as_often_as_the_group_allows(broker: LocalBroker, topic_id: bytes, ends: str) -> None:
    counts = []
    for number in range(5):
        worker = Worker(broker, topic_id, f"worker {number}")
        delivery = worker.fetch(max_records=1, share_acquire_mode=1)
        assert delivery.offsets == [0]
        counts += delivery.counts
        if ends == "release":
            worker.release(0)
        elif ends == "time":
            broker.tick(LOCK_MS + 1)
        elif ends == "connection":
            worker.disconnect()
        else:
            worker.leave()
    assert counts == [1, 2, 3, 4, 5]
    assert Worker(broker, topic_id, "last").fetch(max_records=1, share_acquire_mode=1).offsets == [1]
    assert states(broker, topic_id)[0] == (RecordState.ARCHIVED, 0), "before the start"


def test_the_response_waits_until_the_outcome_is_on_disk(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    from tailrace.broker.core.delayed import DelayedResponse

    broker.hold_jobs = True
    answer = broker.begin(
        worker.acknowledge_request({(topic_id, 0): [(0, 0, [ACCEPT])]}), 2, connection=worker.connection
    )
    assert isinstance(answer, DelayedResponse)
    assert not answer.is_resolved
    broker.run_flushes()
    assert answer.is_resolved


# Sessions


def test_a_session_begins_with_a_fetch(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    assert worker.accept(0, epoch=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert worker.accept(0, epoch=1) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert worker.accept(0, epoch=-1) == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_requests_of_a_session_come_in_order(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    assert worker.accept(0, epoch=2) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert worker.accept(0, epoch=1) == ErrorCode.NONE
    assert worker.accept(1, epoch=1) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert worker.accept(1, epoch=2) == ErrorCode.NONE


def test_the_last_request_carries_acknowledgements_and_releases_the_rest(
    broker: LocalBroker, topic_id: bytes, worker: Worker
) -> None:
    response = worker.leave({(topic_id, 0): [(0, 3, [ACCEPT])]})
    assert response.error_code == ErrorCode.NONE
    delivery = Worker(broker, topic_id, "b").fetch()
    assert delivery.acquired == [(4, 4, 2), (5, 9, 2)] or delivery.acquired == [(4, 9, 2)]
    assert worker.accept(4, epoch=2) == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize(
    "names",
    [
        {"group_id": None, "member_id": "a"},
        {"group_id": "", "member_id": "a"},
        {"group_id": GROUP, "member_id": None},
        {"group_id": GROUP, "member_id": ""},
        {"group_id": GROUP, "member_id": "a" * 37},
    ],
)
def test_names_are_checked(broker: LocalBroker, topic_id: bytes, names: dict[str, str | None]) -> None:
    worker = Worker(broker, topic_id)
    request = worker.acknowledge_request({}, epoch=1)
    for key, value in names.items():
        setattr(request, key, value)
    assert broker.ask(request, 2).error_code == ErrorCode.INVALID_REQUEST


def test_unknown_partitions_have_their_own_errors(broker: LocalBroker, topic_id: bytes, worker: Worker) -> None:
    other = broker.create_topic("other")
    acks = [(0, 0, [ACCEPT])]
    response = worker.acknowledge_all({(b"?" * 16, 0): acks, (topic_id, 7): acks, (other, 0): acks})
    codes = {
        (topic.topic_id, one.partition_index): one.error_code
        for topic in response.responses
        for one in topic.partitions
    }
    assert codes == {
        (b"?" * 16, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (topic_id, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (other, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


# Restarts


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_outcomes_and_counts_survive_a_restart(broker: LocalBroker, topic_id: bytes, worker: Worker, how: str) -> None:
    """A delivery in progress does not count."""
    assert worker.release(1) == ErrorCode.NONE
    assert worker.fetch().acquired == [(1, 1, 2)]
    assert worker.release(1) == ErrorCode.NONE
    assert worker.accept(0, 4) == ErrorCode.NONE
    getattr(broker, how)()
    broker.tick(1)
    again = Worker(broker, topic_id, "b")
    assert [again.fetch(max_records=1, share_acquire_mode=1).acquired for _ in range(3)] == [
        [(1, 1, 3)],
        [(2, 2, 1)],
        [(3, 3, 1)],
    ]
    assert again.fetch().offsets == [5, 6, 7, 8, 9]


def test_a_fetch_waits_for_the_state_to_be_read(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        broker.produce(b"a")
        begin_group(broker, topic_id)
        broker.restart()
        broker.hold_jobs = True
        worker, late = Worker(broker, topic_id), Worker(broker, topic_id, "b")
        waiting, other = worker.begin_fetch(), late.begin_fetch()
        assert worker.accept(0, epoch=1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert not waiting.is_answered
        assert other.delayed is not None
        other.delayed.expire()
        assert other.delivery.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker.hold_jobs = False
        broker.run_jobs()
        assert waiting.delivery.values == [b"a"]
