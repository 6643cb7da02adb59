"""Records that a share group gives up end up in its dead-letter topic, once."""

import logging
from collections.abc import Iterator
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from backlogs import delete
from brokers import LocalBroker
from queue_states import check_replay
from share_fetches import GROUP, Worker, begin_group, set_configs

from tailrace.broker.queues.dead_letters.jobs import CopyJob, SearchJob
from tailrace.broker.queues.dead_letters.writers import READS_MAX, RETRY_MS
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.log.layout.errors import StorageError
from tailrace.protocol.messages.share_acknowledge import REJECT
from tailrace.records.batch import split
from tailrace.records.record import Record, decode_records

DEAD = "orders.dead"
LETTER_CONFIG = "errors.deadletterqueue.group.enable"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        yield broker


def begin(broker: LocalBroker, records: int, **configs: Any) -> Worker:
    """A queue of records, each in a batch of its own, with a dead-letter topic; and a worker of it."""
    topic_id = broker.create_topic()
    for n in range(records):
        broker.produce(b"%d" % n)
    begin_group(broker, topic_id, errors_deadletterqueue_topic_name=DEAD, **configs)
    return Worker(broker, topic_id)


def create_dead_letter_topic(broker: LocalBroker, **configs: Any) -> None:
    broker.create_topic(DEAD, errors_deadletterqueue_group_enable="true", **configs)


def letters(broker: LocalBroker, topic: str = DEAD, partition: int = 0) -> list[Record]:
    log = broker.partition(topic, partition).log
    if log is None:
        return []
    found = log.read(log.start_offset, 1 << 22)
    if found is None:
        return []
    with found:
        data = found.read()
    return [record for position, _ in split(data) for record in decode_records(data, position)]


def offsets(broker: LocalBroker, topic: str = DEAD) -> list[int]:
    return [int(dict(record.headers)["__dlq.errors.offset"] or b"") for record in letters(broker, topic)]


def queue_of(broker: LocalBroker) -> QueuePartition:
    (queue,) = broker.broker.queues.all()
    return queue


def start_of(broker: LocalBroker) -> int:
    state = queue_of(broker).state
    assert state is not None
    return state.start_offset


def test_records_that_are_given_up_in_any_order_keep_their_payload(broker: LocalBroker) -> None:
    create_dead_letter_topic(broker)
    worker = begin(broker, 5)
    worker.fetch()
    copies = broker.hold(CopyJob)
    for offset in (3, 4, 0, 2, 1):  # all but the first wait for it, and come together
        worker.reject(offset)
        broker.run_jobs()
    while copies:
        job, finish = copies.popleft()
        job.run()
        finish()
        broker.run_jobs()
    assert sorted(record.value or b"" for record in letters(broker)) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_rejected_record_is_a_dead_letter(broker: LocalBroker) -> None:
    create_dead_letter_topic(broker)
    worker = begin(broker, 3)
    assert worker.fetch().offsets == [0, 1, 2]
    worker.reject(1)
    worker.accept(0, 2)
    broker.run_jobs()
    (record,) = letters(broker)
    assert record.value == b"1"
    assert dict(record.headers) == {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.group": GROUP.encode(),
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"a member of the share group rejected the record",
        "__dlq.errors.reason": b"rejected",
        "__dlq.errors.timestamp": b"%d" % broker.now_ms,
    }
    assert start_of(broker) == 3
    assert queue_of(broker).outcomes.dead_lettered == 1
    check_replay(broker)


def test_a_record_whose_attempts_are_used_up_is_a_dead_letter(broker: LocalBroker) -> None:
    create_dead_letter_topic(broker)
    worker = begin(broker, 1, share_delivery_count_limit="2")
    worker.fetch()
    worker.release(0)
    worker.fetch()
    assert letters(broker) == []
    worker.release(0)
    broker.run_jobs()
    (record,) = letters(broker)
    headers = dict(record.headers)
    assert headers["__dlq.errors.reason"] == b"attempts"
    assert headers["__dlq.errors.delivery.count"] == b"2"
    assert worker.fetch().offsets == []


