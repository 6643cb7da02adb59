"""Finds Java, and its version; reports in one line that there is none."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

LEAST = 17  # for Spark 4


class NoJava(Exception):
    """No Java that Spark can run on: one line on what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    program: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


def find() -> Java:
    """The one that Spark takes: JAVA_HOME's, or the first in the PATH. Raises NoJava."""
    return find_in(os.environ.get("JAVA_HOME"))


def find_in(home: str | None) -> Java:
    """The one of that JAVA_HOME, or without one the first in the PATH. Raises NoJava."""
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    where = f"JAVA_HOME ({home})" if home else "the PATH"
    advice = f"install one, such as openjdk-{LEAST}-jre-headless, or set JAVA_HOME"
    if found is None or not Path(found).is_file():
        raise NoJava(f"Spark needs Java {LEAST} or later, and there is none in {where}: {advice}")
    program = Path(found).resolve()
    java = Java(program, _version(program))
    if java.major < LEAST:
        raise NoJava(f"Spark needs Java {LEAST} or later, and the one in {where} is {java.version}: {advice}")
    return java


def _version(program: Path) -> str:
    """From the file beside it, since starting it takes a while."""
    release = program.parent.parent / "release"
    text = release.read_text() if release.is_file() else _asked(program)
    if found := re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?([^"]+)"', text):
        return found[1]
    raise NoJava(f"{program} does not say which version it is: is it a Java?")


def _asked(program: Path) -> str:
    try:
        return subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"{program} cannot be run: {error}") from None
