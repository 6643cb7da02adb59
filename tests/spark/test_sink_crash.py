"""A stream from topic to topic whose driver, Python workers and broker are killed in the middle of batches."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from compat.brokers import new_broker
from spark.conftest import ForeignBroker
from spark.sink.test_exactly_once import values_in

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(600),
    pytest.mark.spark,
    pytest.mark.crash,
]

MESSAGES = 12_000  # in each of two partitions
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
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ForeignBroker]:
    """One that can be killed."""
    with closing(new_broker(tmp_path / "broker")) as process:
        process.start()
        yield ForeignBroker(process)


def workers(session: int) -> list[int]:
    """Those that run tasks of a driver: forked from Spark's daemon, which is in the session of the driver."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if b"pyspark.daemon\0pyspark.worker" in command and int(fields[3]) == session:
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


def kill_a_worker(session: int) -> None:
    found = workers(session)
    assert found, "a query has workers"
    os.kill(random.choice(found), signal.SIGKILL)


def test_after_kills_each_message_is_there_once(
    broker: ForeignBroker, topic: str, produce: Callable[..., None], tmp_path: Path
) -> None:
    sink, checkpoint, output = f"{topic}-out", tmp_path / "checkpoint", tmp_path / "output"
    broker.create_topic(sink, partitions=2)
    for partition in (0, 1):
        produce(*(f"{partition}-{number}" for number in range(MESSAGES)), partition=partition)
    arguments = (broker.bootstrap, topic, sink, str(checkpoint))
    for _ in range(KILLS):
        with driver(tmp_path, *arguments, "live") as process:
            wait_for_batches(process, checkpoint, 3, output)
            kill_a_worker(process.pid)
            wait_for_batches(process, checkpoint, 2, output)
            broker.process.kill_and_start()  # the producer tries again, and no task has to
            wait_for_batches(process, checkpoint, 2, output)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with driver(tmp_path, *arguments, "rest") as process:
        assert process.wait(SECONDS) == 0, output.read_text()[-3000:]
    wanted = {f"{partition}-{number}" for partition in (0, 1) for number in range(MESSAGES)}
    assert Counter(values_in(broker.bootstrap, sink)) == Counter(wanted)
