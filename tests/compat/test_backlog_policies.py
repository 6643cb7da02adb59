"""What the four answers to a slow consumer do to producers and consumers: librdkafka's and Java's.

Each test is there twice: short, and behind the marker `slow` with the 100,000 messages and the minute that the manual
speaks of.
"""

import contextlib
import json
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat.brokers import BrokerProcess, against_kafka, new_broker
from compat.clients.confluent import ConfluentClient
from compat.contract import Client, Message
from compat.numbered_messages import meanwhile
from confluent_kafka import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.skipif(against_kafka(), reason="Kafka has no backlog policies")

GROUP = "billing"
LOSSES = "__tailrace_losses"
SETTINGS = {"log.retention.check.interval.ms": "200"}
SMALL = {"segment.bytes": str(1 << 20)}
WAIT_S = 60

both_clients = pytest.mark.parametrize(
    "client", ["confluent", pytest.param("java", marks=pytest.mark.needs("kafka"))], indirect=True
)
long = pytest.mark.parametrize(
    "count", [20_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with contextlib.closing(new_broker(tmp_path / "broker", settings=SETTINGS)) as broker:
        broker.start()
        yield broker


def messages(count: int, first: int = 0) -> Iterator[Message]:
    """Numbered, of 200 bytes."""
    for number in range(first, first + count):
        yield Message((b"%d" % number).ljust(200, b"."), b"key")


def produce(client: Client, topic: str, count: int) -> None:
    """In portions: clients wait for so long for the last of them."""
    for first in range(0, count, 20_000):
        client.produce(topic, messages(min(20_000, count - first), first), idempotent=True)


def policy(name: str, **limits: int) -> dict[str, str]:
    return {
        "tailrace.backlog.policy": name,
        "tailrace.backlog.groups": GROUP,
        **{f"tailrace.backlog.{limit}": str(value) for limit, value in limits.items()},
    }


class SlowConsumer:
    """A consumer of the group that reads and commits at the pace that it is told."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._topic = topic
        self.numbers: list[int] = []
        self.committed = 0
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
        self._consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def read(self, count: int, per_second: float | None = None) -> None:
        before, at_once = len(self.numbers), 1_000 if per_second is None else 100
        while (done := len(self.numbers) - before) < count:
            began = time.monotonic()
            found = self._consumer.consume(min(at_once, count - done), WAIT_S)
            assert found, f"nothing comes behind message {len(self.numbers)}"
            for message in found:
                assert message.error() is None, message.error()
                self.numbers.append(int((message.value() or b"").rstrip(b".")))
            self.committed = (found[-1].offset() or 0) + 1
            self._consumer.commit(offsets=[TopicPartition(self._topic, 0, self.committed)], asynchronous=False)
            if per_second is not None:  # what a busy machine has held up is not made up for in a burst
                time.sleep(max(0.0, len(found) / per_second - (time.monotonic() - began)))

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def consumer(broker: BrokerProcess, topic: str) -> Iterator[SlowConsumer]:
    with contextlib.closing(SlowConsumer(broker, topic)) as consumer:
        yield consumer


def losses(reference: ConfluentClient, topic: str) -> list[dict[str, Any]]:
    end = reference.offset(LOSSES, "latest") or 0 if LOSSES in reference.topics() else 0
    if not end:
        return []
    with reference.consumer(LOSSES, 0) as consumer:
        found = [json.loads(each.value or b"{}") for each in consumer.take(end)]
    return [loss for loss in found if loss["topic"] == topic]


def missed(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """What the group misses until it commits: from where it stood on, to the end of the last cut."""
    fallen = [loss["first"] for loss in found if loss["kind"] == "missed" and loss["group"] == GROUP]
    ends = [loss["last"] for loss in found if loss["kind"] == "cut"]
    return [(first, max(ends)) for first in fallen]


def until_start(reference: ConfluentClient, topic: str, is_there: Any) -> int:
    deadline = time.monotonic() + WAIT_S
    while not is_there(start := reference.offset(topic, "earliest") or 0):
        assert time.monotonic() < deadline, f"the topic begins at {start}"
        time.sleep(0.1)
    time.sleep(1)  # a deletion may have more steps
    return reference.offset(topic, "earliest") or 0


@both_clients
@long
def test_drop_names_exactly_what_is_missing(
    client: Client, reference: ConfluentClient, consumer: SlowConsumer, topic: str, count: int
) -> None:
    reference.set_configs(topic, SMALL)
    produce(client, topic, count)
    consumer.read(count // 10)
    reference.set_configs(topic, {**SMALL, "retention.bytes": str(1 << 20)})
    start = until_start(reference, topic, lambda start: start > count // 2)
    assert missed(losses(reference, topic)) == [(count // 10, start - 1)]
    consumer.read(
        count // 10 - len(consumer.numbers) % (count // 10)
    )  # of what was read before it was deleted, or behind


@both_clients
@long
def test_hold_misses_nothing_until_its_limit_and_then_the_ledger_says_what(
    client: Client, reference: ConfluentClient, consumer: SlowConsumer, topic: str, count: int
) -> None:
    held = {**SMALL, "retention.bytes": str(1 << 20), **policy("hold")}
    reference.set_configs(topic, held)
    produce(client, topic, count // 10)
    consumer.read(count // 10)
    produce(client, topic, count - count // 10)
    time.sleep(2)  # retention looks ten times
    assert (reference.offset(topic, "earliest") or 0) <= count // 10
    assert missed(losses(reference, topic)) == []
    reference.set_configs(topic, held | policy("hold", bytes=2 << 20))
    start = until_start(reference, topic, lambda start: start > count // 10)
    found = losses(reference, topic)
    assert missed(found) == [(count // 10, start - 1)]
    assert {loss["reason"] for loss in found if loss["kind"] == "missed"} == {"hold_cap"}


@both_clients
@pytest.mark.parametrize(
    ("count", "stopped_s"), [(20_000, 5), pytest.param(100_000, 30, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_reject_stops_producers_until_the_group_is_back_and_loses_nothing(
    client: Client,
    reference: ConfluentClient,
    consumer: SlowConsumer,
    topic: str,
    count: int,
    stopped_s: float,
) -> None:
    reference.set_configs(topic, policy("reject", bytes=1 << 20))
    with meanwhile(lambda: client.produce(topic, not_far_ahead(consumer, count), idempotent=True)) as done:
        consumer.read(count // 10)
        time.sleep(stopped_s)
        assert not done.is_set()
        stopped_at = reference.offset(topic, "latest") or 0
        assert stopped_at < count // 2
        consumer.read(count - count // 10)
    assert consumer.numbers == list(range(count))
    assert reference.offset(topic, "latest") == count


@both_clients
@pytest.mark.parametrize(
    ("count", "rate", "swing"),
    [(8_000, 500, 0.2), pytest.param(100_000, 1_000, 0.0, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_backpressure_makes_a_producer_as_fast_as_its_slow_consumer(
    client: Client, reference: ConfluentClient, consumer: SlowConsumer, topic: str, count: int, rate: int, swing: float
) -> None:
    """Within a fifth, over a minute. Over seconds, the backlog may also move by `swing` of its limit: producers slow
    down between 80 % and 100 % of it.
    """
    limit = 8 * rate  # messages: eight seconds of the consumer
    reference.set_configs(topic, policy("backpressure", bytes=200 * limit))
    ends: list[tuple[float, int, int]] = []
    with (
        meanwhile(lambda: client.produce(topic, not_far_ahead(consumer, count), idempotent=True)) as done,
        meanwhile(lambda: consumer.read(count, rate)),
    ):
        while not done.wait(0.5):
            ends.append((time.monotonic(), reference.offset(topic, "latest") or 0, consumer.committed))
    last_minute = [one for one in ends if one[2] > count // 10 and one[0] >= ends[-1][0] - 60]
    (began, first, read_first), (ended, last, read_last) = last_minute[0], last_minute[-1]
    produced, consumed = last - first, read_last - read_first
    print(f"produced {produced}, consumed {consumed}, in {ended - began:.0f} s")
    assert abs(produced - consumed) <= 0.2 * consumed + swing * limit
    assert consumer.numbers == list(range(count))


def not_far_ahead(consumer: SlowConsumer, count: int) -> Iterator[Message]:
    """Numbered messages. One that is 10,000 ahead of the consumer waits, as a client's buffer is full then."""
    for number, message in enumerate(messages(count)):
        while number - consumer.committed > 10_000:
            time.sleep(0.05)
        yield message


def flood(broker: BrokerProcess, topic: str, acks: str, stop: threading.Event) -> list[int]:
    """Sends numbered messages, as fast as they are taken, until `stop`. Returns the acknowledged ones."""
    acknowledged: list[int] = []

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None, error
        acknowledged.append(int(message.key()))

    settings = {
        "bootstrap.servers": broker.bootstrap,
        "acks": acks,
        "linger.ms": 2,
        "queue.buffering.max.messages": 500,
    }
    producer = Producer(settings)
    number = 0
    while not stop.is_set():
        try:
            producer.produce(topic, bytes(200), b"%d" % number, on_delivery=on_delivery)
            number += 1
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    return acknowledged


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("name", ["backpressure", "reject"])
def test_whatever_is_acknowledged_arrives(
    broker: BrokerProcess, reference: ConfluentClient, topic: str, name: str, acks: str
) -> None:
    reference.set_configs(topic, policy(name, bytes=100_000))
    stop, acknowledged = threading.Event(), list[int]()
    with meanwhile(lambda: acknowledged.extend(flood(broker, topic, acks, stop))):
        time.sleep(3)
        stop.set()
        reference.set_configs(topic, policy(name, bytes=1 << 30))
    deadline = time.monotonic() + WAIT_S  # what was sent without acks may still be on its way
    while (end := reference.offset(topic, "latest") or 0) < len(acknowledged):
        assert time.monotonic() < deadline, f"{end} of {len(acknowledged)} messages are there"
        time.sleep(0.1)
    with reference.consumer(topic, 0) as reader:
        found = {int(each.key or b"") for each in reader.take(end)}
    assert found >= set(acknowledged)


def rate_of(broker: BrokerProcess, topic: str, seconds: float) -> float:
    """How many messages a second a producer gets acknowledged that sends as fast as it can."""
    stop, acknowledged = threading.Event(), list[int]()
    with meanwhile(lambda: acknowledged.extend(flood(broker, topic, "1", stop))):
        time.sleep(seconds)
        stop.set()
    return len(acknowledged) / seconds


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["backpressure", "reject"])
def test_other_producers_keep_their_rate(
    broker: BrokerProcess, reference: ConfluentClient, topic: str, name: str
) -> None:
    """The median of five interleaved runs: alone, and beside a producer that is slowed or refused."""
    reference.create_topic("free")
    alone, beside = [], []
    for _ in range(5):
        alone.append(rate_of(broker, "free", 3))
        reference.set_configs(topic, policy(name, bytes=100_000))
        stop = threading.Event()
        with meanwhile(lambda stop=stop: flood(broker, topic, "1", stop)):
            time.sleep(1)  # until the limit is near
            beside.append(rate_of(broker, "free", 3))
            stop.set()
            reference.set_configs(topic, policy(name, bytes=1 << 40))
    ratio = statistics.median(beside) / statistics.median(alone)
    print(f"alone {statistics.median(alone):.0f} a second, beside {statistics.median(beside):.0f}: {ratio:.2f}")
    assert ratio >= 0.85
