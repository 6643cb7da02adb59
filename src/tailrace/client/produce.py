"""An idempotent producer of prepared batches: sent to their leaders, retried in order.

A producer has an id and numbers the records of each partition, so that a batch that is sent twice is written once. One
round of batches, one per partition, may be in flight while the caller prepares the next one.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import Leader, TopicPartition
from tailrace.client.cluster.routing import Answer, Exchange, Question
from tailrace.client.errors import ClientError, ProducerFenced, refusal
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.batch import TRANSACTIONAL, check_header, read_header, seal

ALL_REPLICAS = -1
UNKNOWN_OFFSET = -1
_BY_NAME_MAX = 12
_ADDED_BEFORE_MAX = 11  # from 12 on, Produce adds partitions to the transaction
_NO_TIMEOUT_MS = 0x7FFFFFFF
_PRODUCER = struct.Struct(">qhi")  # id, epoch, first sequence
_PRODUCER_AT = 43  # position of these fields in a batch
_ATTRIBUTES_LOW_AT = 22
_SEQUENCES = 0x7FFFFFFF
FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


Batch = bytearray | memoryview  # modified in place


class ProducerId(NamedTuple):
    producer_id: int
    epoch: int


def init_producer_id(cluster: Cluster) -> ProducerId:
    """Gets a new producer id from any broker."""
    retry = cluster.retry("requesting a producer id")
    while True:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS)
        answer = cluster.ask_any(request, InitProducerIdResponse, retry)
        if not answer.error_code:
            return ProducerId(answer.producer_id, answer.producer_epoch)
        retry.pause(refusal("requesting a producer id", answer.error_code))


class Producer:
    """Sends batches. After an error it is unknown what was written, and every further call fails."""

    transactional_id: str | None = None  # `transactions` has producers with one

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.identity: ProducerId | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._flight: Exchange[int] | None = None
        self._failed: ClientError | None = None

    def send(self, batches: Mapping[TopicPartition, Batch]) -> dict[TopicPartition, int]:
        """Returns the first offset of each batch, once all are written. UNKNOWN_OFFSET if an earlier try got it."""
        self.begin(batches)
        return self.finish()

    def begin(self, batches: Mapping[TopicPartition, Batch]) -> None:
        """Sends one batch per partition, after the previous round is written. Sets producer id and sequence in place.

        Raises ValueError, with nothing sent, for bytes that are not one batch.
        """
        self.finish()
        if not batches:
            return
        if self._failed is not None:
            raise self._failed
        counts = {partition: _offsets_in(partition, batch) for partition, batch in batches.items()}
        with self._fatal():
            identity = self._ready_for(batches)
            for partition, batch in batches.items():
                self._stamp(partition, batch, counts[partition], identity)
            timeout_ms = int(self._cluster.options.request_timeout_s * 1000)
            question = _Produce(batches, timeout_ms, self.transactional_id)
            self._flight = Exchange(self._cluster, question, batches, "writing")

    def finish(self) -> dict[TopicPartition, int]:
        """Waits for the round in flight. Raises ClientError if it was not written, or if that is unknown."""
        flight, self._flight = self._flight, None
        with self._fatal():
            return {} if flight is None else flight.finish()

    def close(self) -> None:
        """Does not wait: batches in flight may be written or not."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.close()

    @contextmanager
    def _fatal(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            self._failed = error
            raise

    def _ready_for(self, partitions: Iterable[TopicPartition]) -> ProducerId:
        """Returns the producer id once these partitions may be written to."""
        if self.identity is None:
            self.identity = init_producer_id(self._cluster)
        return self.identity

    def _stamp(self, partition: TopicPartition, batch: Batch, count: int, identity: ProducerId) -> None:
        sequence = self._sequences.get(partition, 0)
        _PRODUCER.pack_into(batch, _PRODUCER_AT, identity.producer_id, identity.epoch, sequence)
        if self.transactional_id is not None:
            batch[_ATTRIBUTES_LOW_AT] |= TRANSACTIONAL
        seal(batch)
        self._sequences[partition] = (sequence + count) & _SEQUENCES


def _offsets_in(partition: TopicPartition, batch: Batch) -> int:
    """Returns the number of offsets in the batch. Raises ValueError unless the bytes are exactly one batch."""
    header = read_header(batch)
    check_header(header)
    if header.size != len(batch):
        raise ValueError(f"{partition}: {len(batch)} bytes, but the batch has {header.size}")
    return header.last_offset_delta + 1


class _Produce(Question[int]):
    response = ProduceResponse

    def __init__(self, batches: Mapping[TopicPartition, Batch], timeout_ms: int, transactional_id: str | None) -> None:
        self.versions = (3, _BY_NAME_MAX if transactional_id is None else _ADDED_BEFORE_MAX)
        self._batches = batches
        self._timeout_ms = timeout_ms
        self._transactional_id = transactional_id

    def request(self, partitions: Sequence[TopicPartition], leaders: dict[TopicPartition, Leader]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, TopicProduceData(name=partition.topic))
            data = PartitionProduceData(index=partition.partition, records=self._batches[partition])
            topic.partition_data.append(data)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=self._timeout_ms,
            topic_data=list(topics.values()),
        )

    def answers(self, response: ProduceResponse) -> Iterator[Answer[int]]:
        for topic in response.responses:
            for one in topic.partition_responses:
                code, offset = one.error_code, one.base_offset
                if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    code, offset = 0, UNKNOWN_OFFSET  # an earlier try wrote it, and its response was lost
                yield Answer(TopicPartition(topic.name, one.index), code, offset, one.error_message)

    def failure(self, answer: Answer[int]) -> ClientError | None:
        return ProducerFenced(f"writing to {answer.partition}", answer.code) if answer.code in FENCED else None
