"""A consumer that stops: the broker's monitor forecasts when messages will be lost, raises an alert before that, and
the operator has the topic hold what the consumer has not read. Nothing is lost.
"""

import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from demo.broker_process import BrokerProcess
from demo.clients import PacedProducer, silence
from demo.commands import tailrace
from demo.screen import Screen

TOPIC, GROUP = "readings", "billing"
READINGS_PER_SECOND = 200
KEPT_SECONDS = 8
CONFIGS = {
    "log.retention.check.interval.ms": "500",
    "tailrace.monitor.interval.ms": "1000",
    "tailrace.alert.loss.seconds": str(KEPT_SECONDS),
}
READ_FIRST_SECONDS = 2.0
ALERT_SECONDS = 30.0
READ_SECONDS = 20.0


def run(directory: Path, screen: Screen) -> bool:
    """Whether the alert came, and nothing was lost."""
    screen.step(
        f"A topic keeps messages for {KEPT_SECONDS} seconds, to make it short. The group {GROUP} reads it, and stops."
    )
    broker = BrokerProcess(directory, "held", configs=CONFIGS, monitor=True)
    try:
        broker.start(wait=True)
        create_topic(broker, directory)
        readings = PacedProducer(broker.bootstrap, TOPIC, "reading", per_second=READINGS_PER_SECOND)
        readings.start()
        first = read(broker.bootstrap, seconds=READ_FIRST_SECONDS)
        stopped_at = time.monotonic()
        is_raised = alert_is_raised(broker)
        tailrace(screen, directory, "lag", GROUP, "-b", broker.bootstrap)
        screen.step(
            "The alert came before the first loss. The operator has the topic keep what the group has not read."
        )
        hold = ("--set", "tailrace.backlog.policy=hold", "--set", f"tailrace.backlog.groups={GROUP}")
        tailrace(screen, directory, "topic", "alter", TOPIC, *hold, "-b", broker.bootstrap)
        time.sleep(max(0.0, stopped_at + KEPT_SECONDS + 1 - time.monotonic()))
        readings.finish()
        again = read(broker.bootstrap, until=readings.sent)
        screen.step("The group comes back after more time than the topic would have kept its messages.")
        is_whole = [*first, *again] == list(range(readings.sent))
        end = "nothing is lost." if is_whole else "some are lost, doubled or out of order."
        screen.say(f"{readings.sent:,} sent, {len(first) + len(again):,} read: {end}", "green" if is_whole else "red")
        tailrace(screen, directory, "lag", GROUP, "--losses", "-b", broker.bootstrap)
        return is_raised and is_whole and broker.stop() == 0
    finally:
        broker.kill()


def create_topic(broker: BrokerProcess, directory: Path) -> None:
    configs = (f"retention.ms={KEPT_SECONDS * 1000}", "segment.ms=500")
    command = ["topic", "create", TOPIC, *(word for config in configs for word in ("--config", config))]
    command = [sys.executable, "-m", "tailrace", *command, "-b", broker.bootstrap]
    subprocess.run(command, check=True, capture_output=True, cwd=directory)


def alert_is_raised(broker: BrokerProcess) -> bool:
    """Waits for the alert. Returns whether it came in time."""
    deadline = time.monotonic() + ALERT_SECONDS
    while "alert loss_ahead raised" not in broker.said:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def read(bootstrap: str, *, seconds: float | None = None, until: int | None = None) -> list[int]:
    """The numbers of the readings that the group reads and commits, for some seconds or up to one."""
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False}, logger=silence)
    consumer.assign([TopicPartition(TOPIC, 0)])
    found: list[int] = []
    deadline = time.monotonic() + (seconds or READ_SECONDS)
    while time.monotonic() < deadline and (until is None or not found or found[-1] < until - 1):
        for message in consumer.consume(100, 0.1):
            if message.error() is None:
                found.append(int((message.value() or b"").split()[1]))
        if found:
            consumer.commit(asynchronous=False)
    consumer.close()
    return found
