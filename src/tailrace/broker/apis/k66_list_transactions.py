"""ListTransactions (key 66): all transactions, or those in some states, of some producers, or older than a time.

Behaviour: as the transactional ids stand in the transaction log, once that is on disk. Many are processed in several
turns, so that other clients are served meanwhile. States that Kafka does not have are listed in the
response. A pattern of transactional ids must match the whole id; it is in the syntax of RE2, whose time is linear.

Versions 0-2.
    1   by how long they have been open      2   by a pattern of transactional ids
Not done: nothing.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, IncrementalResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.patterns import full_match
from tailrace.broker.transactions.state import Transaction
from tailrace.protocol.codec import Encoded, encode_structure
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

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
IDS_A_STEP = 10

IsWanted = Callable[[str, Transaction], bool]


def list_transactions(
    request: ListTransactionsRequest, call: Call, broker: "Broker"
) -> ListTransactionsResponse | DelayedResponse[ListTransactionsResponse]:
    unknown = [state for state in dict.fromkeys(request.state_filters) if state not in STATES]
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        broker.transactions.begin(call)
        is_wanted = _filter(request, call)
    except Refused as error:
        response.error_code = error.code
        return response
    work = _list(response, is_wanted, call.version, broker)
    return broker.transactions.when_all_safe(IncrementalResponse(work, broker.start_job))


def _filter(request: ListTransactionsRequest, call: Call) -> IsWanted:
    """Returns a function of whether a transaction is to be listed. Raises Refused for an invalid pattern."""
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    longest_ms, pattern = request.duration_filter, request.transactional_id_pattern
    matches = full_match(pattern) if pattern else None

    def is_wanted(transactional_id: str, found: Transaction) -> bool:
        return (
            (not states or found.state.label in states)
            and (not producer_ids or found.producer_id in producer_ids)
            and (longest_ms < 0 or call.now_ms - found.started_ms > longest_ms)
            and (matches is None or matches(transactional_id))
        )

    return is_wanted


def _list(
    response: ListTransactionsResponse, is_wanted: IsWanted, version: int, broker: "Broker"
) -> Generator[None, None, ListTransactionsResponse]:
    fragments = []
    for number, (transactional_id, found) in enumerate(list(broker.transactions.transactions.items())):
        if is_wanted(transactional_id, found):
            listed = TransactionState(
                transactional_id=transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.label,
            )
            fragments.append(encode_structure(listed, ListTransactionsResponse, version))
        if number % IDS_A_STEP == 0:
            yield
    response.transaction_states = Encoded(len(fragments), b"".join(fragments))
    return response


API = Api(ApiKey.LIST_TRANSACTIONS, list_transactions, frame_bytes_max=1 << 20)
