"""A Spark session of its own, with Spark's Kafka connector beside ours: it is told what to do in lines of JSON, and
answers each with one. Runs in the side environment that scripts/fetch-spark-connector makes, where only `tailrace` and
this directory come by PYTHONPATH.

    python -m bench.programs.spark_worker 'local[2,4]' JAR,JAR
"""

import json
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

VALUE_BYTES = 100


def main() -> None:
    master, jars = sys.argv[1:3]
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is no answer
    spark = session(master, jars)
    print(json.dumps({"spark": spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = globals()[asked.pop("do")](spark, **asked)
        print(json.dumps(answer), file=answers, flush=True)


def session(master: str, jars: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("bench")
    for name, value in {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def read(spark: SparkSession, format: str, bootstrap: str, topic: str) -> dict[str, float]:
    """All of a topic, all columns, to nowhere."""
    frame = spark.read.format(format).options(**source(bootstrap, topic)).load()
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return {"seconds": time.perf_counter() - began}


def write(spark: SparkSession, format: str, bootstrap: str, topic: str, rows: int) -> dict[str, float]:
    """Rows that Spark makes up, with a key and a value, to a topic."""
    cores = spark.sparkContext.defaultParallelism
    numbers = spark.range(0, rows, numPartitions=cores)
    frame = numbers.selectExpr("cast(id AS string) AS key", f"rpad(cast(id AS string), {VALUE_BYTES}, 'x') AS value")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    began = time.perf_counter()
    frame.write.format(format).options(**options).mode("append").save()
    return {"seconds": time.perf_counter() - began}


def latency(
    spark: SparkSession, format: str, bootstrap: str, topic: str, per_second: int, warm_s: float, seconds: float
) -> dict[str, Any]:
    """How long after it was sent a message is seen by a function that is called with each batch, in ms."""
    seen: list[tuple[float, float]] = []

    def look(frame: DataFrame, _: int) -> None:
        rows = frame.selectExpr("CAST(value AS STRING)").collect()
        now = time.time()
        seen.extend((float(row[0].split()[0]), now) for row in rows)

    stream = spark.readStream.format(format).options(**source(bootstrap, topic), startingOffsets="latest").load()
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as place:
        query = stream.writeStream.foreachBatch(look).option("checkpointLocation", place).start()
        with sending(bootstrap, topic, per_second):
            time.sleep(warm_s)
            begin = time.time()
            time.sleep(seconds)
        progress = [one for one in query.recentProgress if one.numInputRows and one.batchId > 1]
        query.stop()
    delays = sorted((now - sent) * 1000 for sent, now in seen if sent >= begin)
    return {"p50": at(delays, 0.5), "p95": at(delays, 0.95), "count": len(delays), "phases": phases(progress)}


def floor(spark: SparkSession, format: str, bootstrap: str, topic: str, seconds: float) -> dict[str, Any]:
    """What a micro-batch takes at least: a row or two, to nowhere."""
    stream = spark.readStream.format(format).options(**source(bootstrap, topic), startingOffsets="latest").load()
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as place:
        query = stream.writeStream.format("noop").option("checkpointLocation", place).start()
        with sending(bootstrap, topic, 20):
            time.sleep(seconds)
        progress = [one for one in query.recentProgress if one.numInputRows][5:]
        query.stop()
    return {"ms": median(one.durationMs["triggerExecution"] for one in progress), "phases": phases(progress)}


def source(bootstrap: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}


def phases(progress: list[Any]) -> dict[str, float]:
    """The median of each."""
    found = defaultdict(list)
    for one in progress:
        for phase, duration in one.durationMs.items():
            found[phase].append(duration)
    return {phase: median(durations) for phase, durations in found.items()}


def at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@contextmanager
def sending(bootstrap: str, topic: str, per_second: int) -> Iterator[None]:
    """Messages that say when they were sent."""
    over = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})

    def send() -> None:
        while not over.wait(1 / per_second):
            producer.produce(topic, f"{time.time()} ".ljust(VALUE_BYTES, "x"))
            producer.poll(0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        producer.flush(10)


if __name__ == "__main__":
    main()
