"""Checks of keys in threads, over sockets: order, budget, and what happens when something ends during a check.

Requests are pipelined: while the first of many large batches is checked, all others wait.
"""

import contextlib
import select
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from brokers import only_partition, produce_request
from nodes import RunningNode
from raw_client import NOW_AND_THEN_MS, RawClient

from tailrace.broker.produce.key_checks import DECODED_RECORDS_MAX, REQUEST_RECORDS_MAX
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records.compression import Codec
from tailrace.records.record import Record, encode_batch

LARGE = DECODED_RECORDS_MAX
VERSION = 12
CLIENTS, REQUESTS = 8, 15  # some seconds of checks


@cache
def keyed(count: int, bare: tuple[int, ...] = ()) -> bytes:
    records = [Record(n, NOW_AND_THEN_MS, None if n in bare else b"k", b"") for n in range(count)]
    return bytes(encode_batch(records, codec=Codec.ZSTD))


def send(client: RawClient, batch: bytes, acks: int = 1) -> None:
    client.send(produce_request(batch, acks=acks, timeout_ms=60_000), VERSION)


def receive(client: RawClient) -> Any:
    return only_partition(client.receive())


def create_compacted(broker: BrokerProcess, partitions: int = 1) -> None:
    config = CreatableTopicConfig(name="cleanup.policy", value="compact")
    topic = CreatableTopic(name="orders", num_partitions=partitions, replication_factor=1, configs=[config])
    with RawClient(broker.address) as client:
        assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == 0


def end_offset(client: RawClient) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[asked])])
    end: int = client.ask(request, 5).topics[0].partitions[0].offset
    return end


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path) as node:
        node.create_topic("orders", 11, cleanup_policy="compact")
        yield node


def waiting_bytes(node: RunningNode) -> int:
    return node.node.broker.recompressor.waiting_bytes


def test_batches_behind_one_that_is_checked_keep_the_order_also_of_other_clients(node: RunningNode) -> None:
    with RawClient(node.address) as client, RawClient(node.address) as other:
        for count in (LARGE, 1, LARGE, 3):
            send(client, keyed(count))
        first = receive(client)
        send(other, keyed(5))
        answers = [first, *(receive(client) for _ in range(3))]
        assert [answer.error_code for answer in answers] == [0] * 4
        assert [answer.base_offset for answer in answers] == [0, LARGE, LARGE + 1, 2 * LARGE + 1]
        assert receive(other).base_offset > answers[1].base_offset
        assert end_offset(client) == 2 * LARGE + 9


def test_other_clients_are_served_while_the_batches_of_a_large_request_are_checked(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create_compacted(broker, partitions=10)
        with RawClient(broker.address) as producer, RawClient(broker.address) as other:
            end_offset(other)
            data = [PartitionProduceData(index=index, records=keyed(LARGE)) for index in range(10)]
            topic = TopicProduceData(name="orders", partition_data=data)
            producer.send(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[topic]), VERSION)
            served = 0
            while not select.select([producer.socket], [], [], 0)[0]:
                end_offset(other)
                served += 1
            answers = producer.receive().responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [0] * 10
    assert served >= 10, "a broker that checks on its loop serves one request, or two"


def test_records_without_a_key_are_named_and_batches_around_them_are_stored(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        for batch in (keyed(LARGE), keyed(LARGE, (17, 30_000)), keyed(LARGE)):
            send(client, batch)
        first, bare, last = (receive(client) for _ in range(3))
        assert (first.base_offset, last.base_offset) == (0, LARGE)
        assert (bare.error_code, bare.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert "need a key" in bare.error_message
        assert [error.batch_index for error in bare.record_errors] == [17, 30_000]


def test_a_request_beyond_its_budget_is_too_large_from_there_on(node: RunningNode) -> None:
    count = REQUEST_RECORDS_MAX // LARGE
    data = [PartitionProduceData(index=index, records=keyed(LARGE)) for index in range(count + 1)]
    with RawClient(node.address) as client:
        topic = TopicProduceData(name="orders", partition_data=data)
        client.send(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[topic]), VERSION)
        answers = client.receive().responses[0].partition_responses
        send(client, keyed(1))
        assert receive(client).base_offset == LARGE
    assert [answer.error_code for answer in answers] == [0] * count + [ErrorCode.MESSAGE_TOO_LARGE]
    assert "500000" in answers[-1].error_message


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_producer_that_is_gone_leaves_whole_batches_and_no_queue(node: RunningNode, acks: int) -> None:
    leaving = RawClient(node.address)
    for _ in range(REQUESTS):
        send(leaving, keyed(LARGE), acks)
    node.until(lambda: waiting_bytes(node) > 0)
    leaving.reset()
    with RawClient(node.address) as client:
        send(client, keyed(1))
        base: int = receive(client).base_offset
        assert base % LARGE == 0
        node.until(lambda: waiting_bytes(node) == 0, timeout_s=60)
        assert (end_offset(client) - 1) % LARGE == 0


def test_a_topic_deleted_during_a_check_gets_no_batch_and_neither_does_its_successor(node: RunningNode) -> None:
    with RawClient(node.address) as client, RawClient(node.address) as admin:
        for _ in range(REQUESTS):
            send(client, keyed(LARGE))
        node.until(lambda: waiting_bytes(node) > 0)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=10_000)
        assert admin.ask(deletion, 6).responses[0].error_code == 0
        node.create_topic(cleanup_policy="compact")
        answers = [receive(client) for _ in range(REQUESTS)]
        codes = [answer.error_code for answer in answers]
        assert codes[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert set(codes) <= {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert end_offset(admin) == 0
        send(client, keyed(LARGE))
        assert receive(client).base_offset == 0
        node.until(lambda: waiting_bytes(node) == 0, timeout_s=60)


def test_a_broker_that_stops_during_checks_stops_cleanly_with_whole_batches(tmp_path: Path) -> None:
    acknowledged = 0
    with BrokerProcess(tmp_path / "data") as broker, contextlib.ExitStack() as open_clients:
        create_compacted(broker)
        clients = [open_clients.enter_context(RawClient(broker.address)) for _ in range(CLIENTS)]
        for client in clients:
            for _ in range(REQUESTS):
                send(client, keyed(LARGE))
        acknowledged += receive(clients[0]).error_code == 0
        assert broker.stop() == 0
        for client in clients:
            with contextlib.suppress(OSError):  # requests that it has not answered
                for _ in range(REQUESTS - (client is clients[0])):
                    acknowledged += receive(client).error_code == 0
        broker.start()
        with RawClient(broker.address) as client:
            end = end_offset(client)
            assert LARGE * acknowledged <= end <= LARGE * CLIENTS * REQUESTS
            assert end % LARGE == 0
            send(client, keyed(2))
            assert receive(client).base_offset == end
