"""DescribeQuorum (key 55): the leader, voters and observers of the metadata log.

Behaviour: as of a Kafka with one node, under the name that Kafka has for the log, `__cluster_metadata`. This broker is
its leader and the only voter, and has caught up by now. As in Kafka, anything but that one partition in a request makes
all of its partitions unknown. The address of the controller is the one that the client came by.

Versions 0-2.
    1   times at which voters have caught up      2   messages of errors, addresses of controllers
Not done: ids of directories; as with voters that are configured, there are none.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

CLUSTER_METADATA = "__cluster_metadata"
CONTROLLER_LISTENER = "CONTROLLER"


def describe_quorum(request: DescribeQuorumRequest, call: Call, broker: "Broker") -> DescribeQuorumResponse:
    asked = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in request.topics]
    if asked != [(CLUSTER_METADATA, [0])]:
        return _unknown(asked)
    address = Listener(name=CONTROLLER_LISTENER, host=call.endpoint.host, port=call.endpoint.port)
    topic = QuorumTopic(topic_name=CLUSTER_METADATA, partitions=[_partition(call, broker)])
    return DescribeQuorumResponse(
        error_message="", topics=[topic], nodes=[Node(node_id=broker.node_id, listeners=[address])]
    )


def _partition(call: Call, broker: "Broker") -> QuorumPartition:
    log = broker.metadata_log.log
    voter = ReplicaState(
        replica_id=broker.node_id,
        log_end_offset=log.end_offset,
        last_fetch_timestamp=call.now_ms,
        last_caught_up_timestamp=call.now_ms,
    )
    return QuorumPartition(
        error_message="",
        leader_id=broker.node_id,
        leader_epoch=log.leader_epoch,
        high_watermark=log.high_watermark,
        current_voters=[voter],
    )


def _unknown(asked: list[tuple[str, list[int]]]) -> DescribeQuorumResponse:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        QuorumTopic(
            topic_name=name,
            partitions=[
                QuorumPartition(partition_index=index, error_code=code, error_message=code.text) for index in indexes
            ],
        )
        for name, indexes in asked
    ]
    return DescribeQuorumResponse(error_message="", topics=topics)


API = Api(ApiKey.DESCRIBE_QUORUM, describe_quorum, frame_bytes_max=1 << 20)
