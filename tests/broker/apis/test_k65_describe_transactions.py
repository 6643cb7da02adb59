"""DescribeTransactions: what the coordinator knows of a transactional id, once that is on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import NOW_MS, LocalBroker
from transactions import TransactionalProducer, Waiting

from tailrace.broker.core.delayed import STEPS_AT_ONCE
from tailrace.broker.transactions.state import PARTITIONS_MAX, State, Transaction
from tailrace.log.layout.names import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_transactions import DescribeTransactionsRequest


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3)
        broker.create_topic("views", 2)
        yield broker


def describe(broker: LocalBroker, *ids: str) -> list[Any]:
    return list(
        broker.ask(DescribeTransactionsRequest(transactional_ids=list(ids or ("copier",))), 0).transaction_states
    )


def test_each_state_of_a_transaction_is_described(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker, timeout_ms=4_000)
    (empty,) = describe(broker)
    assert (empty.transaction_state, empty.transaction_start_time_ms, empty.topics) == ("Empty", -1, [])
    assert (empty.producer_id, empty.producer_epoch, empty.transaction_timeout_ms) == (*producer.identity, 4_000)
    broker.now_ms += 100
    for topic, partition in (("views", 1), ("orders", 2), ("orders", 0)):
        producer.produce(b"a", topic=topic, partition=partition)
    (ongoing,) = describe(broker)
    assert (ongoing.transaction_state, ongoing.transaction_start_time_ms) == ("Ongoing", NOW_MS + 100)
    assert [(one.topic, one.partitions) for one in ongoing.topics] == [("orders", [0, 2]), ("views", [1])]
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=True), 5)
    preparing = Waiting(broker, DescribeTransactionsRequest(transactional_ids=["copier"]), 0)
    assert not preparing.is_answered, "the decision is not on disk"
    broker.hold_jobs = False
    broker.run_jobs()
    assert ending.is_answered
    assert preparing.answer.transaction_states[0].transaction_state == "PrepareCommit"
    (complete,) = describe(broker)
    assert (complete.transaction_state, complete.topics, complete.producer_epoch) == ("CompleteCommit", [], 1)


def test_unknown_ids_are_told_and_each_id_once(broker: LocalBroker) -> None:
    TransactionalProducer(broker, "known")
    found = describe(broker, "known", "unknown", "", "known")
    assert [(one.transactional_id, one.error_code) for one in found] == [
        ("known", 0),
        ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]


def test_a_broker_without_transactions_knows_none(broker: LocalBroker) -> None:
    (one,) = describe(broker)
    assert one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert broker.broker.topic("__transaction_state") is None, "to ask does not create it"


def test_others_get_their_turn_while_many_are_described(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        TransactionalProducer(broker)
        known = broker.broker.transactions.transactions
        names = [str(number) for number in range(STEPS_AT_ONCE)]
        known |= {name: Transaction(int(name), 0, 1) for name in names}
        large = frozenset(TopicPartition("orders", index) for index in range(PARTITIONS_MAX))
        known["large"] = Transaction(4711, 0, 1, State.ONGOING, large)
        for wanted in (names, ["large"]):
            broker.hold_jobs = True
            describing = Waiting(broker, DescribeTransactionsRequest(transactional_ids=wanted), 0)
            assert not describing.is_answered
            broker.hold_jobs = False
            broker.run_jobs()
            assert [one.transactional_id for one in describing.answer.transaction_states] == wanted
        assert len(describing.answer.transaction_states[0].topics[0].partitions) == PARTITIONS_MAX
