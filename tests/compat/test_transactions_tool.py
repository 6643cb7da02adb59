"""Kafka's tool for transactions, `kafka-transactions.sh`, beside producers of real clients."""

import time
from collections.abc import Callable

import pytest
from compat.brokers import BrokerProcess, against_kafka
from compat.clients.confluent import ConfluentClient
from compat.contract import Message
from compat.tools import TOOLS, Tools
from compat.transactions import each_producer, transactional

pytestmark = pytest.mark.needs("kafka")

SECONDS = 30
Rows = Callable[..., list[dict[str, str]]]


@pytest.fixture
def rows(tools: Tools, broker: BrokerProcess) -> Rows:
    """What a verb of the tool prints: each row by the names of its columns."""

    def run(*words: str) -> list[dict[str, str]]:
        said = tools.run(f"{TOOLS}.TransactionsCommand", "--bootstrap-server", broker.bootstrap, *words)
        head, *lines = [[word.strip() for word in line.split("\t")] for line in said.splitlines()]
        return [dict(zip(head, line, strict=False)) for line in lines]

    return run


def state(rows: Rows, transactional_id: str) -> dict[str, str]:
    (row,) = rows("describe", "--transactional-id", transactional_id)
    return row


def wait_for_end(rows: Rows, transactional_id: str, wanted: str) -> None:
    """Kafka writes markers after its answer, and is given a moment; we are not."""
    deadline = time.monotonic() + (SECONDS if against_kafka() else 0)
    while (found := state(rows, transactional_id)["TransactionState"]) != wanted:
        assert time.monotonic() < deadline, found


def states(rows: Rows, *words: str) -> dict[str, str]:
    return {row["TransactionalId"]: row["TransactionState"] for row in rows("list", *words)}


@each_producer()
def test_a_transaction_is_listed_and_described_as_it_goes(
    rows: Rows, broker: BrokerProcess, topic: str, kind: str
) -> None:
    with transactional(kind, broker.bootstrap, topic, timeout_ms=50_000) as producer:
        assert states(rows)[topic] == "Empty"
        producer.do("begin")
        producer.send(topic, "1")
        assert states(rows)[topic] == "Ongoing"
        found = state(rows, topic)
        assert found["TransactionState"] == "Ongoing"
        assert found["TransactionTimeoutMs"] == "50000"
        assert found["TopicPartitions"] == f"{topic}-0"
        assert 0 <= int(found["TransactionDurationMs"]) < 50_000
        (producing,) = rows("describe-producers", "--topic", topic, "--partition", "0")
        assert producing["ProducerId"] == found["ProducerId"]
        assert producing["ProducerEpoch"] == found["ProducerEpoch"]
        assert producing["CurrentTransactionStartOffset"] == "0"
        producer.do("commit")
        wait_for_end(rows, topic, "CompleteCommit")
        assert states(rows)[topic] == "CompleteCommit"
        producer.do("begin")
        producer.send(topic, "2")
        producer.do("abort")
        wait_for_end(rows, topic, "CompleteAbort")
        (producing,) = rows("describe-producers", "--topic", topic, "--partition", "0")
        assert producing["CurrentTransactionStartOffset"] == "None"


@pytest.mark.parametrize(("kind", "bumps"), [("java", 3), ("confluent", 0)])
def test_java_begins_a_producer_epoch_with_each_transaction(
    rows: Rows, broker: BrokerProcess, topic: str, kind: str, bumps: int
) -> None:
    """So do those clients that speak version 2 of transactions, which fences what is late from an earlier one."""
    with transactional(kind, broker.bootstrap, topic) as producer:
        before = int(state(rows, topic)["ProducerEpoch"])
        for verb in ("commit", "abort", "commit"):
            producer.do("begin")
            producer.send(topic, "1")
            producer.do(verb)
        assert int(state(rows, topic)["ProducerEpoch"]) == before + bumps


def test_lists_are_filtered(rows: Rows, broker: BrokerProcess, topic: str) -> None:
    with (
        transactional("confluent", broker.bootstrap, f"{topic}-open") as producer,
        transactional("confluent", broker.bootstrap, f"{topic}-idle"),
    ):
        producer.do("begin")
        producer.send(topic, "1")
        mine = ("--transactional-id-pattern", f"{topic}-.*")
        assert states(rows, *mine) == {f"{topic}-open": "Ongoing", f"{topic}-idle": "Empty"}
        assert states(rows, "--transactional-id-pattern", topic) == {}
        assert states(rows, *mine, "--duration-filter", "900000").get(f"{topic}-open") is None
        producer.do("commit")


def test_a_transaction_that_the_coordinator_knows_does_not_hang(rows: Rows, broker: BrokerProcess, topic: str) -> None:
    with transactional("confluent", broker.bootstrap, topic) as producer:
        producer.do("begin")
        producer.send(topic, "1")
        assert rows("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0") == []
        producer.do("commit")


@each_producer()
def test_an_open_transaction_is_aborted_in_a_partition(
    rows: Rows, tools: Tools, broker: BrokerProcess, reference: ConfluentClient, topic: str, kind: str
) -> None:
    where = ("--topic", topic, "--partition", "0")
    with transactional(kind, broker.bootstrap, topic) as producer:
        producer.do("begin")
        producer.send(topic, "aborted")
        reference.produce(topic, [Message(b"plain")])
        with reference.consumer(topic, isolation="read_committed") as consumer:
            assert consumer.take(1, within=0.5) == []
            abort = ("--bootstrap-server", broker.bootstrap, "abort", *where, "--start-offset", "0")
            tools.run(f"{TOOLS}.TransactionsCommand", *abort)
            assert [each.value for each in consumer.take(1)] == [b"plain"]
        (producing,) = rows("describe-producers", *where)
        assert producing["CurrentTransactionStartOffset"] == "None"
    with transactional(kind, broker.bootstrap, topic) as producer:
        producer.do("begin")
        producer.send(topic, "goes on")
        producer.do("commit")
    with reference.consumer(topic, isolation="read_committed") as consumer:
        assert [each.value for each in consumer.take(2)] == [b"plain", b"goes on"]
