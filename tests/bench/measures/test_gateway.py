"""The measures of the gateway run, and leave nothing behind."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from bench.harness.runner import run
from bench.measures import gateway
from bench.table import GATEWAY_MEASURES


def test_rates_and_waiting_requests_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_BENCH_DIR", str(tmp_path))
    monkeypatch.setattr(gateway, "IDLE_POLLS", 10)
    monkeypatch.setattr(gateway, "P99_S", 0.1)
    measures = {name: GATEWAY_MEASURES[name] for name in ("gateway-rates", "gateway-polls")}
    done = run(measures, quick=True, given=nullcontext)
    assert done.failures == {}
    assert all(figure.ours.median > 0 for figure in done.figures)
    assert {figure.name for figure in done.figures} >= {"gateway/rate/1", "gateway/rate/keyed", "gateway/polls/p99"}
    assert not any(tmp_path.iterdir())
