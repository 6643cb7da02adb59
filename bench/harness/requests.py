"""Requests that measures send over raw connections: topics, Produce and Fetch."""

import time

from bench.harness.batches import batch_of
from bench.harness.raw_connection import RawConnection
from tailrace.protocol.frame import decode_response, encode_request
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

FETCH_VERSION = 11
MB = 1 << 20
_VERSION = 9
_SOON = (3, 5, 6)  # the errors of a topic that is not known yet, or has no leader yet, or one that does not know it


class Refused(RuntimeError):
    def __init__(self, error: int) -> None:
        super().__init__(f"a batch was refused: error {error}")
        self.error = error


def create_topic(connection: RawConnection, topic: str) -> None:
    connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), MetadataResponse, _VERSION)


def open_topic(connection: RawConnection, topic: str) -> int:
    """Creates it if need be, and waits until it has taken a batch, which Kafka's does somewhat later. Returns where
    that batch stands.
    """
    frame = produce_frame(topic, 1)
    while True:
        create_topic(connection, topic)
        try:
            return base_offset(connection.exchange(frame))
        except Refused as refused:
            if refused.error not in _SOON:
                raise
            time.sleep(0.002)


def produce_frame(topic: str, acks: int) -> bytes:
    """One record of 100 bytes."""
    records = batch_of(170, now_ms=int(time.time() * 1000))
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    return encode_request(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data), _VERSION, 0, "bench")


def round_trips(connection: RawConnection, topic: str, acks: int, number: int) -> list[float]:
    """Seconds that each took. The last one's answer is looked at: a broker that refuses is fast, too."""
    frame = produce_frame(topic, acks)
    times, answer = [], b""
    for _ in range(number):
        start = time.perf_counter()
        answer = connection.exchange(frame)
        times.append(time.perf_counter() - start)
    base_offset(answer)
    return times


def base_offset(answer: bytes) -> int:
    """Where a batch came to stand, by the answer to `produce_frame`; raises where it was refused."""
    partition = decode_response(ProduceResponse, _VERSION, answer)[1].responses[0].partition_responses[0]
    if partition.error_code:
        raise Refused(partition.error_code)
    return partition.base_offset


def fetch_frame(topic: str, offset: int, wait_ms: int, size: int = MB) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition])])
    return encode_request(request, FETCH_VERSION, 0, "bench")
