"""Writes requests with keys, many in one transaction, and looks up those that were written. Blocking: used in a thread.

The package's head says why no key is written twice.
"""

import logging
import random
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import ClientError, ConnectionLost, GaveUp, ProducerFenced, Refused, TopicNotFound
from tailrace.client.produce import UNKNOWN_OFFSET
from tailrace.client.transactions import TransactionalProducer
from tailrace.facts.idempotency import KeyedRequest
from tailrace.gateway.idempotency.key_log import PARTITION, KeyLog
from tailrace.gateway.idempotency.table import KeyTable
from tailrace.gateway.kafka.batches import batches_of, placed_by_partition
from tailrace.protocol.errors import ErrorCode
from tailrace.records.record import Record, encode_batch

logger = logging.getLogger("tailrace.gateway")

TRANSACTIONAL_ID = "tailrace-gateway"
TRANSACTION_MS = 30_000
PATIENCE_S = 20.0  # for a cluster that cannot be reached, and for other gateways
PAUSES_S = (0.05, 0.25)
_OF_TOPICS = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class Keyed(NamedTuple):
    """A request with a key. `fingerprint` tells it from another one with the same key."""

    key: str
    fingerprint: str
    topic: str
    records: Sequence[Record]
    partitions: Sequence[int]


class Answered(NamedTuple):
    """What became of a request: its record, and whether it was there before."""

    request: KeyedRequest
    is_replayed: bool


class Failed(NamedTuple):
    """Nothing of a request was written, or that is unknown. `concerns_topic` tells an error of its topic from one of
    the cluster.
    """

    error: ClientError
    concerns_topic: bool = False


Outcome = Answered | Failed


