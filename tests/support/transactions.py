"""Transactional producers for tests of a broker, and readers of committed records.

    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    assert producer.commit().error_code == 0
    assert committed(broker) == [b"a"]

A producer uses the second version of transactions (Produce 12, EndTxn 5) unless `version` is 0: then it adds partitions
by AddPartitionsToTxn, as older clients do.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from brokers import (
    LocalBroker,
    a_batch,
    fetch_request,
    from_offset,
    only_partition,
    produce_request,
    resolved,
)

from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.metadata.internal_topics import records_of
from tailrace.broker.transactions import records
from tailrace.broker.transactions.state import NO_EPOCH, Transaction
from tailrace.log.layout.names import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tailrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tailrace.protocol.messages.end_txn import EndTxnRequest
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tailrace.records.batch import split
from tailrace.records.control import Marker, marker_of
from tailrace.records.record import decode_records

COPIER = "copier"
TRANSACTION_LOG = "__transaction_state"
COMMITTED_ONLY = 1  # isolation level
LATEST = -1
PRODUCE_VERSIONS = {0: 11, 2: 12}  # by the version of transactions
OFFSETS_VERSIONS = {0: 3, 2: 5}
END_VERSIONS = {0: 4, 2: 5}


class TransactionalProducer:
    """A client; without `begins` it has no producer id yet."""

    def __init__(
        self,
        broker: LocalBroker,
        transactional_id: str = COPIER,
        *,
        version: int = 2,
        timeout_ms: int = 60_000,
        begins: bool = True,
    ) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.version = version
        self.timeout_ms = timeout_ms
        self.identity = (-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        if begins:
            assert self.init().error_code == ErrorCode.NONE

    def init_request(self, identity: tuple[int, int] = (-1, -1)) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=identity[0],
            producer_epoch=identity[1],
        )

    def init(self, identity: tuple[int, int] = (-1, -1), version: int = 5) -> Any:
        return self._goes_on(self.broker.ask(self.init_request(identity), version))

    def _goes_on(self, answer: Any) -> Any:
        if answer.error_code == ErrorCode.NONE and answer.producer_id >= 0:
            if self.identity != (answer.producer_id, answer.producer_epoch):
                self.sequences.clear()
            self.identity = answer.producer_id, answer.producer_epoch
        return answer

    def add_request(self, *partitions: int, topic: str = "orders") -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

    def add(self, *partitions: int, topic: str = "orders", version: int = 3) -> int:
        """The error code, which all partitions have in common."""
        return only_code(self.broker.ask(self.add_request(*partitions, topic=topic), version))

    def batch(self, *values: bytes, partition: int = 0, topic: str = "orders", **fields: Any) -> bytearray:
        """The next batch for a partition."""
        name = TopicPartition(topic, partition)
        producer_id, epoch = self.identity
        known = {"producer_id": producer_id, "producer_epoch": epoch, "transactional": True}
        sequence = self.sequences.get(name, 0)
        self.sequences[name] = sequence + len(values)
        return a_batch(*values, now_ms=self.broker.now_ms, **{"base_sequence": sequence, **known, **fields})

    def produce_request(self, *values: bytes, partition: int = 0, topic: str = "orders", **fields: Any) -> Any:
        data = self.batch(*values, partition=partition, topic=topic, **fields)
        request = produce_request(data, topic, partition)
        request.transactional_id = self.transactional_id
        return request

    def produce(
        self, *values: bytes, partition: int = 0, topic: str = "orders", version: int | None = None, **fields: Any
    ) -> Any:
        """The partition's part of the response. In the first version the partition is added before."""
        if version is None:
            version = PRODUCE_VERSIONS[self.version]
            if self.version == 0:
                assert self.add(partition, topic=topic) == ErrorCode.NONE
        request = self.produce_request(*values, partition=partition, topic=topic, **fields)
        return only_partition(self.broker.ask(request, version))

    def commit_offset(self, offset: int, group_id: str = "billing", topic: str = "orders", partition: int = 0) -> int:
        """Commits an offset of a group in the transaction. Returns the error code."""
        return self.commit_offsets({(topic, partition): offset}, group_id)[topic, partition]

    def commit_offsets(
        self,
        offsets: Mapping[tuple[str, int], int],
        group_id: str = "billing",
        *,
        note: str | None = "",
        version: int | None = None,
        **member: Any,
    ) -> dict[tuple[str, int], int]:
        """Commits offsets of a group in the transaction. Returns the error code of each partition."""
        if self.version == 0:
            assert self.add_offsets(group_id) == ErrorCode.NONE
        version = OFFSETS_VERSIONS[self.version] if version is None else version
        request = self.offsets_request(offsets, group_id, note=note, **member)
        answer = self.broker.ask(request, version)
        return {
            (topic.name, one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions
        }

    def add_offsets(self, group_id: str = "billing") -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            group_id=group_id,
        )
        return int(self.broker.ask(request, 3).error_code)

    def offsets_request(
        self,
        offsets: Mapping[tuple[str, int], int],
        group_id: str = "billing",
        *,
        note: str | None = "",
        epoch: int = -1,
        **member: Any,
    ) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            committed_metadata=note,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
            **member,
        )

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        producer_id, epoch = self.identity
        return EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )

    def end(self, *, commit: bool, version: int | None = None) -> Any:
        version = END_VERSIONS[self.version] if version is None else version
        return self._goes_on(self.broker.ask(self.end_request(commit=commit), version))

    def commit(self) -> Any:
        return self.end(commit=True)

    def abort(self) -> Any:
        return self.end(commit=False)


