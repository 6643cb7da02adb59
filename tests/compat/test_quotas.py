"""Real clients over their quotas: they go at the rate that they may, and know that they were held back."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from compat.brokers import HOST, BrokerProcess, new_broker
from compat.clients.confluent import ConfluentClient
from compat.conftest import running
from confluent_kafka import Consumer, Producer, TopicPartition
from raw_client import RawClient

from tailrace.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData

CLIENT = "held-back"
BYTES = 1000  # of a message
PRODUCED, CONSUMED = 200_000, 400_000  # a second
WARM_S = 1.0  # the window, which may be used at once
SECONDS = 5.0  # so that another such window, which a client that was held up for a second may use, is a fifth of it
AHEAD = 100


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One with the shortest window that there is."""
    settings = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
    with running(new_broker(tmp_path_factory.mktemp("quotas") / "broker", settings=settings)) as broker:
        yield broker


class Rate:
    """Bytes a second, without what came in the beginning."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.bytes = 0
        self.seconds = 0.0

    def add(self, size: int) -> None:
        now = time.monotonic()
        self.first = self.first or now
        if now - self.first > WARM_S:
            self.bytes += size
            self.seconds = now - self.first - WARM_S

    @property
    def is_known(self) -> bool:
        return self.seconds > SECONDS

    def __float__(self) -> float:
        return self.bytes / self.seconds


class Throttle:
    """What a client's statistics say of the broker's throttling, in milliseconds."""

    def __init__(self) -> None:
        self.longest = 0

    def __call__(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        self.longest = max(self.longest, *(one["throttle"]["max"] for one in brokers))


def settings(broker: BrokerProcess, throttle: Throttle, **others: Any) -> dict[str, Any]:
    named = {key.replace("_", "."): value for key, value in others.items()}
    common = {"bootstrap.servers": broker.bootstrap, "client.id": CLIENT, "statistics.interval.ms": 200}
    return {**common, "stats_cb": throttle, **named}


def test_a_producer_and_a_consumer_go_at_the_rates_that_they_may(
    broker: BrokerProcess, reference: ConfluentClient, name: str
) -> None:
    for topic in (name, f"{name}-full"):
        reference.create_topic(topic)
    fill(broker, f"{name}-full")
    set_quotas(broker, producer_byte_rate=PRODUCED, consumer_byte_rate=CONSUMED)
    throttles = Throttle(), Throttle()
    produced, consumed = Rate(), Rate()
    producer = Producer(settings(broker, throttles[0], batch_size=10_000, linger_ms=5))
    small = {"fetch_message_max_bytes": 40_000, "group_id": name, "queued_min_messages": AHEAD}
    consumer = Consumer(settings(broker, throttles[1], **small))
    consumer.assign([TopicPartition(f"{name}-full", 0, 0)])
    while not (produced.is_known and consumed.is_known):
        while len(producer) < AHEAD:
            producer.produce(name, bytes(BYTES), on_delivery=lambda error, _: produced.add(0 if error else BYTES))
        producer.poll(0)
        for message in consumer.consume(AHEAD, 0.005):
            assert message.error() is None
            consumed.add(BYTES)
    producer.purge()
    producer.flush(10)
    consumer.close()
    print(f"produced {float(produced) / PRODUCED:.2f}, consumed {float(consumed) / CONSUMED:.2f} of what they may")
    assert float(produced) == pytest.approx(PRODUCED, rel=0.25)
    assert float(consumed) == pytest.approx(CONSUMED, rel=0.25)
    assert min(throttle.longest for throttle in throttles) > 0


def set_quotas(broker: BrokerProcess, **rates: float) -> None:
    """With a client of our own: librdkafka has no way to."""
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=CLIENT)],
        ops=[OpData(key=key, value=rate) for key, rate in rates.items()],
    )
    with RawClient((HOST, broker.port)) as client:
        (result,) = client.ask(AlterClientQuotasRequest(entries=[entry]), 1).entries
        assert result.error_code == 0


def fill(broker: BrokerProcess, topic: str) -> None:
    """With batches of the size in which they are to be read."""
    size = int(CONSUMED * (WARM_S + SECONDS + 10))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 20_000, "linger.ms": 5})
    for _ in range(size // BYTES):
        producer.produce(topic, bytes(BYTES))
    assert producer.flush(30) == 0
