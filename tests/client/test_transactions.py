"""Transactions: what is asked in which order, and what comes of it on a broker."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from client.conftest import a_batch, create_topic, options
from client.fakes import HANG_UP, FakeBroker, once
from client.test_fetch import rows
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConsumerPlace
from hypothesis import given
from hypothesis import strategies as st
from protocol.test_codec_against_kio import any_values, kio_bytes, kio_module, to_kio
from protocol.values import messages

from tailrace.client import groups
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import NotAuthorized, ProducerFenced, Refused, TopicNotFound
from tailrace.client.fetch import PartitionReader
from tailrace.client.groups import Committed
from tailrace.client.long_poll import wait_for_more
from tailrace.client.offsets import latest
from tailrace.client.options import Isolation
from tailrace.client.transactions import TransactionalProducer, are_offered
from tailrace.protocol.codec import decode, encode
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.message import versions_of
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
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
from tailrace.records.batch import check

ORDERS = TopicPartition("orders", 0)
MARK = {ORDERS: Committed(7, "text")}


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (kind, version)
        for kind in (
            *(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
            *(EndTxnRequest, EndTxnResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
        )
        for version in range(versions_of(kind).last + 1)
    ],
)
@given(data=st.data())
@any_values
def test_the_messages_are_those_of_kio(message: type[Any], version: int, data: Any) -> None:
    value = data.draw(messages(message, version))
    written = encode(value, version)
    assert written == kio_bytes(to_kio(value, version, kio_module(message, version)))
    assert decode(message, version, written) == value


# What is asked


class Coordinator:
    """A broker's side: it says yes, and remembers what it was asked."""

    def __init__(self, fake: FakeBroker) -> None:
        self.batches: list[bytes] = []
        self.ended: list[bool] = []
        self.asked: list[Any] = []
        fake.answers |= {
            FindCoordinatorRequest: lambda request, version: FindCoordinatorResponse(host="127.0.0.1", port=fake.port),
            InitProducerIdRequest: lambda request, version: InitProducerIdResponse(producer_id=5, producer_epoch=3),
            AddPartitionsToTxnRequest: lambda request, version: self.added(request),
            AddOffsetsToTxnRequest: lambda request, version: AddOffsetsToTxnResponse(),
            TxnOffsetCommitRequest: lambda request, version: self.committed(request),
            ProduceRequest: lambda request, version: self.written(request),
            EndTxnRequest: lambda request, version: self.end(request),
        }

    def added(self, request: AddPartitionsToTxnRequest, code: int = 0) -> AddPartitionsToTxnResponse:
        self.asked.append(request)
        results = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic=results)

    def committed(self, request: TxnOffsetCommitRequest, code: int = 0) -> TxnOffsetCommitResponse:
        self.asked.append(request)
        partition = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="orders", partitions=[partition])])

    def written(self, request: ProduceRequest, code: int = 0) -> ProduceResponse:
        assert request.transactional_id == "me"
        self.batches.append(bytes(request.topic_data[0].partition_data[0].records or b""))
        partition = PartitionProduceResponse(index=0, error_code=code)
        return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[partition])])

    def end(self, request: EndTxnRequest) -> EndTxnResponse:
        self.ended.append(request.committed)
        return EndTxnResponse()


def highest(fake: FakeBroker, kind: type[Any]) -> int:
    """The highest version of a request that the broker was sent."""
    return max(version for sent, version in fake.asked if sent is kind)


def test_partitions_are_added_once_before_they_are_written_to(faked: Cluster, fake: FakeBroker) -> None:
    coordinator = Coordinator(fake)
    producer = TransactionalProducer(faked, "me")
    for _ in range(2):
        producer.begin({ORDERS: a_batch(b"a", b"b")})
        producer.begin({ORDERS: a_batch(b"c")})
        producer.commit_offsets("group", MARK)
        producer.commit()
    headers = [check(batch) for batch in coordinator.batches]
    assert all(header.is_transactional for header in headers)
    assert [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers] == [
        *((5, 3, 0), (5, 3, 2), (5, 3, 3), (5, 3, 5)),
    ]
    kinds = [AddPartitionsToTxnRequest, TxnOffsetCommitRequest] * 2
    assert [type(request) for request in coordinator.asked] == kinds
    assert coordinator.ended == [True, True]
    assert highest(fake, ProduceRequest) == 11
    assert highest(fake, EndTxnRequest) == highest(fake, TxnOffsetCommitRequest) == 4


def test_nothing_is_ended_where_nothing_was_begun(faked: Cluster, fake: FakeBroker) -> None:
    coordinator = Coordinator(fake)
    producer = TransactionalProducer(faked, "me")
    producer.commit()
    producer.abort()
    assert coordinator.ended == []


