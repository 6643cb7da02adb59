"""Backups of a broker's directory while members of a share group work: each is restored, and goes on where they were at
some moment of the backup.
"""

import pytest
from backups import DATA, RESTORED, WatchedFiles, back_up, counting, restored
from brokers import LocalBroker
from logs import memory_files
from queue_states import Persisted, check_replay, in_memory
from share_fetches import Worker, begin_group

from tailrace.protocol.messages.share_acknowledge import ACCEPT, RELEASE


def working_broker() -> tuple[LocalBroker, Worker]:
    broker = LocalBroker(DATA, files=memory_files())
    topic_id = broker.create_topic()
    begin_group(broker, topic_id)
    return broker, Worker(broker, topic_id)


def work(broker: LocalBroker, worker: Worker) -> None:
    """Produces, finishes one record of two, and releases the other one."""
    broker.produce(b"a", b"b")
    offsets = worker.fetch(max_records=2, share_acquire_mode=1).offsets
    worker.acknowledge(*((offset, offset, [RELEASE if n else ACCEPT]) for n, offset in enumerate(offsets)))


def restored_broker(files: object) -> LocalBroker:
    broker = LocalBroker(RESTORED, files=files)  # type: ignore[arg-type]
    broker.tick(1)
    return broker


def test_a_restored_queue_goes_on_where_it_was() -> None:
    broker, worker = working_broker()
    for _ in range(5):
        work(broker, worker)
    back_up(broker._files)
    restored(broker._files)
    again = restored_broker(broker._files)
    assert in_memory(again) == in_memory(broker)
    check_replay(again)
    ids = {queue.key.topic_id for queue in again.broker.queues.all()}
    assert Worker(again, ids.pop()).fetch().offsets == Worker(broker, worker.topic_id, "b").fetch().offsets


@pytest.mark.parametrize("first", [1, 7, 20, 40, 60, 90])
def test_a_backup_under_load_is_a_queue_that_could_have_been(first: int) -> None:
    """Nothing counts as finished that is not in the log, or that was not finished."""
    broker, worker = working_broker()
    work(broker, worker)

    def go_on(call: int) -> None:
        if call >= first and call % 5 == 0:
            work(broker, worker)

    tell, calls = counting(go_on)
    back_up(WatchedFiles(broker._files, tell))
    assert calls[0] > first, "nothing went on meanwhile"
    restored(broker._files)
    again = restored_broker(broker._files)
    check_replay(again)
    (found,), (now,) = in_memory(again).values(), in_memory(broker).values()
    assert found is not None
    assert now is not None
    finished, known = finished_of(found), finished_of(now) | set(range(now.start))
    assert finished | set(range(found.start)) <= known
    assert max(finished, default=found.start - 1) < again.log().end_offset


def finished_of(state: Persisted) -> set[int]:
    return {n for one in state.ranges if one.state for n in range(one.first, one.last + 1)}
