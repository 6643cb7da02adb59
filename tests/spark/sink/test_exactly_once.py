"""One transaction for each task, with a marker."""

import gc
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from client.conftest import a_batch
from client.fakes import SILENCE, FakeBroker
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tailrace.client import groups
from tailrace.client.cluster.cluster import cluster_for
from tailrace.client.cluster.coordinators import Kind
from tailrace.client.cluster.metadata import TopicPartition as Place
from tailrace.client.errors import ProducerFenced
from tailrace.client.transactions import TransactionalProducer
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tailrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tailrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tailrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tailrace.spark.sink.options import Delivery, SinkOptions, sink_options
from tailrace.spark.source.options import BadOptions
from tailrace.testing import Broker

pytestmark = pytest.mark.needs("arrow")
pa = pytest.importorskip("pyarrow")
exactly_once = pytest.importorskip("tailrace.spark.sink.exactly_once")
BatchWriter = pytest.importorskip("tailrace.spark.data_source").BatchWriter
TaskWrite, write_once = exactly_once.TaskWrite, exactly_once.write_once


@pytest.fixture
def options(broker: Broker, topic: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": broker.bootstrap, "topic": topic})


@pytest.fixture
def task_write() -> Any:
    return TaskWrite(f"query-{secrets.token_hex(4)}", 0, 5, "run")


@pytest.fixture
def committed(broker: Broker, topic: str) -> Callable[[], list[str]]:
    """The values of the topic that a consumer sees who reads what is committed."""
    return lambda: values_in(broker.bootstrap, topic)


def values_in(bootstrap: str, topic: str, partitions: int = 2) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "any", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, ends = [], 0
    while ends < partitions:
        message = consumer.poll(30)
        assert message is not None
        if error := message.error():
            assert error.code() == KafkaError._PARTITION_EOF
            ends += 1
        else:
            found.append((message.value() or b"").decode())
    consumer.close()
    return sorted(found)


def rows(*values: str) -> list[Any]:
    return [pa.record_batch({"value": pa.array(values, pa.string())})] if values else []


def forget_producers() -> None:
    """As another process."""
    exactly_once._kept.clear()
    exactly_once._runs.clear()


def test_a_batch_that_is_tried_again_is_there_once(options: SinkOptions, task_write: Any, committed: Any) -> None:
    first = write_once(options, task_write, rows("a", "b"))
    again = write_once(options, task_write, rows("b", "a"))  # by the process that has written it
    forget_producers()
    third = write_once(options, task_write, [*rows("a"), *rows("b")])
    assert [sent.rows for sent in (first, again, third)] == [2, 2, 2]
    write_once(options, replace(task_write, batch=6), rows("c"))
    write_once(options, replace(task_write, batch=8), rows("d"))
    assert committed() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("others", [("a",), ("a", "b", "c"), ("a", "x"), ()])
def test_other_rows_in_a_batch_that_was_written_stop_it(
    options: SinkOptions, task_write: Any, committed: Any, others: tuple[str, ...]
) -> None:
    write_once(options, task_write, rows("a", "b"))
    forget_producers()
    with pytest.raises(exactly_once.SplitChanged, match=r"rows=2 hash=\w+ then, .* now.*stateless.enabled=false"):
        write_once(options, task_write, rows(*others))
    assert committed() == ["a", "b"]


def test_an_older_checkpoint_stops_it(options: SinkOptions, task_write: Any) -> None:
    write_once(options, task_write, rows("a"))
    for values in (("a",), ()):
        with pytest.raises(exactly_once.AlreadyFurther, match="has written batch 5, and this is batch 4"):
            write_once(options, replace(task_write, batch=4), rows(*values))


def test_a_task_that_fails_has_written_nothing(options: SinkOptions, task_write: Any, committed: Any) -> None:
    def failing() -> Iterator[Any]:
        yield pa.record_batch({"value": pa.array(["x" * 1000] * 3000)})
        raise RuntimeError("the rows end here")

    with pytest.raises(RuntimeError, match="end here"):
        write_once(options, task_write, failing())
    assert committed() == []
    write_once(options, task_write, rows("a"))
    assert committed() == ["a"]


def test_a_zombie_is_fenced(options: SinkOptions, task_write: Any, committed: Any) -> None:
    def overtaken() -> Iterator[Any]:
        yield pa.record_batch({"value": pa.array(["x" * 1000] * 3000)})
        forget_producers()
        write_once(options, task_write, rows("a"))
        yield from rows("late")

    with pytest.raises(ProducerFenced):
        write_once(options, task_write, overtaken())
    assert committed() == ["a"]


def test_a_kept_producer_that_was_fenced_is_made_anew(options: SinkOptions, task_write: Any, committed: Any) -> None:
    write_once(options, task_write, rows("a"))
    kept = dict(exactly_once._kept)
    forget_producers()
    write_once(options, replace(task_write, batch=6), rows("b"))  # by another process
    exactly_once._kept.update(kept)
    write_once(options, replace(task_write, batch=6), rows("b"))
    exactly_once._kept.update(kept)
    write_once(options, replace(task_write, batch=7), rows("c"))
    assert committed() == ["a", "b", "c"]


def test_tasks_that_are_not_there_any_more_are_found_by_the_driver(options: SinkOptions, task_write: Any) -> None:
    write_once(options, replace(task_write, task=2), rows("a"))
    sent = [write_once(options, replace(task_write, task=task), rows(value)) for task, value in enumerate("ab")]
    assert all(one.is_first for one in sent), "so are all tasks of the batch with which a process begins a run"
    with pytest.raises(exactly_once.SplitChanged, match="has 2 tasks, and task 2 has written rows of it before"):
        exactly_once.check_sent(options, task_write.batch, sent)
    exactly_once.check_sent(options, task_write.batch + 1, sent)
    exactly_once.check_sent(options, task_write.batch, [*sent, replace(sent[0], task=2)])
    later = write_once(options, replace(task_write, batch=task_write.batch + 1), rows("c"))
    assert not later.is_first
    assert write_once(options, replace(task_write, batch=task_write.batch + 2, run="another"), []).is_first


def test_each_task_without_rows_of_a_first_batch_fences_who_had_its_id(
    options: SinkOptions, topic: str, task_write: Any, committed: Any
) -> None:
    """Had the batch rows in an earlier run, they are elsewhere now."""
    parts = [replace(task_write, task=task) for task in range(2)]
    zombies = [TransactionalProducer(cluster_for(options.client), one.name) for one in parts]
    for zombie in zombies:
        zombie.send({Place(topic, 0): a_batch(b"late")})
    for one in parts:
        write_once(options, one, [])
    for zombie in zombies:
        with pytest.raises(ProducerFenced):
            zombie.commit()
    assert committed() == []


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_the_markers_of_a_write_are_deleted_at_its_end(options: SinkOptions, end: str) -> None:
    writer = BatchWriter(options)
    task_write = TaskWrite(writer._write_id, 1)
    sent = write_once(options, task_write, rows("a"))
    cluster = cluster_for(options.client)
    assert task_write.name in groups.names(cluster)
    getattr(writer, end)([sent, None])
    assert task_write.name not in groups.names(cluster)
    assert [cluster.coordinator((kind, task_write.name)) for kind in Kind] == [None, None], (
        "there is one for each write"
    )


# On a broker that says what it is told to


@pytest.fixture
def refusing() -> Iterator[FakeBroker]:
    """It has transactions, with a coordinator for them, and no markers."""
    with closing(FakeBroker()) as fake:
        fake.answers |= {
            FindCoordinatorRequest: lambda request, version: FindCoordinatorResponse(host="127.0.0.1", port=fake.port),
            InitProducerIdRequest: lambda request, version: InitProducerIdResponse(producer_id=5),
            OffsetFetchRequest: lambda request, version: OffsetFetchResponse(),
        }
        yield fake


def test_a_transaction_timeout_that_the_broker_does_not_allow_is_said(refusing: FakeBroker, task_write: Any) -> None:
    options = sink_options({"kafka.bootstrap.servers": refusing.bootstrap, "topic": "orders"})
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    refusing.answers[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(error_code=code)
    for values in (("a",), ()):
        with pytest.raises(BadOptions, match=r"kafka.transaction.timeout.ms is 900000.*transaction.max.timeout.ms"):
            write_once(options, replace(task_write, task=len(values)), rows(*values))


@pytest.mark.parametrize(("timeout_ms", "said"), [("1", "TookTooLong"), ("900000", "ProducerFenced")])
def test_who_is_fenced_after_the_transaction_timeout_is_told_what_to_do(
    refusing: FakeBroker, task_write: Any, timeout_ms: str, said: str
) -> None:
    given = {"kafka.transaction.timeout.ms": timeout_ms, "topic": "orders"}
    options = sink_options({"kafka.bootstrap.servers": refusing.bootstrap, **given})

    def fence(request: AddOffsetsToTxnRequest, version: int) -> AddOffsetsToTxnResponse:
        time.sleep(0.01)
        return AddOffsetsToTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)

    refusing.answers[AddOffsetsToTxnRequest] = fence
    with pytest.raises(Exception, match=r"kafka.transaction.timeout.ms|begin with a new producer") as caught:
        write_once(options, task_write, rows("a"))
    assert type(caught.value).__name__ == said


def test_who_is_fenced_while_a_batch_is_under_way_leaves_no_connection_open(
    refusing: FakeBroker, task_write: Any
) -> None:
    options = sink_options({"kafka.bootstrap.servers": refusing.bootstrap, "topic": "orders"})
    refused = TxnOffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.PRODUCER_FENCED)
    answer = TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="orders", partitions=[refused])])
    refusing.answers |= {
        AddOffsetsToTxnRequest: lambda request, version: AddOffsetsToTxnResponse(),
        AddPartitionsToTxnRequest: lambda request, version: AddPartitionsToTxnResponse(),
        ProduceRequest: lambda request, version: SILENCE,
        TxnOffsetCommitRequest: lambda request, version: answer,
    }
    with pytest.raises(ProducerFenced):
        write_once(options, task_write, rows("a"))
    gc.collect()  # what is open still is said then, which is an error here


