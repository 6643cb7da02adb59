"""The measures of growth run, each in its quick form, and leave nothing behind."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench.harness.broker_process import Load
from bench.harness.runner import run
from bench.measures.growth import per_gb
from bench.table import GROWTH_MEASURES

ROOT = Path(__file__).parents[3]


SLOW = {"growth-history"}  # the others show the same in a second each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in GROWTH_MEASURES]
)
def test_a_measure_of_growth_has_a_figure_for_each_size(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # from where its clients are started
    monkeypatch.setenv("TAILRACE_BENCH_DIR", str(tmp_path))
    done = run({name: GROWTH_MEASURES[name]}, quick=True, given=nullcontext)
    assert done.failures == {}
    names = [figure.name for figure in done.figures]
    assert len(names) == len(set(names)) >= 4
    at_rest = {figure.name for figure in done.figures if re.search("/rest/.*/cpu|/saved/", figure.name)}
    assert all(figure.ours.median > 0 for figure in done.figures if figure.name not in at_rest)
    assert not any(tmp_path.iterdir())


def test_the_cost_of_a_gigabyte_is_that_of_the_values() -> None:
    assert per_gb(1000, [Load(messages=500_000, seconds=3.0, client_cpu=2.0, broker_cpu=0.4)]) == [0.8]
