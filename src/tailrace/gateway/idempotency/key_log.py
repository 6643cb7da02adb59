"""The topic with the records of keys: created where it does not exist, and read. Blocking: used in a thread."""

from collections.abc import Iterator

from tailrace.client.admin.configs import alter_topic_configs, configs_of_topics
from tailrace.client.admin.topics import create_topic
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import OffsetOutOfRange, TopicNotFound
from tailrace.client.fetch_once import Fetched, fetch_once
from tailrace.client.offsets import latest, list_offsets
from tailrace.facts import idempotency
from tailrace.facts.document import UnreadableFact
from tailrace.facts.idempotency import KeyedRequest
from tailrace.records.record import decode_records

TOPIC = "__tailrace_idempotency"
PARTITION = TopicPartition(TOPIC, 0)
FETCH_BYTES = 1 << 20
_RETENTION = "retention.ms"


class KeyLog:
    """`cluster` reads committed records only."""

    def __init__(self, cluster: Cluster, ms: int) -> None:
        self._cluster = cluster
        self._ms = ms

    def exists(self) -> bool:
        try:
            self._cluster.topic(TOPIC)
        except TopicNotFound:
            return False
        return True

    def open(self) -> bytes:
        """Creates the topic, or makes it keep records for long enough. Returns its id. Raises ClientError."""
        if not self.exists():
            configs = {
                "cleanup.policy": "compact,delete",
                _RETENTION: str(2 * self._ms),
                "segment.ms": str(self._ms),
                "segment.bytes": str(64 << 20),
                "compression.type": "producer",
            }
            create_topic(self._cluster, TOPIC, 1, configs)
        else:
            kept = configs_of_topics(self._cluster, [TOPIC], [_RETENTION]).get(TOPIC, {}).get(_RETENTION)
            if kept is not None and 0 <= int(kept) < self._ms:
                alter_topic_configs(self._cluster, TOPIC, {_RETENTION: str(2 * self._ms)})
        return self._cluster.topic(TOPIC).topic_id

    def position_at(self, time_ms: int) -> int:
        """Returns the first offset of a record that was written then or later, or the end. Raises ClientError."""
        found = list_offsets(self._cluster, {PARTITION: time_ms})[PARTITION]
        return found.offset if found is not None else latest(self._cluster, [PARTITION])[PARTITION]

    def read(self, position: int) -> Iterator[tuple[int, KeyedRequest | None]]:
        """Yields records from a position to the end as it is now, and the position after each batch of them with None.
        Raises ClientError.
        """
        while True:
            fetched = fetch_once(self._cluster, PARTITION, position, FETCH_BYTES)
            for offset, request in _requests_in(fetched):
                if offset >= position:
                    yield offset, request
            position = fetched.next_offset
            yield position, None
            if position >= fetched.end:
                return

    def find(self, offset: int) -> KeyedRequest | None:
        """Returns the record at an offset; None if it was deleted. Raises ClientError."""
        try:
            fetched = fetch_once(self._cluster, PARTITION, offset, FETCH_BYTES)
        except OffsetOutOfRange:
            return None
        return next((request for at, request in _requests_in(fetched) if at == offset), None)


def _requests_in(fetched: Fetched) -> Iterator[tuple[int, KeyedRequest]]:
    for position, _ in fetched.batches:
        for record in decode_records(fetched.records, position):
            if record.value is not None:
                try:
                    yield record.offset, idempotency.decode(record.value)
                except UnreadableFact:  # by a later release, or by a program that is not a gateway
                    continue
