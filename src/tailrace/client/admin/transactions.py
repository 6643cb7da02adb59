"""Transactions of a cluster, as operators see them: ListTransactions, DescribeTransactions, DescribeProducers."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tailrace.client.cluster import coordinators
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.coordinators import Kind
from tailrace.client.cluster.metadata import Leader, TopicPartition
from tailrace.client.cluster.retry import Retry
from tailrace.client.cluster.routing import Answer, Question, ask_leaders
from tailrace.client.errors import ClientError, refusal
from tailrace.client.options import Address
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tailrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tailrace.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

_VERSIONS = (0, 0)
_IDS_AT_ONCE = 500
_NOT_STARTED = -1


class Transaction(NamedTuple):
    """One transactional id. `state` is Kafka's word: `PrepareCommit`. `started_ms` is None if it has begun none."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


def transactions(cluster: Cluster, states: Iterable[str] = ()) -> list[Transaction]:
    """All transactional ids of all brokers, or those in these states."""
    retry = cluster.retry("listing transactions")
    cluster.refresh([], retry)
    wanted = sorted(set(states))
    return [
        transaction
        for address in cluster.brokers
        for transaction in _described(cluster, address, _listed(cluster, address, wanted, retry), retry)
        if not wanted or transaction.state in wanted  # it may have gone on since it was listed
    ]


def transaction(cluster: Cluster, transactional_id: str) -> Transaction | None:
    """Returns one transactional id, or None if its coordinator does not know it."""
    retry = cluster.retry(f"asking for the transaction of {transactional_id}")
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = coordinators.ask(
        cluster, Kind.TRANSACTION, transactional_id, request, DescribeTransactionsResponse, _VERSIONS, _trouble, retry
    )
    return next(iter(_transactions(answer)), None)


def first_offsets(
    cluster: Cluster, producer_id: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """The offset at which the open transaction of a producer begins in each partition; None if it has none there."""
    return ask_leaders(cluster, _FirstOffsets(producer_id), partitions, "asking for producers of partitions")


def _listed(cluster: Cluster, address: Address, states: list[str], retry: Retry) -> list[str]:
    while True:
        request = ListTransactionsRequest(state_filters=states)
        answer = cluster.ask_at(address, request, ListTransactionsResponse, retry)
        if not answer.error_code:
            return [one.transactional_id for one in answer.transaction_states]
        retry.pause(refusal("transactions cannot be listed", answer.error_code))


def _described(cluster: Cluster, address: Address, ids: list[str], retry: Retry) -> Iterator[Transaction]:
    """Asks the broker that has listed these ids. Leaves out ids that have expired since."""
    first = 0
    while first < len(ids):
        request = DescribeTransactionsRequest(transactional_ids=ids[first : first + _IDS_AT_ONCE])
        answer = cluster.ask_at(address, request, DescribeTransactionsResponse, retry)
        if (trouble := _trouble(answer)) is not None:
            retry.pause(trouble)
            continue
        yield from _transactions(answer)
        first += _IDS_AT_ONCE


def _trouble(answer: DescribeTransactionsResponse) -> ClientError | None:
    """Returns the first error, other than that an id is unknown."""
    for one in answer.transaction_states:
        if one.error_code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            return refusal(f"transactional id {one.transactional_id}", one.error_code)
    return None


def _transactions(answer: DescribeTransactionsResponse) -> list[Transaction]:
    return [_transaction(one) for one in answer.transaction_states if not one.error_code]


def _transaction(found: TransactionState) -> Transaction:
    return Transaction(
        found.transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        None if found.transaction_start_time_ms == _NOT_STARTED else found.transaction_start_time_ms,
        tuple(sorted(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions)),
    )


class _FirstOffsets(Question["int | None"]):
    response = DescribeProducersResponse
    versions = _VERSIONS

    def __init__(self, producer_id: int) -> None:
        self._producer_id = producer_id

    def request(
        self, partitions: Sequence[TopicPartition], leaders: dict[TopicPartition, Leader]
    ) -> DescribeProducersRequest:
        topics: dict[str, TopicRequest] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, TopicRequest(name=partition.topic))
            topic.partition_indexes.append(partition.partition)
        return DescribeProducersRequest(topics=list(topics.values()))

    def answers(self, response: DescribeProducersResponse) -> Iterator["Answer[int | None]"]:
        for topic in response.topics:
            for one in topic.partitions:
                first = next(
                    (
                        producer.current_txn_start_offset
                        for producer in one.active_producers
                        if producer.producer_id == self._producer_id and producer.current_txn_start_offset >= 0
                    ),
                    None,
                )
                yield Answer(TopicPartition(topic.name, one.partition_index), one.error_code, first, one.error_message)

    def failure(self, answer: "Answer[int | None]") -> ClientError | None:
        return None
