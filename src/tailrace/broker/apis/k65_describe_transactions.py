"""DescribeTransactions (key 65): the state of the transactions of some producers.

Behaviour: as the transactional ids stand in the transaction log, once that is on disk. Many are processed in several
turns, so that other clients are served meanwhile.

Versions 0.
Not done: nothing.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, IncrementalResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.transactions.records import by_topic
from tailrace.broker.transactions.state import Transaction
from tailrace.protocol.codec import Encoded, encode_structure
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

PARTITIONS_A_STEP = 50


def describe_transactions(
    request: DescribeTransactionsRequest, call: Call, broker: "Broker"
) -> DelayedResponse[DescribeTransactionsResponse]:
    refusal = ErrorCode.NONE
    try:
        broker.transactions.begin(call)
    except Refused as error:
        refusal = error.code
    names = list(dict.fromkeys(request.transactional_ids))
    work = _describe_all(names, refusal, call.version, broker)
    return broker.transactions.when_all_safe(IncrementalResponse(work, broker.start_job))


def _describe_all(
    names: list[str], refusal: ErrorCode, version: int, broker: "Broker"
) -> Generator[None, None, DescribeTransactionsResponse]:
    fragments = []
    for transactional_id in names:
        described = _refused(transactional_id, refusal) if refusal else _describe(transactional_id, broker)
        fragments.append(encode_structure(described, DescribeTransactionsResponse, version))
        partitions = sum(len(topic.partitions) for topic in described.topics)
        for _ in range(1 + partitions // PARTITIONS_A_STEP):
            yield
    return DescribeTransactionsResponse(transaction_states=Encoded(len(fragments), b"".join(fragments)))


def _describe(transactional_id: str, broker: "Broker") -> TransactionState:
    if not transactional_id:
        return _refused(transactional_id, ErrorCode.INVALID_REQUEST)
    found = broker.transactions.transactions.get(transactional_id)
    if found is None:
        return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return _state(transactional_id, found)


def _state(transactional_id: str, found: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[TopicData(topic=one.topic, partitions=one.partition_ids) for one in by_topic(found.partitions)],
    )


def _refused(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(error_code=code, transactional_id=transactional_id)


API = Api(ApiKey.DESCRIBE_TRANSACTIONS, describe_transactions, frame_bytes_max=1 << 20)
