"""What `tailrace run` says of failures, as a user has it."""

import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pipeline_commands import produce, run_command

from tailrace.testing import Broker

pytestmark = [pytest.mark.needs("arrow", "spark"), pytest.mark.spark, pytest.mark.timeout(300)]

FILE = """
    from tailrace.spark import Call, Files, Json, Parquet, pipeline

    @pipeline(source="orders", decode=Json("id INT"), sink=Parquet("out/other"))
    def other(orders):
        return orders.select("id")

    @pipeline(source="orders", sink=Files("delta", "out/delta"))
    def lake(orders):
        return orders
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "pipelines.py").write_text(textwrap.dedent(FILE))
    return tmp_path


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        produce(broker, '{"id": 1}', '{"id": 2}')
        yield broker


def run(directory: Path, broker: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(directory, "run", "pipelines.py", *arguments, "-b", broker.bootstrap)


def test_a_missing_format_and_lost_records_are_said_in_a_sentence(directory: Path, broker: Broker) -> None:
    ended = run(directory, broker, "lake", "--once")
    assert ended.returncode == 1
    said = ended.stderr.splitlines()
    assert any(line.startswith("lake reads orders; rows arrive at least once: format delta may have") for line in said)
    assert said[-1].startswith("tailrace: lake: Spark has no format 'delta'. Check its name")
    assert "Java process has ended" not in ended.stderr
    assert run(directory, broker, "other", "--once", "--json").returncode == 0
    produce(broker, '{"id": 3}', '{"id": 4}')
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in client.delete_records([TopicPartition("orders", 0, 3)]).values():
        future.result(10)
    ended = run(directory, broker, "other", "--once", "--json")
    assert ended.returncode == 1
    assert "orders-0: offsets 2 to 2 are missing" in ended.stderr
    assert "To go on without them: --on-data-loss earliest" in ended.stderr
    assert "Starting Spark" not in ended.stderr, "to a program"