def test_rows_that_differ_may_be_others() -> None:
    assert "functions that are not deterministic" in str(exactly_once.SplitChanged("why"))


def test_without_transactions_it_is_at_least_once_and_said_once(
    refusing: FakeBroker, task_write: Any, caplog: pytest.LogCaptureFixture
) -> None:
    del refusing.versions[28]  # TxnOffsetCommit
    written = PartitionProduceResponse(index=0)
    refusing.answers[ProduceRequest] = lambda request, version: ProduceResponse(
        responses=[TopicProduceResponse(name="orders", topic_id=refusing.topic_id, partition_responses=[written])]
    )
    options = sink_options({"kafka.bootstrap.servers": refusing.bootstrap, "topic": "orders"})
    exactly_once._warn_once.cache_clear()
    for _ in range(2):
        sent = exactly_once.delivered(options, task_write, rows("a"))
        assert not sent.is_exactly_once
    assert refusing.count(ProduceRequest) == 2
    assert [record.message for record in caplog.records if "offers no transactions" in record.message][1:] == []
    assert "at least once" in caplog.text
    with pytest.raises(BadOptions, match="needs a broker with transactions"):
        exactly_once.delivered(replace(options, delivery=Delivery.EXACTLY_ONCE), task_write, rows("a"))


def test_tasks_that_differ_about_transactions_are_an_error(options: SinkOptions) -> None:
    mixed = [exactly_once.Sent(0, 1, "q", is_exactly_once=True), exactly_once.Sent(1, 1)]
    with pytest.raises(BadOptions, match="some brokers offer transactions"):
        exactly_once.check_sent(options, 0, mixed)
