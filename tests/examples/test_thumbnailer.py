"""The thumbnailer of examples/: twenty workers on one partition, one image that is poison, and one that takes long."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from confluent_kafka import Producer
from queues import SHARE_SETTINGS
from waits import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "thumbnailer.py"
TAILRACE = [sys.executable, "-m", "tailrace"]
WORKERS = 20
IMAGES = 40
LOCK_S = 2
POISON = b"this is no image"

Tailrace = Callable[..., str]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    with BrokerProcess(tmp_path / "data", configs=SHARE_SETTINGS) as broker:
        yield {**os.environ, "TAILRACE_BOOTSTRAP": broker.bootstrap}


@pytest.fixture
def tailrace(environment: dict[str, str]) -> Tailrace:
    def run(*words: object) -> str:
        command = [*TAILRACE, *map(str, words)]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=50).stdout

    return run


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "thumbnails"


@pytest.fixture
def images(tailrace: Tailrace, environment: dict[str, str]) -> list[str]:
    """A topic of one partition: one image that takes long, one that is poison, and others, whose names are returned."""
    tailrace("topic", "create", "images")
    producer = Producer({"bootstrap.servers": environment["TAILRACE_BOOTSTRAP"]})
    names = [f"{number}.ppm" for number in range(IMAGES)]
    for name in ["slow.ppm", "poison.ppm", *names]:
        image = b"P6 128 96 255\n" + os.urandom(3 * 128 * 96)
        producer.produce("images", POISON if name == "poison.ppm" else image, name)
    assert producer.flush(30) == 0
    tailrace("queue", "create", "thumbnails", "images", "--dead-letter", "dlq.thumbnails", "--lock", f"{LOCK_S}s")
    return names


@pytest.fixture
def work(environment: dict[str, str], output: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts twenty workers."""
    started: list[subprocess.Popen[bytes]] = []

    def work(slow_s: float) -> "subprocess.Popen[bytes]":
        program = [sys.executable, EXAMPLE, "--output", output, "--slow", f"slow.ppm={slow_s}"]
        command = [*TAILRACE, "queue", "work", "thumbnails", "images", "--concurrency", str(WORKERS), "--", *program]
        started.append(subprocess.Popen(list(map(str, command)), env=environment, stderr=subprocess.DEVNULL))
        return started[-1]

    yield work
    for process in started:
        process.kill()
        process.wait()


def done(output: Path) -> set[str]:
    return {path.name for path in output.glob("*.ppm")}


def dead_letters(tailrace: Tailrace) -> list[dict[str, Any]]:
    said = tailrace("tail", "dlq.thumbnails", "--no-follow", "--json")
    return [json.loads(line) for line in said.splitlines()]


def backlog(tailrace: Tailrace) -> int:
    (row,) = json.loads(tailrace("queue", "show", "thumbnails", "--json"))["topics"]
    return int(row["backlog"])


def test_one_that_takes_long_holds_up_nobody_and_poison_is_set_aside_once(
    tailrace: Tailrace, images: list[str], work: Callable[..., Any], output: Path
) -> None:
    """The slow one takes longer than its lock, and until the others are done."""
    work(slow_s=60)
    until(lambda: done(output) == set(images))
    until(lambda: backlog(tailrace) == 1)  # nothing waits but the slow one
    (letter,) = dead_letters(tailrace)
    assert (letter["key"], letter["value"]) == ("poison.ppm", POISON.decode())
    headers = dict(letter["headers"])
    assert headers["__dlq.errors.reason"] == "rejected"
    assert headers["__dlq.errors.delivery.count"] == "1"


def test_workers_that_are_killed_leave_nothing_undone(
    tailrace: Tailrace, images: list[str], work: Callable[..., Any], output: Path
) -> None:
    first = work(slow_s=60)
    until(lambda: len(done(output)) > IMAGES // 4)
    first.kill()
    first.wait()
    second = work(slow_s=LOCK_S * 1.5)
    until(lambda: backlog(tailrace) == 0)
    assert done(output) == {*images, "slow.ppm"}
    assert (output / "slow.ppm").read_bytes().startswith(b"P6 32 24 255\n")
    assert [letter["key"] for letter in dead_letters(tailrace)] == ["poison.ppm"]
    second.send_signal(signal.SIGTERM)
    assert second.wait(50) == 0
