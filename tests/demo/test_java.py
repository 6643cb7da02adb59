"""Act two without Java: it is installed where that may be done, or one line says what to do. It is no failure."""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from demo import act_two, java
from demo.screen import Screen
from demo.spark_start import SparkStart

APT_GET = """#!/bin/sh
[ "$1" = install ] || exit 0
echo '#!/bin/sh' > {home}/bin/java
echo 'JAVA_VERSION="{version}"' > {home}/release
/bin/chmod +x {home}/bin/java
"""


@pytest.fixture
def shown() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def screen(shown: io.StringIO) -> Screen:
    return Screen(Console(file=shown, width=200))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it, on which we are root."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def with_apt_get(home: Path, version: str) -> None:
    program = home / "bin" / "apt-get"
    program.write_text(APT_GET.format(home=home, version=version))
    program.chmod(0o755)


def test_without_java_the_act_is_left_out_and_a_line_says_what_to_do(
    home: Path, screen: Screen, shown: io.StringIO
) -> None:
    assert act_two.run(screen, SparkStart())
    assert "Spark needs Java 17 or later" in shown.getvalue()
    assert "So act two is left out." in shown.getvalue()


def test_java_is_installed_where_that_may_be_done(home: Path, screen: Screen, shown: io.StringIO) -> None:
    with_apt_get(home, "17.0.1")
    assert java.is_there(screen)
    assert "apt-get install default-jre-headless" in shown.getvalue()


def test_nothing_is_installed_by_somebody_who_is_not_root(
    home: Path, screen: Screen, shown: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_apt_get(home, "17.0.1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not java.is_there(screen)
    assert "apt-get" not in shown.getvalue()


def test_a_java_that_is_too_old_is_not_enough(home: Path, screen: Screen, shown: io.StringIO) -> None:
    with_apt_get(home, "11.0.2")
    assert not java.is_there(screen)
    assert "11.0.2" in shown.getvalue()
