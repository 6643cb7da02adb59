"""Transactional producers of each client, as processes that do what a test tells them and that it may kill."""

import contextlib
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat import sources
from compat.contract import MARKS

PROGRAMS = Path(__file__).parent / "producers"
KINDS = ("confluent", "aiokafka", "kafka-python", "java")
SECONDS = 70  # longer than each of them tries
TIMEOUT_MS = 60_000


def each_producer(*kinds: str) -> pytest.MarkDecorator:
    """Runs a test with each kind of producer; all of them unless named."""
    return pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS.get(kind, ())) for kind in kinds or KINDS])


@functools.cache
def _java_command() -> list[str]:
    alone = ["bootstrap=127.0.0.1:1", "id=unused", f"timeout_ms={TIMEOUT_MS}"]
    jars = ("kafka-clients-*", "slf4j-api-*", "*lz4-java*", "snappy-java-*", "zstd-jni-*")
    return sources.fast_command(PROGRAMS / "Transactional.java", jars, alone, "leave\n")


def _command(kind: str) -> list[str]:
    if kind == "java":
        return _java_command()
    return [sys.executable, "-W", "ignore", "-m", f"compat.producers.{kind.replace('-', '_')}"]


class TransactionalProducer:
    """`producers/talking.py` says what it is told, and what it answers."""

    def __init__(self, kind: str, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.kind = kind
        self._process = subprocess.Popen(
            [*_command(kind), f"bootstrap={bootstrap}", f"id={transactional_id}", f"timeout_ms={timeout_ms}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(PROGRAMS.parents[1])},
            text=True,
        )

    def attempt(self, *words: object) -> str:
        """Its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write("\t".join(map(str, words)) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().rstrip("\n")
        finally:
            timer.cancel()
        assert answer, f"{self.kind} ended, or took too long, at {words}"
        return answer

    def do(self, *words: object) -> None:
        answer = self.attempt(*words)
        assert answer == "done", f"{self.kind} at {words}: {answer}"

    def send(self, topic: str, *values: str, partition: int = 0) -> None:
        """On return, the values are acknowledged."""
        for value in values:
            self.do("send", topic, partition, value)
        self.do("flush")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def transactional(
    kind: str, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS
) -> Iterator[TransactionalProducer]:
    """A producer that has taken over the transactional id."""
    producer = TransactionalProducer(kind, bootstrap, transactional_id, timeout_ms)
    try:
        producer.do("init")
        yield producer
    finally:
        producer.kill()
