"""Killed, or without power, at every step on the way to a dead letter: it is written, and once."""

from pathlib import Path

from brokers import LocalBroker
from logs import DATA, memory_files
from power_cuts import cuts_during
from queue_states import check_replay
from share_fetches import Worker, begin_group
from transactions import Waiting, run_a_job

from tailrace.protocol.messages.share_acknowledge import ACCEPT, REJECT
from tailrace.records.batch import split
from tailrace.records.record import decode_records

DEAD = "orders.dead"
ACKS = [(0, 2, [REJECT, ACCEPT, REJECT])]


def begin(broker: LocalBroker) -> Worker:
    """A worker that holds three records, of a group that has given up one before them."""
    broker.create_topic(DEAD, errors_deadletterqueue_group_enable="true")
    topic_id = broker.create_topic()
    broker.produce(b"before")
    begin_group(broker, topic_id, errors_deadletterqueue_topic_name=DEAD)
    worker = Worker(broker, topic_id)
    worker.fetch()
    worker.reject(0)
    broker.run_jobs()
    for n in range(3):
        broker.produce(b"%d" % n)
    assert worker.fetch().offsets == [1, 2, 3]
    return worker


def begin_to_acknowledge(worker: Worker) -> Waiting:
    acks = {worker.places[0]: [(first + 1, last + 1, types) for first, last, types in ACKS]}
    return Waiting(worker.broker, worker.acknowledge_request(acks), 2)


def letters(broker: LocalBroker) -> list[bytes]:
    log = broker.partition(DEAD).log
    found = log.read(0, 1 << 20) if log is not None else None
    if found is None:
        return []
    with found:
        data = found.read()
    return [record.value or b"" for position, _ in split(data) for record in decode_records(data, position)]


def finish(broker: LocalBroker, worker: Worker) -> list[int]:
    """Finishes what is left in the same way. Returns the offsets that were delivered again."""
    again = Worker(broker, worker.topic_id)
    offsets = again.fetch().offsets
    for offset in offsets:
        (again.accept if offset == 2 else again.reject)(offset)
    broker.run_jobs()
    (queue,) = broker.broker.queues.all()
    assert queue.state is not None
    assert queue.state.start_offset == 4
    check_replay(broker)
    return offsets


def test_a_dead_letter_is_written_once_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    steps = 0
    while True:
        broker = LocalBroker(tmp_path / str(steps))
        worker = begin(broker)
        broker.hold_jobs = True
        begin_to_acknowledge(worker)
        has_more = all(run_a_job(broker) for _ in range(steps))
        broker.hold_jobs = False
        broker.kill()
        broker.tick(1)
        assert letters(broker) == [b"before", b"0", b"2"]
        assert finish(broker, worker) == []
        assert letters(broker) == [b"before", b"0", b"2"]
        broker.close()
        if not has_more:
            break
        steps += 1
    assert steps > 4


def test_a_dead_letter_is_written_once_whatever_a_power_cut_leaves() -> None:
    files = memory_files()
    broker = LocalBroker(DATA, files=files)
    worker = begin(broker)
    first = len(files.calls)
    broker.hold_jobs = True
    acknowledging = begin_to_acknowledge(worker)
    while not acknowledging.is_answered:
        assert run_a_job(broker)
    answered = len(files.calls)
    while run_a_job(broker):
        pass
    seen = set()
    for after, cut in cuts_during(files, first):
        restarted = LocalBroker(DATA, files=cut)
        restarted.tick(1)
        found = letters(restarted)
        assert found[0] == b"before"
        again = finish(restarted, worker)
        assert after < answered or not again
        assert sorted(letters(restarted)) == [b"0", b"2", b"before"]
        seen.add((len(found), len(again)))
    assert seen == {(1, 3), (3, 0)}
