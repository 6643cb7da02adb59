"""InitProducerId (key 22): a producer id, by which retries are recognised; with a transactional id, by which a producer
is the only one that may write under it.

Behaviour: a producer without a transactional id gets a new producer id, with epoch 0. If it has an id already, and
requests a higher epoch (version 3 on), it gets a new id, too: its writes under the old one stay recognised, and nothing
is fenced. A producer with a transactional id gets the id's producer id with the next epoch, which fences the producer
before it and aborts its open transaction. The response waits up to 5 seconds for the end of a transaction that is being
completed.

Versions 0-5.
    3   a producer may send its id and epoch       4   PRODUCER_FENCED is understood
Not done: transactions that a coordinator elsewhere decides (KIP-939, version 6).
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused, code_of
from tailrace.broker.transactions.state import ProducerIdentity
from tailrace.log.layout.errors import StorageError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

FENCED_FROM = 4  # before, INVALID_PRODUCER_EPOCH
ID_LENGTH_MAX = 1_000  # characters of a transactional id: all ids are kept in memory


def init_producer_id(
    request: InitProducerIdRequest, call: Call, broker: "Broker"
) -> InitProducerIdResponse | DelayedResponse[InitProducerIdResponse]:
    has_id, has_epoch = request.producer_id != -1, request.producer_epoch != -1
    if request.transactional_id == "" or has_id is not has_epoch:
        return _refuse(ErrorCode.INVALID_REQUEST)
    if len(request.transactional_id or "") > ID_LENGTH_MAX:
        return _refuse(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _of_transactional_id(request.transactional_id, request, call, broker)
    try:
        producer_id = broker.producer_ids.take(call.now_ms)
    except StorageError as error:
        return _refuse(code_of(error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _of_transactional_id(
    transactional_id: str, request: InitProducerIdRequest, call: Call, broker: "Broker"
) -> InitProducerIdResponse | DelayedResponse[InitProducerIdResponse]:
    given = ProducerIdentity(request.producer_id, request.producer_epoch)
    timeout_ms = request.transaction_timeout_ms

    def decide() -> InitProducerIdResponse:
        begun = broker.transactions.begin_producer(transactional_id, given, timeout_ms)
        return InitProducerIdResponse(producer_id=begun.producer_id, producer_epoch=begun.epoch)

    def refuse(error: Refused) -> InitProducerIdResponse:
        is_unknown = error.code is ErrorCode.PRODUCER_FENCED and call.version < FENCED_FROM
        return _refuse(ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error.code)

    return broker.transactions.ask(transactional_id, call, decide, refuse)


def _refuse(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


API = Api(ApiKey.INIT_PRODUCER_ID, init_producer_id)