def test_a_batch_is_decoded_once_for_all_its_dead_letters_and_keeps_key_and_headers(broker: LocalBroker) -> None:
    create_dead_letter_topic(broker)
    worker = begin(broker, 0)
    broker.produce(*(b"%d" % n for n in range(100)))
    worker.fetch()
    worker.acknowledge((0, 98, [REJECT]), (99, 99, [REJECT]))
    broker.run_jobs()
    assert [record.value for record in letters(broker)] == [b"%d" % n for n in range(100)]
    assert start_of(broker) == 100


def test_without_copies_a_dead_letter_only_says_which_record_it_is_of(broker: LocalBroker) -> None:
    create_dead_letter_topic(broker)
    worker = begin(broker, 1, errors_deadletterqueue_copy_record_enable="false")
    worker.fetch()
    worker.reject(0)
    broker.run_jobs()
    (record,) = letters(broker)
    assert (record.key, record.value) == (None, None)
    assert offsets(broker) == [0]


def test_a_record_that_is_gone_is_a_dead_letter_without_a_copy(broker: LocalBroker) -> None:
    worker = begin(broker, 2)
    worker.fetch()
    worker.reject(0)
    broker.produce(b"later")
    delete(broker, 2)
    create_dead_letter_topic(broker)
    broker.tick(5_000)
    (record,) = letters(broker)
    assert (record.key, record.value) == (None, None)
    assert offsets(broker) == [0]


def test_dead_letters_of_a_partition_go_to_the_partition_with_its_number(broker: LocalBroker) -> None:
    broker.create_topic(DEAD, partitions=2, errors_deadletterqueue_group_enable="true")
    topic_id = broker.create_topic(partitions=4)
    for index in range(4):
        broker.produce(b"%d" % index, partition=index)
    begin_group(broker, topic_id, range(4), errors_deadletterqueue_topic_name=DEAD)
    worker = Worker(broker, topic_id, partitions=range(4))
    worker.fetch()
    worker.acknowledge_all({(topic_id, index): [(0, 0, [REJECT])] for index in range(4)})
    broker.run_jobs()
    assert [record.value for record in letters(broker, partition=0)] == [b"0", b"2"]
    assert [record.value for record in letters(broker, partition=1)] == [b"1", b"3"]


def test_no_more_dead_letters_are_written_than_the_rate_allows(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"tailrace.dlq.rate": "10"}) as broker:
        create_dead_letter_topic(broker)
        worker = begin(broker, 0)
        broker.produce(*(b"%d" % n for n in range(35)))
        worker.fetch()
        worker.acknowledge((0, 34, [REJECT]))
        written = []
        for _ in range(30):
            broker.run_jobs()
            written.append(len(letters(broker)))
            broker.tick(100)
        assert all(n <= 10 + at for at, n in enumerate(written))
        assert written[10] >= 18
        assert written[-1] == 35
        assert offsets(broker) == list(range(35))


@pytest.mark.parametrize("failures", [2, READS_MAX])
def test_a_disk_that_fails_for_a_while_costs_no_copy(broker: LocalBroker, failures: int) -> None:
    create_dead_letter_topic(broker)
    worker = begin(broker, 1)
    worker.fetch()
    copies = broker.hold(CopyJob)
    worker.reject(0)
    broker.run_jobs()
    log = broker.log()
    for _ in range(failures):
        job, finish = copies.popleft()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(log), "read", fail)
            job.run()
        finish()
        assert letters(broker) == []
        broker.tick(RETRY_MS)
    job, finish = copies.popleft()
    with pytest.MonkeyPatch.context() as patch:
        if failures == READS_MAX:
            patch.setattr(type(log), "read", fail)
        job.run()
    finish()
    broker.run_jobs()
    assert offsets(broker) == [0]
    assert letters(broker)[0].value == (None if failures == READS_MAX else b"0")
    assert start_of(broker) == 1


def fail(*_: Any, **__: Any) -> None:
    raise StorageError("cannot read", OSError(EIO, "the disk fails"))


# Topics that take none


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


