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
    broker.create_topic("loud-orders")
    produce("tea", "coffee", to="orders")
    assert len(BLOCKS) == 3
    names = {"spark": spark}
    for block in BLOCKS:
        program = block.replace("127.0.0.1:9092", broker.bootstrap).replace('"out/', f'"{tmp_path}/out/')
        exec(compile(program, str(PAGE), "exec"), names)
    assert "coffee" in capsys.readouterr().out
    found = spark.read.parquet(str(tmp_path / "out" / "orders")).collect()
    assert sorted(row.order for row in found) == ["coffee", "tea"]
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "loud-orders"}
    written = spark.read.format("tailrace").options(**options).load().collect()
    assert sorted(bytes(row.value) for row in written) == [b"COFFEE", b"TEA"]
