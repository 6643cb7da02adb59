import sys
from collections.abc import Iterator
from contextlib import nullcontext
from subprocess import CalledProcessError

import pytest

from bench.harness.measure import Bench, Figure, Sample
from bench.harness.runner import run


def figure(name: str) -> Figure:
    return Figure(name, name, "s", Sample.of([1.0]))


def crashes(bench: Bench) -> Iterator[Figure]:
    yield figure("before")
    raise OSError("no more")


def test_a_crash_is_reported_and_costs_only_what_comes_after_it(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_BENCH_DIR", str(tmp_path))
    done = run({"one": crashes, "two": lambda _: [figure("after")]}, quick=True, given=nullcontext)
    assert [found.name for found in done.figures] == ["before", "after"]
    assert done.failures == {"one": "OSError: no more"}
    assert done.disk.sync_p99 >= done.disk.sync_p50 > 0
    assert "OSError" in capsys.readouterr().err


def test_a_report_does_not_say_where_our_interpreter_is(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(bench: Bench) -> list[Figure]:
        raise CalledProcessError(1, [sys.executable, "-m", "bench.programs.load"])

    monkeypatch.setenv("TAILRACE_BENCH_DIR", str(tmp_path))
    done = run({"one": fails}, quick=True, given=nullcontext)
    assert "'python', '-m', 'bench.programs.load'" in done.failures["one"]
