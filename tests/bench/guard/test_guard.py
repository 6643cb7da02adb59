"""The guard fails a change that is slower, and none that only seemed so once."""

import re

import pytest

from bench.guard.__main__ import RECORDED_BASE, ROOT, tree_of
from bench.guard.verdict import Path, failed, words
from bench.harness.place import temporary_place


def path(*ours: float) -> Path:
    return Path("name", "µs", 1.1, ours, (10.0,) * len(ours))


def test_more_than_the_limit_is_slower_and_less_is_not() -> None:
    assert path(11.2, 11.2, 11.2).is_slower
    assert not path(10.9, 10.9, 10.9).is_slower
    assert not path(5.0).is_slower


def test_one_slow_round_is_noise() -> None:
    assert not path(10.0, 30.0, 10.0, 10.0, 30.0).is_slower


def test_only_what_is_slower_each_time_fails() -> None:
    slow, fast = path(12.0), path(10.0)
    assert failed([slow])
    assert failed([slow, slow, slow])
    assert not failed([slow, fast])
    assert not failed([fast])


def test_what_is_said_is_how_it_ended() -> None:
    assert words([path(12.0)])[-1] == "SLOWER"
    assert words([path(12.0), path(10.0)])[-1] == "ok, measured 2 times"
    assert words([path(10.0)]) == ("10 µs", "10", "× 1.000 ± 0", "1.1", "ok")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone")
def test_the_tree_of_a_revision_has_its_own_source_and_its_own_bench() -> None:
    with temporary_place() as place, tree_of("HEAD", place) as tree:
        assert (tree / "src" / "tailrace" / "__init__.py").is_file()
        assert (tree / "bench" / "guard" / "__init__.py").is_file()


def test_the_recorded_base_is_a_commit() -> None:
    assert re.fullmatch("[0-9a-f]{40}", RECORDED_BASE.read_text().strip())
