"""Heartbeat (key 12): a member reports that it is alive, and learns of a rebalance."""

from tailrace.protocol.fields import int16, int32, string
from tailrace.protocol.message import message


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", null="3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
