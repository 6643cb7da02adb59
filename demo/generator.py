"""A shop that is busy: page views and orders as they happen, some of them late and some malformed.

python -m demo.generator [BOOTSTRAP]      until ctrl-C
"""

import itertools
import random
import sys
import threading
import time

from confluent_kafka import KafkaError, Message, Producer

from demo.clients import silence
from demo.events import MALFORMED, ORDER, VIEW, Book, Event, window_of

TOPIC = "events"
EVENTS_PER_SECOND = 2_000
MALFORMED_EVERY, LATE_EVERY, ORDER_EVERY = 101, 8, 9
ON_THE_WAY_MS = 1_500  # at most, of an event that is in time
OFFLINE_MS = 24_000  # behind what is closed, at most, of one that is late
VISITORS = 500
STEP_SECONDS = 0.01
FLUSH_SECONDS = 15.0


class Generator(threading.Thread):
    """Sends at a steady pace until it is told that it is enough, and keeps the book."""

    def __init__(self, bootstrap: str, seed: int = 7) -> None:
        super().__init__(name="generator", daemon=True)
        self.book = Book()
        self.closed_until_ms = 0  # windows before are closed; set from the watermark of the traffic
        self._random = random.Random(seed)
        self._began_ms = now_ms()
        self._broken = itertools.cycle(MALFORMED)
        self._enough = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer(settings, logger=silence)

    def run(self) -> None:
        began = time.perf_counter()
        for number in itertools.count():
            while number >= (time.perf_counter() - began) * EVENTS_PER_SECOND:
                if self._enough.is_set():
                    return
                self._producer.poll(STEP_SECONDS)
            self._send(number)

    def _send(self, number: int) -> None:
        if number % MALFORMED_EVERY == MALFORMED_EVERY - 1:
            self.book.malformed += 1
            self._produce(next(self._broken)(self._event(now_ms()).value()))
            return
        closed = self.closed_until_ms
        first = max(window_of(self._began_ms), closed - OFFLINE_MS)
        is_late = number % LATE_EVERY == 0 and closed > first
        event = self._event(self._random.randrange(first, closed) if is_late else self._a_moment_ago())
        self.book.note(event, is_late)
        self._produce(event.value())

    def _a_moment_ago(self) -> int:
        return now_ms() - int(ON_THE_WAY_MS * self._random.random() ** 4)

    def _event(self, at_ms: int) -> Event:
        if self._random.randrange(ORDER_EVERY):
            return Event(VIEW, at_ms)
        return Event(ORDER, at_ms, self._random.randrange(500, 10_000))

    def _produce(self, value: bytes) -> None:
        visitor = b"visitor-%d" % self._random.randrange(VISITORS)
        self._producer.produce(TOPIC, value, visitor, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.book.failures.append(error.str())

    def finish(self) -> None:
        """Waits until every event is acknowledged, or has failed."""
        self._enough.set()
        self.join()
        if left := self._producer.flush(FLUSH_SECONDS):
            self.book.failures.append(f"{left} were not acknowledged in time")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    generator = Generator(sys.argv[1] if sys.argv[1:] else "localhost:9092")
    generator.start()
    try:
        while generator.is_alive():
            time.sleep(1)
            generator.closed_until_ms = window_of(generator.book.watermark_ms)
            print(f"\r{generator.book.sent:,} events sent to {TOPIC}; ctrl-C ends it", end="", flush=True)
    except KeyboardInterrupt:
        generator.finish()
        print()


if __name__ == "__main__":
    main()
