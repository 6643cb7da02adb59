"""Java programs that come as a source: compiled once by each process that runs tests, and made to start fast."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import parts
import pytest

SECONDS = 30


@functools.cache
def _directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="java-programs-"))
    atexit.register(shutil.rmtree, directory)
    return directory


def command(source: Path, libraries: Iterable[str]) -> list[str]:
    """What starts it, with those of Kafka's jars."""
    jars = [str(path) for name in libraries for path in sorted(parts.kafka_jars().glob(f"{name}.jar"))]
    options = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-Xlog:disable"]
    return [*options, "-cp", os.pathsep.join([str(_compiled(source, jars)), *jars]), source.stem]


def fast_command(source: Path, libraries: Iterable[str], arguments: Sequence[str], words: str) -> list[str]:
    """The same, for one that is started often: run once, as told, to find the classes that it needs."""
    java, *rest = command(source, libraries)
    archive = _directory() / f"{source.stem}.jsa"
    learning = [java, f"-XX:ArchiveClassesAtExit={archive}", *rest, *arguments]
    with subprocess.Popen(
        learning, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        process.stdin.write(words.encode())
        process.stdin.flush()
        assert process.wait(SECONDS) == 0
    return [java, f"-XX:SharedArchiveFile={archive}", *rest]


def _compiled(source: Path, jars: Iterable[str]) -> Path:
    if not shutil.which("javac"):
        (pytest.fail if "java" in parts.required() else pytest.skip)("no javac on the PATH")
    classes = _directory() / source.stem
    compiler = ["javac", "-proc:none", "-d", str(classes), "-cp", os.pathsep.join(jars)]
    subprocess.run([*compiler, str(source)], check=True, timeout=SECONDS)
    jar = classes.with_suffix(".jar")  # an archive wants no classes from a directory
    with zipfile.ZipFile(jar, "w") as file:
        for path in classes.glob("*.class"):
            file.write(path, path.name)
    return jar
