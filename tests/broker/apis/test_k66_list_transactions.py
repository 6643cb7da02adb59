"""ListTransactions: by state, by producer, by how long they have been open, and by a pattern."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker
from transactions import TransactionalProducer, Waiting

from tailrace.broker.core.delayed import STEPS_AT_ONCE
from tailrace.broker.transactions.state import Transaction
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_transactions import ListTransactionsRequest


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """With a transaction in each state that lasts: producer ids 0 to 3, and `ongoing-1` began 5 s after `ongoing-0`."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        empty, first, second, done = (
            TransactionalProducer(broker, name) for name in ("empty", "ongoing-0", "ongoing-1", "done")
        )
        assert [one.identity[0] for one in (empty, first, second, done)] == [0, 1, 2, 3]
        first.produce(b"a")
        done.produce(b"a")
        done.commit()
        broker.now_ms += 5_000
        second.produce(b"a")
        yield broker


def listed(broker: LocalBroker, version: int = 2, **fields: Any) -> list[tuple[str, int, str]]:
    response = broker.ask(ListTransactionsRequest(**fields), version)
    assert response.error_code == 0
    return sorted((one.transactional_id, one.producer_id, one.transaction_state) for one in response.transaction_states)


DONE = ("done", 3, "CompleteCommit")
EMPTY = ("empty", 0, "Empty")
FIRST, SECOND = ("ongoing-0", 1, "Ongoing"), ("ongoing-1", 2, "Ongoing")


@pytest.mark.parametrize("version", range(3))
def test_all_are_listed_or_some_states_or_some_producers(broker: LocalBroker, version: int) -> None:
    assert listed(broker, version) == [DONE, EMPTY, FIRST, SECOND]
    assert listed(broker, version, state_filters=["Ongoing"]) == [FIRST, SECOND]
    assert listed(broker, version, state_filters=["Empty", "CompleteCommit"]) == [DONE, EMPTY]
    assert listed(broker, version, producer_id_filters=[1, 3, 4711]) == [DONE, FIRST]
    assert listed(broker, version, producer_id_filters=[1, 3], state_filters=["Ongoing"]) == [FIRST]
    assert listed(broker, version, state_filters=["Dead"]) == []


@pytest.mark.parametrize("version", [1, 2])
def test_those_open_for_longer_than_a_time_are_listed(broker: LocalBroker, version: int) -> None:
    """One that was never open counts as very old, as in Kafka."""
    ongoing = ["Ongoing"]
    assert listed(broker, version, duration_filter=-1, state_filters=ongoing) == [FIRST, SECOND]
    assert listed(broker, version, duration_filter=0, state_filters=ongoing) == [FIRST]
    assert listed(broker, version, duration_filter=4_999, state_filters=ongoing) == [FIRST]
    assert listed(broker, version, duration_filter=5_000) == [EMPTY]


def test_a_pattern_matches_whole_ids(broker: LocalBroker) -> None:
    assert listed(broker, transactional_id_pattern="ongoing-.") == [FIRST, SECOND]
    assert listed(broker, transactional_id_pattern="ongoing") == []
    assert listed(broker, transactional_id_pattern=".*(ne|ty)") == [DONE, EMPTY]
    assert listed(broker, transactional_id_pattern="") == [DONE, EMPTY, FIRST, SECOND]
    for pattern in ("(", r"(a)\1"):
        refused = broker.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert (refused.error_code, refused.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


@pytest.mark.parametrize("version", range(3))
def test_states_that_kafka_does_not_have_are_told(broker: LocalBroker, version: int) -> None:
    response = broker.ask(ListTransactionsRequest(state_filters=["Ongoing", "Nonsense", "Nonsense", "dead"]), version)
    assert response.unknown_state_filters == ["Nonsense", "dead"]
    assert len(response.transaction_states) == 2


def test_a_broker_without_transactions_has_none(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        assert listed(broker) == []
        assert broker.broker.topic("__transaction_state") is None


def test_others_get_their_turn_while_many_are_listed(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        TransactionalProducer(broker)
        known = broker.broker.transactions.transactions
        known |= {str(number): Transaction(number, 0, 1) for number in range(10 * STEPS_AT_ONCE + 1)}
        broker.hold_jobs = True
        answer = broker.begin(ListTransactionsRequest(), 2)
        assert not answer.is_resolved
        broker.run_jobs()
        assert answer.is_resolved


def test_a_state_is_listed_when_it_is_on_disk(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        producer = TransactionalProducer(broker)
        producer.produce(b"a")
        broker.hold_jobs = True
        Waiting(broker, producer.end_request(commit=True), 5)
        listing = Waiting(broker, ListTransactionsRequest(), 2)
        assert not listing.is_answered
        broker.run_jobs()
        assert [one.transaction_state for one in listing.answer.transaction_states] == ["PrepareCommit"]
