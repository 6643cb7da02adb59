"""A transactional producer on a raw connection: the second version of the protocol, one transaction after another.

As little as a client can do: one Produce with one batch and one EndTxn for each transaction, one request at a time.
"""

import time
from types import TracebackType

from bench.harness.raw_connection import RawConnection
from bench.harness.requests import Refused
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tailrace.records.record import Record, encode_batch

PRODUCE_VERSION = 12
MESSAGE = b"x" * 100
TIMEOUT_MS = 60_000
_TRANSACTION_KEY = 1
_SOON = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_PAUSE_S = 0.001  # before a request that came too soon is sent again


class TransactionalProducer:
    """Takes over its transactional id when it is entered."""

    def __init__(self, host: str, port: int, transactional_id: str, topic: str, partition: int = 0) -> None:
        self._connection = RawConnection(host, port)
        self._id = transactional_id
        self._topic = topic
        self._partition = partition
        self._producer_id = self._epoch = -1

    def __enter__(self) -> "TransactionalProducer":
        while self._asks_too_soon():
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def _asks_too_soon(self) -> bool:
        found = self._connection.ask(
            FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=[self._id]), FindCoordinatorResponse, 4
        )
        if found.coordinators[0].error_code:
            return True
        begun = self._connection.ask(
            InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS),
            InitProducerIdResponse,
            4,
        )
        if begun.error_code and begun.error_code not in _SOON:
            raise Refused(begun.error_code)
        self._producer_id, self._epoch = begun.producer_id, begun.producer_epoch
        return bool(begun.error_code)

    def transact(self, messages: int) -> None:
        """One transaction: sends a batch, and commits it."""
        self.begin(messages)
        self.end()

    def begin(self, messages: int, sequence: int = 0) -> None:
        while True:
            answer = self._connection.ask(self._produce(messages, sequence), ProduceResponse, PRODUCE_VERSION)
            code = answer.responses[0].partition_responses[0].error_code
            if not code:
                return
            _wait_or_raise(code)

    def end(self, *, commit: bool = True) -> None:
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=commit
        )
        while (ended := self._connection.ask(request, EndTxnResponse, 5)).error_code:
            _wait_or_raise(ended.error_code)
        self._producer_id, self._epoch = ended.producer_id, ended.producer_epoch

    def _produce(self, messages: int, sequence: int) -> ProduceRequest:
        now_ms = time.time_ns() // 1_000_000
        records = encode_batch(
            [Record(number, now_ms, None, MESSAGE) for number in range(messages)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        partition = PartitionProduceData(index=self._partition, records=records)
        data = [TopicProduceData(name=self._topic, partition_data=[partition])]
        return ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=30_000, topic_data=data)


def _wait_or_raise(code: int) -> None:
    if code not in _SOON:
        raise Refused(code)
    time.sleep(_PAUSE_S)


def commits_per_second(host: str, port: int, transactional_id: str, topic: str, messages: int, number: int) -> float:
    with TransactionalProducer(host, port, transactional_id, topic) as producer:
        producer.transact(messages)
        start = time.perf_counter()
        for _ in range(number):
            producer.transact(messages)
        return number / (time.perf_counter() - start)
