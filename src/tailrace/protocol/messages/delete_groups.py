"""DeleteGroups (key 42): deletes groups without members, with all their offsets."""

from tailrace.protocol.fields import array, int16, int32, string
from tailrace.protocol.message import message, structure


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = array(string)


@structure
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
