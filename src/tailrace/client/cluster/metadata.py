"""Brokers, topics and partition leaders of a cluster, as values."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.client.errors import Refused, TopicNotFound, refusal
from tailrace.client.options import Address
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER = -1
NO_EPOCH = -1
EPOCHS_SINCE = 9  # earlier versions of Metadata may return outdated epochs (KAFKA-7738)

_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Leader(NamedTuple):
    address: Address
    epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """`leaders` has a broker's id for each partition, or NO_LEADER. Brokers before Kafka 2.8 send no topic ids."""

    name: str
    topic_id: bytes
    is_internal: bool
    leaders: dict[int, int]
    epochs: dict[int, int]
    error_code: int = 0

    @property
    def has_id(self) -> bool:
        return self.topic_id != ZERO_UUID

    @property
    def is_missing(self) -> bool:
        return self.error_code in _MISSING

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in sorted(self.leaders)]

    def trouble(self) -> TopicNotFound | Refused | None:
        """The error that makes the topic unusable, if any."""
        if self.is_missing:
            return TopicNotFound(self.name)
        return refusal(f"topic {self.name}", self.error_code) if self.error_code else None


def brokers_in(response: MetadataResponse) -> dict[int, Address]:
    return {broker.node_id: (broker.host, broker.port) for broker in response.brokers}


def topics_in(response: MetadataResponse, version: int) -> Iterator[Topic]:
    for topic in response.topics:
        if topic.name is not None:
            yield _topic(topic.name, topic, version >= EPOCHS_SINCE)


def _topic(name: str, topic: MetadataResponseTopic, has_epochs: bool) -> Topic:
    partitions = topic.partitions
    return Topic(
        name,
        topic.topic_id,
        topic.is_internal,
        {partition.partition_index: partition.leader_id for partition in partitions},
        {partition.partition_index: partition.leader_epoch if has_epochs else NO_EPOCH for partition in partitions},
        topic.error_code,
    )
