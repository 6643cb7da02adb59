"""`tailrace replay`, as a user has it: a process, a file with a pipeline, and a broker."""

import json
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline_commands import produce, run_command

from tailrace.testing import Broker

pytestmark = [pytest.mark.needs("arrow", "spark"), pytest.mark.spark]  # each of these processes loads PySpark

FILE = """
    from tailrace.spark import Json, Parquet, pipeline

    @pipeline(source="orders", decode=Json("id INT"), sink=Parquet("out/live"))
    def even(orders):
        return orders.where("id % 2 = 0").select("id")

    @pipeline(source="missing", sink=Parquet("out/live"))
    def nothing(messages):
        return messages
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "pipelines.py").write_text(textwrap.dedent(FILE))
    return tmp_path


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        produce(broker, *(json.dumps({"id": number}) for number in range(10)))
        yield broker


def replay(directory: Path, broker: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(directory, "replay", *arguments, "-b", broker.bootstrap)


def test_a_dry_run_says_what_there_is_and_does_not_start_spark(directory: Path, broker: Broker) -> None:
    done = replay(directory, broker, "pipelines.py", "even", "--from", "-1h", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert (plan["pipeline"], plan["mode"], plan["completeness"]) == ("even", "batch", "complete")
    assert (plan["offsets"], plan["gaps"]) == (10, [])
    assert plan["partitions"] == [{"topic": "orders", "partition": 0, "from": 0, "to": 10}]
    said = replay(directory, broker, "pipelines.py", "even", "--dry-run").stdout
    assert said.startswith("even: 10 offsets of 1 partition, about ")
    assert said.endswith("B; complete\n")
    assert not (directory / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["pipelines.py", "--into", "again"], 2, "several pipelines: say which of even, nothing"),
        (["pipelines.py", "even"], 2, "--into says where the result goes"),
        (["pipelines.py", "even", "--into", "topic:orders"], 2, "would change what it replays"),
        (["pipelines.py", "even", "--into", "out/live"], 2, "where the live pipeline writes"),
        (["pipelines.py", "even", "--from", "someday", "--dry-run"], 2, "'someday' is not a time"),
        (["pipelines.py", "even", "--exact", "--dry-run"], 2, "recorded no batch"),
        (["pipelines.py", "nothing", "--dry-run"], 4, "missing"),
    ],
)
def test_mistakes_are_said_before_spark_starts(
    directory: Path, broker: Broker, arguments: list[str], code: int, said: str
) -> None:
    done = replay(directory, broker, *arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


@pytest.mark.timeout(250)
def test_the_result_is_where_it_was_wanted(directory: Path, broker: Broker) -> None:
    import pyarrow.parquet

    done = replay(directory, broker, "pipelines.py", "even", "--into", "out/again")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("10 rows read, 5 rows written")
    table = pyarrow.parquet.read_table(directory / "out" / "again")
    assert sorted(table.column("id").to_pylist()) == [0, 2, 4, 6, 8]
    again = replay(directory, broker, "pipelines.py", "even", "--into", "out/again")
    assert (again.returncode, again.stdout.count("\n")) == (2, 1)
    assert "has something in it" in again.stderr
