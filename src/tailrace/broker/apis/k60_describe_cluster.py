"""DescribeCluster (key 60): the brokers, the controller, the cluster's id.

Behaviour: there is one broker, and it is the controller; its address is the one that the client has connected to.

Versions 0-2.
    1   endpoint types: a request for controllers gets an error      2   fenced brokers: there are none
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.apis.k03_metadata import CLUSTER_OPERATIONS, NOT_ASKED
from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

BROKERS, CONTROLLERS = 1, 2


def describe_cluster(request: DescribeClusterRequest, call: Call, broker: "Broker") -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(error_code=code, error_message=code.text)
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
    return DescribeClusterResponse(
        cluster_id=broker.metadata.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id, host=call.endpoint.host, port=call.endpoint.port, rack=broker.rack
            )
        ],
        cluster_authorized_operations=operations,
    )


API = Api(ApiKey.DESCRIBE_CLUSTER, describe_cluster)