def test_dead_letters_wait_for_their_topic(broker: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    worker = begin(broker, 2)
    worker.fetch()
    worker.reject(0)
    for _ in range(3):
        broker.tick(5_000)
    assert complaints(caplog) == [
        f"cannot write dead letters of the share group {GROUP}, which wait: there is no topic {DEAD}. Create it"
    ]
    broker.create_topic(DEAD)
    broker.tick(5_000)
    assert letters(broker) == []
    assert LETTER_CONFIG in complaints(caplog)[-1]
    broker.delete_topic(DEAD)
    create_dead_letter_topic(broker)
    broker.tick(5_000)
    assert offsets(broker) == [0]
    assert len(complaints(caplog)) == 2


def test_a_topic_takes_no_dead_letters_of_its_own(broker: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic_id = broker.create_topic(errors_deadletterqueue_group_enable="true")
    broker.produce(b"a")
    begin_group(broker, topic_id, errors_deadletterqueue_topic_name="orders")
    worker = Worker(broker, topic_id)
    worker.fetch()
    worker.reject(0)
    broker.run_jobs()
    assert "Name another" in complaints(caplog)[0]
    assert broker.values() == [b"a"]


def test_without_a_topic_any_more_the_records_end(broker: LocalBroker) -> None:
    worker = begin(broker, 2)
    worker.fetch()
    worker.reject(0)
    broker.tick(5_000)
    assert start_of(broker) == 0
    set_configs(broker, errors_deadletterqueue_topic_name="")
    broker.tick(5_000)
    assert start_of(broker) == 1
    assert queue_of(broker).outcomes.rejected == 1
    check_replay(broker)


def test_a_deleted_group_leaves_nothing_to_write(broker: LocalBroker) -> None:
    worker = begin(broker, 2)
    worker.fetch()
    worker.reject(0)
    broker.tick(5_000)
    broker.broker.queues.deleted(GROUP)
    create_dead_letter_topic(broker)
    broker.tick(5_000)
    assert letters(broker) == []


def test_a_topic_that_is_deleted_in_between_loses_no_dead_letter(broker: LocalBroker) -> None:
    create_dead_letter_topic(broker)
    worker = begin(broker, 2)
    worker.fetch()
    copies = broker.hold(CopyJob)
    worker.reject(0)
    broker.run_jobs()
    job, finish = copies.popleft()
    job.run()
    broker.delete_topic(DEAD)
    finish()
    broker.run_jobs()
    assert start_of(broker) == 0
    create_dead_letter_topic(broker)
    broker.tick(5_000)
    job, finish = copies.popleft()
    job.run()
    finish()
    broker.run_jobs()
    assert offsets(broker) == [0]
    assert start_of(broker) == 1


# Restarts


@pytest.mark.parametrize("written", [False, True])
def test_a_restart_writes_what_was_not_written(broker: LocalBroker, written: bool) -> None:
    create_dead_letter_topic(broker)
    broker.produce(b"an older letter", topic=DEAD)
    worker = begin(broker, 4)
    worker.fetch()
    copies = broker.hold(CopyJob)
    worker.reject(1)
    broker.run_jobs()
    if written:  # appended and on disk, and that is all
        job, finish = copies.popleft()
        job.run()
        broker.broker.queues.dead_letters.archive = lambda *_: False  # type: ignore[method-assign]
        finish()
        broker.run_jobs()
        assert len(letters(broker)) == 2
    broker._held.clear()
    broker.kill()
    broker.tick(1)
    broker.run_jobs()
    assert len(letters(broker)) == 2
    assert start_of(broker) == 0
    check_replay(broker)
    worker = Worker(broker, worker.topic_id)
    assert worker.fetch().offsets == [0, 2, 3]
    worker.accept(0)
    assert start_of(broker) == 2


def test_a_restart_searches_only_what_was_written_since(broker: LocalBroker) -> None:
    create_dead_letter_topic(broker)
    for n in range(20):
        broker.produce(b"%d" % n, topic=DEAD)
    worker = begin(broker, 4)
    worker.fetch()
    copies = broker.hold(CopyJob)
    worker.reject(1)
    broker.run_jobs()
    assert copies
    state = queue_of(broker).state
    assert state is not None
    assert state.dead_letters is not None
    assert state.dead_letters.offset == 20
    broker._held.clear()
    searches = broker.hold(SearchJob)
    broker.kill()
    broker.tick(1)
    ((search, finish),) = searches
    assert isinstance(search, SearchJob)
    assert search._from_offset == 20
    search.run()
    finish()
    broker.run_jobs()
    assert len(letters(broker)) == 21
