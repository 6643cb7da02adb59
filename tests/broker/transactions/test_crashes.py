"""Killed, or without power, at every step of a transaction: its records in all partitions and its offsets count
together or not at all, and consumers of committed records always go on.
"""

from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker
from group_requests import offsets
from logs import DATA, memory_files
from transactions import TransactionalProducer, Waiting, check_replay, committed, known, last_stable_offset, run_a_job

from tailrace.broker.transactions.state import State
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tailrace.testing.recording_files import RecordingFiles

PARTITIONS = (0, 1)
TIMEOUT_MS = 60_000

versions = pytest.mark.parametrize("version", [0, 2])
outcomes = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


def with_transaction(broker: LocalBroker, version: int) -> TransactionalProducer:
    """A producer with an open transaction in two partitions, and an offset."""
    broker.create_topic(partitions=2)
    producer = TransactionalProducer(broker, version=version)
    for partition in PARTITIONS:
        assert producer.produce(b"first", partition=partition).error_code == 0
    assert producer.commit_offset(7) == ErrorCode.NONE
    return producer


def found(broker: LocalBroker) -> list[Any]:
    """What counts of the transaction, in each of its three partitions."""
    return [*(committed(broker, partition) for partition in PARTITIONS), offsets(broker).get(("orders", 0))]


NOTHING: list[Any] = [[], [], None]
ALL: list[Any] = [[b"first"], [b"first"], 7]


def started(files: RecordingFiles) -> LocalBroker:
    broker = LocalBroker(DATA, files=files)
    broker.tick(1)
    return broker


def check_goes_on(broker: LocalBroker) -> None:
    """Nothing hangs: what is still open is ended by its timeout, and consumers of committed records reach the end."""
    broker.tick(TIMEOUT_MS + 1)
    for partition in PARTITIONS:
        assert last_stable_offset(broker, partition) == broker.log(index=partition).end_offset
    assert not broker.broker.groups.offsets.pending
    check_replay(broker)


# Killed: what was written stays


@versions
@outcomes
def test_a_transaction_ends_as_decided_whenever_the_broker_is_killed(
    tmp_path: Path, version: int, commit: bool
) -> None:
    """At each job of the end: before the decision is on disk, after one of the markers, before Complete is."""
    steps = 0
    while True:
        broker = LocalBroker(tmp_path / str(steps))
        producer = with_transaction(broker, version)
        broker.hold_jobs = True
        ending = Waiting(broker, producer.end_request(commit=commit), {0: 4, 2: 5}[version])
        has_more = all(run_a_job(broker) for _ in range(steps))
        broker.hold_jobs = False
        broker.kill()
        broker.tick(1)
        assert found(broker) == (ALL if commit else NOTHING), "the decision was written"
        assert known(broker).state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
        repeated = broker.ask(producer.end_request(commit=commit), {0: 4, 2: 5}[version])
        assert repeated.error_code == 0
        assert not ending.is_answered or ending.answer == repeated
        check_goes_on(broker)
        broker.close()
        if not has_more:
            break
        steps += 1
    assert steps > 4


def is_timed_out(broker: LocalBroker, producer: TransactionalProducer) -> None:
    broker.tick(TIMEOUT_MS + 1)


def is_fenced(broker: LocalBroker, producer: TransactionalProducer) -> None:
    Waiting(broker, producer.init_request(), 5)


def is_ended_by_an_operator(broker: LocalBroker, producer: TransactionalProducer) -> None:
    producer_id, epoch = producer.identity
    topics = [WritableTxnMarkerTopic(name="orders", partition_indexes=[0])]
    marker = WritableTxnMarker(
        producer_id=producer_id, producer_epoch=epoch, transaction_result=False, coordinator_epoch=0, topics=topics
    )
    Waiting(broker, WriteTxnMarkersRequest(markers=[marker]), 1)


is_aborted_by_the_broker = pytest.mark.parametrize("is_aborted", [is_timed_out, is_fenced, is_ended_by_an_operator])


@versions
@is_aborted_by_the_broker
def test_a_transaction_that_the_broker_aborts_counts_nowhere_whenever_it_is_killed(
    tmp_path: Path, version: int, is_aborted: Callable[[LocalBroker, TransactionalProducer], None]
) -> None:
    steps = 0
    while True:
        broker = LocalBroker(tmp_path / str(steps))
        producer = with_transaction(broker, version)
        broker.hold_jobs = True
        is_aborted(broker, producer)
        has_more = all(run_a_job(broker) for _ in range(steps))
        broker.hold_jobs = False
        broker.kill()
        broker.tick(1)
        assert found(broker) == NOTHING
        assert producer.commit().error_code != 0
        assert TransactionalProducer(broker, version=version).identity > producer.identity
        check_goes_on(broker)
        assert found(broker) == NOTHING
        broker.close()
        if not has_more:
            break
        steps += 1
    assert steps > 4


# Without power: what was not synced may be lost, or not


def cuts_during(files: RecordingFiles, first: int, tries: int = 12) -> Iterator[tuple[int, RecordingFiles]]:
    """States of the disk that a power cut may leave after each call from the first on, with the number of calls. Writes
    are whole or lost: a torn one before one that is whole is damage, for which the broker does not start.
    """
    seen: set[tuple[int, int]] = set()
    for after in range(first, len(files.calls) + 1):
        until = copy(files)
        until.calls = files.calls[:after]
        for seed in range(tries):
            cut = until.power_cut(seed, tears=False)
            if (after, cut.disk.fingerprint()) not in seen:
                seen.add((after, cut.disk.fingerprint()))
                yield after, cut


