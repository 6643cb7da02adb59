"""Real clients that work on through everything that happens to their broker, and note what they did and saw.

    writers   idempotent producers, and one with `acks=1`, which go on by themselves once the broker is back
    readers   of everything, by assignment, always at the end
    groups    of two, which share the work and commit; in one of them members come and go
    changes   topics made, filled and deleted under the same few names

`Clients.stop` waits until all that was sent is acknowledged and reads everything from the start; then `check` says
whether that can be.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from compat.brokers import BrokerProcess
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from crash.groups import CONSUMER_PROTOCOL, Group

from tailrace.testing.history import History, Promise, check

SECONDS = 60  # until all that was sent is acknowledged, on a busy machine
IN_QUEUE_MAX = 300
TOPICS = {"orders": 3, "events": 2, "clicks": 2}
CONFIGS = {"orders": {"segment.ms": "300"}, "clicks": {"segment.ms": "1000"}}  # so that logs are rolled
COMMON: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,  # a broker that is down is no news here
}
IDEMPOTENT = {"acks": "all", "enable.idempotence": True, "enable.gapless.guarantee": True}
FAST_ACKS = {"acks": 1}

Places = dict[tuple[str, int], int]  # an offset for each partition of some topics


class Clients:
    def __init__(self, broker: BrokerProcess, seed: object, *, acks_1: Promise) -> None:
        """`acks_1` is what a producer with `acks=1` is promised by what the broker will go through."""
        self.history = History()
        self.trouble: list[str] = []  # what no client should ever be told
        self.common = COMMON | {"bootstrap.servers": broker.bootstrap}
        self.admin = AdminClient(self.common)
        self.stopping = threading.Event()
        self.acknowledged = 0  # roughly: counted by several threads
        self._lot = random.Random(f"clients {seed}")
        self._broker = broker
        self._acks_1 = acks_1
        self._writers: list[Writer] = []
        self._readers: list[Reader] = []
        self.groups: list[Group] = []
        self.changes = Changes(self, self._lot.random())

    def make_topics(self) -> None:
        for topic, partitions in TOPICS.items():
            result(self.admin.create_topics([NewTopic(topic, partitions, 1, config=CONFIGS.get(topic, {}))])[topic])

    def start(self) -> None:
        acknowledged = {"linger.ms": 2, "compression.type": "none"} | IDEMPOTENT
        self._writers = [
            Writer(self, "a", ["orders"], acknowledged, Promise.IDEMPOTENT),
            Writer(self, "b", ["orders", "events"], acknowledged | {"linger.ms": 0}, Promise.IDEMPOTENT),
            Writer(self, "c", ["events", "orders"], acknowledged | {"compression.type": "zstd"}, Promise.IDEMPOTENT),
            Writer(self, "d", ["clicks", "events"], {"linger.ms": 1} | FAST_ACKS, self._acks_1),
        ]
        self._readers = [Reader(self, "x"), Reader(self, "y")]
        cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
        self.groups = [
            Group(self, "steady", {}, come_and_go=False),
            Group(self, "restless", cooperative, come_and_go=True),
            Group(self, "modern", CONSUMER_PROTOCOL, come_and_go=True),
            Group(self, "changing", {}, come_and_go=True, changes_protocol=True),
        ]
        for worker in (*self._writers, *self._readers, self.changes):
            worker.thread.start()
        for group in self.groups:
            group.start()

    def wait_until_busy(self) -> None:
        """Until messages are acknowledged again, which takes clients a moment after a start."""
        before, deadline = self.acknowledged, time.monotonic() + SECONDS
        while self.acknowledged == before and not self.trouble:
            assert time.monotonic() < deadline, f"no message was acknowledged in {SECONDS} s"
            time.sleep(0.005)

    def leader_epoch(self) -> int:
        return int(self._latest("orders", 0).leader_epoch)

    def end_offset(self, topic: str, partition: int) -> int:
        return int(self._latest(topic, partition).offset)

    def _latest(self, topic: str, partition: int) -> Any:
        place = TopicPartition(topic, partition)
        admin = self.new_admin()  # which gives no answer once nobody holds it
        return result(admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=SECONDS)[place])

    def new_admin(self) -> AdminClient:
        """One that knows nothing of connections and epochs before, unlike the one that makes and deletes topics."""
        return AdminClient(self.common)

    def stop(self) -> None:
        """Waits until all that is left is read, and stops all threads. Raises what happened in any of them."""
        self.stopping.set()
        for writer in self._writers:
            writer.end()
        self.changes.end()
        ends = {place: self.end_offset(*place) for place in partitions()}
        for reader in self._readers:
            reader.end(ends)
        for group in self.groups:
            group.end(ends)
        self._read_all(ends)
        self.changes.read_all()

    def abandon(self) -> None:
        """Stops all threads, whatever is left."""
        self.stopping.set()
        for worker in (*self._writers, *self._readers, self.changes, *self.groups):
            worker.abandon()

    def check(self) -> None:
        counts = self.history.counts()
        assert counts["acknowledged"], counts
        assert counts["read"], counts
        assert not self.trouble, self.trouble[:10]
        anomalies = check(self.history)
        assert not anomalies, "\n".join([f"{len(anomalies)} of {counts}", *map(str, anomalies[:20])])

    def _read_all(self, ends: Places) -> None:
        """Notes what is there; and whether any leader epoch follows a later one."""
        epochs = dict.fromkeys(ends, 0)
        for place, message in self.messages(ends):
            self.history.finds(place, message.offset(), message.value())
            if message.leader_epoch() < epochs[place]:
                self.trouble.append(f"at {message.offset()} of {place} epochs go back to {message.leader_epoch()}")
            epochs[place] = message.leader_epoch()

    def messages(self, ends: Places) -> Iterator[tuple[tuple[str, int], Any]]:
        """All that is in some partitions, from the start to the offset where each ends."""
        with contextlib.closing(self.consumer()) as consumer:
            consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in ends])
            positions, deadline = dict.fromkeys(ends, 0), time.monotonic() + SECONDS
            while any(positions[place] < end for place, end in ends.items()):
                assert time.monotonic() < deadline, f"there is nothing to read from {positions} to {ends}"
                for message in consumer.consume(500, 0.05):
                    if (error := message.error()) is None:
                        place = (message.topic(), message.partition())
                        yield place, message
                        positions[place] = message.offset() + 1
                    elif is_serious(error):
                        raise KafkaException(error)

    def consumer(self) -> Any:
        return Consumer(
            self.common
            | {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error", "check.crcs": True}
            | {"fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 20, "fetch.queue.backoff.ms": 20}
        )


def partitions() -> list[tuple[str, int]]:
    return [(topic, index) for topic, count in TOPICS.items() for index in range(count)]


class Worker:
    """Something that goes on in a thread until it is told to stop, and tells of what should not have happened."""

    def __init__(self, clients: Clients, name: str) -> None:
        self.name = name
        self.clients = clients
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test must know
            self.clients.trouble.append(f"{self.name}: {error!r}")

    def work(self) -> None:
        raise NotImplementedError

    def join(self) -> None:
        if self.thread.ident is not None:
            self.thread.join(2 * SECONDS)
            assert not self.thread.is_alive(), f"{self.name} hangs"

    def abandon(self) -> None:
        self.join()


class Writer(Worker):
    """Sends numbered messages to partitions by lot."""

    def __init__(
        self, clients: Clients, name: str, topics: list[str], configs: dict[str, Any], promise: Promise
    ) -> None:
        super().__init__(clients, name)
        self._lot = random.Random(f"{name} {clients._lot.random()}")
        self._promise = promise
        self._places = [(topic, index) for topic in topics for index in range(TOPICS[topic])]
        self._producer: Producer | None = Producer(
            clients.common
            | {"message.timeout.ms": 10 * SECONDS * 1000, "error_cb": self._error}
            | {"batch.num.messages": 100}
            | configs
        )

    def work(self) -> None:
        number, producer = 0, self._producer
        assert producer is not None
        while not self.clients.stopping.wait(self._lot.uniform(0.0, 0.05)):
            place = self._lot.choice(self._places)
            for _ in range(self._lot.randint(1, 20)):
                number += 1
                self._send(producer, place, number)
            producer.poll(0)
            while len(producer) > IN_QUEUE_MAX and not self.clients.stopping.is_set():
                producer.poll(0.02)

    def _send(self, producer: Producer, place: tuple[str, int], number: int) -> None:
        size = self._lot.choice([10, 50, 200, 200, 3000])
        value = b"%s %d " % (self.name.encode(), number) + b"." * self._lot.randint(0, size)
        send = self.clients.history.sends(self.name, place, value, self._promise)

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                send.acknowledge(message.offset() if message.offset() >= 0 else None)
                self.clients.acknowledged += 1
            else:
                self.clients.trouble.append(f"{self.name} was told {error!s} for {value[:20]!r} to {place}")

        producer.produce(place[0], value, partition=place[1], on_delivery=delivered)

    def _error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() > 0:
            self.clients.trouble.append(f"{self.name}: {error!r}")

    def end(self) -> None:
        self.join()
        left = 0
        try:
            left = self._producer.flush(SECONDS) if self._producer is not None else 0
        except (KafkaException, SystemError) as error:  # the latter is the client's own, after a fatal error
            self.clients.trouble.append(f"{self.name}: {error!r}")
        if left:
            self.clients.trouble.append(f"{self.name} has {left} messages that were not answered in {SECONDS} s")
            self.abandon()

    def abandon(self) -> None:
        self.join()
        self._producer = None  # it forgets what it has not sent


class Reader(Worker):
    """Reads all partitions from the start, and stays at their ends."""

    def __init__(self, clients: Clients, name: str) -> None:
        super().__init__(clients, name)
        self._ends: Places | None = None
        self._positions = dict.fromkeys(partitions(), 0)
        self._is_abandoned = False

    def work(self) -> None:
        with contextlib.closing(self.clients.consumer()) as consumer:
            consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in self._positions])
            while not self._is_done():
                for message in consumer.consume(500, 0.1):
                    self._take(message)

    def _is_done(self) -> bool:
        ends = self._ends
        return self._is_abandoned or (
            ends is not None and all(position >= ends[place] for place, position in self._positions.items())
        )

    def _take(self, message: Any) -> None:
        if (error := message.error()) is not None:
            if is_serious(error):
                raise AssertionError(f"{self.name} was told {error!s} for {message.topic()}-{message.partition()}")
            return
        place = (message.topic(), message.partition())
        self.clients.history.reads(self.name, place, message.offset(), message.value())
        self._positions[place] = message.offset() + 1

    def end(self, ends: Places) -> None:
        self._ends = ends
        deadline = time.monotonic() + SECONDS
        while self.thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.thread.is_alive():
            late = {place: (at, ends[place]) for place, at in self._positions.items() if at < ends[place]}
            self.clients.trouble.append(f"{self.name} does not get to the end: {late}")
        self.abandon()

    def abandon(self) -> None:
        self._is_abandoned = True
        self.join()


class Changes(Worker):
    """Topics made, filled and deleted under three names.

    A request whose answer never came was carried out or not. So for each name there is a set of what may be there:
    the number of a topic that was made under it, or None.
    """

    NAMES = ("made-0", "made-1", "made-2")

    def __init__(self, clients: Clients, seed: float) -> None:
        super().__init__(clients, "changes")
        self._lot = random.Random(seed)
        self._made = 0
        self.possible: dict[str, set[int | None]] = {name: {None} for name in self.NAMES}
        self.answered = 0

    def work(self) -> None:
        while not self.clients.stopping.wait(self._lot.uniform(0.02, 0.3)):
            name = self._lot.choice(self.NAMES)
            if None in self.possible[name]:
                self._make(name)
            elif len(self.possible[name]) > 1 or self._lot.random() < 0.5:
                self._delete(name)
            else:
                self._fill(name)

    def _make(self, name: str) -> None:
        self._made += 1
        self.possible[name].add(self._made)
        topics = [NewTopic(name, 2, 1)]
        code = self._asked(lambda: self.clients.admin.create_topics(topics, request_timeout=5)[name])
        if code == KafkaError.NO_ERROR:
            self.possible[name] = {self._made}
        elif code == KafkaError.TOPIC_ALREADY_EXISTS:
            self._exclude(name, {None, self._made})

    def _delete(self, name: str) -> None:
        before = self.possible[name]
        self.possible[name] = before | {None}
        code = self._asked(lambda: self.clients.admin.delete_topics([name], request_timeout=5)[name])
        if code == KafkaError.NO_ERROR:
            self.possible[name] = {None}
        elif code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._exclude(name, before - {None})

    def _asked(self, ask: Callable[[], "Future[Any]"]) -> int | None:
        """The code of the answer; None where there was none."""
        try:
            result(ask())
        except KafkaException as error:
            code = int(error.args[0].code())
            if code in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART):
                return code
            if code > 0 and code != KafkaError.REQUEST_TIMED_OUT:
                self.clients.trouble.append(f"changes: {error}")
            return None
        self.answered += 1
        return int(KafkaError.NO_ERROR)

    def _exclude(self, name: str, excluded: set[int | None]) -> None:
        left = self.possible[name] - excluded
        if not left:
            self.clients.trouble.append(f"{name} can only be {self.possible[name]}, and the broker says it is not")
        self.possible[name] = left or {None}

    def _fill(self, name: str) -> None:
        (number,) = self.possible[name]
        assert number is not None
        producer = Producer(self.clients.common | {"acks": "all"})
        for each in range(10):
            value = b"%s %d %d" % (name.encode(), number, self._lot.getrandbits(60))
            send = self.clients.history.sends("changes", (name, each % 2, number), value, Promise.KEPT)

            def delivered(error: KafkaError | None, message: Message, send: Any = send) -> None:
                if error is None:
                    send.acknowledge(message.offset())

            producer.produce(name, value, partition=each % 2, on_delivery=delivered)
        if producer.flush(5):
            producer.purge()
            producer.flush(1)

    def end(self) -> None:
        self.join()

    def read_all(self) -> None:
        """Notes what is left of the topics, under the numbers they were made with."""
        left = {name for name in self.NAMES if self._exists(name)}
        for name, possible in self.possible.items():
            if not possible & ({None} if name not in left else possible - {None}):
                self.clients.trouble.append(f"{name} should be one of {possible}, and is {name in left}")
            numbers = possible - {None} if name in left else set()
            for number in range(1, self._made + 1):
                for partition in range(2):
                    if number not in numbers:
                        self.clients.history.deletes((name, partition, number))
        self._read([(name, partition) for name in sorted(left) for partition in range(2)])

    def _exists(self, name: str) -> bool:
        return self.clients.new_admin().list_topics(name, timeout=SECONDS).topics[name].error is None

    def _read(self, places: list[tuple[str, int]]) -> None:
        ends = {place: self.clients.end_offset(*place) for place in places}
        for (name, partition), message in self.clients.messages(ends):
            number = int(message.value().split()[1])  # of another topic, if this one has what a deleted one had
            self.clients.history.finds((name, partition, number), message.offset(), message.value())


def is_serious(error: KafkaError) -> bool:
    """Whether it is more than that the broker is not there just now."""
    return bool(error.fatal() or error.code() > 0 or error.code() == KafkaError._AUTO_OFFSET_RESET)


def result(future: "Future[Any]") -> Any:
    return future.result(SECONDS)
