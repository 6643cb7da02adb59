"""Decides changes of topics: checks them against the existing ones, and returns metadata records.

Nothing changes here. The caller appends the records, and their replay changes the state.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import BROKER_OWNED_TOPICS, PARTITIONS_MAX, Topic, as_metric, why_not_a_name
from tailrace.broker.metadata.config_changes import checked_overrides
from tailrace.broker.metadata.records import ConfigChanged, MetadataRecord, PartitionsAdded, TopicCreated, TopicDeleted
from tailrace.broker.metadata.state import TOPIC_RESOURCE, Metadata
from tailrace.protocol.errors import ErrorCode

DEFAULT = -1  # for the number of partitions, or of replicas


def create_topic(
    metadata: Metadata,
    name: str,
    partition_count: int,
    overrides: Mapping[str, str | None],
    random_bytes: Callable[[int], bytes],
    beside: dict[str, str] | None = None,
) -> list[MetadataRecord]:
    """Returns the records that create a topic; the first is a TopicCreated. Raises Refused if it cannot be created.

    `beside` has the other topics that the same request creates, by their names in metrics; this one is added.
    """
    check_new_name(metadata, name, beside or {})
    _check_count(partition_count)
    configs = checked_overrides(overrides, metadata.configs)
    if beside is not None:
        beside[as_metric(name)] = name
    return new_topic(metadata, name, partition_count, configs, random_bytes)


def new_topic(
    metadata: Metadata,
    name: str,
    partition_count: int,
    configs: Mapping[str, str],
    random_bytes: Callable[[int], bytes],
    *,
    by_broker: bool = False,
) -> list[MetadataRecord]:
    """Returns the records that create a topic, without checks: also for internal topics, which the broker creates."""
    topic_id = _new_id(metadata, random_bytes)
    created: list[MetadataRecord] = [
        TopicCreated(topic_id=topic_id, name=name, partition_count=partition_count, is_broker_owned=by_broker)
    ]
    return created + [
        ConfigChanged(resource_type=TOPIC_RESOURCE, resource_name=name, key=key, value=value)
        for key, value in configs.items()
    ]


def check_new_name(metadata: Metadata, name: str, beside: Mapping[str, str]) -> None:
    """Raises Refused if no topic of this name can be created beside the existing ones and `beside`."""
    check_name(name)
    if name in metadata.topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    if name in BROKER_OWNED_TOPICS:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is reserved for an internal topic")
    if (other := metadata.colliding(name) or beside.get(as_metric(name))) is not None:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name!r} collides with {other!r}: metric names do not distinguish dots from underscores",
        )


def check_name(name: str) -> None:
    """Raises Refused for an invalid topic name."""
    if (reason := why_not_a_name(name)) is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def _check_count(partition_count: int) -> None:
    if not 1 <= partition_count <= PARTITIONS_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partition_count}"
        )


def _new_id(metadata: Metadata, random_bytes: Callable[[int], bytes]) -> bytes:
    """Returns an id that Kafka does not reserve, and that was never used."""
    while True:
        topic_id = random_bytes(16)
        is_reserved = int.from_bytes(topic_id) < 2
        if not is_reserved and topic_id not in metadata.topics_by_id and topic_id not in metadata.deleted:
            return topic_id


def check_replication_factor(factor: int) -> None:
    if factor not in (1, DEFAULT):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {factor}, but there is one broker: it must be 1, or -1 for the default",
        )


def check_placement(placed: Iterable[Sequence[int]], node_id: int) -> None:
    """Raises Refused unless every partition is assigned to this broker alone."""
    for index, brokers in enumerate(placed):
        if list(brokers) != [node_id]:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {index} is assigned to {list(brokers)[:10]}, but there is one broker, {node_id}",
            )


def delete_topic(topic: Topic) -> MetadataRecord:
    if topic.is_internal:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is internal and cannot be deleted")
    return TopicDeleted(topic_id=topic.topic_id, name=topic.name)


def add_partitions(topic: Topic, partition_count: int) -> MetadataRecord:
    if topic.is_internal:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic.name} is an internal topic: its partition count cannot be changed",
        )
    if partition_count <= topic.partition_count:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.name} has {topic.partition_count} partitions already, and cannot be changed to {partition_count}",
        )
    _check_count(partition_count)
    return PartitionsAdded(topic_id=topic.topic_id, partition_count=partition_count)
