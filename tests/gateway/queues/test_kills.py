"""Workers, gateway and broker are killed at any moment: each message is worked on to its end at least once, no lease
outlives its time, and what a worker was told is finished never comes again.

`ROUNDS` kills, each while WORKERS workers lease messages; some of them die with a lease, some are too slow.
"""

import json
import os
import random
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from client.conftest import options
from compat.brokers import BrokerProcess, new_broker
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from gateways import GatewayProcess
from queues import SHARE_SETTINGS
from waits import until

from tailrace.client.admin.configs import alter_group_configs
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.share.offsets import offsets

ROUNDS = int(os.environ.get("ROUNDS", "25"))
PARTITIONS = 2
WORKERS = 20
MESSAGES = 40  # of each round
LEASE_S = 2
TOPIC, GROUP = "images", "thumbnails"


class Facts:
    """What the workers have seen. All of it is theirs, under a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worked_on: set[str] = set()
        self.finished: set[str] = set()
        self.violations: list[str] = []
        self.events: Counter[str] = Counter()


class Worker(threading.Thread):
    def __init__(self, port: int, seed: int, facts: Facts, end: threading.Event) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._random = random.Random(seed)
        self._facts = facts
        self._end = end

    def run(self) -> None:
        while not self._end.is_set():
            with self._facts.lock:
                finished = set(self._facts.finished)
            body = {"max": self._random.choice([1, 1, 3]), "wait_seconds": 2, "lease_seconds": LEASE_S}
            answer = self._post("lease", body)
            for message in answer["messages"] if answer is not None else ():
                if message["value"] in finished:
                    self._violated(f"{message} was finished before")
                self._work(message)

    def _work(self, message: dict[str, Any]) -> None:
        fate = self._random.random()
        with self._facts.lock:
            self._facts.events["dies" if fate < 0.1 else "late" if fate < 0.13 else "works"] += 1
        if fate < 0.1:
            return
        if fate < 0.13:
            self._be_late(message)
            return
        self._end.wait(self._random.uniform(0, 0.05))
        with self._facts.lock:
            self._facts.worked_on.add(message["value"])
        self._finish(message)

    def _be_late(self, message: dict[str, Any]) -> None:
        while time.time() * 1000 <= message["expires_ms"] + 1:
            time.sleep(0.2)
        if self._finish(message):
            self._violated(f"{message} was finished after its lease")

    def _finish(self, message: dict[str, Any]) -> bool:
        answer = self._post("ack", {"leases": [message["lease"]]})
        is_done = answer is not None and answer["done"] == 1
        with self._facts.lock:
            if is_done:
                self._facts.finished.add(message["value"])
            self._facts.events[f"ack {is_done}"] += 1
        return is_done

    def _violated(self, what: str) -> None:
        with self._facts.lock:
            self._facts.violations.append(what)

    def _post(self, verb: str, body: object) -> dict[str, Any] | None:
        try:
            status, answer = post(self._port, verb, body)
        except (OSError, HTTPException, ValueError):
            self._end.wait(0.1)
            return None
        if status not in (200, 409):
            assert status == 503, answer
            self._end.wait(0.1)
            return None
        return answer


def post(port: int, verb: str, body: object) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/v1/queues/{GROUP}/{TOPIC}/{verb}", json.dumps(body), headers)
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        return response.status, answer
    finally:
        connection.close()


def run_round(number: int, broker: BrokerProcess, gateway: GatewayProcess, choose: random.Random, facts: Facts) -> None:
    values = {f"{number}/{n}" for n in range(MESSAGES)}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(30) == 0
    stop = threading.Event()
    workers = [Worker(gateway.port, choose.randrange(1 << 30), facts, stop) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    stop.wait(choose.uniform(0.0, 0.8))
    victims = choose.choice([("gateway",), ("gateway",), ("broker",), ("gateway", "broker")])
    if "gateway" in victims:
        gateway.kill()
    if "broker" in victims:
        broker.kill_and_start()
    if "gateway" in victims:
        gateway.start()
    until(lambda: values <= facts.worked_on, 90, 0.05)
    stop.set()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()


def finish_all(port: int) -> None:
    """Until nothing comes for longer than a lease lasts."""
    while True:
        status, answer = post(port, "lease", {"max": 100, "wait_seconds": 3 * LEASE_S, "lease_seconds": 30})
        assert status == 200, answer
        if not answer["messages"]:
            return
        status, answer = post(port, "ack", {"leases": [one["lease"] for one in answer["messages"]]})
        assert status == 200, answer


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(2, marks=pytest.mark.timeout(240), id="short"),
        pytest.param(ROUNDS, marks=[pytest.mark.slow, pytest.mark.timeout(1800)], id="long"),
    ],
)
def test_each_message_is_finished_whatever_is_killed(tmp_path: Path, rounds: int) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    choose, facts = random.Random(seed), Facts()
    broker = new_broker(tmp_path / "broker", settings=SHARE_SETTINGS)
    broker.start()
    cluster = Cluster(options(broker.bootstrap))
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        configs = {"share.delivery.count.limit": "10", "share.auto.offset.reset": "earliest"}
        alter_group_configs(cluster, GROUP, {**configs, "share.record.lock.duration.ms": str(LEASE_S * 1000)})
        with GatewayProcess(broker.bootstrap, tmp_path / "gateway") as gateway:
            for number in range(rounds):
                run_round(number, broker, gateway, choose, facts)
            finish_all(gateway.port)
            print(facts.events)
            assert facts.violations == []
            assert facts.finished, "or the test says nothing"
            assert {one.unfinished for one in offsets(cluster, GROUP).values()} == {0}
    finally:
        cluster.close()
        broker.close()
