"""LeaveGroup (key 13): a member leaves; from version 3 on, an administrator may remove members."""

from tailrace.protocol.fields import array, int16, int32, string
from tailrace.protocol.message import message, structure


@structure
class MemberIdentity:
    member_id: str = string(versions="3+")
    group_instance_id: str | None = string(versions="3+", null="3+", default=None)
    reason: str | None = string(versions="5+", null="5+", default=None, ignorable=True)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string(versions="0-2")
    members: list[MemberIdentity] = array(MemberIdentity, versions="3+")


@structure
class MemberResponse:
    member_id: str = string(versions="3+")
    group_instance_id: str | None = string(versions="3+", null="3+")
    error_code: int = int16(versions="3+")


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, versions="3+")