class Store:
    def __init__(self, cluster: Cluster, keys_max: int, ms: int) -> None:
        """`cluster` reads committed records only, and gives up soon: the store tries again by itself."""
        self._cluster = cluster
        self._ms = ms
        self._keys_max = keys_max
        self._log = KeyLog(cluster, ms)
        self._producer: TransactionalProducer | None = None
        self._topic_id: bytes | None = None
        self._position = 0
        self._table = KeyTable(keys_max, ms)
        # For other threads to look at:
        self.keys = 0
        self.oldest_at: int | None = None
        self.transactions = 0

    def warm_up(self) -> None:
        """Ends a transaction that a gateway before this one has left open, and reads the keys; where there are none,
        does nothing. Raises ClientError.
        """
        if self._producer is None and self._log.exists():
            self._take_over()

    def handle(self, requests: Sequence[Keyed]) -> list[Outcome]:
        """Returns what became of each request. Their keys differ."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._handled(requests)
            except _Isolate as alone:
                if len(requests) > 1:
                    return [result for one in requests for result in self.handle([one])]
                return [Failed(alone.error, concerns_topic=True)]
            except ClientError as error:
                self._producer = None  # its transaction is completed or aborted when its id is taken over
                if not _may_pass(error) or time.monotonic() > give_up:
                    return [Failed(error)] * len(requests)
            time.sleep(random.uniform(*PAUSES_S))  # noqa: S311 - so that two gateways do not fence each other at once

    def _handled(self, requests: Sequence[Keyed]) -> list[Outcome]:
        if self._producer is None:
            self._take_over()
        self._table.forget(_now_ms())
        known = {request.key: found for request in requests if (found := self._find(request.key)) is not None}
        new = [request for request in requests if request.key not in known]
        written = {one.key: one for one in self._write(new)} if new else {}
        return [
            Answered(known[one.key], True) if one.key in known else Answered(written[one.key], False)
            for one in requests
        ]

    def _take_over(self) -> None:
        """Fences the producer before, which aborts its open transaction, and reads the keys that were written."""
        self._producer = None
        topic_id = self._log.open()
        producer = TransactionalProducer(self._cluster, TRANSACTIONAL_ID, TRANSACTION_MS)
        if topic_id != self._topic_id:
            self._table = KeyTable(self._keys_max, self._ms)
            self._position = self._log.position_at(_now_ms() - self._ms)
            self._topic_id = topic_id
        for offset, request in self._log.read(self._position):
            if request is None:
                self._position = offset
            else:
                self._table.add(request.key, offset, request.at)
        self._producer = producer
        self._note()

    def _find(self, key: str) -> KeyedRequest | None:
        offset = self._table.find(key)
        if offset is None:
            return None
        found = self._log.find(offset)
        return found if found is not None and found.key == key else None

    def _write(self, requests: Sequence[Keyed]) -> list[KeyedRequest]:
        """Writes messages and records of new keys in one transaction. Raises ClientError, and _Isolate."""
        assert self._producer is not None
        producer = self._producer
        by_partition = _by_partition(requests)
        try:
            producer.add_partitions([*by_partition, PARTITION])
            offsets = _write_messages(producer, by_partition)
        except ClientError as error:
            self._producer = None
            if _concerns_topic(error):
                raise _Isolate(error) from error
            raise
        now_ms = _now_ms()
        found = [
            KeyedRequest(
                one.key,
                now_ms,
                one.fingerprint,
                tuple((partition, offsets[number, n]) for n, partition in enumerate(one.partitions)),
            )
            for number, one in enumerate(requests)
        ]
        records = [Record(n, now_ms, one.record_key, one.encode()) for n, one in enumerate(found)]
        first = producer.send({PARTITION: encode_batch(records)})[PARTITION]
        producer.commit()
        self.transactions += 1
        self._remember(found, first)
        return found

    def _remember(self, requests: Sequence[KeyedRequest], first: int) -> None:
        if first == UNKNOWN_OFFSET:  # committed, but not by the try whose response came: read them again
            self._producer = None
            return
        for n, one in enumerate(requests):
            self._table.add(one.key, first + n, one.at)
        self._position = first + len(requests)
        self._note()

    def _note(self) -> None:
        self.keys, self.oldest_at = len(self._table), self._table.oldest_at


class _Isolate(Exception):
    """One of the requests was refused: each is tried in a transaction of its own."""

    def __init__(self, error: ClientError) -> None:
        super().__init__(str(error))
        self.error = error


_Place = tuple[int, int]  # number of a request, and number of a message in it


def _by_partition(requests: Sequence[Keyed]) -> dict[TopicPartition, list[tuple[_Place, Record]]]:
    found: dict[TopicPartition, list[tuple[_Place, Record]]] = {}
    for number, one in enumerate(requests):
        for partition, messages in placed_by_partition(one.partitions).items():
            of_partition = found.setdefault(TopicPartition(one.topic, partition), [])
            of_partition += [((number, n), one.records[n]) for n in messages]
    return found


def _write_messages(
    producer: TransactionalProducer, by_partition: dict[TopicPartition, list[tuple[_Place, Record]]]
) -> dict[_Place, int]:
    """Returns the offset of each message. Raises ClientError."""
    offsets: dict[_Place, int] = {}
    for batches in _rounds(by_partition):
        places = {partition: places for partition, (places, _) in batches.items()}
        firsts = producer.send({partition: encode_batch(records) for partition, (_, records) in batches.items()})
        for partition, first in firsts.items():
            if first == UNKNOWN_OFFSET:
                raise ConnectionLost(str(partition), "it has messages whose offsets are unknown")
            offsets.update(zip(places[partition], range(first, first + len(places[partition])), strict=True))
    return offsets


_Batch = tuple[list[_Place], list[Record]]


def _rounds(
    by_partition: dict[TopicPartition, list[tuple[_Place, Record]]],
) -> Iterator[dict[TopicPartition, _Batch]]:
    """Yields batches to send at once, one for each partition, until all are sent."""
    left: dict[TopicPartition, Iterator[_Batch]] = {}
    for partition, placed in by_partition.items():
        places = iter([place for place, _ in placed])
        batches = batches_of([record for _, record in placed])
        left[partition] = iter([([next(places) for _ in batch], batch) for batch in batches])
    while left:
        found = {partition: batch for partition, waiting in left.items() if (batch := next(waiting, None)) is not None}
        left = {partition: left[partition] for partition in found}
        if found:
            yield found


def _concerns_topic(error: ClientError) -> bool:
    """Whether a broker has refused messages of a topic, at once or until the time was over."""
    cause = error.__cause__ if isinstance(error, GaveUp) else error
    return isinstance(cause, TopicNotFound) or (isinstance(cause, Refused) and cause.code in _OF_TOPICS)


def _may_pass(error: ClientError) -> bool:
    if isinstance(error, TopicNotFound):
        return error.topic == PARTITION.topic  # it was deleted, and is created again
    return error.is_passing or isinstance(error, GaveUp | ProducerFenced)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
