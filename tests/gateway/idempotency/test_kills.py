"""Gateway, broker and clients are killed at any moment: each key that was sent until it was answered is written once.

`ROUNDS` kills, each while workers send; then all keys are sent again, and the topic is read as transactional consumers
read it. The same holds against Apache Kafka.
"""

import json
import os
import random
import threading
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from compat.brokers import BrokerProcess, new_broker
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from gateways import GatewayProcess

ROUNDS = int(os.environ.get("ROUNDS", "25"))
PARTITIONS = 3
WORKERS = 8
KEYS = 6  # of each worker in each round
TOPIC = "payments"


class Worker(threading.Thread):
    """Sends messages with keys until each is answered, and sometimes goes away before the answer."""

    def __init__(self, port: int, name: str, seed: int, give_up: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.answers: dict[str, bytes] = {}
        self.troubles: Counter[str] = Counter()
        self._port = port
        self._random = random.Random(seed)
        self._give_up = give_up

    def run(self) -> None:
        for n in range(KEYS):
            key = f"{self.name}/{n}"
            while key not in self.answers and not self._give_up.is_set():
                self._send(key)

    def _send(self, key: str) -> None:
        patience = self._random.choice([0.005, 0.02, 30.0])
        try:
            status, content, _ = post(self._port, key, patience)
        except (OSError, HTTPException) as error:
            self.troubles[type(error).__name__] += 1
            self._give_up.wait(0.1)
            return
        if status == 200:
            self.answers[key] = content
        else:
            assert status in (409, 503), content
            self.troubles[str(status)] += 1
            self._give_up.wait(0.1)


def post(port: int, key: str, timeout: float = 60.0) -> tuple[int, bytes, bool]:
    """Sends two messages, which are in different partitions mostly. Returns status and body, and whether it is a repeat
    of an earlier response.
    """
    messages = [{"value": f"{key}/{half}", "key": f"{key}/{half}"} for half in ("a", "b")]
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", f"/v1/topics/{TOPIC}", json.dumps({"messages": messages}), headers)
        response = connection.getresponse()
        return response.status, response.read(), response.headers["Idempotency-Replayed"] == "true"
    finally:
        connection.close()


def committed(bootstrap: str) -> dict[str, list[tuple[int, int]]]:
    """Where each message is that a consumer of committed messages gets."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    found: dict[str, list[tuple[int, int]]] = {}
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                ended.add(message.partition() or 0)
            else:
                value, partition, offset = message.value(), message.partition(), message.offset()
                assert value is not None
                assert partition is not None
                assert offset is not None
                found.setdefault(value.decode(), []).append((partition, offset))
    finally:
        consumer.close()
    return found


def run_rounds(broker: BrokerProcess, gateway: GatewayProcess, rounds: int, seed: int) -> dict[str, bytes]:
    """Kills the gateway, the broker, or both in each round. Returns the answer to each key."""
    choose = random.Random(seed)
    answers: dict[str, bytes] = {}
    for number in range(rounds):
        give_up = threading.Event()
        workers = [Worker(gateway.port, f"{number}/{n}", choose.randrange(1 << 30), give_up) for n in range(WORKERS)]
        for worker in workers:
            worker.start()
        give_up.wait(choose.uniform(0.0, 0.5))
        victims = choose.choice([("gateway",), ("gateway",), ("broker",), ("gateway", "broker")])
        if "gateway" in victims:
            gateway.kill()
        if "broker" in victims:
            broker.kill_and_start()
        if "gateway" in victims:
            gateway.start()
        for worker in workers:
            worker.join(90)
            if worker.is_alive():
                give_up.set()
                raise AssertionError(f"round {number}, {victims}: {worker.name} has no answer; {worker.troubles}")
            answers.update(worker.answers)
    return answers


@pytest.mark.parametrize(
    "rounds", [2, pytest.param(ROUNDS, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])], ids=["short", "long"]
)
@pytest.mark.timeout(180)
def test_each_key_is_written_once_whatever_is_killed(tmp_path: Path, rounds: int) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    broker = new_broker(tmp_path / "broker")
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        with GatewayProcess(broker.bootstrap, tmp_path / "gateway") as gateway:
            answers = run_rounds(broker, gateway, rounds, seed)
            assert len(answers) == rounds * WORKERS * KEYS
            for key, answer in answers.items():
                assert post(gateway.port, key) == (200, answer, True), key
        found = committed(broker.bootstrap)
        wanted = {
            f"{key}/{half}": [(place["partition"], place["offset"])]
            for key, answer in answers.items()
            for half, place in zip("ab", json.loads(answer)["messages"], strict=True)
        }
        assert found == wanted
    finally:
        broker.close()
