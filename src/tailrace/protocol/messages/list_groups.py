"""ListGroups (key 16): the groups of a broker, or those of some states and types."""

from tailrace.protocol.fields import array, int16, int32, string
from tailrace.protocol.message import message, structure


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = array(string, versions="4+")
    types_filter: list[str] = array(string, versions="5+")


@structure
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(versions="4+", ignorable=True)
    group_type: str = string(versions="5+", ignorable=True)


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
