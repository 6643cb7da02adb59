"""Requests offsets of many partitions at once."""

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from tailrace.cli.common.client import (
    AdminClient,
    ClusterMetadata,
    IsolationLevel,
    KafkaError,
    KafkaException,
    OffsetSpec,
    TopicPartition,
)
from tailrace.cli.common.connection import REQUEST_SECONDS, Connection

PARTITIONS_PER_REQUEST = 1_000  # librdkafka's time for a request grows with the square of its partitions

_PATIENCE_SECONDS = 5.0


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic} [{self.number}]"


class Offsets:
    """Looks up where partitions begin and end, and the offsets of times."""

    def __init__(self, connection: Connection, admin: AdminClient, *, committed: bool = False) -> None:
        self._connection = connection
        self._admin = admin
        self._committed = committed

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._ask(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Behind the last message; where only committed ones count, behind the last of those."""
        return self._ask(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def at(self, partitions: Iterable[Partition], timestamp: int) -> dict[Partition, int]:
        """The first message that is not older; -1 where there is none."""
        return self._ask(partitions, OffsetSpec.for_timestamp(max(0, timestamp)))

    def _ask(self, partitions: Iterable[Partition], spec: Any) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        wanted = list(partitions)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while wanted:
            failed: dict[Partition, KafkaError] = {}
            for partition, future in self._futures(wanted, spec).items():
                try:
                    found[partition] = future.result().offset
                except KafkaException as error:
                    failed[partition] = error.args[0]
            for partition, reason in failed.items():  # a topic just made may have no leader yet
                if not _may_pass(reason) or time.monotonic() > deadline:
                    raise self._connection.failure(reason, f"the offsets of {partition} cannot be had")
            wanted = list(failed)
            time.sleep(0.1 if wanted else 0)
        return found

    def _futures(self, partitions: list[Partition], spec: Any) -> dict[Partition, Any]:
        level = IsolationLevel.READ_COMMITTED if self._committed else IsolationLevel.READ_UNCOMMITTED
        found = {}
        for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            asked = {TopicPartition(*each): spec for each in partitions[start : start + PARTITIONS_PER_REQUEST]}
            futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_SECONDS)
            found.update({Partition(key.topic, key.partition): future for key, future in futures.items()})
        return found


def partitions_of(metadata: ClusterMetadata, topics: Iterable[str]) -> list[Partition]:
    return [Partition(topic, number) for topic in topics for number in sorted(metadata.topics[topic].partitions)]


def existing(partitions: Iterable[Partition], metadata: ClusterMetadata) -> list[Partition]:
    """Those that were not deleted since."""
    there = metadata.topics
    return sorted(at for at in partitions if at.topic in there and at.number in there[at.topic].partitions)


def _may_pass(error: KafkaError) -> bool:
    return error.code() in (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
    )
