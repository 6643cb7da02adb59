"""The measures of the monitor run, and leave nothing behind."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from bench.harness.broker_process import broker_process
from bench.harness.raw_connection import RawConnection
from bench.harness.runner import run
from bench.measures import monitor
from bench.table import MONITOR_MEASURES


def test_the_start_is_measured_with_a_monitor_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_BENCH_DIR", str(tmp_path))
    done = run({"monitor-start": MONITOR_MEASURES["monitor-start"]}, quick=True, given=nullcontext)
    assert done.failures == {}
    (figure,) = done.figures
    assert figure.against is not None
    assert figure.ours.median > 0
    assert not any(tmp_path.iterdir())


def test_groups_of_the_crowd_have_read_what_they_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the loss ledger would be part of what is measured."""
    monkeypatch.setattr(monitor, "TOPICS", 2)
    monkeypatch.setattr(monitor, "GROUPS_OF_A_TOPIC", 100)
    with broker_process(str(tmp_path / "data"), monitor=True) as broker, RawConnection(*broker.address) as connection:
        monitor.make_crowd(broker, connection, 1)
        monitor.follow(connection, 0)
        assert monitor.monitor_of(broker) > 0
        broker.stop()
        assert not (tmp_path / "data" / "__tailrace_losses-0").exists()
