"""`tailrace run` and `tailrace replay` in processes of their own, and messages in the topic that pipelines read."""

import os
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer

from tailrace.testing import Broker

TOPIC = "orders"
QUICK = {"TAILRACE_SPARK_ARCHIVE": "off", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}  # for one short session


def command(verb: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tailrace.cli.main", verb, *arguments]


def run_command(directory: Path, verb: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the verb in the directory to its end, and returns its exit code and output."""
    return subprocess.run(
        command(verb, *arguments),
        cwd=directory,
        env=os.environ | QUICK | environment,
        capture_output=True,
        text=True,
        timeout=250,
    )


def produce(broker: Broker, *values: str) -> None:
    """Returns when the values are on disk."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(20) == 0
