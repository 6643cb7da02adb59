"""Sends messages, and tracks which lines are acknowledged.

The client's queue is bounded: when it is full, `send` waits, and so does the program that writes to our pipe. Lines of
several partitions are acknowledged in any order, so the account is of those that are not: the first of them is how
far a load surely got.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tailrace.cli.common import output
from tailrace.cli.common.client import KafkaError, KafkaException, Message, Producer
from tailrace.cli.common.connection import Connection
from tailrace.cli.common.messages import Row, of_message
from tailrace.cli.produce.bookmark import ResumePoint
from tailrace.cli.produce.input_lines import Line

_BATCH_BYTES = 1_000_000
_QUEUE_KB = 64 << 10
_SENDS_PER_POLL = 100
_WAIT_SECONDS = 0.2
_GIVE_UP_SECONDS = 5.0
# librdkafka pauses for at most this long, and a fifth more, before it sends a refused message again. Running out of
# retries a little before --timeout is how the broker's reason arrives: a message that times out has none.
_RETRY_PAUSE_MS = 1000
_RETRIES_PER_SECOND = 0.8
_RETRIES_MIN = 2


def properties(*, acks: str, compression: str, timeout: float, batch_bytes: int | None) -> dict[str, Any]:
    return {
        "acks": acks,
        "enable.idempotence": acks == "all",
        "partitioner": "murmur2_random",  # as Java's clients: a key has the same partition with each
        "compression.type": compression,
        "batch.size": min(_BATCH_BYTES, max(1, batch_bytes or _BATCH_BYTES)),
        "message.max.bytes": 1_000_000_000,  # the broker knows better
        "message.timeout.ms": int(timeout * 1000),
        "queue.buffering.max.kbytes": _QUEUE_KB,
        "queue.buffering.max.messages": 100_000,
        "reconnect.backoff.max.ms": 2000,
        "retry.backoff.max.ms": _RETRY_PAUSE_MS,
        "retries": max(_RETRIES_MIN, int(timeout * _RETRIES_PER_SECOND)),
    }


class Sender:
    """Sends lines as messages. Calls `meanwhile` again and again while it waits; if that returns true, a message that
    was not taken yet is given up.
    """

    def __init__(
        self, connection: Connection, producer: Producer, topic: str, begun: ResumePoint, meanwhile: Callable[[], bool]
    ) -> None:
        self.acknowledged = 0
        self.trouble: KafkaError | None = None  # why the first of the lines that failed did
        self.failed_line: int | None = None
        self.failed_message: Row | None = None
        self._connection = connection
        self._producer = producer
        self._topic = topic
        self._meanwhile = meanwhile
        self._taken = begun
        self._waiting: dict[int, int] = {}  # lines not acknowledged, in their order, and where they begin
        self._sends = 0
        self._said_away = False

    def send(self, row: Row, line: Line) -> None:
        """Takes one message; the next one may have to wait. Does nothing once a message has failed."""
        self._waiting[line.number] = line.position
        self._taken = ResumePoint(line.end, line.number)
        self._sends += 1
        if self._sends % _SENDS_PER_POLL == 0:
            self.poll()
        while self.trouble is None:
            try:
                self._produce(row, line.number)
                return
            except BufferError:
                self.poll(_WAIT_SECONDS)
                if self._meanwhile():
                    return
            except KafkaException as error:
                self._fail(line.number, error.args[0], row)

    def poll(self, seconds: float = 0) -> None:
        self._producer.poll(seconds)
        self._watch()

    def finish(self) -> None:
        """Waits until all is acknowledged or something failed."""
        while len(self._producer) and self.trouble is None:
            self._producer.flush(_WAIT_SECONDS)
            self._watch()
            self._meanwhile()
        if self.trouble is not None:
            self._producer.purge()
            self._producer.flush(_GIVE_UP_SECONDS)

    @property
    def progress(self) -> ResumePoint:
        """The point up to which everything is acknowledged, without a gap."""
        for number, position in self._waiting.items():
            return ResumePoint(position, number - 1)
        return self._taken

    @property
    def on_the_way(self) -> int:
        return len(self._waiting)

    def _produce(self, row: Row, number: int) -> None:
        options: dict[str, Any] = {}
        if row.partition is not None:
            options["partition"] = row.partition
        if row.timestamp is not None:
            options["timestamp"] = row.timestamp
        if row.headers:
            options["headers"] = list(row.headers)
        self._producer.produce(self._topic, row.value, row.key, on_delivery=partial(self._delivered, number), **options)

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            del self._waiting[number]
            self.acknowledged += 1
        elif error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._fail(number, error, of_message(message))

    def _fail(self, number: int, error: KafkaError, message: Row) -> None:
        if self.failed_line is None or number < self.failed_line:
            self.failed_line, self.trouble, self.failed_message = number, error, message

    def _watch(self) -> None:
        """Brokers that are away are waited for, and named once."""
        if self._connection.is_away and not self._said_away and len(self._producer):
            output.warn(f"no broker answers at {self._connection.bootstrap} ({self._connection.trouble}); waiting")
            self._said_away = True
