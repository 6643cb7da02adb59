"""Workers on a queue, as processes that a test kills, pauses and cuts off; and what became of each message.

A worker tells what it does with a message before it acknowledges it (`workers/talking.py`). So a message that the
broker counts as finished, and that no worker has told of, was lost.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from compat import sources
from compat.brokers import against_kafka
from compat.clients.confluent import ConfluentClient
from compat.contract import MARKS, Message
from queues import LOCK_MS
from waits import until

from tailrace.client.admin.configs import alter_group_configs
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import ClientError
from tailrace.client.options import ClientOptions
from tailrace.client.share import offsets

PROGRAMS = Path(__file__).parent / "workers"
KINDS = ("confluent", "java")
SECONDS = 60

Place = tuple[int, int]  # partition, offset


def each_worker(*kinds: str) -> pytest.MarkDecorator:
    """Runs a test with each kind of worker; all of them unless named."""
    return pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS.get(kind, ())) for kind in kinds or KINDS])


class Handled(NamedTuple):
    at: float  # when the worker told of it
    worker: tuple[int, int]  # the process's number, and its own there
    place: Place
    attempt: int
    outcome: str


@functools.cache
def _java_command() -> list[str]:
    jars = ("kafka-clients-*", "slf4j-api-*", "*lz4-java*", "snappy-java-*", "zstd-jni-*")
    return sources.command(PROGRAMS / "Worker.java", jars)


def _command(kind: str) -> list[str]:
    if kind == "java":
        return _java_command()
    return [sys.executable, "-W", "ignore", "-m", f"compat.workers.{kind}"]


class Workers:
    """A process with several workers."""

    def __init__(self, crew: "Crew", number: int, kind: str, count: int) -> None:
        self.number = number
        self.kind = kind
        self.count = count
        self.joined = 0
        self.has_left = False
        self._crew = crew
        arguments = {**crew.settings, "workers": count}
        self._process = subprocess.Popen(
            [*_command(kind), *(f"{name}={value}" for name, value in arguments.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(PROGRAMS.parents[1])},
        )
        self._reader = threading.Thread(target=self._read, name=f"workers-{number}")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    self._crew.note(self, json.loads(line))

    def wait_until_joined(self) -> None:
        until(lambda: self.joined == self.count, SECONDS)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        """Ends as a worker should, with all that it holds released."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"leave\n")
        self._process.stdin.flush()
        assert self._process.wait(SECONDS) == 0
        self._reader.join()
        assert self.has_left

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


class Crew:
    """All workers of one group, and what they told."""

    def __init__(self, bootstrap: str, group: str, topic: str, locks_ms: int = LOCK_MS) -> None:
        self.settings: Mapping[str, object] = {
            "bootstrap": bootstrap,
            "group": group,
            "topic": topic,
            "locks_ms": locks_ms,
        }
        self.handled: list[Handled] = []
        self.holding: set[Place] = set()
        self.refused: list[str] = []
        self.processes: list[Workers] = []
        self.produced: dict[Place, bytes] = {}
        self._ends: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._topic = topic
        self._group = group
        self._dead_letters = f"dlq.{topic}"
        self._reference = ConfluentClient(bootstrap)
        self._cluster = Cluster(ClientOptions.from_properties({"bootstrap.servers": bootstrap}))

    def configure(self, **configs: str) -> None:
        """Configs of the group; underscores stand for dots."""
        given = {name.replace("_", "."): value for name, value in configs.items()}
        alter_group_configs(self._cluster, self._group, given)

    def start(self, kind: str, count: int = 1) -> Workers:
        self.processes.append(Workers(self, len(self.processes), kind, count))
        return self.processes[-1]

    def note(self, workers: Workers, told: dict[str, object]) -> None:
        with self._lock:
            match told.pop("event"):
                case "joined":
                    workers.joined += 1
                case "left":
                    workers.has_left = True
                case "refused":
                    self.refused.append(str(told["text"]))
                case "holds":
                    self.holding.add((int(str(told["partition"])), int(str(told["offset"]))))
                case "handled":
                    place = int(str(told["partition"])), int(str(told["offset"]))
                    worker = workers.number, int(str(told["worker"]))
                    self.handled.append(
                        Handled(time.monotonic(), worker, place, int(str(told["attempt"])), str(told["outcome"]))
                    )

    def produce(self, *values: str, partition: int = 0) -> None:
        messages = [Message(value.encode(), b"key") for value in values]
        self._reference.produce(self._topic, messages, partition=partition, idempotent=True)
        for value in values:
            self.produced[partition, self._ends[partition]] = value.encode()
            self._ends[partition] += 1

    def times(self, place: Place) -> list[float]:
        """When a message was handled, each time."""
        with self._lock:
            return [one.at for one in self.handled if one.place == place]

    def outcomes(self, place: Place) -> list[tuple[int, str]]:
        """Attempts and outcomes of a message, in order."""
        with self._lock:
            return [(one.attempt, one.outcome) for one in self.handled if one.place == place]

    def keep_dead_letters(self) -> None:
        """Makes a topic for them, and has the group write there."""
        self._reference.create_topic(self._dead_letters, configs={"errors.deadletterqueue.group.enable": "true"})
        self.configure(errors_deadletterqueue_topic_name=self._dead_letters)

    def dead_letters(self) -> dict[Place, tuple[bytes | None, str, int]]:
        """Value, reason and deliveries of each message that was given up; fails the test where one is there twice."""
        found: dict[Place, tuple[bytes | None, str, int]] = {}
        with self._reference.consumer(self._dead_letters, 0) as consumer:
            for received in consumer.take(self._reference.offset(self._dead_letters, "latest")):
                facts = {
                    name.removeprefix("__dlq.errors."): (value or b"").decode() for name, value in received.headers
                }
                assert (facts["topic"], facts["group"]) == (self._topic, self._group)
                place = int(facts["partition"]), int(facts["offset"])
                assert place not in found, f"{place} is a dead letter twice"
                found[place] = received.value, facts["reason"], int(facts["delivery.count"])
        return found

    @property
    def accepted(self) -> set[Place]:
        with self._lock:
            return {one.place for one in self.handled if one.outcome == "accept"}

    def unfinished(self) -> int | None:
        """How many messages the broker counts as not finished; None while that cannot be told."""
        try:
            found = offsets.offsets(self._cluster, self._group)
        except ClientError:
            return None
        counts = [one.unfinished for one in found.values()]
        ends = sum(self._ends.values())
        if None in counts or len(counts) < len(self._ends):
            return None
        return sum(filter(None, counts)) if ends else 0

    def wait_until_finished(self) -> None:
        until(lambda: self.unfinished() == 0, SECONDS * (3 if against_kafka() else 1), 0.1)

    def wait(self, condition: Callable[[], object]) -> None:
        until(condition, SECONDS)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        self._cluster.close()
        self._reference.close()


@contextlib.contextmanager
def crew_of(bootstrap: str, group: str, topic: str, locks_ms: int = LOCK_MS) -> Iterator[Crew]:
    """A crew whose group begins at the start of its topic, and has short locks."""
    with contextlib.closing(Crew(bootstrap, group, topic, locks_ms)) as crew:
        crew.configure(share_auto_offset_reset="earliest", share_record_lock_duration_ms=str(locks_ms))
        yield crew
