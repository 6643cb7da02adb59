"""Writes messages, acknowledged by all replicas. Those of concurrent requests for one partition share a batch.

Each partition has a lane: one batch in flight, written by an idempotent producer of its own, and the messages that came
meanwhile for the next batch. A lane whose topic is slow or refused delays no other, because a topic has at most
TOPIC_THREADS of the threads.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Sequence

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import ClientError, Refused, TopicNotFound
from tailrace.client.produce import UNKNOWN_OFFSET, Producer
from tailrace.gateway.kafka.batches import BATCH_BYTES, batches_of, size_of
from tailrace.gateway.kafka.threads import Threads
from tailrace.records.record import Record, encode_batch
from tailrace.util import tracebacks

THREADS = 16
TOPIC_THREADS = 4
LANES_MAX = 1000
PRODUCER_IDLE_S = 600.0  # brokers forget producers that are idle for long


class Sender:
    """Used from the loop's thread alone."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._threads = Threads("send", THREADS, LANES_MAX)
        self._lanes: dict[TopicPartition, _Lane] = {}  # the one used last at the end
        self._running: Counter[str] = Counter()  # lanes that write, by topic
        self._queued: dict[str, deque[_Lane]] = {}  # lanes that have to wait for another one of their topic

    async def send(self, partition: TopicPartition, records: Sequence[Record]) -> list[int | None]:
        """Returns the offsets of the records, once they are written; None for one that is unknown. The offsets in the
        records do not count.

        Raises ClientError: then some of the records may have been written, unless there was only one, and it was
        refused.
        """
        lane = self._lane(partition)
        pieces = [_Piece(batch, asyncio.get_running_loop().create_future()) for batch in batches_of(records)]
        lane.waiting.extend(pieces)
        self._start(lane)
        offsets: list[int | None] = []
        results = await asyncio.gather(*(piece.written for piece in pieces), return_exceptions=True)
        for piece, result in zip(pieces, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            offsets += [None if result == UNKNOWN_OFFSET else result + n for n in range(len(piece.records))]
        return offsets

    def close(self) -> None:
        self._threads.close()

    def _lane(self, partition: TopicPartition) -> "_Lane":
        lane = self._lanes.pop(partition, None) or _Lane(partition)
        self._lanes[partition] = lane
        if len(self._lanes) > LANES_MAX:
            idle = next((one for one in self._lanes.values() if not (one.is_running or one.waiting)), None)
            if idle is not None:
                del self._lanes[idle.partition]
        return lane

    def _start(self, lane: "_Lane") -> None:
        topic = lane.partition.topic
        if lane.is_running:
            return
        lane.is_running = True
        if self._running[topic] >= TOPIC_THREADS:
            self._queued.setdefault(topic, deque()).append(lane)
            return
        self._running[topic] += 1
        lane.task = asyncio.create_task(self._write_all(lane))

    async def _write_all(self, lane: "_Lane") -> None:
        try:
            await self._write(lane, lane.next_pieces())
        finally:
            self._ended(lane)

    def _ended(self, lane: "_Lane") -> None:
        """Starts the next lane of the topic: the one that has waited longest, or this one again."""
        topic = lane.partition.topic
        lane.is_running = False
        self._running[topic] -= 1
        if lane.waiting:
            lane.is_running = True
            self._queued.setdefault(topic, deque()).append(lane)
        if queued := self._queued.get(topic):
            following = queued.popleft()
            if not queued:
                del self._queued[topic]
            self._running[topic] += 1
            following.task = asyncio.create_task(self._write_all(following))
        elif not self._running[topic]:
            del self._running[topic]

    async def _write(self, lane: "_Lane", pieces: "list[_Piece]") -> None:
        records = [record for piece in pieces for record in piece.records]
        try:
            offset = await self._threads.run(lambda: lane.write(self._cluster, records))
        except (Refused, TopicNotFound) as error:
            if len(pieces) == 1 or error.is_passing:
                _fail(pieces, error)
                return
            for piece in pieces:  # so that a message which is refused takes no other with it
                await self._write(lane, [piece])
        except Exception as error:  # noqa: BLE001 - for the requests to tell
            _fail(pieces, error)
        else:
            for piece in pieces:
                if not piece.written.done():
                    piece.written.set_result(offset)
                offset += len(piece.records) if offset != UNKNOWN_OFFSET else 0


class _Piece:
    """Records that go into one batch together."""

    __slots__ = ("records", "size", "written")

    def __init__(self, records: Sequence[Record], written: "asyncio.Future[int]") -> None:
        self.records = records
        self.size = sum(map(size_of, records))
        self.written = written  # the first offset


class _Lane:
    __slots__ = ("_producer", "_used_at", "is_running", "partition", "task", "waiting")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[_Piece] = deque()
        self.is_running = False
        self.task: asyncio.Task[None] | None = None
        self._producer: Producer | None = None
        self._used_at = 0.0

    def next_pieces(self) -> list[_Piece]:
        pieces = [self.waiting.popleft()]
        size = pieces[0].size
        while self.waiting and (size := size + self.waiting[0].size) <= BATCH_BYTES:
            pieces.append(self.waiting.popleft())
        return pieces

    def write(self, cluster: Cluster, records: Sequence[Record]) -> int:
        """Writes one batch, in a thread. Returns its first offset. Raises ClientError."""
        now = time.monotonic()
        producer = self._producer if now - self._used_at < PRODUCER_IDLE_S else None
        self._producer = None  # a producer that has failed cannot be used again
        producer = producer or Producer(cluster)
        numbered = [record._replace(offset=n) for n, record in enumerate(records)]
        offset = producer.send({self.partition: encode_batch(numbered)})[self.partition]
        self._producer, self._used_at = producer, now
        return offset


def _fail(pieces: "list[_Piece]", error: Exception) -> None:
    if isinstance(error, ClientError):  # that of another one is for the log
        tracebacks.forget(error)
    for piece in pieces:
        if not piece.written.done():
            piece.written.set_exception(error)
            piece.written.exception()  # its request may be gone, and not look
