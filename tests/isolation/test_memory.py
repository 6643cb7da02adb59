"""Memory comes back: hostile and impatient clients leave the broker as large as the ones before them did."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from batches import batch_of
from broker_process import BrokerProcess
from brokers import fetch_request, from_offset
from raw_client import RawClient, a_produce

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records.compression import Codec, compress

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is counted as Linux does"),
]

BOMB = bytes(17 << 20)  # more than a batch may hold decompressed
BOMBS = 24  # in one request
LEAVING = 80  # clients that disconnect amid a request of 1 MB
REQUEST_BYTES = 1 << 20
WARM_UP_ROUNDS = 3
ROUNDS = 5
GROWTH_MAX = 96 << 20  # in all rounds together; one round leaves 450 MB where nothing is released before a collection


def create_topics(client: RawClient) -> None:
    packed = CreatableTopic(
        name="packed",
        num_partitions=BOMBS,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="compression.type", value="lz4")],
    )
    orders = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[packed, orders]), 7)
    assert [topic.error_code for topic in answer.topics] == [0, 0]


def bombs() -> ProduceRequest:
    """A request of a few KB that decompresses to hundreds of MB."""
    zstd = batch_of(bytes(compress(Codec.ZSTD, BOMB)), attributes=Codec.ZSTD)
    gzip = batch_of(bytes(compress(Codec.GZIP, BOMB)), attributes=Codec.GZIP)
    data = [PartitionProduceData(index=n, records=gzip if n == 0 else zstd) for n in range(BOMBS)]
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name="packed", partition_data=data)])


def send_bombs(address: tuple[str, int], request: ProduceRequest) -> None:
    with RawClient(address, timeout_s=60) as client:
        answer = client.ask(request, 12)
    codes = {partition.error_code for topic in answer.responses for partition in topic.partition_responses}
    assert codes == {ErrorCode.MESSAGE_TOO_LARGE}


def leave_amid_a_request(address: tuple[str, int]) -> None:
    clients = [RawClient(address) for _ in range(LEAVING)]
    frame = clients[0].frame(a_produce(bytes(REQUEST_BYTES)), 12)
    for client in clients:
        client.socket.sendall(frame[: REQUEST_BYTES - 1000])
    for number, client in enumerate(clients):
        if number % 2:
            client.close()
        else:
            client.reset()


def leave_amid_a_response(address: tuple[str, int]) -> None:
    clients = [RawClient(address, receive_buffer=4096) for _ in range(8)]
    for client in clients:
        client.send(fetch_request(from_offset(0, 0, 8 << 20), max_wait_ms=0, max_bytes=8 << 20), 12)
        client.receive_bytes(100)
    for client in clients:
        client.reset()


def leave_while_waiting(address: tuple[str, int]) -> None:
    clients = [RawClient(address) for _ in range(20)]
    for client in clients:
        client.send(fetch_request(from_offset(16), max_wait_ms=60_000, min_bytes=1 << 20), 12)
    for client in clients:
        client.close()


def send_garbage(address: tuple[str, int]) -> None:
    for _ in range(20):
        with RawClient(address) as client:
            client.socket.sendall(b"\0\0\1\0\0\0\0\x0c" + b"\xff" * 300_000)
            assert client.is_closed()


def a_round(address: tuple[str, int], request: ProduceRequest) -> None:
    send_bombs(address, request)
    leave_amid_a_request(address)
    leave_amid_a_response(address)
    leave_while_waiting(address)
    send_garbage(address)


def settled_rss(broker: BrokerProcess) -> int:
    """The least of a second: the broker may still be closing connections."""
    least = broker.rss_bytes()
    for _ in range(20):
        time.sleep(0.05)
        least = min(least, broker.rss_bytes())
    return least


def test_rounds_of_hostile_and_impatient_clients_leave_no_memory_behind(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        request: Any = bombs()
        with RawClient(broker.address) as client:
            create_topics(client)
            for _ in range(16):
                assert client.produce(bytes(REQUEST_BYTES // 2)).error_code == 0
        sizes = []
        for _ in range(WARM_UP_ROUNDS + ROUNDS):
            a_round(broker.address, request)
            sizes.append(settled_rss(broker))
        print("RSS after each round, in MB:", [size >> 20 for size in sizes], file=sys.stderr)
        assert max(sizes[WARM_UP_ROUNDS:]) - max(sizes[:WARM_UP_ROUNDS]) < GROWTH_MAX
