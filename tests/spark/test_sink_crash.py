"""A stream from topic to topic whose driver and whose Python workers are killed in the middle of batches."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from compat.brokers import against_kafka
from spark.test_exactly_once import values_in

from tailrace.testing import Broker

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(600),
    pytest.mark.spark,
    pytest.mark.crash,
]

MESSAGES = 10_000  # in each of two partitions
PER_BATCH = 400
KILLS = 2
SECONDS = 200

DRIVER = """
    import os, sys
    from pyspark.sql import SparkSession
    os.environ["PYSPARK_PYTHON"] = sys.executable
    bootstrap, source, sink, directory, trigger = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.adaptive.streaming.stateless.enabled", "false").getOrCreate()
    )
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    limit = {} if trigger == "rest" else {"maxOffsetsPerTrigger": PER_BATCH}
    stream = spark.readStream.format("tailrace").options(**options, **limit).load()
    writer = (
        stream.selectExpr("value").writeStream.format("tailrace")
        .option("kafka.bootstrap.servers", bootstrap).option("topic", sink).option("checkpointLocation", directory)
    )
    query = (writer.trigger(availableNow=True) if trigger == "rest" else writer).start()
    query.awaitTermination()
"""


@contextmanager
def driver(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    program = directory / "driver.py"
    program.write_text(textwrap.dedent(DRIVER).replace("PER_BATCH", repr(str(PER_BATCH))))
    with (directory / "output").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def workers(session: int) -> list[int]:
    """The Python workers of a driver: forked from Spark's daemon, which is in the session of the driver."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if b"pyspark.daemon" in command and int(fields[3]) == session:
                found[int(entry.name)] = int(fields[1])
    return [pid for pid, parent in found.items() if parent in found]


def batches_done(checkpoint: Path) -> int:
    return max((int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")), default=-1)


def wait_for_batches(process: subprocess.Popen[bytes], checkpoint: Path, count: int, output: Path) -> None:
    before, deadline = batches_done(checkpoint), time.monotonic() + SECONDS
    while batches_done(checkpoint) < before + count:
        assert process.poll() is None, output.read_text()[-3000:]
        assert time.monotonic() < deadline, output.read_text()[-3000:]
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.3))


def test_after_kills_no_message_is_missing_and_on_kafka_each_is_there_once(
    broker: Broker, topic: str, produce: Callable[..., None], tmp_path: Path
) -> None:
    sink, checkpoint, output = f"{topic}-out", tmp_path / "checkpoint", tmp_path / "output"
    broker.create_topic(sink, partitions=2)
    for partition in (0, 1):
        produce(*(f"{partition}-{number}" for number in range(MESSAGES)), partition=partition)
    arguments = (broker.bootstrap, topic, sink, str(checkpoint))
    for _ in range(KILLS):
        with driver(tmp_path, *arguments, "live") as process:
            wait_for_batches(process, checkpoint, 3, output)
            for victim in workers(process.pid)[:1]:
                os.kill(victim, signal.SIGKILL)
            wait_for_batches(process, checkpoint, 2, output)
    with driver(tmp_path, *arguments, "rest") as process:
        assert process.wait(SECONDS) == 0, output.read_text()[-3000:]
    found: Counter[Any] = Counter(values_in(broker.bootstrap, sink))
    assert set(found) == {f"{partition}-{number}" for partition in (0, 1) for number in range(MESSAGES)}
    twice = sum(found.values()) - len(found)
    assert twice <= (0 if against_kafka() else 2 * KILLS * PER_BATCH), "what is twice comes from batches tried again"
