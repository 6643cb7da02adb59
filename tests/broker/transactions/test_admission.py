"""Which transactional batches are appended, and the error code for each that is not, by the version of Produce."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, only_partition, produce_request
from transactions import TransactionalProducer, Waiting, committed, known, last_stable_offset, run_a_job

from tailrace.broker.produce.recompression import Conversion
from tailrace.broker.transactions.state import State
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import PartitionProduceData

VERSIONS = range(3, 14)
ADDS_FROM, ABORTABLE_FROM = 12, 11


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3)
        yield broker


def produce(producer: TransactionalProducer, version: int, *values: bytes, **fields: Any) -> Any:
    """In any version, so by topic id from 13 on."""
    request = producer.produce_request(*values, **fields)
    if version >= 13:
        request.topic_data[0].topic_id = producer.broker.broker.metadata.topics[request.topic_data[0].name].topic_id
    return only_partition(producer.broker.ask(request, version))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_that_was_not_added_is_refused_or_added(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker, version=0)
    expected = ErrorCode.NONE
    if version < ADDS_FROM:
        expected = ErrorCode.TRANSACTION_ABORTABLE if version >= ABORTABLE_FROM else ErrorCode.INVALID_TXN_STATE
    assert produce(producer, version, b"a").error_code == expected, "no transaction is open"
    producer.sequences.clear()
    assert producer.add(1) == 0
    assert produce(producer, version, b"a", partition=2).error_code == expected, "its transaction has another partition"
    assert produce(producer, version, b"a", partition=1).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
def test_the_coordinators_refusals_come_as_codes_that_producers_expect(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    fenced = TransactionalProducer(broker, begins=False)
    fenced.identity = producer.identity
    producer.init()
    assert produce(fenced, version, b"b", base_sequence=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    fenced.identity = 4711, 0
    assert produce(fenced, version, b"b").error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    fenced.transactional_id = "unknown"
    assert produce(fenced, version, b"b").error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_that_comes_while_its_transaction_is_ended_is_sent_again(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=True), 5)
    answer = produce(producer, version, b"late")
    code = ErrorCode.CONCURRENT_TRANSACTIONS if version >= ADDS_FROM else ErrorCode.NOT_ENOUGH_REPLICAS
    assert answer.error_code == code
    assert (answer.base_offset, broker.log().end_offset) == (-1, 1)
    broker.hold_jobs = False
    broker.run_jobs()
    assert ending.answer.error_code == 0
    assert produce(producer, version, b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(broker) == [b"a"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transactional_batch_needs_a_transactional_id(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker)
    producer.transactional_id = None  # type: ignore[assignment]
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce(producer, version, b"a").error_code == code


@pytest.mark.parametrize("acks", [0, 1])
def test_a_batch_of_a_transaction_is_acknowledged_when_it_is_on_disk_or_refused(broker: LocalBroker, acks: int) -> None:
    """Or else the decision could be on disk without the batch. No client asks for less."""
    producer = TransactionalProducer(broker)
    request = producer.produce_request(b"a")
    request.acks = acks
    answer = broker.ask(request, 12)
    if acks:
        assert only_partition(answer).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert broker.partition().end_offset == 0
    assert known(broker).partitions == frozenset()


def test_a_request_is_of_one_producer(broker: LocalBroker) -> None:
    one, other = (TransactionalProducer(broker, name) for name in ("one", "other"))
    request = one.produce_request(b"a")
    batch = other.batch(b"b", partition=1)
    request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch))
    first, second = broker.ask(request, 12).responses[0].partition_responses
    assert (first.error_code, second.error_code) == (0, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert known(broker, "other").state is State.EMPTY


# The order of checks


@pytest.mark.parametrize("version", [11, 12])
def test_a_repeated_batch_of_the_open_transaction_gets_the_response_of_the_first(
    broker: LocalBroker, version: int
) -> None:
    producer = TransactionalProducer(broker)
    assert producer.add(0) == 0
    first = produce(producer, version, b"a")
    produce(producer, version, b"b")
    again = produce(producer, version, b"a", base_sequence=0)
    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    assert broker.log().end_offset == 2


def test_a_repeated_batch_of_the_first_version_is_recognised_after_the_end(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker, version=0)
    producer.produce(b"a")
    producer.abort()
    again = producer.produce(b"a", version=11, base_sequence=0)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert broker.log().end_offset == 2
    assert last_stable_offset(broker) == 2


def test_a_repeated_batch_is_refused_after_its_transaction_in_the_second_version(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    late = producer.produce_request(b"a")
    assert only_partition(broker.ask(late, 12)).error_code == 0
    producer.commit()
    assert only_partition(broker.ask(late, 12)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(broker) == [b"a"]


@pytest.mark.parametrize("identity", ["fenced", "unknown"])
def test_who_a_producer_is_is_checked_before_its_sequence(broker: LocalBroker, identity: str) -> None:
    producer = TransactionalProducer(broker)
    old = TransactionalProducer(broker, begins=False)
    old.identity = producer.identity if identity == "fenced" else (4711, 0)
    producer.init()
    code = {
        "fenced": ErrorCode.INVALID_PRODUCER_EPOCH,
        "unknown": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }[identity]
    assert produce(old, 12, b"a", base_sequence=5).error_code == code


def test_the_second_version_begins_with_the_first_sequence_in_each_partition(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(producer, 12, b"a", base_sequence=3).error_code == out_of_order
    assert produce(producer, 12, b"a", base_sequence=0).error_code == 0
    assert produce(producer, 12, b"a", base_sequence=3).error_code == out_of_order
    assert produce(producer, 12, b"a", base_sequence=1).error_code == 0
    producer.commit()
    assert produce(producer, 12, b"b", base_sequence=2).error_code == out_of_order, "a new epoch"
    assert produce(producer, 12, b"b", base_sequence=0).error_code == 0
    producer.commit()
    for partition in (0, 1):  # the second is new to the producer
        assert produce(producer, 12, b"c", partition=partition, base_sequence=0).error_code == 0
    producer.commit()
    assert committed(broker) == [b"a", b"a", b"b", b"c"]


def test_the_first_version_goes_on_with_its_sequences(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker, version=0)
    producer.produce(b"a")
    producer.commit()
    producer.add(0)
    assert produce(producer, 11, b"b", base_sequence=2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(producer, 11, b"b", base_sequence=1).error_code == 0


def test_a_batch_outside_the_transaction_of_its_producer_is_refused_while_that_is_open(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    plain = {"transactional": False, "base_sequence": 1}
    assert produce(producer, 12, b"b", **plain).error_code == ErrorCode.INVALID_TXN_STATE
    producer.commit()
    assert produce(producer, 12, b"b", transactional=False, base_sequence=0).error_code == 0
    assert broker.produce(b"of nobody").error_code == 0


# The response waits for the record that adds the partition


def test_the_first_batch_is_acknowledged_when_the_transaction_is_on_disk_too(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    broker.hold_jobs = True
    first = Waiting(broker, producer.produce_request(b"a"), 12)
    again = Waiting(broker, producer.produce_request(b"a", base_sequence=0), 12)
    (log,) = broker.broker.transactions.log.logs
    while not first.is_answered or not again.is_answered:
        assert run_a_job(broker)
        for one in (first, again):
            if one.is_answered:
                assert int(log.high_watermark) == log.end_offset
                assert broker.log().high_watermark == 1
    assert {only_partition(one.answer).error_code for one in (first, again)} == {0}


# Batches that wait in the queue of their partition


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("how", ["committed", "aborted", "timed out", "fenced"])
def test_a_batch_that_waits_is_refused_if_its_transaction_has_ended_meanwhile(
    tmp_path: Path, version: int, how: str
) -> None:
    """Appended behind the marker, it would hold up the consumers of committed records for ever."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        producer = TransactionalProducer(broker, version={11: 0, 12: 2}[version], timeout_ms=5_000)
        assert producer.produce(b"first").error_code == 0
        held = broker.hold(Conversion)
        waiting = Waiting(broker, producer.produce_request(b"waits"), version)
        assert not waiting.is_answered
        if how == "timed out":
            broker.tick(6_000)
        elif how == "fenced":
            TransactionalProducer(broker)
        else:
            assert producer.end(commit=how == "committed").error_code == 0
        end = broker.log().end_offset
        while held:
            job, finish = held.popleft()
            job.run()
            finish()
        broker.run_jobs()
        refused = only_partition(waiting.answer)
        assert refused.base_offset == -1
        if version == 11 and how in ("committed", "aborted"):
            assert refused.error_code == ErrorCode.TRANSACTION_ABORTABLE
        else:
            assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert broker.log().end_offset == end == last_stable_offset(broker)
        assert committed(broker) == ([b"first"] if how == "committed" else [])


