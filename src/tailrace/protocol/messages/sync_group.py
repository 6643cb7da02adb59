"""SyncGroup (key 14): the leader of a group distributes its assignment to the members."""

from tailrace.protocol.fields import array, byte_string, int16, int32, string
from tailrace.protocol.message import message, structure


@structure
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = byte_string()


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", null="3+", default=None)
    protocol_type: str | None = string(versions="5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = string(versions="5+", null="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(versions="5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = string(versions="5+", null="5+", default=None, ignorable=True)
    assignment: bytes = byte_string()
