"""CreateAcls (key 30): adds ACLs, which allow or deny operations."""

from tailrace.protocol.fields import array, int8, int16, int32, string
from tailrace.protocol.message import message, structure
from tailrace.protocol.messages.describe_acls import LITERAL


@structure
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(versions="1+", default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation)


@structure
class AclCreationResult:
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
