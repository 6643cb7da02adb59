"""Killed, or without power, at every step of an acknowledgement and of a snapshot: what a member was told is so."""

from pathlib import Path

import pytest
from brokers import LocalBroker
from logs import DATA, memory_files
from power_cuts import cuts_during
from queue_states import Persisted, check_replay, in_memory
from share_fetches import WaitingFetch, Worker, begin_group
from transactions import Waiting, run_a_job

from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.queues.partition.states import RecordState, StateRange
from tailrace.protocol.messages.share_acknowledge import ACCEPT, RELEASE
from tailrace.testing.recording_files import RecordingFiles

PARTITIONS = (0, 1)


def with_work(broker: LocalBroker) -> Worker:
    """A member that holds four records in each of two partitions."""
    topic_id = broker.create_topic(partitions=2)
    begin_group(broker, topic_id, PARTITIONS)
    for partition in PARTITIONS:
        broker.produce(b"a", b"b", b"c", b"d", partition=partition)
    worker = Worker(broker, topic_id, partitions=PARTITIONS)
    assert len(worker.fetch().offsets) == 8
    return worker


def acks(worker: Worker) -> dict[tuple[bytes, int], list[tuple[int, int, list[int]]]]:
    return {place: [(0, 3, [ACCEPT, RELEASE, ACCEPT, ACCEPT])] for place in worker.places}


BEFORE = Persisted(0, [])
AFTER = Persisted(1, [StateRange(1, 1, RecordState.AVAILABLE, 1), StateRange(2, 3, RecordState.ACKNOWLEDGED, 1)])


def found(broker: LocalBroker) -> list[Persisted | None]:
    states = {key.partition: state for key, state in in_memory(broker).items()}
    return [states[index] for index in PARTITIONS]


def started(files: RecordingFiles) -> LocalBroker:
    broker = LocalBroker(DATA, files=files)
    broker.tick(1)
    return broker


@pytest.mark.parametrize("by_fetch", [True, False], ids=["by fetch", "by acknowledge"])
def test_an_acknowledgement_counts_as_a_whole_whenever_the_broker_is_killed(tmp_path: Path, by_fetch: bool) -> None:
    steps = 0
    while True:
        broker = LocalBroker(tmp_path / str(steps))
        worker = with_work(broker)
        broker.hold_jobs = True
        waiting: WaitingFetch | Waiting
        if by_fetch:
            waiting = worker.begin_fetch(acks(worker), max_wait_ms=0)
        else:
            waiting = Waiting(broker, worker.acknowledge_request(acks(worker)), 2)
        has_more = all(run_a_job(broker) for _ in range(steps))
        assert waiting.is_answered or has_more or steps == 0
        broker.hold_jobs = False
        broker.kill()
        broker.tick(1)
        assert found(broker) == [AFTER, AFTER], "it was written"
        check_replay(broker)
        broker.close()
        if not has_more:
            break
        steps += 1
    assert steps >= 1


def test_a_power_cut_during_an_acknowledgement_leaves_all_of_it_or_nothing() -> None:
    files = memory_files()
    broker = LocalBroker(DATA, files=files)
    worker = with_work(broker)
    first = len(files.calls)
    broker.hold_jobs = True
    answer = broker.begin(worker.acknowledge_request(acks(worker)), 2, connection=worker.connection)
    assert isinstance(answer, DelayedResponse)
    while not answer.is_resolved:
        assert run_a_job(broker)
    answered = len(files.calls)
    while run_a_job(broker):
        pass
    seen = []
    for after, cut in cuts_during(files, first, tries=40):
        restarted = started(cut)
        now = found(restarted)
        assert now == [AFTER, AFTER] or (after < answered and now == [BEFORE, BEFORE])
        check_replay(restarted)
        seen.append(now)
    assert [AFTER, AFTER] in seen
    assert [BEFORE, BEFORE] in seen


def test_a_power_cut_while_states_are_written_anew_and_the_log_is_cut_loses_nothing() -> None:
    files = memory_files()
    broker = LocalBroker(DATA, files=files)
    worker = with_work(broker)
    worker.acknowledge_all(acks(worker))
    broker.tick(60_000)
    first, now = len(files.calls), found(broker)
    queues = broker.broker.queues
    queues.needed.due.update(dict.fromkeys(queue.key for queue in queues.all()))
    broker.tick(0)
    broker.tick(301_000)
    log = queues.log.log
    assert log is not None
    assert log.start_offset > 0
    broker.tick(10_000)
    count = 0
    for _, cut in cuts_during(files, first, tries=10):
        restarted = started(cut)
        assert found(restarted) == now
        check_replay(restarted)
        count += 1
    assert count > 10


def test_a_power_cut_at_the_first_use_leaves_a_group_that_begins_where_it_would_have() -> None:
    files = memory_files()
    broker = LocalBroker(DATA, files=files)
    topic_id = broker.create_topic()
    broker.produce(b"a", b"b")
    first = len(files.calls)
    begin_group(broker, topic_id)
    flushed = len(files.calls)
    for after, cut in cuts_during(files, first, tries=20):
        restarted = started(cut)
        if after >= flushed:
            assert len(in_memory(restarted)) == 1
        begin_group(restarted, topic_id)
        assert Worker(restarted, topic_id).fetch().values == [b"a", b"b"]
        check_replay(restarted)
