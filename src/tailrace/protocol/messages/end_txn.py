"""EndTxn (key 26): that a transaction is committed, or aborted.

Our client asks this of other brokers; ours does not answer it yet, and so it is not among `REQUESTS`.
From version 5 on each transaction has an epoch of its own, which is not spoken here.
"""

from tailrace.protocol.fields import boolean, int16, int32, int64, string
from tailrace.protocol.message import message


@message(key=26, versions="0-4", flexible="3+")
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(key=26, versions="0-4", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
