from contextlib import nullcontext
from pathlib import Path

import pytest

from bench.harness.runner import run
from bench.table import QUEUE_MEASURES


def test_the_depth_of_a_queue_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])  # from where the program is started
    monkeypatch.setenv("TAILRACE_BENCH_DIR", str(tmp_path))
    done = run({"queue-depth": QUEUE_MEASURES["queue-depth"]}, quick=True, given=nullcontext)
    assert done.failures == {}
    memory, rate = done.figures
    assert memory.ours.median >= 0
    assert rate.ours.median > 0


def test_the_delay_of_records_for_later_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    monkeypatch.setenv("TAILRACE_BENCH_DIR", str(tmp_path))
    done = run({"queue-delay": QUEUE_MEASURES["queue-delay"]}, quick=True, given=nullcontext)
    assert done.failures == {}
    assert [figure.name for figure in done.figures] == ["queues/delay/p50", "queues/delay/p99"]
