"""A transactional producer: batches of several partitions, and offsets of a group, that commit together or not at all.

    producer = TransactionalProducer(cluster, "me")     # fences the previous "me", and aborts its transaction
    producer.begin({...}); producer.begin({...})
    producer.commit_offsets("group", {...})
    producer.commit()                                   # or abort(); then the next transaction may begin

It uses the requests of before Kafka's second transaction protocol (KIP-890), which every broker with transactions
supports: a partition is added before it is written to, and an epoch lasts until the next producer takes over.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from tailrace.client.cluster import coordinators
from tailrace.client.cluster.cluster import CREATION_S, Cluster
from tailrace.client.cluster.coordinators import Kind
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.cluster.retry import Retry
from tailrace.client.errors import ClientError, ProducerFenced, TopicNotFound, refusal
from tailrace.client.groups import STABLE_SINCE, Committed
from tailrace.client.produce import FENCED, Producer, ProducerId
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tailrace.protocol.messages.offset_fetch import OffsetFetchRequest
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

T = TypeVar("T")

TIMEOUT_MS = 60_000
# A transaction ends some milliseconds after the response; the next one of the same producer waits for that.
_FIRST_PAUSE_S = 0.005
# From version 5 on, EndTxn and TxnOffsetCommit belong to the second protocol; the other requests are the same in both.
_VERSIONS = (0, 4)


def are_offered(cluster: Cluster) -> bool:
    """Whether the brokers support transactions, and can return the offsets of finished ones only."""
    needed = dict.fromkeys(
        (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest), 0
    )
    return cluster.offers({**needed, OffsetFetchRequest: STABLE_SINCE})


def take_over(cluster: Cluster, transactional_id: str, timeout_ms: int) -> ProducerId:
    """Returns the next identity of a transactional id. Fences the producer before, and aborts its open transaction."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    doing = f"taking over transactional id {transactional_id}"
    answer = _ask(
        cluster,
        transactional_id,
        request,
        InitProducerIdResponse,
        lambda answer: _trouble(doing, answer.error_code),
        cluster.retry(doing, _FIRST_PAUSE_S),
    )
    return ProducerId(answer.producer_id, answer.producer_epoch)


class TransactionalProducer(Producer):
    """Takes over its transactional id when it is made. The next producer with that id fences it: ProducerFenced.

    `timeout_ms` is how long a transaction may be open, from its first partition on.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        super().__init__(cluster)
        self.transactional_id: str = transactional_id
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._is_open = False
        self.identity: ProducerId = take_over(cluster, transactional_id, timeout_ms)

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions to the transaction before they are written to, in one request, and begins one if none is
        open.
        """
        with self._fatal():
            self._check_usable()
            self._ready_for(partitions)

    def add_group(self, group: str) -> None:
        """Adds the offsets of a group to the transaction, and begins one if none is open."""
        if group in self._groups:
            return
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=group,
        )
        doing = f"adding group {group} to a transaction"
        with self._fatal():
            self._check_usable()
            self._is_open = True
            self._ask(
                request,
                AddOffsetsToTxnResponse,
                lambda answer: _trouble(doing, answer.error_code),
                self._retry(doing),
            )
        self._groups.add(group)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commits offsets as part of the transaction. The group must have no members."""
        self.add_group(group)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            topics=_topics(offsets),
        )
        topics = ", ".join(topic.name for topic in request.topics)
        doing = f"committing offsets of group {group} at topic {topics}"

        def check(answer: TxnOffsetCommitResponse) -> ClientError | None:
            codes = (one.error_code for topic in answer.topics for one in topic.partitions)
            return next((_trouble(doing, code) for code in codes if code), None)

        with self._fatal():
            self._check_usable()
            retry = self._retry(doing)
            coordinators.ask(
                self._cluster, Kind.GROUP, group, request, TxnOffsetCommitResponse, _VERSIONS, check, retry
            )

    def commit(self) -> None:
        """Commits all batches and offsets since the last one. After an error the result is unknown to this producer: a
        new producer with the same id completes or aborts it.
        """
        with self._fatal():
            self._check_usable()
        self.finish()
        with self._fatal():
            self._end(committed=True)

    def abort(self) -> None:
        """Discards what was sent since the last commit. The next transaction may begin, unless an earlier call or this
        one has failed.
        """
        with suppress(ClientError):  # the next request reports it; no batch may follow the end marker
            self.finish()
        with self._fatal():
            self._end(committed=False)

    # Steps

    def _ready_for(self, partitions: Iterable[TopicPartition]) -> ProducerId:
        new = sorted(set(partitions) - self._added)
        if new:
            self._add(new)
            self._added.update(new)
        return self.identity

    def _add(self, partitions: list[TopicPartition]) -> None:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, AddPartitionsToTxnTopic(name=partition.topic))
            topic.partitions.append(partition.partition)
        request = AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            topics=list(topics.values()),
        )

        retry = self._retry("adding partitions to a transaction")

        def check(answer: AddPartitionsToTxnResponse) -> ClientError | None:
            for topic in answer.results_by_topic:
                for one in topic.results_by_partition:
                    code = one.partition_error_code
                    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and retry.elapsed > CREATION_S:
                        return TopicNotFound(topic.name, one.partition_index)
                    if code and code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        return _trouble(f"adding {topic.name}-{one.partition_index} to a transaction", code)
            return None

        self._is_open = True
        self._ask(request, AddPartitionsToTxnResponse, check, retry)

    def _end(self, *, committed: bool) -> None:
        if not self._is_open:
            return
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=committed,
        )
        doing = f"{'committing' if committed else 'aborting'} a transaction of {self.transactional_id}"
        self._ask(request, EndTxnResponse, lambda answer: _trouble(doing, answer.error_code), self._retry(doing))
        self._added.clear()
        self._groups.clear()
        self._is_open = False

    # Requests

    def _check_usable(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _retry(self, doing: str) -> Retry:
        return self._cluster.retry(doing, _FIRST_PAUSE_S)

    def _ask(self, request: Any, response: type[T], check: Callable[[T], ClientError | None], retry: Retry) -> T:
        return _ask(self._cluster, self.transactional_id, request, response, check, retry)


def _ask(
    cluster: Cluster,
    transactional_id: str,
    request: Any,
    response: type[T],
    check: Callable[[T], ClientError | None],
    retry: Retry,
) -> T:
    return coordinators.ask(cluster, Kind.TRANSACTION, transactional_id, request, response, _VERSIONS, check, retry)


def _trouble(doing: str, code: int) -> ClientError | None:
    if code in FENCED:
        return ProducerFenced(doing, code)
    return refusal(doing, code) if code else None


def _topics(offsets: Mapping[TopicPartition, Committed]) -> list[TxnOffsetCommitRequestTopic]:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for partition, one in sorted(offsets.items()):
        topic = topics.setdefault(partition.topic, TxnOffsetCommitRequestTopic(name=partition.topic))
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )
    return list(topics.values())
