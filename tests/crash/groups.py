"""A group whose members read, commit and go on through everything that happens to their broker.

Every message is delivered to some member; an offset whose commit was answered is where the group goes on, or later; and
in the end the group has read, and committed, all there is.
"""

import contextlib
import random
import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    from crash.clients import Clients, Places

FASTER = {
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 200,
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 20,
}
CONSUMER_PROTOCOL = {"group.protocol": "consumer"}  # with which the broker has the timeouts
TIMEOUTS = ("session.timeout.ms", "heartbeat.interval.ms")
SECONDS = 60
NO_MEMBER_NOW = {  # what a member may be told when a broker comes back, or others come and go
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
}


class Group:
    """`come_and_go`: now and then a member leaves, and another one comes in its place; with `changes_protocol`, that
    one speaks the classic or the consumer protocol.
    """

    def __init__(
        self,
        clients: "Clients",
        name: str,
        configs: dict[str, Any],
        *,
        come_and_go: bool,
        changes_protocol: bool = False,
    ) -> None:
        self.clients = clients
        self.configs = clients.common | FASTER | {"group.id": name, "enable.auto.commit": False} | configs
        self.delivered: dict[tuple[str, int], set[int]] = {}
        self.committed: Places = {}  # by a commit that was answered
        self.ends: Places | None = None
        self.lock = threading.Lock()
        self.come_and_go = come_and_go
        self.changes_protocol = changes_protocol
        self.generations = 0
        self.is_abandoned = False
        self.members = [Member(self, f"{name} {number}") for number in range(2)]

    def start(self) -> None:
        for member in self.members:
            member.thread.start()

    def end(self, ends: "Places") -> None:
        """Waits until the members have read and committed everything."""
        self.ends = ends
        deadline = time.monotonic() + SECONDS
        while any(member.thread.is_alive() for member in self.members) and time.monotonic() < deadline:
            time.sleep(0.01)
        missing = {place: end - len(self.delivered.get(place, ())) for place, end in ends.items()}
        if any(missing.values()):
            self.clients.trouble.append(f"{self.configs['group.id']} was not given all: {missing}")
        self.abandon()
        with contextlib.closing(Consumer(self.configs_of_a_member(self.configs))) as consumer:
            for place in consumer.committed([TopicPartition(*place) for place in ends], timeout=SECONDS):
                if place.offset != ends[place.topic, place.partition]:
                    self.clients.trouble.append(f"{place} was committed, and not {ends[place.topic, place.partition]}")

    def configs_of_a_member(self, configs: dict[str, Any]) -> dict[str, Any]:
        has_own_timeouts = configs.get("group.protocol") != "consumer"
        return {key: value for key, value in configs.items() if has_own_timeouts or key not in TIMEOUTS}

    @property
    def is_done(self) -> bool:
        ends = self.ends
        return self.is_abandoned or (
            ends is not None and all(self.committed.get(place, 0) >= end for place, end in ends.items())
        )

    def abandon(self) -> None:
        self.is_abandoned = True
        for member in self.members:
            member.join()


class Member:
    def __init__(self, group: Group, name: str) -> None:
        self.name = name
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._group = group
        self._lot = random.Random(name)
        self._begun: set[tuple[str, int]] = set()  # partitions it has, and has been given messages of

    def _run(self) -> None:
        try:
            while not self._group.is_done:
                self._live()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test must know
            self._group.clients.trouble.append(f"{self.name}: {error!r}")

    def _live(self) -> None:
        leaves_at = time.monotonic() + (self._lot.uniform(2, 6) if self._group.come_and_go else 3600)
        configs = self._group.configs | {"auto.offset.reset": "earliest"}
        if self._group.changes_protocol and self._lot.random() < 0.5:
            configs |= CONSUMER_PROTOCOL
        with contextlib.closing(Consumer(self._group.configs_of_a_member(configs))) as consumer:
            # Without callbacks: a close that meets a rebalance can wait for one for ever, with the interpreter held.
            consumer.subscribe(["orders", "events", "clicks"])
            while not self._group.is_done and time.monotonic() < leaves_at:
                self._begun &= {(place.topic, place.partition) for place in consumer.assignment()}
                for message in consumer.consume(self._lot.randint(1, 300), 0.1):
                    self._take(message)
                if self._lot.random() < 0.3 or self._group.ends is not None:
                    self._commit(consumer)

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            if error.fatal() or (error.code() > 0 and error.code() not in NO_MEMBER_NOW):
                raise AssertionError(f"{self.name} was told {error!s}")
            return
        place = (message.topic(), message.partition())
        with self._group.lock:
            least = self._group.committed.get(place, 0)
            self._group.delivered.setdefault(place, set()).add(message.offset())
            missing = set(range(least, message.offset())) - self._group.delivered[place]
        if place not in self._begun and missing:
            self._group.clients.trouble.append(f"{self.name} was not given {sorted(missing)[:5]} of {place}")
        if place not in self._begun and message.offset() < least:
            self._group.clients.trouble.append(
                f"{self.name} is given {message.offset()} of {place}, {least} was committed"
            )
        self._begun.add(place)

    def _commit(self, consumer: Consumer) -> None:
        """What it was given so far, of the partitions that it has."""
        try:
            answers = consumer.commit(asynchronous=False)
        except KafkaException as error:
            code = error.args[0].code()
            if code > 0 and code not in NO_MEMBER_NOW:
                raise
            return
        with self._group.lock:
            for place in answers or ():
                if place.error is None:
                    key = (place.topic, place.partition)
                    self._group.committed[key] = max(place.offset, self._group.committed.get(key, 0))

    def join(self) -> None:
        if self.thread.ident is not None:
            self.thread.join(2 * SECONDS)
            assert not self.thread.is_alive(), f"{self.name} hangs"
