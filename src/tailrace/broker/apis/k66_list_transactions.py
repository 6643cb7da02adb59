"""ListTransactions (key 66): all transactions, or those in some states, of some producers, or older than a time.

Behaviour: there are no transactions yet. States that Kafka does not have are listed in the response.

Versions 0-2.
    1   by how long they have been open      2   by a pattern of transactional ids
Not done: transactions.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
        "Dead",
    }
)


def list_transactions(request: ListTransactionsRequest, call: Call, broker: "Broker") -> ListTransactionsResponse:
    unknown = [state for state in dict.fromkeys(request.state_filters) if state not in STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)


API = Api(ApiKey.LIST_TRANSACTIONS, list_transactions, frame_bytes_max=1 << 20)
