"""DescribeAcls (key 29): lists ACLs.

Behaviour: SECURITY_DISABLED, as from a Kafka without an authorizer: tools then report that there are no ACLs, rather
than that they do not understand this broker.

Versions 1-3.
    2   flexible
Not done: ACLs.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

NO_ACLS = "this broker has no authorization: every client may do everything"


def describe_acls(request: DescribeAclsRequest, call: Call, broker: "Broker") -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_ACLS)


API = Api(ApiKey.DESCRIBE_ACLS, describe_acls, frame_bytes_max=1 << 20)
