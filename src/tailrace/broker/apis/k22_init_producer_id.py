"""InitProducerId (key 22): a producer id, by which retries are recognised.

Behaviour: every producer without a transactional id gets a new id, with epoch 0. A producer that has an id, and
requests a higher epoch (version 3 on), gets a new id, too: its writes under the old one stay recognised, and nothing is
fenced.

Versions 0-5.
    3   a producer may send its id and epoch       4   PRODUCER_FENCED is understood
Not done: transactional ids. Each client that has one is logged once, and refused: with INVALID_REQUEST from version 5
on, for which Java's clients point to the broker's log; before that with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because
librdkafka retries for ever on most other errors.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import code_of
from tailrace.broker.core.unsupported import TRANSACTIONS
from tailrace.log.layout.errors import StorageError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

JAVA_FROM = 5  # no version of librdkafka asks with this one


def init_producer_id(request: InitProducerIdRequest, call: Call, broker: "Broker") -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refuse(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        broker.unsupported.refuse(*TRANSACTIONS, call)
        points_to_log = call.version >= JAVA_FROM
        code = ErrorCode.INVALID_REQUEST if points_to_log else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _refuse(code)
    try:
        producer_id = broker.producer_ids.take(call.now_ms)
    except StorageError as error:
        return _refuse(code_of(error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refuse(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


API = Api(ApiKey.INIT_PRODUCER_ID, init_producer_id)
