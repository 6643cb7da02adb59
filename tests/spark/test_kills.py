"""Drivers, workers and brokers that are killed under a query: each message is read once, whatever happens."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compat.brokers import BrokerProcess, new_broker
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from spark import victim

from tailrace.spark import Parquet, Pipeline, Text, pipeline
from tailrace.testing import Broker

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(250),
    pytest.mark.spark,
    pytest.mark.crash,
]

Options = dict[str, str]
Produce = Callable[..., None]
EARLIEST = {"startingOffsets": "earliest"}


@contextlib.contextmanager
def live(bootstrap: str, topic: str) -> Iterator[list[int]]:
    """Numbers that keep coming, one each ten milliseconds or so, to both partitions in turn; those sent so far."""
    sent: list[int] = []
    is_over = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0})

    def send() -> None:
        while not is_over.wait(0.01):
            producer.produce(topic, str(len(sent)), partition=len(sent) % 2)
            sent.append(len(sent))
            producer.poll(0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        is_over.set()
        thread.join()
        assert producer.flush(60) == 0


def kill_driver_in_batch(number: int, options: Options, directory: Path, **trigger: Any) -> None:
    given = {"options": options, "directory": str(directory), "hang_in": number, "trigger": trigger}
    command = [sys.executable, victim.__file__, json.dumps(given)]
    driver = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "there\n"
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        if driver.stdout is not None:
            driver.stdout.close()
    assert (directory / "checkpoint" / "offsets" / str(number)).exists(), "the batch is planned"
    assert not (directory / "checkpoint" / "commits" / str(number)).exists(), "and not done"


def start_written_down(directory: Path, topic: str) -> dict[int, int]:
    """Where the checkpoint says that batch 0 has ended: it is empty."""
    text = (directory / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    return {int(partition): offset for partition, offset in json.loads(text)[topic].items()}


def offsets_read(spark: Any, directory: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {0: [], 1: []}
    for row in spark.read.parquet(str(directory / "rows")).orderBy("offset").collect():
        found[row.partition].append(row.offset)
    return found


@pytest.mark.parametrize("batch", [0, 1])
def test_the_start_at_the_latest_is_that_of_the_driver_that_was_killed(
    spark: Any, options: Options, topic: str, tmp_path: Path, batch: int
) -> None:
    with live(options["kafka.bootstrap.servers"], topic) as sent:
        while len(sent) < 100:
            time.sleep(0.01)
        kill_driver_in_batch(batch, options, tmp_path)
        started = start_written_down(tmp_path, topic)
        query = victim.start(spark, options, tmp_path)
        try:
            while query.lastProgress is None or query.lastProgress["batchId"] < batch + 2:
                time.sleep(0.05)
        except BaseException:
            query.stop()
            raise
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert min(started.values()) > 0
    assert offsets_read(spark, tmp_path) == {
        partition: list(range(first, len(sent) // 2 + (partition == 0 and len(sent) % 2)))
        for partition, first in started.items()
    }


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_available_now_goes_on_where_the_driver_was_killed(
    spark: Any, options: Options, produce: Produce, tmp_path: Path, batch: int
) -> None:
    limited = options | EARLIEST | {"maxOffsetsPerTrigger": "15"}
    produce(*map(str, range(20)))
    kill_driver_in_batch(batch, limited, tmp_path, availableNow=True)
    produce(*map(str, range(10)), partition=1)
    assert victim.start(spark, limited, tmp_path, availableNow=True).awaitTermination(60)
    assert offsets_read(spark, tmp_path) == {0: list(range(20)), 1: list(range(10))}


@pytest.mark.parametrize("batch", [0, 1])
def test_records_that_are_deleted_between_the_kill_and_the_restart_are_missed(
    spark: Any, broker: Broker, options: Options, topic: str, produce: Produce, tmp_path: Path, batch: int
) -> None:
    produce(*"abcdef")
    kill_driver_in_batch(batch, options | EARLIEST, tmp_path)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(20)
    query = victim.start(spark, options | EARLIEST, tmp_path)
    with pytest.raises(Exception, match=f"{topic}-0: offsets 0 to 3 are missing"):
        query.awaitTermination(60)


# The file sink


DRIVER = """
    import os, sys
    from pyspark.sql import SparkSession
    os.environ["PYSPARK_PYTHON"] = sys.executable
    bootstrap, topic, directory = sys.argv[1:]
    spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("tailrace").options(maxOffsetsPerTrigger="500", **options).load()
    query = (
        stream.selectExpr("CAST(value AS STRING) v").writeStream.format("parquet")
        .option("path", directory + "/rows").option("checkpointLocation", directory + "/checkpoint").start()
    )
    print("started", flush=True)
    query.awaitTermination()
