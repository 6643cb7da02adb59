"""`tailrace run`, as a user has it: a process, a file with pipelines, and a broker."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline_commands import QUICK, command, produce, run_command

from tailrace.cli.pipelines.run import say_that_spark_ends
from tailrace.cli.pipelines.view import View
from tailrace.spark import Topic
from tailrace.spark.pipelines.session import session
from tailrace.spark.pipelines.session.class_archive import Archive
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

SETTINGS = """
    from tailrace.spark import Parquet, pipeline

    @pipeline(source="ord.*", sink=Parquet("out/settings"))
    def settings(orders):
        spark = orders.sparkSession
        package = spark._jvm.Thread.currentThread().getContextClassLoader().getResource("greeting.txt")
        print(f"session: {spark.conf.get('spark.sql.session.timeZone')}, package: {package is not None}", flush=True)
        return orders
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
    (tmp_path / "notes.txt").write_text("no program\n")
    return tmp_path


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        yield broker


# Without Spark


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nothing.py"], 2, "nothing.py does not exist"),
        (["notes.txt"], 2, "notes.txt is not a Python file: its name must end in .py"),
        (["pipelines.py", "small"], 2, "has no pipeline 'small'; there are big, everything"),
        (["helper.py"], 2, "helper.py has no pipeline in it"),
        (["pipelines.py", "--every", "soon"], 2, "every is a cadence such as"),
        (["pipelines.py", "--every", "1s", "--once"], 2, "exclude each other"),
        (
            ["pipelines.py", "--on-data-loss", "skip"],
            2,
            "on_data_loss is one of fail, earliest, report, and not 'skip'",
        ),
        (["pipelines.py", "--conf", "driver.memory=4g"], 2, "--conf is spark.KEY=VALUE, and not 'driver.memory=4g'"),
        (["pipelines.py", "--conf", "spark.master=local"], 2, "is --master URL here"),
        (["twice.py"], 2, "twice.py has two pipelines 'big'"),
        (["broken.py"], 2, "broken.py:3: NameError: name 'nothing' is not defined"),
        (["cut.py"], 2, "cut.py:1: SyntaxError: "),
        (["wrong.py"], 2, "wrong.py:2: corrupt is column, drop, fail or a sink, and not 'keep'"),
        (["pipelines.py", "-b", "127.0.0.1:1"], 3, "no broker answers at 127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(directory: Path, arguments: list[str], code: int, said: str) -> None:
    ended = run_command(directory, "run", *arguments, JAVA_HOME="/nowhere")
    assert said in ended.stderr
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("is_there", "as_json", "is_said"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_the_wait_at_the_end_of_the_first_session_is_said_to_people(
    is_there: bool, as_json: bool, is_said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "_archives", [Archive(Path("classes.jsa"), is_there)])
    say_that_spark_ends(as_json)
    assert ("Storing Spark's classes once" in capsys.readouterr().err) == is_said


def test_a_pipeline_with_client_options_fails_before_spark_starts_if_nothing_listens(
    directory: Path,
) -> None:
    text = (directory / "pipelines.py").read_text()
    own = text.replace("@pipeline(", '@pipeline(options={"kafka.client.id": "own"}, ')
    assert own != text
    (directory / "pipelines.py").write_text(own)
    ended = run_command(directory, "run", "pipelines.py", "--once", "-b", "localhost:1", JAVA_HOME="/nowhere")
    assert (ended.returncode, "no broker answers at localhost:1" in ended.stderr) == (3, True)


def test_a_topic_that_is_missing_and_a_java_that_is_missing_are_said(directory: Path, broker: Broker) -> None:
    ended = run_command(directory, "run", "pipelines.py", "-b", broker.bootstrap, JAVA_HOME="/nowhere")
    assert ended.stderr.startswith("tailrace: Spark needs Java 17 or later, and there is none in JAVA_HOME (/nowhere)")
    assert ended.returncode == 2
    text = (directory / "pipelines.py").read_text()
    (directory / "pipelines.py").write_text(text.replace('"orders"', '"ordres"'))
    ended = run_command(directory, "run", "pipelines.py", "-b", broker.bootstrap, JAVA_HOME="/nowhere")
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
    ended = run_command(directory, "run", "pipelines.py", "--once", "--json", "--state", "kept", "-b", broker.bootstrap)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    with_rows = sorted((one["pipeline"], one["rows"], one["corrupt"], one["lag"]) for one in found if one["rows"])
    assert with_rows == [("big", 3, 1, 0), ("everything", 3, 1, 0)]
    assert pq.read_table(directory / "out" / "big").column("id").to_pylist() == [1]
    assert sorted(path.name for path in (directory / "kept").iterdir()) == ["big", "everything"]


def maven_package(ivy: Path) -> str:
    """A package in the local repository of this Ivy directory: a jar with one file. Its coordinates."""
    group, name, version = "io.example", "greetings", "1.0"
    place = ivy / "local" / group / name / version
    for folder in ("jars", "ivys"):
        (place / folder).mkdir(parents=True)
    with zipfile.ZipFile(place / "jars" / f"{name}.jar", "w") as jar:
        jar.writestr("greeting.txt", "hello")
    info = f'<info organisation="{group}" module="{name}" revision="{version}" status="release"/>'
    (place / "ivys" / "ivy.xml").write_text(
        f'<ivy-module version="2.0">{info}<publications><artifact name="{name}"/></publications></ivy-module>'
    )
    return f"{group}:{name}:{version}"


@pytest.mark.timeout(300)
def test_settings_and_packages_of_spark_reach_the_session_of_run_and_replay(directory: Path, broker: Broker) -> None:
    (directory / "settings.py").write_text(textwrap.dedent(SETTINGS))
    produce(broker, "tea")
    ivy = directory / "ivy"
    given = ["settings.py", "--packages", maven_package(ivy), "--conf", f"spark.jars.ivy={ivy}"]
    given += ["--conf", "spark.sql.session.timeZone=Asia/Tokyo", "-b", broker.bootstrap]
    for verb, more in (("run", ["--once"]), ("replay", ["--into", "again"])):
        ended = run_command(directory, verb, *given, *more)
        assert ended.returncode == 0, ended.stderr
        assert "session: Asia/Tokyo, package: True" in ended.stdout.splitlines()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("to_all", [False, True])
def test_a_live_run_ends_with_a_signal(directory: Path, broker: Broker, to_all: bool) -> None:
    """Ctrl-C; or SIGTERM to Java and to us at once, as a service manager sends it."""
    produce(broker, '{"id": 1, "amount": 150}')
    process = subprocess.Popen(
        command("run", "pipelines.py", "big", "--json", "-b", broker.bootstrap),
        cwd=directory,
        env=os.environ | QUICK,
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
