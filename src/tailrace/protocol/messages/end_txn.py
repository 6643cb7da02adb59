"""EndTxn (key 26): commits or aborts a transaction. From version 5 on each transaction has an epoch of its own, and the
response has that of the next one.
"""

from tailrace.protocol.fields import boolean, int16, int32, int64, string
from tailrace.protocol.message import message


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(versions="5+", default=-1, ignorable=True)
    producer_epoch: int = int16(versions="5+", default=-1, ignorable=True)
