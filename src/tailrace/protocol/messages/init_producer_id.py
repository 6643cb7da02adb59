"""InitProducerId (key 22): an id for an idempotent or transactional producer."""

from tailrace.protocol.fields import int16, int32, int64, string
from tailrace.protocol.message import message


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = string(null="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(versions="3+", default=-1)
    producer_epoch: int = int16(versions="3+", default=-1)


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
