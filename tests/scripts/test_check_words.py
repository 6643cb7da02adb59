"""The words that `make check` refuses in src."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_words.py"


def check(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, directory], capture_output=True, text=True)


def check_line(directory: Path, line: str) -> subprocess.CompletedProcess[str]:
    (directory / "module.py").write_text(f'"""A module."""\n{line}\n')
    return check(directory)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('"""Afterwards it is gone."""', "Afterwards"),
        ("# the client waits afterwards", "afterwards"),
        ('raise ValueError("NOBODY knows")', "NOBODY"),
        ("upkeep_seconds = 1", "upkeep"),
        ("seconds_of_upkeep = 1", "upkeep"),
        ("class UpkeepJob: ...", "Upkeep"),
        ("def startUpkeep(): ...", "Upkeep"),
        ("def lent(self): ...", "lent"),
        ("def take_the_long_way(): ...", "long way"),
        ("foreign_configs = {}", "foreign configs"),
        ("# the next in line", "in line"),
        ("# it goes the long\n    # way", "long way"),
        ("class Place:", "Place"),
        ("    class _Wanted(NamedTuple):", "Wanted"),
    ],
)
def test_a_refused_word_is_printed_with_its_line_and_what_to_write_instead(
    tmp_path: Path, line: str, word: str
) -> None:
    done = check_line(tmp_path, line)
    assert done.returncode == 1
    assert f"{tmp_path.name}/module.py:2: {word} → " in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "excellent = silently = talent = 1",
        "# brought in line with Kafka",
        "# a line, and others inline: in lines",
        "class Replacement(Placement): ...",
        "class ProduceBatchRun: ...",
        "part, place, run, form = wanted",
        "# along ways",
    ],
)
def test_words_that_only_contain_or_resemble_a_refused_word_pass(tmp_path: Path, line: str) -> None:
    done = check_line(tmp_path, line)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_word_is_reported_in_the_order_of_the_lines(tmp_path: Path) -> None:
    done = check_line(tmp_path, "nobody = 1\nupkeep = nobody")
    assert [line.split(" → ")[0].removeprefix(f"{tmp_path.name}/") for line in done.stdout.splitlines()[:-1]] == [
        "module.py:2: nobody",
        "module.py:3: upkeep",
        "module.py:3: nobody",
    ]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module(SCRIPT.stem)


def test_an_exception_covers_its_own_text_in_its_own_file_only(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "metrics.py").write_text('NAME = "upkeep_seconds"\nupkeep = 1\n')
    (tmp_path / "other.py").write_text('NAME = "upkeep_seconds"\n')
    exception = script.Allowed("metrics.py", '"upkeep_seconds"', "a public metric")
    found, unused = script.check(tmp_path, [exception])
    assert [(each.path, each.line) for each in found] == [("metrics.py", 2), ("other.py", 1)]
    assert unused == []


def test_an_exception_that_matches_nothing_is_an_error(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metrics.py").write_text("seconds = 1\n")
    assert script.main(tmp_path, [script.Allowed("metrics.py", "upkeep", "a public metric")]) == 1
    assert "the exception 'upkeep' of metrics.py matches nothing" in capsys.readouterr().out
    assert script.main(tmp_path, []) == 0