"""


def test_a_killed_driver_continues_and_every_message_is_there_once(
    spark: Any, broker: Broker, options: Options, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(*map(str, range(6000)))
    program = tmp_path / "driver.py"
    program.write_text(textwrap.dedent(DRIVER))
    command = [sys.executable, str(program), broker.bootstrap, topic, str(tmp_path)]
    victim = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "started\n"
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("rows/_spark_metadata/[0-9]"))) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
        if victim.stdout is not None:
            victim.stdout.close()
    stream = spark.readStream.format("tailrace").options(**options, startingOffsets="earliest").load()
    writer = stream.selectExpr("CAST(value AS STRING) v").writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("path", str(tmp_path / "rows")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    assert query.awaitTermination(60)
    found = [int(row.v) for row in spark.read.parquet(str(tmp_path / "rows")).collect()]
    assert sorted(found) == list(range(6000))


PIPELINE = """
    import sys
    from spark.test_kills import numbers
    bootstrap, topic, directory = sys.argv[1:]
    numbers(topic, directory).run(bootstrap, state=directory + "/state", options={"maxOffsetsPerTrigger": "100"})
"""


def numbers(topic: str, directory: str) -> Pipeline:
    sink = Parquet(f"{directory}/rows")
    return pipeline(source=topic, decode=Text(), sink=sink, name="numbers")(lambda frame: frame.select("value"))


def test_a_pipeline_killed_around_a_write_continues_with_every_message_once(
    spark: Any, broker: Broker, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(*map(str, range(3000)))
    program = [sys.executable, "-c", textwrap.dedent(PIPELINE), broker.bootstrap, topic, str(tmp_path)]
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    quick = {"TAILRACE_SPARK_ARCHIVE": "off", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1", "PYTHONPATH": paths}
    for written in ("state/checkpoint/metadata", "rows/_spark_metadata/[1-9]*"):
        driver = subprocess.Popen(program, env=os.environ | quick, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            deadline = time.monotonic() + 100
            while not any(tmp_path.glob(written)):
                assert driver.poll() is None, "it has ended"
                assert time.monotonic() < deadline
                time.sleep(0.005)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    numbers(topic, str(tmp_path)).run(broker.bootstrap, state=tmp_path / "state", spark=spark, once=True)
    found = sorted(int(row.value) for row in spark.read.parquet(str(tmp_path / "rows")).collect())
    assert found == list(range(3000))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A test's own, in a process that can be killed."""
    with contextlib.closing(new_broker(tmp_path / "broker")) as process:
        process.start()
        yield process


def workers(spark: Any) -> list[int]:
    """Processes in which tasks of this session run: children of the daemon that its Java process has started."""
    java = spark.sparkContext._gateway.proc.pid
    daemons = [pid for pid in children(java) if "pyspark.daemon\0pyspark.worker" in command_of(pid)]
    return [worker for daemon in daemons for worker in children(daemon)]


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for task in tasks for child in task.read_text().split()]
    return []


def command_of(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def test_files_have_every_message_once_after_kills_of_workers_and_brokers(
    spark: Any, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(20)
    options = {"kafka.bootstrap.servers": own_broker.bootstrap, "subscribe": "orders", **EARLIEST}
    options["prefetch"] = "false"  # or small batches would be read by the driver, and there would be no workers to kill
    killed = 0
    with live(own_broker.bootstrap, "orders") as sent:
        stream = spark.readStream.format("tailrace").options(**options).load().selectExpr("CAST(value AS STRING) v")
        writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            for disturb in (own_broker.kill_and_start, own_broker.restart, own_broker.kill_and_start):
                batch = (query.lastProgress or {"batchId": 0})["batchId"]
                for _ in range(3):
                    time.sleep(0.7)
                    for pid in workers(spark):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                            killed += 1
                disturb()
                while (query.lastProgress or {"batchId": 0})["batchId"] < batch + 3:
                    assert query.isActive, query.exception()
                    time.sleep(0.1)
        except BaseException:
            query.stop()
            raise
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert killed > 0
    found = sorted(int(row.v) for row in spark.read.parquet(str(tmp_path / "rows")).collect())
    assert found == sent
