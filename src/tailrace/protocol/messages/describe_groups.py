"""DescribeGroups (key 15): the state of groups and their members."""

from tailrace.protocol.fields import array, boolean, byte_string, int16, int32, string
from tailrace.protocol.message import message, structure
from tailrace.protocol.messages.metadata import NO_OPERATIONS


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(versions="3+")


@structure
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string(versions="4+", null="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = byte_string()
    member_assignment: bytes = byte_string()


@structure
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(versions="6+", null="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(versions="3+", default=NO_OPERATIONS)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
