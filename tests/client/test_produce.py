import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client.conftest import a_batch, create_topic, options
from client.fakes import HANG_UP, FakeBroker, once
from client.test_fetch import read
from compat.brokers import BrokerProcess, new_broker

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import GaveUp, NotAuthorized, ProducerFenced, Refused, TopicNotFound
from tailrace.client.produce import UNKNOWN_OFFSET, Producer, init_producer_id
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tailrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tailrace.records.batch import check
from tailrace.records.record import decode_records

ORDERS = TopicPartition("orders", 0)


def test_batches_are_written_in_order(cluster: Cluster, topic: str) -> None:
    where = TopicPartition(topic, 0)
    producer = Producer(cluster)
    assert producer.send({where: a_batch(b"a", b"b")}) == {where: 0}
    assert producer.send({where: a_batch(b"c")}) == {where: 2}
    assert producer.send({}) == {}
    assert [value for _, value in read(cluster, topic, 0, 3)] == [b"a", b"b", b"c"]


def test_one_round_may_be_under_way_while_the_next_is_prepared(cluster: Cluster, topic: str) -> None:
    create_topic(cluster, topic + "-more", partitions=3)
    partitions = [TopicPartition(topic + "-more", n) for n in range(3)]
    producer = Producer(cluster)
    for n in range(5):
        producer.begin({where: a_batch(b"%d" % n) for where in partitions})
    assert producer.finish() == dict.fromkeys(partitions, 4)
    assert producer.finish() == {}


def test_each_producer_has_an_id_of_its_own(cluster: Cluster) -> None:
    assert init_producer_id(cluster) != init_producer_id(cluster)


def test_a_topic_that_is_not_there_is_named_and_not_made(cluster: Cluster) -> None:
    with pytest.raises(TopicNotFound, match="never-made"):
        Producer(cluster).send({TopicPartition("never-made", 0): a_batch(b"a")})
    assert "never-made" not in cluster.all_topics()


@pytest.fixture
def broker_that_creates_nothing(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"auto.create.topics.enable": "false"}
    with contextlib.closing(new_broker(tmp_path / "broker", settings=settings)) as broker:
        broker.start()
        yield broker


def test_a_topic_that_may_be_created_is_where_brokers_do_so(
    cluster: Cluster, broker_that_creates_nothing: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"made-{secrets.token_hex(4)}"
    place = TopicPartition(name, 0)
    assert place in cluster.topic(name, may_create=True).partitions
    assert Producer(cluster).send({place: a_batch(b"a")}) == {place: 0}
    monkeypatch.setattr("tailrace.client.cluster.cluster.CREATION_S", 0.1)
    with (
        contextlib.closing(Cluster(options(broker_that_creates_nothing.bootstrap))) as other,
        pytest.raises(TopicNotFound, match=f"there is no topic {name}; check its name, or create it first"),
    ):
        other.topic(name, may_create=True)


def test_a_batch_too_large_is_refused_with_the_brokers_words(cluster: Cluster, topic: str) -> None:
    producer = Producer(cluster)
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        producer.send({TopicPartition(topic, 0): a_batch(b"x" * (2 << 20))})


def test_bytes_that_are_not_one_batch_are_the_callers_mistake(cluster: Cluster, topic: str) -> None:
    where = TopicPartition(topic, 0)
    producer = Producer(cluster)
    for wrong in (bytearray(b"x" * 100), a_batch(b"a") + a_batch(b"b"), bytearray()):
        with pytest.raises(ValueError, match=r".+"):
            producer.send({where: a_batch(b"a"), TopicPartition(topic, 1): wrong})
    assert producer.send({where: a_batch(b"a")}) == {where: 0}


class Written:
    """The broker's side: takes batches in the order of their sequences, each once."""

    def __init__(self, fake: FakeBroker) -> None:
        self.values: list[bytes] = []
        self.next = 0
        fake.answers[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(
            producer_id=5, producer_epoch=0
        )

    def take(self, request: ProduceRequest, version: int) -> ProduceResponse:
        records = bytes(request.topic_data[0].partition_data[0].records or b"")
        header = check(records)
        assert (header.producer_id, header.producer_epoch) == (5, 0)
        if header.base_sequence < self.next:
            return answer(error_code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        assert header.base_sequence == self.next
        self.next += header.record_count
        self.values += [record.value or b"" for record in decode_records(records)]
        return answer(base_offset=self.next - header.record_count)

    def take_and_hang_up(self, request: ProduceRequest, version: int) -> Any:
        self.take(request, version)
        return HANG_UP


def answer(**fields: Any) -> ProduceResponse:
    partition = PartitionProduceResponse(index=0, **fields)
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[partition])])


def test_what_is_sent_again_is_written_once(faked: Cluster, fake: FakeBroker) -> None:
    written = Written(fake)
    fake.answers[ProduceRequest] = once(
        written.take,
        written.take_and_hang_up,
        written.take,
        lambda request, version: HANG_UP,
        lambda request, version: answer(error_code=ErrorCode.NOT_ENOUGH_REPLICAS),
        lambda request, version: answer(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        written.take,
    )
    producer = Producer(faked)
    found = [producer.send({ORDERS: a_batch(b"%d" % n, b"more")})[ORDERS] for n in range(3)]
    assert found == [0, UNKNOWN_OFFSET, 4]
    assert written.values == [b"0", b"more", b"1", b"more", b"2", b"more"]


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
)
def test_a_producer_that_is_fenced_takes_nothing_more(faked: Cluster, fake: FakeBroker, code: ErrorCode) -> None:
    Written(fake)
    fake.answers[ProduceRequest] = lambda request, version: answer(error_code=code)
    producer = Producer(faked)
    for _ in range(2):
        with pytest.raises(ProducerFenced, match="begin with a new producer"):
            producer.send({ORDERS: a_batch(b"a")})
    assert fake.count(ProduceRequest) == 1


def test_after_giving_up_nobody_knows_what_was_written(fake: FakeBroker) -> None:
    Written(fake)
    fake.answers[ProduceRequest] = lambda request, version: HANG_UP
    with contextlib.closing(Cluster(options(fake.bootstrap, default_api_timeout_ms="200"))) as cluster:
        producer = Producer(cluster)
        producer.begin({ORDERS: a_batch(b"a")})
        with pytest.raises(GaveUp, match="writing: "):
            producer.finish()
        with pytest.raises(GaveUp):
            producer.begin({ORDERS: a_batch(b"b")})


def test_no_id_is_had_without_the_right_to_it(faked: Cluster, fake: FakeBroker) -> None:
    fake.answers[InitProducerIdRequest] = once(
        lambda request, version: InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        lambda request, version: InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    )
    with pytest.raises(NotAuthorized):
        init_producer_id(faked)


def test_a_broker_killed_in_between_has_each_record_once(own_broker: BrokerProcess) -> None:
    with contextlib.closing(Cluster(options(own_broker.bootstrap))) as cluster:
        create_topic(cluster, "orders")
        producer = Producer(cluster)
        for n in range(30):
            producer.begin({ORDERS: a_batch(b"%d" % n)})
            if n == 15:
                own_broker.kill_and_start()
        producer.finish()
        assert read(cluster, "orders", 0, 30) == [(n, b"%d" % n) for n in range(30)]
