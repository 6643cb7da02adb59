"""ElectLeaders (key 43): elects the preferred replicas of partitions, or any that is left.

Behaviour: there is one replica of each partition, and it leads. So there is never anything to do: a request that lists
partitions gets ELECTION_NOT_NEEDED for each, one for all partitions gets an empty response, as from Kafka.

Versions 0-2.
    1   unclean elections      2   flexible
Not done: elections; `timeout_ms`.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

PREFERRED, UNCLEAN = 0, 1


def elect_leaders(request: ElectLeadersRequest, call: Call, broker: "Broker") -> ElectLeadersResponse:
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = ElectLeadersResponse()
    for named in request.topic_partitions or ():
        result = ReplicaElectionResult(topic=named.topic)
        response.replica_election_results.append(result)
        topic = broker.topic(named.topic)
        for index in named.partitions:
            is_known = topic is not None and 0 <= index < topic.partition_count
            code = ErrorCode.ELECTION_NOT_NEEDED if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            result.partition_result.append(
                PartitionResult(partition_id=index, error_code=code, error_message=code.text)
            )
    return response


API = Api(ApiKey.ELECT_LEADERS, elect_leaders, frame_bytes_max=1 << 20)
