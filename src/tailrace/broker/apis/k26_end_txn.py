"""EndTxn (key 26): commits or aborts a producer's transaction.

Behaviour: the response is sent when the markers are on disk in all partitions, so a client that reads committed records
next finds what it has committed; Kafka responds once it is decided. From version 5 on the response has the epoch of the
next transaction. A repeated request gets the same response.

Versions 0-5.
    2   PRODUCER_FENCED is understood      4   TRANSACTION_ABORTABLE is understood
    5   an epoch for each transaction
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, MappedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.transactions.state import VERSION_2, ProducerIdentity
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

FENCED_FROM = 2  # before, INVALID_PRODUCER_EPOCH
VERSION_2_FROM = 5


def end_txn(request: EndTxnRequest, call: Call, broker: "Broker") -> EndTxnResponse | DelayedResponse[EndTxnResponse]:
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    version = VERSION_2 if call.version >= VERSION_2_FROM else 0

    def decide() -> EndTxnResponse | DelayedResponse[EndTxnResponse]:
        ended = broker.transactions.end(request.transactional_id, producer, commit=request.committed, version=version)
        return MappedResponse(ended, _response) if isinstance(ended, DelayedResponse) else _response(ended)

    def refuse(error: Refused) -> EndTxnResponse:
        is_unknown = error.code is ErrorCode.PRODUCER_FENCED and call.version < FENCED_FROM
        return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error.code)

    return broker.transactions.ask(request.transactional_id, call, decide, refuse)


def _response(identity: ProducerIdentity) -> EndTxnResponse:
    return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


API = Api(ApiKey.END_TXN, end_txn, frame_bytes_max=1 << 20)
