"""DescribeTopicPartitions (key 75): topics and their partitions, page by page.

Behaviour: in the order of their names, up to a number of partitions; the response then has a cursor, which the client
sends back for the next page. An empty list of topics is all of them. A topic that is deleted before its page is
requested is answered as unknown if it was named, and skipped otherwise.

Versions 0.
Not done: eligible leader replicas, as there is one replica.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tailrace.broker.apis.k03_metadata import TOPIC_OPERATIONS
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.topics import Topic, why_not_a_name
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, call: Call, broker: "Broker"
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor or Cursor()
    named = {topic.name for topic in request.topics}
    is_off_the_list = request.cursor is not None and bool(named) and cursor.topic_name not in named
    if is_off_the_list or cursor.partition_index < 0:
        return DescribeTopicPartitionsResponse(
            topics=[_missing(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics]
        )
    names = sorted(name for name in named or broker.metadata.topics if name >= cursor.topic_name)
    limit = broker.configs.number("max.request.partition.size.limit")
    left = max(1, min(request.response_partition_limit, limit))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        first = cursor.partition_index if name == cursor.topic_name else 0
        if not left:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        topic = broker.topic(name)
        if topic is None:
            response.topics.append(_missing(name, _why_missing(name)))
            continue
        last = min(topic.partition_count, first + left)
        response.topics.append(_described(topic, range(first, last), broker))
        left -= max(0, last - first)
        if last < topic.partition_count:
            response.next_cursor = Cursor(topic_name=name, partition_index=last)
            break
    return response


def _missing(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(name=name, error_code=code)


def _why_missing(name: str) -> ErrorCode:
    is_a_name = why_not_a_name(name) is None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_a_name else ErrorCode.INVALID_TOPIC_EXCEPTION


def _described(topic: Topic, indexes: Iterable[int], broker: "Broker") -> DescribeTopicPartitionsResponseTopic:
    node = [broker.node_id]
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_shown_as_internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=broker.node_id,
                leader_epoch=broker.leader_epoch(topic.peek(index)),
                replica_nodes=node,
                isr_nodes=node,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for index in indexes
        ],
    )


API = Api(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    describe_topic_partitions,
    elements_max=10_000,  # 60 ms
)
