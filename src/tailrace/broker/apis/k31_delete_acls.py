"""DeleteAcls (key 31): removes the ACLs that match some filters.

Behaviour: SECURITY_DISABLED for each filter, as from a Kafka without an authorizer.

Versions 1-3.
    2   flexible
Not done: ACLs.
"""

from typing import TYPE_CHECKING

from tailrace.broker.apis.k29_describe_acls import NO_ACLS
from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def delete_acls(request: DeleteAclsRequest, call: Call, broker: "Broker") -> DeleteAclsResponse:
    refusal = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_ACLS)
    return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))


API = Api(ApiKey.DELETE_ACLS, delete_acls, frame_bytes_max=1 << 20)
