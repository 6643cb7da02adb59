"""Fetch (key 1): batches from an offset on, or a wait until there are enough.

Behaviour: readers see what is on disk and nothing else. Whole batches, beginning with the one that holds the offset;
one at least, even if it is larger than the limits. A reader at the end is told of the next append, up to `max_wait_ms`
later; what is not flushed yet is then flushed at once. `read_committed` ends at the last stable offset, and names the
aborted transactions in between.

Versions 4-18.
    7   sessions (KIP-227): a request names only what changed        12  epochs are checked against the log
    13  topics by id                                                 16  where the leader is
Not done: followers (a replica id is ignored), preferred read replica and leader hints, there being one replica; zstd is
sent to those who speak a version before 10, too: nobody looks into a batch on its way out.
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
