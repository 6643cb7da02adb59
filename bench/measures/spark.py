"""The format `tailrace` against Spark's own Kafka connector, in one session, on the same topics of one broker: reads in
a batch with one core and with two, writes, and how long a message takes through a stream. And against
`confluent-kafka` in a plain loop, without Spark.

The connector is to be had for PySpark 4.2 only: the session is a process of the side environment that
scripts/fetch-spark-connector makes (`spark_worker.py`).
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench.harness.broker_process import broker_process, environment
from bench.harness.measure import Bench, Demand, Figure, Sample, compare
from bench.harness.topics import make_topic
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition as Place
from tailrace.client.options import ClientOptions
from tailrace.client.produce import Producer
from tailrace.records.record import Record, encode_batch

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
VALUE = b"x" * 100
BATCH = 5_000
CONNECTOR = "Spark's connector"


class Worker:
    """A Spark session in its own process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps({"do": what, **arguments}), file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the Spark session has ended; what it said is above")
        return dict(json.loads(line))


@contextmanager
def spark_worker(cores: int) -> Iterator[Worker]:
    home = Path(os.environ.get("TAILRACE_SPARK_CONNECTOR", Path.home() / ".cache/tailrace/spark-4.2.0"))
    python = home / "venv/bin/python"
    if not python.exists():
        raise RuntimeError("there is no Spark connector here: scripts/fetch-spark-connector fetches it")
    jars = ",".join(str(jar) for jar in sorted((home / "jars").glob("*.jar")))
    paths = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYSPARK_PYTHON": str(python)}
    process = subprocess.Popen(
        [python, "-m", "bench.programs.spark_worker", f"local[{cores},4]", jars],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if "TAILRACE_BENCH_DEBUG" in os.environ else subprocess.DEVNULL,
        text=True,
        env=environment() | paths,
    )
    try:
        worker = Worker(process)
        worker.answer()
        yield worker
    finally:
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        process.wait(60)


@contextmanager
def a_broker(bench: Bench) -> Iterator[str]:
    with bench.place.directory() as data, broker_process(data) as broker:
        yield broker.bootstrap


def fill(bootstrap: str, topic: str, rows: int) -> None:
    """As many records of a hundred bytes, in batches as a busy producer makes them."""
    now = int(time.time() * 1000)
    batch = encode_batch([Record(number, now, None, VALUE) for number in range(BATCH)])
    producer = Producer(Cluster(ClientOptions.from_properties({"bootstrap.servers": bootstrap})))
    for _ in range(rows // BATCH // PARTITIONS):
        producer.send({Place(topic, partition): bytearray(batch) for partition in range(PARTITIONS)})


def consume(bootstrap: str, topic: str, rows: int) -> float:
    """Seconds of the plain loop that one writes without Spark."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    began, count = time.perf_counter(), 0
    while count < rows:
        count += len(consumer.consume(BATCH, 0.1))
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def reading(bench: Bench) -> list[Figure]:
    rows, rounds = bench.pick(5_000_000, 1_000_000), bench.pick(3, 1)
    figures = []
    with a_broker(bench) as bootstrap:
        topic = make_topic(bootstrap, "rows", PARTITIONS)
        fill(bootstrap, topic, rows)
        for cores in (1, 2):
            with spark_worker(cores) as worker:

                def rate(format: str, worker: Worker = worker) -> float:
                    return rows / float(worker.ask("read", format=format, bootstrap=bootstrap, topic=topic)["seconds"])

                what = f"Spark reads, {cores} core{'s' * (cores > 1)}"
                ours, theirs = bench.take_turns(what, rounds, lambda: rate("tailrace"), lambda: rate("kafka"))
            least = Demand("ratio", "least", 2.0)
            figures.append(compare(f"spark-read/{cores}", what, "rows/s", ours, theirs, CONNECTOR, demanded=least))
        bench.tell("confluent-kafka in a loop")
        alone = [rows / consume(bootstrap, topic, rows) for _ in range(rounds)]
    loop = Figure("spark-read/loop", "confluent-kafka in a loop, no Spark", "rows/s", Sample.of(alone))
    return [*figures, loop]


def writing(bench: Bench) -> list[Figure]:
    rows, rounds = bench.pick(2_000_000, 400_000), bench.pick(3, 1)
    with a_broker(bench) as bootstrap, spark_worker(2) as worker:
        topics = {format: make_topic(bootstrap, f"written-by-{format}", PARTITIONS) for format in ("tailrace", "kafka")}

        def rate(format: str) -> float:
            done = worker.ask("write", format=format, bootstrap=bootstrap, topic=topics[format], rows=rows)
            return rows / float(done["seconds"])

        ours, theirs = bench.take_turns("Spark writes", rounds, lambda: rate("tailrace"), lambda: rate("kafka"))
    return [compare("spark-write/2", "Spark writes, 2 cores", "rows/s", ours, theirs, CONNECTOR)]


def latency(bench: Bench) -> list[Figure]:
    """Both take turns, each with a query of its own: the first few seconds of each do not count."""
    rounds, seconds = bench.pick(3, 1), bench.pick(20, 8)
    found: dict[str, list[dict[str, Any]]] = {"tailrace": [], "kafka": []}
    floors: dict[str, list[float]] = {"tailrace": [], "kafka": []}
    with a_broker(bench) as bootstrap, spark_worker(2) as worker:
        topic = make_topic(bootstrap, "ticks")

        def ask(what: str, format: str, **more: Any) -> dict[str, Any]:
            return worker.ask(what, format=format, bootstrap=bootstrap, topic=topic, **more)

        for number in range(-1, rounds):  # the first round warms Spark up
            for format in ("tailrace", "kafka") if number % 2 else ("kafka", "tailrace"):
                bench.tell(f"latency of a stream, {format}: round {number + 1} of {rounds}")
                one = ask("latency", format, per_second=50, warm_s=5, seconds=seconds)
                floor = ask("floor", format, seconds=bench.pick(10, 6))
                if number >= 0:
                    found[format].append(one)
                    floors[format].append(floor["ms"])
    figures = [_latency_figure(found, which) for which in ("p50", "p95")]
    floor_title = "Spark stream, a micro-batch at least"
    floor_figure = compare("spark-floor/batch", floor_title, "ms", floors["tailrace"], floors["kafka"], CONNECTOR)
    return [*figures, floor_figure]


def _latency_figure(found: dict[str, list[dict[str, Any]]], which: str) -> Figure:
    ours, theirs = ([one[which] for one in found[format]] for format in ("tailrace", "kafka"))
    title = f"Spark stream, sent to seen, {which}"
    notes = (f"{format}: {_phases(found[format])}" for format in found) if which == "p50" else ()
    most = Demand("ratio", "most", 1.3)
    return compare(f"spark-latency/{which}", title, "ms", ours, theirs, CONNECTOR, demanded=most, note="; ".join(notes))


def _phases(runs: list[dict[str, Any]]) -> str:
    last = runs[-1]["phases"]
    return "ms of a batch by phase, " + ", ".join(f"{phase} {last[phase]:.0f}" for phase in sorted(last))
