"""Spark's clients of its own: a session of Spark Connect, and declarative pipelines (`spark-pipelines`)."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tailrace.testing import Broker

pytestmark = [pytest.mark.needs("arrow", "spark", "connect"), pytest.mark.spark, pytest.mark.timeout(600)]

Options = dict[str, str]
Produce = Callable[..., None]

CONNECT = """
    import sys
    from pyspark.sql import SparkSession
    from tailrace.spark import Console, pipeline
    from tailrace.spark.source.options import BadOptions

    bootstrap, topic, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    print("batch", spark.read.format("tailrace").options(**options).load().count())
    stream = spark.readStream.format("tailrace").options(**options).load().select("key", "value").writeStream
    stream = stream.format("tailrace").option("kafka.bootstrap.servers", bootstrap).option("topic", topic + "-copy")
    stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    copy = options | {"subscribe": topic + "-copy"}
    print("copy", spark.read.format("tailrace").options(**copy).load().count())

    job = pipeline(source=topic, sink=Console(), name="job")(lambda frame: frame)
    for call in (
        lambda: job.test(messages=["tea"]),
        lambda: job.run(bootstrap, spark=spark, once=True, state=checkpoint + "-state"),
        lambda: job.replay(bootstrap, spark=spark, sink=Console(), state=checkpoint + "-state"),
    ):
        try:
            call()
        except BadOptions as refused:
            print("refused", refused)
"""


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=550,
    )


def test_the_format_works_on_spark_connect_and_pipelines_are_refused(
    broker: Broker, topic: str, produce: Produce, tmp_path: Path
) -> None:
    broker.create_topic(f"{topic}-copy")
    produce("tea", "milk", "cake")
    ended = python(CONNECT, broker.bootstrap, topic, str(tmp_path / "checkpoint"))
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[:2] == ["batch 3", "copy 3"]
    assert len(lines) == 5, "test, run and replay"
    assert all(line.startswith("refused pipelines do not run on Spark Connect: they need") for line in lines[2:])


SPEC = """
    name: shop
    storage: file://{directory}/storage
    libraries:
      - glob:
          include: transformations/**
"""
TRANSFORMATIONS = """
    from pyspark import pipelines as dp
    from pyspark.sql import DataFrame, SparkSession

    spark = SparkSession.active()
    SERVERS = {{"kafka.bootstrap.servers": "{bootstrap}"}}

    @dp.table
    def orders() -> DataFrame:
        source = spark.readStream.format("tailrace").options(**SERVERS)
        return source.option("subscribe", "{topic}").option("startingOffsets", "earliest").load()

    dp.create_sink("loud", "tailrace", {{**SERVERS, "topic": "{topic}-loud"}})

    @dp.append_flow(target="loud")
    def shout() -> DataFrame:
        return spark.readStream.table("orders").selectExpr("key", "upper(CAST(value AS STRING)) AS value")
"""


def test_a_declarative_pipeline_reads_and_writes_topics(
    broker: Broker, topic: str, produce: Produce, tmp_path: Path
) -> None:
    broker.create_topic(f"{topic}-loud")
    produce("tea", "milk")
    given = {"directory": tmp_path, "bootstrap": broker.bootstrap, "topic": topic}
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(textwrap.dedent(SPEC).format(**given))
    (tmp_path / "transformations" / "shop.py").write_text(textwrap.dedent(TRANSFORMATIONS).format(**given))
    ended = subprocess.run(
        [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--conf", "spark.ui.enabled=false"],
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "check", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([f"{topic}-loud"])
    found = [message.value() or b"" for message in consumer.consume(2, 30)]
    consumer.close()
    assert sorted(found) == [b"MILK", b"TEA"]
