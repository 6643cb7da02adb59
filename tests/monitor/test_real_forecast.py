"""A real forecast against what then happens: retention every ten seconds, a steady writer, a stopped reader."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waits import until

from tailrace.monitor.figures.report import MONITOR
from tailrace.monitor.views import View
from tailrace.testing.broker_process import BrokerProcess

TICK_S = 10
KEPT_S = 40
ALERT_S = 20
CONFIGS = {
    "log.retention.check.interval.ms": str(TICK_S * 1000),
    "tailrace.monitor.interval.ms": "1000",
    "tailrace.alert.loss.seconds": str(ALERT_S),
}
NOISE_S = 2  # a round of the monitor, and one of the test


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", configs=CONFIGS, monitor=True) as broker:
        yield broker


@pytest.fixture
def written(broker: BrokerProcess) -> Iterator[Producer]:
    """A writer of 20 messages a second to `orders`, whose segments have a second each."""
    configs = {"retention.ms": str(KEPT_S * 1000), "segment.ms": "1000"}
    topic = NewTopic("orders", 1, 1, config=configs)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([topic])["orders"].result(20)
    producer, stop = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0}), threading.Event()

    def write() -> None:
        while not stop.wait(0.05):
            producer.produce("orders", bytes(100))
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    yield producer
    stop.set()
    thread.join()
    producer.flush(20)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_stopped_reader_loses_messages_when_the_forecast_says(broker: BrokerProcess, written: Producer) -> None:
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    time.sleep(2)
    reader.commit(offsets=[TopicPartition("orders", 0, 20)], asynchronous=False)
    reader.close()
    said: list[tuple[float, float]] = []

    with View({"bootstrap.servers": broker.bootstrap}) as view:

        def is_lost() -> bool:
            report = next(view.lag("billing", (), 1.0))
            if report.rates == MONITOR:
                ((row,),) = [group.rows for group in report.groups]
                if (seconds := row.loss_seconds(report.at)) and not row.unread_lost:
                    said.append((report.at / 1000, seconds))
            return any(loss.group == "billing" for loss in view.losses())

        until(is_lost, 4 * KEPT_S, 1.0)
        lost_at = min(loss.at for loss in view.losses() if loss.group == "billing") / 1000
    before = [(at, seconds) for at, seconds in said if at < lost_at]  # a view hears of a loss a moment after it
    assert len(before) >= KEPT_S / 4
    for at, seconds in before:
        left = lost_at - at
        assert abs(seconds - left) <= max(0.1 * left, NOISE_S), (at, seconds, left)
    alert = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "alerts", "enable.auto.commit": False})
    alert.assign([TopicPartition("__tailrace_alerts", 0, 0)])
    ahead = until(lambda: _raised_at(alert))
    alert.close()
    assert ahead is not None
    # Alerts go by the worst case, in which retention does not wait for its next look.
    assert lost_at - ALERT_S - TICK_S - NOISE_S <= ahead <= lost_at - ALERT_S / 2


def _raised_at(consumer: Consumer) -> float | None:
    """Seconds since 1970 at which `loss_ahead` was raised for the group."""
    message = consumer.poll(1)
    if message is None or message.error() is not None or message.value() is None:
        return None
    fields = json.loads(message.value() or b"{}")
    is_it = fields.get("rule") == "loss_ahead" and fields.get("group") == "billing" and fields.get("state") == "raised"
    return fields["since"] / 1000 if is_it else None
