"""DeleteAcls (key 31): deletes the ACLs that match some filters."""

from tailrace.protocol.fields import array, int8, int16, int32, string
from tailrace.protocol.message import message, structure
from tailrace.protocol.messages.describe_acls import LITERAL


@structure
class DeleteAclsFilter:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(null="0+")
    pattern_type_filter: int = int8(versions="1+", default=LITERAL)
    principal_filter: str | None = string(null="0+")
    host_filter: str | None = string(null="0+")
    operation: int = int8()
    permission_type: int = int8()


@message(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@structure
class DeleteAclsMatchingAcl:
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(versions="1+", default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@structure
class DeleteAclsFilterResult:
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message(key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
