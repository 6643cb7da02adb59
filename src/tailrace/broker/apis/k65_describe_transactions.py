"""DescribeTransactions (key 65): the state of the transactions of some producers.

Behaviour: there are no transactions yet, so every transactional id is unknown.

Versions 0.
Not done: transactions.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def describe_transactions(
    request: DescribeTransactionsRequest, call: Call, broker: "Broker"
) -> DescribeTransactionsResponse:
    states = [
        TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST,
            transactional_id=transactional_id,
        )
        for transactional_id in request.transactional_ids
    ]
    return DescribeTransactionsResponse(transaction_states=states)


API = Api(ApiKey.DESCRIBE_TRANSACTIONS, describe_transactions, frame_bytes_max=1 << 20)
