"""`tailrace run`, as a user has it: a process, a file with pipelines, and a broker."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tailrace.cli.pipelines.view import View
from tailrace.spark import Topic
from tailrace.testing import Broker

pytestmark = [pytest.mark.needs("arrow", "spark"), pytest.mark.spark]  # each of these processes loads PySpark

FILE = """
    from helper import limit
    from tailrace.spark import Json, Parquet, pipeline

    @pipeline(source="orders", decode=Json("id INT, amount DOUBLE"), sink=Parquet("out/big"))
    def big(orders):
        from pyspark.sql.functions import udf
        return orders.where(udf(lambda amount: (amount or 0) > limit(), "boolean")("amount")).select("id", "amount")

    @pipeline(source="orders", decode=Json("id INT"), sink=Parquet("out/all"))
    def everything(orders):
        return orders.select("id")
"""

WRONG = {
    "twice.py": """
        from tailrace.spark import Console, pipeline
        one = two = pipeline(source="a", sink=Console(), name="big")(lambda frame: frame)
        three = pipeline(source="b", sink=Console(), name="big")(lambda frame: frame)
    """,
    "broken.py": "def f():\n    # so\n    return nothing\nf()\n",
    "cut.py": "def f(:\n",
    "wrong.py": "from tailrace.spark import Json\nJson('id INT', corrupt='keep')\n",
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "pipelines.py").write_text(textwrap.dedent(FILE))
    (tmp_path / "helper.py").write_text("def limit():\n    return 100\n")
    for name, text in WRONG.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tailrace.cli.main", "run", *arguments]


def run(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=directory,
        env=os.environ | {"TAILRACE_SPARK_ARCHIVE": "off", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"} | environment,
        capture_output=True,
        text=True,
        timeout=250,
    )


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        yield broker


def produce(broker: Broker, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(20) == 0


# Without Spark


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nothing.py"], 2, "nothing.py is no Python file"),
        (["pipelines.py", "small"], 2, "has no pipeline 'small'; there are big, everything"),
        (["helper.py"], 2, "helper.py has no pipeline in it"),
        (["pipelines.py", "--every", "soon"], 2, "every is a cadence such as"),
        (["pipelines.py", "--every", "1s", "--once"], 2, "exclude each other"),
        (
            ["pipelines.py", "--on-data-loss", "skip"],
            2,
            "on_data_loss is one of fail, earliest, report, and not 'skip'",
        ),
        (["twice.py"], 2, "twice.py has two pipelines 'big'"),
        (["broken.py"], 2, "broken.py:3: NameError: name 'nothing' is not defined"),
        (["cut.py"], 2, "cut.py:1: SyntaxError: "),
        (["wrong.py"], 2, "wrong.py:2: corrupt is column, drop, fail or a sink, and not 'keep'"),
        (["pipelines.py", "-b", "127.0.0.1:1"], 3, "no broker answers at 127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(directory: Path, arguments: list[str], code: int, said: str) -> None:
    ended = run(directory, *arguments, JAVA_HOME="/nowhere")
    assert said in ended.stderr
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr


def test_a_topic_that_is_missing_and_a_java_that_is_missing_are_said(directory: Path, broker: Broker) -> None:
    ended = run(directory, "pipelines.py", "-b", broker.bootstrap, JAVA_HOME="/nowhere")
    assert ended.stderr.startswith("tailrace: Spark needs Java 17 or later, and there is none in JAVA_HOME (/nowhere)")
    assert ended.returncode == 2
    text = (directory / "pipelines.py").read_text()
    (directory / "pipelines.py").write_text(text.replace('"orders"', '"ordres"'))
    ended = run(directory, "pipelines.py", "-b", broker.bootstrap, JAVA_HOME="/nowhere")
    assert ended.returncode == 4
    assert "ordres" in ended.stderr


def test_what_becomes_of_rows_is_said_before_the_first_batch_and_not_to_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for as_json in (False, True):
        View(as_json=as_json).begin("big", ["orders", "returns"], Topic("out", delivery="at-least-once").guarantee)
    said = capsys.readouterr()
    assert said.err == (
        "big reads orders, returns; rows arrive at least once: a batch that is tried again is written again\n"
    )
    assert said.out == ""


def test_other_verbs_do_not_load_spark(tmp_path: Path) -> None:
    program = "import sys, tailrace.cli.app as m; m.app_of(); print('pyspark' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "False\n"


# With Spark


@pytest.mark.timeout(300)
def test_all_pipelines_of_a_file_run_over_what_is_there(directory: Path, broker: Broker) -> None:
    import pyarrow.parquet as pq

    produce(broker, '{"id": 1, "amount": 150}', '{"id": 2, "amount": 5}', "{")
    ended = run(directory, "pipelines.py", "--once", "--json", "--state", "kept", "-b", broker.bootstrap)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    with_rows = sorted((one["pipeline"], one["rows"], one["corrupt"], one["lag"]) for one in found if one["rows"])
    assert with_rows == [("big", 3, 1, 0), ("everything", 3, 1, 0)]
    assert pq.read_table(directory / "out" / "big").column("id").to_pylist() == [1]
    assert sorted(path.name for path in (directory / "kept").iterdir()) == ["big", "everything"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("to_all", [False, True])
def test_a_live_run_ends_with_a_signal(directory: Path, broker: Broker, to_all: bool) -> None:
    """Ctrl-C; or SIGTERM to Java and to us at once, as a service manager sends it."""
    produce(broker, '{"id": 1, "amount": 150}')
    process = subprocess.Popen(
        command("pipelines.py", "big", "--json", "-b", broker.bootstrap),
        cwd=directory,
        env=os.environ | {"TAILRACE_SPARK_ARCHIVE": "off", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["rows"] == 0:
            pass
        if to_all:
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=100)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert "ERROR" not in said
    assert "incubator" not in said
