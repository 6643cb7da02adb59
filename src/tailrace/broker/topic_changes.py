"""Decisions about topics: what is asked for, checked against what there is, as records for the metadata log.

Nothing changes here. The caller appends the records, and their replay changes the state.
"""

from collections.abc import Callable, Mapping

from tailrace.broker.config_keys import InvalidConfig
from tailrace.broker.configs import topic_key
from tailrace.broker.errors import Refused
from tailrace.broker.metadata import TOPIC_RESOURCE, Metadata
from tailrace.broker.metadata_records import ConfigChanged, MetadataRecord, PartitionsAdded, TopicCreated, TopicDeleted
from tailrace.broker.topics import INTERNAL_TOPICS, PARTITIONS_MAX, Topic, why_not_a_name
from tailrace.protocol.errors import ErrorCode


def create_topic(
    metadata: Metadata,
    name: str,
    partition_count: int,
    overrides: Mapping[str, str | None],
    random_bytes: Callable[[int], bytes],
) -> list[MetadataRecord]:
    """Raises Refused where there can be no such topic."""
    if (reason := why_not_a_name(name)) is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name in metadata.topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {name!r} already")
    if name in INTERNAL_TOPICS:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is a name the broker keeps for itself")
    if (other := metadata.colliding(name)) is not None:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} and {other!r} are the same where dots become underscores"
        )
    if not 1 <= partition_count <= PARTITIONS_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partition_count}"
        )
    topic_id = _new_id(metadata, random_bytes)
    created: list[MetadataRecord] = [TopicCreated(topic_id=topic_id, name=name, partition_count=partition_count)]
    return created + [
        ConfigChanged(resource_type=TOPIC_RESOURCE, resource_name=name, key=key, value=value)
        for key, value in _checked(overrides).items()
    ]


def _new_id(metadata: Metadata, random_bytes: Callable[[int], bytes]) -> bytes:
    """Never one that Kafka keeps for itself, and never one that was used."""
    while True:
        topic_id = random_bytes(16)
        is_reserved = int.from_bytes(topic_id) < 2
        if not is_reserved and topic_id not in metadata.topics_by_id and topic_id not in metadata.deleted:
            return topic_id


def _checked(overrides: Mapping[str, str | None]) -> dict[str, str]:
    checked: dict[str, str] = {}
    for key, value in overrides.items():
        try:
            topic_key(key).parse(value)
        except InvalidConfig as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
        if value is not None:
            checked[key] = value
    return checked


def delete_topic(topic: Topic) -> MetadataRecord:
    if topic.is_internal:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is internal and cannot be deleted")
    return TopicDeleted(topic_id=topic.topic_id, name=topic.name)


def add_partitions(topic: Topic, partition_count: int) -> MetadataRecord:
    if topic.is_internal:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is internal: its partitions are the broker's")
    if partition_count <= topic.partition_count:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.name} has {topic.partition_count} partitions, and can only get more, not {partition_count}",
        )
    if partition_count > PARTITIONS_MAX:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"a topic has at most {PARTITIONS_MAX} partitions")
    return PartitionsAdded(topic_id=topic.topic_id, partition_count=partition_count)
