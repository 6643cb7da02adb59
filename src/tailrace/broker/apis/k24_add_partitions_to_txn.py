"""AddPartitionsToTxn (key 24): adds partitions to a producer's transaction, and opens it if it is not.

Behaviour: the response is sent when the partitions are on disk in the transaction log. If one of them does not exist,
none is added: the others get OPERATION_NOT_ATTEMPTED. While the transaction before is being completed, the response
waits for up to 5 seconds. A transaction has at most 10,000 partitions.

Versions 0-3.
    2   PRODUCER_FENCED is understood
Not done: versions 4 and 5, which only brokers send, to verify partitions. Clients that use the second version of
transactions send none of this: Produce adds partitions.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.transactions.state import ProducerIdentity
from tailrace.log.layout.names import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

FENCED_FROM = 2  # before, INVALID_PRODUCER_EPOCH

Codes = dict[TopicPartition, ErrorCode]


def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, call: Call, broker: "Broker"
) -> AddPartitionsToTxnResponse | DelayedResponse[AddPartitionsToTxnResponse]:
    wanted = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partitions]
    codes = {name: _code(name, broker) for name in wanted}
    if any(codes.values()):
        return _response(request, {name: code or ErrorCode.OPERATION_NOT_ATTEMPTED for name, code in codes.items()})
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)

    def decide() -> AddPartitionsToTxnResponse:
        broker.transactions.add_partitions(request.transactional_id, producer, wanted, version=0)
        return _response(request, dict.fromkeys(wanted, ErrorCode.NONE))

    def refuse(error: Refused) -> AddPartitionsToTxnResponse:
        is_unknown = error.code is ErrorCode.PRODUCER_FENCED and call.version < FENCED_FROM
        code = ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error.code
        return _response(request, dict.fromkeys(wanted, code))

    return broker.transactions.ask(request.transactional_id, call, decide, refuse)


def _code(name: TopicPartition, broker: "Broker") -> ErrorCode:
    partition = broker.partition(*name)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if partition.topic.is_internal else ErrorCode.NONE


def _response(request: AddPartitionsToTxnRequest, codes: Codes) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions_to_txn, elements_max=10_500)  # as many as a transaction has
