"""AddOffsetsToTxn (key 25): adds the committed offsets of a group to a producer's transaction.

Behaviour: adds the group's partition of `__consumer_offsets`, like AddPartitionsToTxn. TxnOffsetCommit may follow.

Versions 0-4.
    2   PRODUCER_FENCED is understood      4   TRANSACTION_ABORTABLE is understood
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.transactions.state import ProducerIdentity
from tailrace.log.layout.names import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

FENCED_FROM = 2  # before, INVALID_PRODUCER_EPOCH


def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, call: Call, broker: "Broker"
) -> AddOffsetsToTxnResponse | DelayedResponse[AddOffsetsToTxnResponse]:
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)

    def decide() -> AddOffsetsToTxnResponse:
        index = broker.groups.partition_of_group(request.group_id, call.now_ms)
        partitions = [TopicPartition(OFFSETS_TOPIC, index)]
        broker.transactions.add_partitions(request.transactional_id, producer, partitions, version=0)
        return AddOffsetsToTxnResponse()

    def refuse(error: Refused) -> AddOffsetsToTxnResponse:
        is_unknown = error.code is ErrorCode.PRODUCER_FENCED and call.version < FENCED_FROM
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error.code)

    return broker.transactions.ask(request.transactional_id, call, decide, refuse)


API = Api(ApiKey.ADD_OFFSETS_TO_TXN, add_offsets_to_txn, frame_bytes_max=1 << 20)
