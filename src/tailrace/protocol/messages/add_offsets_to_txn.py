"""AddOffsetsToTxn (key 25): announces that a transaction will commit offsets of a group."""

from tailrace.protocol.fields import int16, int32, int64, string
from tailrace.protocol.message import message


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
