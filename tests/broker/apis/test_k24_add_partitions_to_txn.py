"""AddPartitionsToTxn: partitions join a transaction together, once that is on disk. What follows from it is in
`tests/broker/transactions`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import LocalBroker
from transactions import TransactionalProducer, Waiting, known, only_code

from tailrace.broker.transactions.state import State
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3)
        broker.create_topic("views", 2)
        yield broker


@pytest.fixture
def producer(broker: LocalBroker) -> TransactionalProducer:
    return TransactionalProducer(broker, version=0)


@pytest.mark.parametrize("version", range(4))
def test_partitions_of_many_topics_are_added(
    broker: LocalBroker, producer: TransactionalProducer, version: int
) -> None:
    request = producer.add_request(0, 2)
    request.topics.append(AddPartitionsToTxnTopic(name="views", partitions=[1]))
    response = broker.ask(request, version)
    assert [
        (topic.name, one.partition_index, one.partition_error_code)
        for topic in response.results_by_topic
        for one in topic.results_by_partition
    ] == [("orders", 0, 0), ("orders", 2, 0), ("views", 1, 0)]
    assert known(broker).state is State.ONGOING
    assert known(broker).partitions == {("orders", 0), ("orders", 2), ("views", 1)}


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("orders", 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nothing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__transaction_state", 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_none_is_added_if_one_cannot_be(
    broker: LocalBroker, producer: TransactionalProducer, topic: str, index: int, code: ErrorCode
) -> None:
    request = producer.add_request(0)
    request.topics.append(AddPartitionsToTxnTopic(name=topic, partitions=[index]))
    first, second = broker.ask(request, 3).results_by_topic
    assert first.results_by_partition[0].partition_error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert second.results_by_partition[0].partition_error_code == code
    assert known(broker).state is State.EMPTY


@pytest.mark.parametrize("version", range(4))
def test_other_producers_are_refused(broker: LocalBroker, producer: TransactionalProducer, version: int) -> None:
    fenced = TransactionalProducer(broker, begins=False)
    fenced.identity = producer.identity
    producer.init()
    code = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert fenced.add(0, version=version) == code
    fenced.identity = 4711, 0
    assert fenced.add(0, version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    fenced.transactional_id = "unknown"
    assert fenced.add(0, version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_response_leaves_when_the_transaction_is_on_disk(
    broker: LocalBroker, producer: TransactionalProducer
) -> None:
    broker.hold_jobs = True
    both = [Waiting(broker, producer.add_request(0), 3) for _ in range(2)]  # the second changes nothing
    assert not any(one.is_answered for one in both)
    broker.run_flushes()
    assert [only_code(one.answer) for one in both] == [0, 0]


def test_partitions_that_are_known_need_no_record(broker: LocalBroker, producer: TransactionalProducer) -> None:
    producer.add(0, 1)
    (log,) = broker.broker.transactions.log.logs
    end = log.end_offset
    assert [producer.add(0), producer.add(1, 0)] == [0, 0]
    assert log.end_offset == end
    assert producer.add(2) == 0
    assert log.end_offset == end + 1
