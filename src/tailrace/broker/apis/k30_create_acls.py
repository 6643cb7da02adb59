"""CreateAcls (key 30): allows or denies operations.

Behaviour: SECURITY_DISABLED for each, as from a Kafka without an authorizer.

Versions 1-3.
    2   flexible
Not done: ACLs.
"""

from typing import TYPE_CHECKING

from tailrace.broker.apis.k29_describe_acls import NO_ACLS
from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def create_acls(request: CreateAclsRequest, call: Call, broker: "Broker") -> CreateAclsResponse:
    refusal = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_ACLS)
    return CreateAclsResponse(results=[refusal] * len(request.creations))


API = Api(ApiKey.CREATE_ACLS, create_acls, frame_bytes_max=1 << 20)
