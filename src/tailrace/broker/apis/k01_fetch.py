"""Fetch (key 1): reads batches from an offset on, or waits until there are enough.

Behaviour: consumers see only records that are on disk. A response has whole batches, beginning with the one that
contains the offset; at least one, even if it exceeds the limits. A consumer at the end waits for the next append, for
at most `max_wait_ms`; unflushed records are then flushed at once. `read_committed` ends at the last stable offset, and
lists the aborted transactions in between.

Versions 4-18.
    7   sessions (KIP-227): a request lists only changes              12  epochs are checked against the log
    13  topics by id                                                 16  the current leader in the response
Not done: followers (a replica id is ignored), preferred read replica and leader hints, as there is one replica; zstd is
also sent to clients with a version before 10, because batches are not inspected when they are sent.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.fetch.reads import BY_TOPIC_ID, Fetch
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def fetch(request: FetchRequest, call: Call, broker: "Broker") -> FetchResponse | DelayedResponse[FetchResponse]:
    by_id = call.version >= BY_TOPIC_ID
    try:
        wanted, session = broker.fetch_sessions.plan(request, by_id, call.now_ms, broker.random_bytes)
    except Refused as error:
        return FetchResponse(error_code=error.code, session_id=0)
    waiting = Fetch(request, wanted, session, call, broker)
    waiting.start()
    return waiting


API = Api(
    ApiKey.FETCH,
    fetch,
    elements_max=10_000,  # 80 ms
)