def test_who_is_busy_is_asked_again(faked: Cluster, fake: FakeBroker) -> None:
    coordinator = Coordinator(fake)
    fake.answers[InitProducerIdRequest] = once(
        lambda request, version: InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS),
        lambda request, version: InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR),
        lambda request, version: HANG_UP,
        lambda request, version: InitProducerIdResponse(producer_id=5, producer_epoch=3),
    )
    fake.answers[AddPartitionsToTxnRequest] = once(
        lambda request, version: coordinator.added(request, ErrorCode.CONCURRENT_TRANSACTIONS),
        lambda request, version: coordinator.added(request),
    )
    fake.answers[EndTxnRequest] = once(
        lambda request, version: HANG_UP,
        lambda request, version: EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS),
        lambda request, version: coordinator.end(request),
    )
    producer = TransactionalProducer(faked, "me")
    producer.send({ORDERS: a_batch(b"a")})
    producer.commit()
    assert coordinator.ended == [True]
    assert fake.count(FindCoordinatorRequest) == 4, "not where it was only busy"


def fenced_at(step: str, coordinator: Coordinator) -> tuple[type[Any], Callable[..., Any]]:
    code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {
        "add": (AddPartitionsToTxnRequest, lambda request, version: coordinator.added(request, code)),
        "produce": (ProduceRequest, lambda request, version: coordinator.written(request, code)),
        "offsets": (AddOffsetsToTxnRequest, lambda request, version: AddOffsetsToTxnResponse(error_code=code)),
        "commit offsets": (TxnOffsetCommitRequest, lambda request, version: coordinator.committed(request, code)),
        "end": (EndTxnRequest, lambda request, version: EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)),
    }[step]


@pytest.mark.parametrize("step", ["add", "produce", "offsets", "commit offsets", "end"])
def test_a_producer_that_is_fenced_takes_nothing_more(faked: Cluster, fake: FakeBroker, step: str) -> None:
    kind, handler = fenced_at(step, Coordinator(fake))
    fake.answers[kind] = handler
    producer = TransactionalProducer(faked, "me")

    def transaction() -> None:
        producer.begin({ORDERS: a_batch(b"a")})
        producer.commit_offsets("group", MARK)
        producer.commit()

    for _ in range(2):
        with pytest.raises(ProducerFenced):
            transaction()
    assert fake.count(ProduceRequest) <= 1


def unknown_topic(coordinator: Coordinator) -> Callable[..., Any]:
    return lambda request, version: coordinator.added(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_topic_that_the_coordinator_does_not_know_yet_is_waited_for(faked: Cluster, fake: FakeBroker) -> None:
    coordinator = Coordinator(fake)
    fake.answers[AddPartitionsToTxnRequest] = once(
        unknown_topic(coordinator), unknown_topic(coordinator), lambda request, version: coordinator.added(request)
    )
    producer = TransactionalProducer(faked, "me")
    producer.send({ORDERS: a_batch(b"a")})
    producer.commit()
    assert coordinator.ended == [True]


def test_a_topic_that_the_coordinator_does_not_come_to_know_is_not_there(
    faked: Cluster, fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.client.transactions.CREATION_S", 0.1)
    fake.answers[AddPartitionsToTxnRequest] = unknown_topic(Coordinator(fake))
    with pytest.raises(TopicNotFound):
        TransactionalProducer(faked, "me").send({ORDERS: a_batch(b"a")})


@pytest.mark.parametrize("slow", [0, 1])
def test_a_transaction_is_ended_when_no_batch_is_under_way(
    faked: Cluster, fake: FakeBroker, another_fake: FakeBroker, slow: int
) -> None:
    """One leader refuses its batch at once; that of the other comes behind the end of the transaction otherwise."""
    order = []
    coordinator = Coordinator(fake)
    fake.topics["orders"] = [[], []]
    fake.leaders[("orders", 1)] = another_fake.node_id

    def answer(partition: int) -> ProduceResponse:
        if partition == slow:
            time.sleep(0.3)
        order.append(f"answer {partition}")
        code = 0 if partition == slow else ErrorCode.MESSAGE_TOO_LARGE
        said = PartitionProduceResponse(index=partition, error_code=code)
        return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[said])])

    def end(request: EndTxnRequest) -> EndTxnResponse:
        order.append("end")
        return coordinator.end(request)

    fake.answers[ProduceRequest] = lambda request, version: answer(0)
    another_fake.answers[ProduceRequest] = lambda request, version: answer(1)
    fake.answers[EndTxnRequest] = lambda request, version: end(request)
    producer = TransactionalProducer(faked, "me")
    producer.begin({ORDERS: a_batch(b"a"), TopicPartition("orders", 1): a_batch(b"b")})
    producer.abort()
    assert order == [f"answer {1 - slow}", f"answer {slow}", "end"]
    assert coordinator.ended == [False]
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        producer.commit()


