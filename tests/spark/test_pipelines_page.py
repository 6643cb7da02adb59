"""docs/PIPELINES.md: its programs run."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.testing import Broker

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(150),
    pytest.mark.spark,
]

PAGE = Path(__file__).parents[2] / "docs" / "PIPELINES.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_its_programs_run(
    spark: Any, broker: Broker, produce: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic("orders")
    produce('{"id": 1, "amount": 150}', '{"id": 2, "amount": 5}', "no JSON", to="orders")
    for block in BLOCKS:
        program = block.replace("127.0.0.1:9092", broker.bootstrap).replace('"out/', f'"{tmp_path}/out/')
        exec(compile(program, str(PAGE), "exec"), {"spark": spark})
    assert "3 messages in 2 batches" in capsys.readouterr().out

    def written(name: str) -> list[Any]:
        return list(spark.read.parquet(str(tmp_path / "out" / name)).collect())

    assert [row.id for row in written("big")] == [1]
    assert [row.value for row in written("bad")] == [b"no JSON"]
    assert len(written("orders")) == 3
