"""Writes records to the monitor's own topics, which it creates where they do not exist: compacted, one partition."""

import time
from collections.abc import Mapping

from tailrace.client.admin.topics import create_topic
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import TopicNotFound
from tailrace.client.produce import Producer
from tailrace.records.record import Record, encode_batch

BATCH_BYTES_MAX = 256 << 10
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "compression.type": "producer"}


class Publisher:
    """Keeps one record per key until it is written: an error loses none."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._producer: Producer | None = None
        self._waiting: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, value: bytes | None) -> None:
        """Queues a record for `flush`. None is a tombstone."""
        self._waiting[key] = value

    def flush(self) -> None:
        """Writes what was put. Raises ClientError; the next call then writes all of it again."""
        if not self._waiting:
            return
        try:
            self._cluster.topic(self._topic)
        except TopicNotFound:
            create_topic(self._cluster, self._topic, 1, CONFIGS)
        producer = self._producer or Producer(self._cluster)
        self._producer = None  # a producer that has failed cannot be used again
        sent: dict[bytes, bytes | None] = {}
        while piece := self._piece(sent):
            batch = _batch(piece)
            producer.send({TopicPartition(self._topic, 0): batch})
            sent.update(piece)
        self._waiting.clear()
        self._producer = producer

    def _piece(self, sent: Mapping[bytes, bytes | None]) -> dict[bytes, bytes | None]:
        piece: dict[bytes, bytes | None] = {}
        size = 0
        for key, value in self._waiting.items():
            if key in sent:
                continue
            size += len(key) + len(value or b"")
            if piece and size > BATCH_BYTES_MAX:
                break
            piece[key] = value
        return piece


def _batch(piece: Mapping[bytes, bytes | None]) -> bytearray:
    now_ms = time.time_ns() // 1_000_000
    return encode_batch(
        [Record(offset=n, timestamp=now_ms, key=key, value=value) for n, (key, value) in enumerate(piece.items())]
    )
