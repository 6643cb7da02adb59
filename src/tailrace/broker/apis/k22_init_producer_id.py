"""InitProducerId (key 22): an id for a producer that wants its retries recognised.

Behaviour: every producer without a transactional id gets a new id, epoch 0. Who has one already, and asks for a higher
epoch (version 3 on), gets a new id too: what it wrote under the old one stays recognised, and nothing is fenced.

Versions 0-5.
    3   a producer may say which id and epoch it has       4   PRODUCER_FENCED is understood
Not done: transactional ids, which nobody may use here yet: clients try again on most other errors, and end on this one.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import code_of
from tailrace.log.layout.errors import StorageError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def init_producer_id(request: InitProducerIdRequest, call: Call, broker: "Broker") -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refuse(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = broker.producer_ids.take(call.now_ms)
    except StorageError as error:
        return _refuse(code_of(error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refuse(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


API = Api(ApiKey.INIT_PRODUCER_ID, init_producer_id)