class Waiting:
    """A request that was sent, and whose response may not be there yet."""

    def __init__(self, broker: LocalBroker, request: Any, version: int) -> None:
        self._broker = broker
        self._request = type(request)
        self._version = version
        answer = broker.begin(request, version)
        self.delayed = answer if isinstance(answer, DelayedResponse) else None
        self._answers = resolved(answer) if self.delayed is not None else [answer]

    @property
    def answer(self) -> Any:
        """As the client reads it; None while there is none."""
        answer: Any = None
        if self._answers:
            answer = self._broker.decode(self._answers[0], self._request, self._version)
        return answer

    @property
    def is_answered(self) -> bool:
        return bool(self._answers)

    def expire(self) -> None:
        assert self.delayed is not None
        self.delayed.expire()


def only_code(response: Any) -> int:
    """The error code that all partitions of an AddPartitionsToTxn have in common."""
    (code,) = {one.partition_error_code for topic in response.results_by_topic for one in topic.results_by_partition}
    return int(code)


def run_a_job(broker: LocalBroker) -> bool:
    """Runs the next job, or the next flush if there is none. Returns whether there was one."""
    if broker._jobs:
        job, finish = broker._jobs.popleft()
        job.run()
        finish()
        return True
    flush = broker.broker.flushes.next_job()
    if flush is not None:
        broker._run_flush(flush)
    return flush is not None


def known(broker: LocalBroker, transactional_id: str = COPIER) -> Transaction:
    return broker.broker.transactions.transactions[transactional_id]


def committed(broker: LocalBroker, partition: int = 0, topic: str = "orders") -> list[bytes]:
    """What a consumer of committed records finds in a partition, up to the last stable offset."""
    found: list[bytes] = []
    offset = int(broker.log(topic, partition).start_offset) if broker.partition(topic, partition).log else 0
    while True:
        response = broker.ask(
            fetch_request(from_offset(offset, partition), topic=topic, max_wait_ms=0, isolation_level=COMMITTED_ONLY),
            12,
        )
        answer = only_partition(response)
        assert answer.error_code == ErrorCode.NONE
        data = bytes(answer.records or b"")
        if not data:
            return found
        aborted = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
        values, offset = _decided(data, aborted)
        found += values


def _decided(data: bytes, aborted: Iterable[tuple[int, int]]) -> tuple[list[bytes], int]:
    """Drops the records of aborted transactions, as consumers do. Returns the others, and the next offset."""
    waiting, skipped, values, offset = list(aborted), set(), [], 0
    for position, header in split(data):
        offset = header.next_offset
        while waiting and waiting[0][0] <= header.last_offset:
            skipped.add(waiting.pop(0)[1])
        if header.is_control:
            if marker_of(data, position)[0] is Marker.ABORT:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            values += [record.value or b"" for record in decode_records(data, position)]
    return values, offset


def last_stable_offset(broker: LocalBroker, partition: int = 0, topic: str = "orders") -> int:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=COMMITTED_ONLY,
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
    )
    return int(only_partition(broker.ask(request, 7)).offset)


def logged(broker: LocalBroker) -> dict[str, Transaction]:
    """What a replay of the flushed transaction log gives, without the coordinator."""
    found: dict[str, Transaction] = {}
    for log in broker.broker.transactions.log.logs:
        assert int(log.high_watermark) == log.end_offset
        for record in records_of(log):
            saved = records.decode(record)
            assert saved is not None
            found.pop(saved.transactional_id, None)
            if saved.transaction is not None:
                found[saved.transactional_id] = saved.transaction
    return found


def check_replay(broker: LocalBroker) -> None:
    """Checks that a replay of the log gives the state of the coordinator."""
    now = {name: without_memory(one) for name, one in broker.broker.transactions.transactions.items()}
    assert logged(broker) == now


def without_memory(transaction: Transaction) -> Transaction:
    """Without what is not in the log."""
    return transaction._replace(last_epoch=NO_EPOCH)