@versions
@outcomes
def test_a_power_cut_during_the_end_leaves_all_of_a_transaction_or_nothing(version: int, commit: bool) -> None:
    files = memory_files()
    broker = LocalBroker(DATA, files=files)
    producer = with_transaction(broker, version)
    first = len(files.calls)
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=commit), {0: 4, 2: 5}[version])
    while not ending.is_answered:
        assert run_a_job(broker)
    answered = len(files.calls)
    while run_a_job(broker):
        pass
    seen = []
    for after, cut in cuts_during(files, first):
        restarted = started(cut)
        now = found(restarted)
        assert now in (([ALL] if after >= answered else [ALL, NOTHING]) if commit else [NOTHING])
        seen.append(now)
        check_goes_on(restarted)
        assert found(restarted) == now
    assert len(seen) > 20
    assert (ALL in seen) is commit
    assert NOTHING in seen


@versions
@is_aborted_by_the_broker
def test_a_power_cut_while_the_broker_aborts_a_transaction_brings_nothing_of_it_back(
    version: int, is_aborted: Callable[[LocalBroker, TransactionalProducer], None]
) -> None:
    files = memory_files()
    broker = LocalBroker(DATA, files=files)
    producer = with_transaction(broker, version)
    first = len(files.calls)
    broker.hold_jobs = True
    is_aborted(broker, producer)
    while run_a_job(broker):
        pass
    seen = 0
    for _, cut in cuts_during(files, first):
        restarted = started(cut)
        assert found(restarted) == NOTHING
        check_goes_on(restarted)
        assert found(restarted) == NOTHING
        seen += 1
    assert seen > 10


@versions
@pytest.mark.parametrize("how", ["begin", "end"])
def test_no_two_producers_are_given_the_same_epoch_whatever_a_power_cut_leaves(version: int, how: str) -> None:
    files = memory_files()
    broker = LocalBroker(DATA, files=files)
    producer = with_transaction(broker, version)
    request = producer.init_request() if how == "begin" else producer.end_request(commit=True)
    broker.hold_jobs = True
    asking = Waiting(broker, request, 5 if how == "begin" else {0: 4, 2: 5}[version])
    while not asking.is_answered:
        assert run_a_job(broker)
    producer.goes_on(asking.answer)
    first = len(files.calls)
    while run_a_job(broker):
        pass
    seen = 0
    for _, cut in cuts_during(files, first):
        assert TransactionalProducer(started(cut), version=version).identity > producer.identity
        seen += 1
    assert seen


@versions
def test_a_power_cut_in_the_next_transaction_does_not_commit_it_with_the_one_before(version: int) -> None:
    """Complete is not on disk when the end is answered, and the next batch may be there without it."""
    files = memory_files()
    broker = LocalBroker(DATA, files=files)
    producer = with_transaction(broker, version)
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=True), {0: 4, 2: 5}[version])
    while not ending.is_answered:
        assert run_a_job(broker)
    producer.goes_on(ending.answer)
    first = len(files.calls)
    if version == 0:
        adding = Waiting(broker, producer.add_request(0), 3)
        while not adding.is_answered:
            assert run_a_job(broker)
    second = producer.produce_request(b"second")
    producing = Waiting(broker, second, {0: 11, 2: 12}[version])
    while not producing.is_answered:
        assert run_a_job(broker)
    seen = 0
    for _, cut in cuts_during(files, first, tries=40):
        restarted = started(cut)
        assert found(restarted) == ALL
        check_goes_on(restarted)
        assert found(restarted) == ALL
        seen += 1
    assert seen > 5


def test_a_client_that_goes_on_after_a_power_cut_commits_all_of_its_transaction_or_nothing() -> None:
    """Its first batch may be on disk, and the record that opens the transaction not: then the batch was aborted at the
    start, and its retry must not be taken for a success.
    """
    files = memory_files()
    broker = LocalBroker(DATA, files=files)
    producer = with_transaction(broker, 2)
    producer.commit()
    broker.hold_jobs = True
    first = len(files.calls)
    broker.begin(producer.produce_request(b"second"), 12)
    while run_a_job(broker):
        pass
    outcomes = set()
    for _, cut in cuts_during(files, first, tries=40):
        restarted = started(cut)
        client = TransactionalProducer(restarted, begins=False)
        client.identity = producer.identity
        retried = client.produce(b"second")
        other = client.produce(b"second", partition=1)
        is_committed = retried.error_code == other.error_code == 0 and client.commit().error_code == 0
        if not is_committed:
            assert retried.error_code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE)
            assert client.abort().error_code == 0
        expected = [b"first", b"second"] if is_committed else [b"first"]
        assert [committed(restarted, partition) for partition in PARTITIONS] == [expected, expected]
        check_goes_on(restarted)
        outcomes.add(is_committed)
    assert outcomes == {True, False}


@pytest.mark.parametrize("clock_ms", [0, -60_000], ids=["the same millisecond", "a clock that is set back"])
@versions
def test_two_decisions_in_one_millisecond_have_a_marker_each(tmp_path: Path, version: int, clock_ms: int) -> None:
    """A start looks for markers by the time of their decision: the first one's is not the second one's."""
    with LocalBroker(tmp_path) as broker:
        producer = with_transaction(broker, version)
        assert producer.commit().error_code == 0
        broker.jump(clock_ms)
        producer.produce(b"second")
        producer.commit()
        broker.jump(-clock_ms)
        for partition in PARTITIONS:
            producer.produce(b"third", partition=partition)
        broker.hold_jobs = True
        Waiting(broker, producer.end_request(commit=True), {0: 4, 2: 5}[version])
        broker.hold_jobs = False
        broker.kill()
        broker.tick(1)
        assert [committed(broker, partition) for partition in PARTITIONS] == [
            [b"first", b"second", b"third"],
            [b"first", b"third"],
        ]
        check_goes_on(broker)
