"""`tailrace alert`, and alerts from a group that stops to the webhook, by a broker's own monitor."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Run
from waits import until
from webhooks import Hook, hook

from tailrace.testing.broker_process import BrokerProcess

__all__ = ["hook"]

CONFIGS = {
    "tailrace.monitor.interval.ms": "1000",
    "tailrace.alert.stopped.seconds": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def broker(tmp_path: Path, hook: Hook) -> Iterator[BrokerProcess]:
    configs = {**CONFIGS, "tailrace.alert.webhook.url": hook.url}
    with BrokerProcess(tmp_path / "data", configs=configs, monitor=True) as process:
        yield process


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


def read_to(bootstrap: str, count: int) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    for _ in range(count):
        assert consumer.poll(20) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.fixture
def stopped(bootstrap: str) -> None:
    """A group that has read one of ten messages."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce("orders", str(number))
    assert producer.flush(20) == 0
    read_to(bootstrap, 1)


def listed(run: Run, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("alert", "list", *options, "--json")[0])["alerts"]
    return found


def posted(hook: Hook) -> list[tuple[str, str]]:
    return [(body["rule"], body["state"]) for _, _, body in list(hook.requests)]


@pytest.mark.usefixtures("stopped")
def test_a_group_that_stops_is_reported_once_also_across_a_crash_and_resolved_once(
    run: Run, broker: BrokerProcess, hook: Hook
) -> None:
    until(lambda: posted(hook), 40)
    (alert,) = listed(run)
    assert {"id": "group_stopped:billing:orders", "state": "raised", "severity": "warning"}.items() <= alert.items()
    assert "9 messages of orders wait for it" in alert["message"]
    assert "group_stopped" in run("alert", "list")[0]
    until(lambda: "alert group_stopped raised" in broker.said, 20)
    run("alert", "test", "--to", "log")  # a round later it is recorded that the alert was delivered
    run("alert", "test", "--to", "log")
    broker.kill()
    broker.start()
    rounds_after_restart = broker.said.count("listening")
    assert rounds_after_restart == 1
    until(lambda: (broker.data / "internal.json").exists(), 20)
    run("alert", "test", "--to", "log")  # which the new monitor answers: it has begun
    run("alert", "test", "--to", "log")
    assert posted(hook) == [("group_stopped", "raised")]
    read_to(broker.bootstrap, 9)
    until(lambda: len(posted(hook)) > 1, 40)
    assert posted(hook) == [("group_stopped", "raised"), ("group_stopped", "resolved")]
    assert listed(run) == []
    (resolved,) = listed(run, "--all")
    assert resolved["state"] == "resolved"


@pytest.mark.usefixtures("stopped")
def test_a_silenced_alert_is_listed_and_delivered_when_the_silence_ends(run: Run, hook: Hook) -> None:
    said, _ = run("alert", "silence", "billing", "--for", "1h")
    assert said.startswith("silenced until ")
    until(lambda: listed(run), 40)
    assert listed(run)[0]["silenced_until"].endswith("Z")
    run("alert", "test", "--to", "log")  # a round later
    assert posted(hook) == []
    assert "there is no silence" in run("alert", "silence", "billing", "--topic", "orders", "--remove", code=4)[1]
    assert run("alert", "silence", "billing", "--remove")[0] == "no longer silenced: group billing\n"
    until(lambda: posted(hook) == [("group_stopped", "raised")], 40)
    assert listed(run)[0]["silenced_until"] is None


def test_a_test_of_delivery_shows_what_becomes_of_it(run: Run, hook: Hook) -> None:
    assert run("alert", "test")[0] == "log: delivered\nwebhook: delivered\n"
    hook.status = 500
    said, why = run("alert", "test", "--to", "webhook", code=1)
    assert "webhook: failed: 127.0.0.1 answers with HTTP 500" in said
    assert "not all alerts can be delivered" in why
    assert "not configured" in run("alert", "test", "--to", "command", code=1)[0]
    assert listed(run, "--all") == []


def test_mistakes_are_usage_errors(run: Run) -> None:
    for arguments in (
        ("test", "--to", "pager"),
        ("silence", "--for", "2h"),
        ("silence", "billing"),
        ("silence", "billing", "--for", "tomorrow"),
        ("silence", "billing", "--for", "999d"),
        ("silence", "billing", "--rule", "lag", "--for", "2h"),
        ("silence", "billing", "--for", "2h", "--remove"),
    ):
        run("alert", *arguments, code=2)
    assert run("alert", "list")[0] == "No alerts are raised.\n"
    run("alert", "list", "-b", "127.0.0.1:1", code=3)
