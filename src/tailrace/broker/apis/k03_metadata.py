"""Metadata (key 3): topics, the leaders of their partitions, and the address of the broker.

Behaviour: a topic that is requested by name and does not exist is created, unless the request or the broker's config
forbids it; it can be used once the response arrives. The part of the response about a topic is encoded once and kept,
so that ten thousand partitions cost a copy of their bytes.

Versions 0-13.
    1   null is every topic (in 0, an empty list is)      4   the request says whether to create
    8   authorized operations (10: of topics only)        10  topic ids in the response; 12: topics by id
    13  one error for the whole response (KIP-1102), which is never needed here
Not done: nothing.
"""

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import Topic, as_metric
from tailrace.broker.metadata.topic_changes import check_new_name, create_topic
from tailrace.log.layout.errors import StorageError
from tailrace.protocol.codec import Encoded, encode_structure
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.apis")

CREATED_MAX = 1_000  # per request; more are answered as unknown, and clients retry
NOT_ASKED = -(1 << 31)
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))  # all that Kafka has for topics
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def metadata(request: MetadataRequest, call: Call, broker: "Broker") -> MetadataResponse:
    if request.allow_auto_topic_creation and broker.configs.flag("auto.create.topics.enable"):
        _create_missing(request, call, broker)
    count, data = _topics(request, call, broker)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id, host=call.endpoint.host, port=call.endpoint.port, rack=broker.rack
            ),
        ],
        cluster_id=broker.metadata.cluster_id,
        controller_id=broker.node_id,
        topics=Encoded(count, data),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _wants_all(request: MetadataRequest, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _create_missing(request: MetadataRequest, call: Call, broker: "Broker") -> None:
    changes = []
    names = (wanted.name for wanted in request.topics or ())
    missing = {as_metric(name): name for name in names if name and name not in broker.metadata.topics}
    for name in islice(missing.values(), CREATED_MAX):  # of two colliding names, one
        try:
            partition_count = broker.configs.number("num.partitions")
            changes += create_topic(broker.metadata, name, partition_count, {}, broker.random_bytes)
        except Refused:
            continue  # reported with the topic
    if changes:
        try:
            broker.metadata_log.write(changes, call.now_ms)
        except StorageError as error:
            logger.error("%s: no topic was created", error)  # they are answered as unknown: clients retry


def _topics(request: MetadataRequest, call: Call, broker: "Broker") -> tuple[int, bytes]:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if not _wants_all(request, call.version):
        # Each topic once: a small request with one large topic many times would otherwise have a response of gigabytes.
        once = {(wanted.name, wanted.topic_id): wanted for wanted in request.topics or ()}
        fragments = [_fragment_of(wanted, call.version, operations, broker) for wanted in once.values()]
        return len(fragments), b"".join(fragments)
    topics = broker.metadata.topics
    key = (call.version, operations)
    return len(topics), broker.all_topics.get(key, lambda: b"".join(_all_fragments(call.version, operations, broker)))


def _all_fragments(version: int, operations: int, broker: "Broker") -> Iterator[bytes]:
    for topic in broker.metadata.topics.values():
        yield (
            _describe(topic, version, operations, broker)
            if operations != NOT_ASKED
            else _kept_fragment(topic, version, broker)
        )


def _fragment_of(wanted: MetadataRequestTopic, version: int, operations: int, broker: "Broker") -> bytes:
    if wanted.name is None or wanted.topic_id != ZERO_UUID:
        topic = broker.metadata.topics_by_id.get(wanted.topic_id)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = broker.metadata.topics.get(wanted.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        return _describe_missing(wanted, unknown, version, broker)
    if operations != NOT_ASKED:
        return _describe(topic, version, operations, broker)
    return _kept_fragment(topic, version, broker)


def _kept_fragment(topic: Topic, version: int, broker: "Broker") -> bytes:
    kept = topic.fragments.get(version)
    if kept is None:
        kept = topic.fragments[version] = _describe(topic, version, NOT_ASKED, broker)
    return kept


def _describe(topic: Topic, version: int, operations: int, broker: "Broker") -> bytes:
    node = [broker.node_id]
    described = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_shown_as_internal,
        topic_authorized_operations=operations,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=broker.node_id,
                leader_epoch=broker.leader_epoch(topic.peek(index)),
                replica_nodes=node,
                isr_nodes=node,
            )
            for index in range(topic.partition_count)
        ],
    )
    return encode_structure(described, MetadataResponse, version)


def _describe_missing(wanted: MetadataRequestTopic, unknown: ErrorCode, version: int, broker: "Broker") -> bytes:
    code = unknown
    if wanted.name is not None and unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        try:
            check_new_name(broker.metadata, wanted.name, {})
        except Refused as error:
            code = error.code
    missing = MetadataResponseTopic(
        error_code=code, name=wanted.name if version >= 12 else wanted.name or "", topic_id=wanted.topic_id
    )
    return encode_structure(missing, MetadataResponse, version)


API = Api(
    ApiKey.METADATA,
    metadata,
    elements_max=10_000,  # 80 ms
)
