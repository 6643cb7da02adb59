"""EndTxn (key 26): commits or aborts a transaction.

Our client sends this to other brokers; ours does not support it yet, so it is not in `REQUESTS`.
From version 5 on each transaction has an epoch of its own, which is not supported here.
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
