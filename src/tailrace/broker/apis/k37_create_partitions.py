"""CreatePartitions (key 37): adds partitions to topics.

Behaviour: `count` is the new number of partitions, which must be larger than the old one. Topics are independent. If
the request assigns the new partitions, it must assign each of them to this broker. Internal topics are refused.

Versions 0-3.
    2   flexible      3   refused if a quota is used up (before, the client is throttled)
Not done: `timeout_ms`; the response is sent when the partitions are on disk.
"""

from collections import Counter
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.metadata.records import MetadataRecord
from tailrace.broker.metadata.topic_changes import add_partitions, check_placement
from tailrace.broker.quotas.mutations import Mutations
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


REFUSED_FROM = 3


def create_partitions(request: CreatePartitionsRequest, call: Call, broker: "Broker") -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    changes: list[MetadataRecord] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    mutations = Mutations(call, broker, refused_from=REFUSED_FROM)
    for wanted in request.topics:
        result = results[wanted.name] = CreatePartitionsTopicResult(name=wanted.name)
        try:
            if counts[wanted.name] > 1:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, f"{wanted.name!r} appears {counts[wanted.name]} times in the request"
                )
            change, added = _decide(wanted, broker)
            if not request.validate_only:
                mutations.add(added)
            changes.append(change)
        except Refused as error:
            result.error_code, result.error_message = error.code, error.message
    if changes and not request.validate_only:
        broker.metadata_log.write_or_refuse(changes, results.values(), call.now_ms)
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_time_ms, results=list(results.values()))


def _decide(wanted: CreatePartitionsTopic, broker: "Broker") -> tuple[MetadataRecord, int]:
    """Returns the change, and how many partitions it adds. Raises Refused."""
    topic = broker.topic(wanted.name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name!r}")
    change = add_partitions(topic, wanted.count)
    added = wanted.count - topic.partition_count
    if wanted.assignments is not None:
        if len(wanted.assignments) != added:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partitions are added, but {len(wanted.assignments)} are assigned",
            )
        check_placement((assignment.broker_ids for assignment in wanted.assignments), broker.node_id)
    return change, added


API = Api(
    ApiKey.CREATE_PARTITIONS,
    create_partitions,
    elements_max=10_000,  # 80 ms
)
