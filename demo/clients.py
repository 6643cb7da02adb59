"""The two clients of act one, as anyone would write them with confluent-kafka; each in a thread, noting what it saw.

Neither knows that the broker will be killed. Going on after that is left to the client library.
"""

import json
import logging
import threading
import time
from collections import deque

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from demo.ledger import Ledger

TOPIC = "orders"
EVENTS_PER_SECOND = 10_000
STEP_SECONDS = 0.005
AT_ONCE_MAX = 200  # orders, before answers are looked at
FLUSH_SECONDS = 15.0

silence = logging.getLogger("demo.clients")
silence.addHandler(logging.NullHandler())
silence.propagate = False


class Writer(threading.Thread):
    """Sends orders 0, 1, 2 …, at a steady pace, until it is told that it is enough; then waits for the last answer."""

    def __init__(self, bootstrap: str, ledger: Ledger) -> None:
        super().__init__(name="writer", daemon=True)
        self.ledger = ledger
        self.sent_at: list[float] = []
        self._enough = threading.Event()
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 500,
        }
        self._producer = Producer(settings, logger=silence)

    def run(self) -> None:
        began = time.perf_counter()
        while not self._enough.is_set():
            due = int((time.perf_counter() - began) * EVENTS_PER_SECOND)
            for _ in range(min(due - self.ledger.sent, AT_ONCE_MAX)):
                self._send(self.ledger.sent)
            self._producer.poll(0 if self.ledger.sent < due else STEP_SECONDS)
        self._producer.flush(FLUSH_SECONDS)

    def _send(self, event: int) -> None:
        value = json.dumps({"order": event, "amount": event * 7 % 100})
        try:
            self._producer.produce(TOPIC, value, b"customer-%d" % (event % 1000), on_delivery=self._delivered)
        except BufferError:  # the queue is full: the broker is away
            self._producer.poll(STEP_SECONDS)
        else:
            self.sent_at.append(time.perf_counter())
            self.ledger.sent += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.ledger.has_failed(error.str())
            return
        self.ledger.was_acknowledged(event_of(message), message.offset() or 0)

    def finish(self) -> None:
        """Waits until every order is acknowledged, or has failed."""
        self._enough.set()
        self.join()
        for _ in range(len(self._producer)):
            self.ledger.has_failed("not answered in time")


class Reader(threading.Thread):
    """Reads the topic from its beginning, as it grows."""

    def __init__(self, bootstrap: str, ledger: Ledger, writer: Writer) -> None:
        super().__init__(name="reader", daemon=True)
        self.ledger = ledger
        self.last: deque[Message] = deque(maxlen=3)
        self.delays: deque[float] = deque(maxlen=2000)  # from the sending of an order to its arrival
        self._writer = writer
        self._enough = threading.Event()
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",  # librdkafka wants a name; the broker never hears of it
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # a jump would be a loss
            "reconnect.backoff.max.ms": 500,
        }
        self._consumer = Consumer(settings, logger=silence)

    def run(self) -> None:
        self._consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        while not self._enough.is_set():
            first = self._consumer.poll(STEP_SECONDS)
            found = [] if first is None else [first, *self._consumer.consume(1000, 0)]
            messages = [message for message in found if message.error() is None]
            now = time.perf_counter()
            for message in messages:
                event = event_of(message)
                self.ledger.was_read(event, message.offset() or 0)
                self.delays.append(now - self._writer.sent_at[event])
            self.last.extend(messages[-3:])
        self._consumer.close()

    def finish(self, seconds: float) -> None:
        """Waits until all that was acknowledged is read, unless that takes longer than it may."""
        deadline = time.monotonic() + seconds
        while len(self.ledger.read) < self.ledger.acknowledged and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)  # for what should not come: a duplicate
        self._enough.set()
        self.join()


def event_of(message: Message) -> int:
    return int(json.loads(message.value() or b"{}")["order"])


class PacedProducer(threading.Thread):
    """Sends numbered messages at a steady pace, to all partitions in turn, until it is told that it is enough."""

    def __init__(self, bootstrap: str, topic: str, word: str, *, per_second: int, partitions: int = 1) -> None:
        super().__init__(name=topic, daemon=True)
        self.sent = 0
        self._topic, self._word, self._per_second, self._partitions = topic, word, per_second, partitions
        self._enough = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5}, logger=silence)

    def run(self) -> None:
        began = time.monotonic()
        while not self._enough.is_set():
            while self.sent < (time.monotonic() - began) * self._per_second:
                self._producer.produce(self._topic, f"{self._word} {self.sent}", partition=self.sent % self._partitions)
                self.sent += 1
            self._producer.poll(0.01)
        self._producer.flush(10)

    def finish(self) -> None:
        self._enough.set()
        self.join()