def test_a_batch_that_waits_is_appended_while_its_transaction_is_open(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        producer = TransactionalProducer(broker)
        held = broker.hold(Conversion)
        both = [Waiting(broker, producer.produce_request(value), 12) for value in (b"a", b"b")]
        ahead = Waiting(broker, producer.produce_request(b"c", base_sequence=7), 12)
        while held:
            job, finish = held.popleft()
            job.run()
            finish()
        broker.run_jobs()
        assert [only_partition(one.answer).error_code for one in both] == [0, 0]
        assert only_partition(ahead.answer).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        producer.commit()
        assert committed(broker) == [b"a", b"b"]


def test_the_first_batch_that_waits_has_the_first_sequence(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        producer = TransactionalProducer(broker)
        assert producer.produce(b"a", base_sequence=5).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.produce(b"a", base_sequence=0).error_code == 0


def test_all_partitions_of_a_request_are_added_by_one_record(broker: LocalBroker) -> None:
    """Each record has all partitions of the transaction: one for each would take the square of their number."""
    producer = TransactionalProducer(broker)
    request = producer.produce_request(b"a")
    request.topic_data[0].partition_data += (
        PartitionProduceData(index=index, records=producer.batch(b"a", partition=1) if index == 1 else None)
        for index in (1, -1, 99)
    )
    log = broker.log("__transaction_state")
    end = log.end_offset
    answers = broker.ask(request, 12).responses[0].partition_responses
    assert [one.error_code == 0 for one in answers] == [True, True, False, False]
    assert log.end_offset == end + 1
    assert sorted(known(broker).partitions) == [("orders", 0), ("orders", 1)]


def test_a_request_without_transactional_batches_asks_no_coordinator(broker: LocalBroker) -> None:
    request = produce_request(None)
    request.transactional_id = "unknown"
    broker.ask(request, 12)
    assert broker.produce(b"a", producer_id=7, producer_epoch=0, base_sequence=0).error_code == 0
    assert broker.broker.used_transactions is None