def test_what_a_retry_does_not_cure_is_told(faked: Cluster, fake: FakeBroker) -> None:
    coordinator = Coordinator(fake)
    fake.answers[TxnOffsetCommitRequest] = lambda request, version: coordinator.committed(
        request, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    with pytest.raises(NotAuthorized, match="offsets of group group at topic orders"):
        TransactionalProducer(faked, "me").commit_offsets("group", MARK)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    fake.answers[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(error_code=code)
    with pytest.raises(NotAuthorized):
        TransactionalProducer(faked, "me")
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    fake.answers[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(error_code=code)
    with pytest.raises(Refused, match="above the limit of the broker"):
        TransactionalProducer(faked, "me")


def test_a_broker_says_whether_it_has_transactions(faked: Cluster, fake: FakeBroker, cluster: Cluster) -> None:
    assert are_offered(faked)
    fake.versions[9] = (0, 6)  # OffsetFetch, which cannot wait for transactions then
    faked.close()
    assert not are_offered(faked)
    fake.versions[9] = (0, 7)
    del fake.versions[28]
    faked.close()
    assert not are_offered(faked)
    assert are_offered(cluster)


# What comes of it


@pytest.fixture
def committed(bootstrap: str) -> Any:
    """A cluster that reads what is committed."""
    with contextlib.closing(Cluster(options(bootstrap, isolation_level="read_committed"))) as cluster:
        yield cluster


def values_in(bootstrap: str, place: TopicPartition) -> list[bytes | None]:
    """What librdkafka reads, up to the end, of what is committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "any", "enable.partition.eof": True})
    consumer.assign([ConsumerPlace(*place, 0)])
    found: list[bytes | None] = []
    with contextlib.closing(consumer):
        while True:
            message = consumer.poll(20)
            assert message is not None
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF
                return found
            found.append(message.value())


def test_what_is_committed_is_there_and_what_is_aborted_is_not(bootstrap: str, committed: Cluster, topic: str) -> None:
    create_topic(committed, topic + "-too", partitions=2)
    places = [TopicPartition(topic, 0), TopicPartition(topic + "-too", 1)]
    producer = TransactionalProducer(committed, topic)
    for number in range(4):
        producer.begin({place: a_batch(b"%d" % number) for place in places})
        producer.commit_offsets(f"group-{topic}", {places[0]: Committed(number, f"text {number}")})
        (producer.abort if number % 2 else producer.commit)()
    for place in places:
        assert values_in(bootstrap, place) == [b"0", b"2"]
    assert groups.committed(committed, f"group-{topic}") == {places[0]: Committed(2, "text 2")}


def test_who_begins_under_the_same_id_fences_the_other(bootstrap: str, committed: Cluster, topic: str) -> None:
    where = TopicPartition(topic, 0)
    zombie = TransactionalProducer(committed, topic)
    zombie.send({where: a_batch(b"left")})
    zombie.commit_offsets(f"group-{topic}", {where: Committed(1)})
    producer = TransactionalProducer(committed, topic)
    assert groups.committed(committed, f"group-{topic}") == {}
    with pytest.raises(ProducerFenced):
        zombie.commit()
    producer.send({where: a_batch(b"right")})
    producer.commit()
    assert values_in(bootstrap, where) == [b"right"]


def test_open_and_aborted_transactions_are_told_apart(bootstrap: str, topic: str) -> None:
    where = TopicPartition(topic, 0)
    producer = ConfluentProducer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    with contextlib.closing(Cluster(options(bootstrap, isolation_level="read_committed"))) as cluster:
        for value, ends_well in ((b"good", True), (b"bad", False)):
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.flush(20)
            assert latest(cluster, [where]) == {where: 0 if ends_well else 2}
            assert latest(cluster, [where], Isolation.READ_UNCOMMITTED) == {where: 1 if ends_well else 3}
            assert wait_for_more(cluster, {where: latest(cluster, [where])[where]}, 0.1) == {}
            (producer.commit_transaction if ends_well else producer.abort_transaction)(20)
        assert wait_for_more(cluster, {where: 2}, 10) == {where: 4}
        chunks = list(PartitionReader(cluster, topic, 0, 0, 4))
    assert [header.is_control for chunk in chunks for _, header in chunk.batches] == [False, True, False, True]
    assert [row for row in rows(chunks) if row[0] in (0, 2)] == [(0, b"good"), (2, b"bad")]
    (aborted,) = {one for chunk in chunks for one in chunk.aborted}
    assert aborted[1] == 2
