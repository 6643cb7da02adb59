"""The broker for dramatiq in examples/: actors run, fail and are tried again, and are given up."""

import contextlib
import importlib.util
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import dramatiq
import pytest
from client.conftest import options
from dramatiq.middleware import Retries
from gateways import RunningGateway
from waits import until

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.share.offsets import offsets
from tailrace.testing import Broker

PATH = Path(__file__).parents[2] / "examples" / "dramatiq_http.py"
LENGTH_MAX = 150  # of the example: short enough to be read


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dramatiq_http", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def kafka() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_actors_run_and_are_tried_again(kafka: Broker, example: ModuleType) -> None:
    with RunningGateway(kafka.bootstrap) as gateway:
        broker = example.HttpBroker(gateway.url, group="tests", lease_s=3, middleware=[Retries(min_backoff=500)])
        ran: Counter[str] = Counter()
        times: list[float] = []
        threads = set[int]()

        @dramatiq.actor(broker=broker)
        def add(n: int) -> None:
            threads.add(threading.get_ident())
            ran[f"add {n}"] += 1

        @dramatiq.actor(broker=broker, max_retries=3)
        def fail_once() -> None:
            times.append(time.monotonic())
            ran["fail once"] += 1
            if ran["fail once"] == 1:
                raise RuntimeError("not yet")

        @dramatiq.actor(broker=broker, max_retries=0)
        def fail() -> None:
            ran["fail"] += 1
            raise RuntimeError("never")

        @dramatiq.actor(broker=broker)
        def be_slow() -> None:
            time.sleep(4.5)  # longer than a lease
            ran["slow"] += 1

        for n in range(30):
            add.send(n)
        for actor in (fail_once, fail, be_slow):
            actor.send()
        worker = dramatiq.Worker(broker, worker_timeout=200, worker_threads=4)
        worker.start()
        try:
            expected = {**{f"add {n}": 1 for n in range(30)}, "fail once": 2, "fail": 1, "slow": 1}
            until(lambda: ran == expected, 60)
            with contextlib.closing(Cluster(options(kafka.bootstrap))) as cluster:
                until(lambda: {one.unfinished for one in offsets(cluster, "tests").values()} == {0}, 60)
        finally:
            worker.stop()
        assert times[1] - times[0] >= 0.25, "the delay of a retry is kept"
        assert len(threads) > 1
        assert ran == expected


def test_messages_of_a_worker_that_stops_are_for_others(kafka: Broker, example: ModuleType) -> None:
    with RunningGateway(kafka.bootstrap) as gateway:
        broker = example.HttpBroker(gateway.url, group="tests", middleware=[])

        @dramatiq.actor(broker=broker)
        def work(n: int) -> None:
            raise AssertionError("it does not run here")

        for n in range(5):
            work.send(n)
        first, second = (broker.consume("default", prefetch=5, timeout=1000) for _ in range(2))
        taken = next(first)
        assert taken is not None
        first.requeue([taken])
        first.close()
        found = [message for _ in range(10) if (message := next(second)) is not None]
        assert sorted(message.args[0] for message in found) == [0, 1, 2, 3, 4]


def test_the_example_is_short() -> None:
    assert len(PATH.read_text().splitlines()) <= LENGTH_MAX
