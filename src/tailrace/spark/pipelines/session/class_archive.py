"""An archive of Spark's loaded classes, which halves the time that a session takes to start.

Java calls it a dynamic archive of class data. The first session has Java write one as it ends, under a name of its own
in the user's cache; when Java is gone, and only if all went well, that file gets its final name. Sessions from then on
start with it. The name says for which Java and which Spark it is, and the checksum that it has to have: Java falls over
one that was cut, so a damaged one is deleted, and made again. All that an archive costs is the end of the first
session, which takes some seconds more. `TAILRACE_SPARK_ARCHIVE` says in which directory it is, or `off`.

A Java process that outlives ours, which was killed or stopped while Spark started, leaves no archive: it is given a
path through our entry in /proc, which ends with us.
"""

import hashlib
import os
import subprocess
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.spark.pipelines.session.java import Java

VARIABLE = "TAILRACE_SPARK_ARCHIVE"
_QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
_ABANDONED_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Archive:
    path: Path
    is_there: bool  # else it is what Java is to write
    directory: int | None = None  # a descriptor of where it is, open while Java may write it

    @property
    def java_options(self) -> str:
        if self.is_there:
            return f"-XX:SharedArchiveFile={self.path} {_QUIET}"
        path = self.path if self.directory is None else _our_files() / str(self.directory) / self.path.name
        return f"-XX:ArchiveClassesAtExit={path} {_QUIET}"

    def finish(self, wait_for_java: Callable[[], int]) -> None:
        """To be called when the process ends; the function ends Java, and says how it ended."""
        if self.is_there:
            return
        with suppress(OSError, subprocess.TimeoutExpired):
            if wait_for_java() == 0 and self.path.exists():
                final = self.path.with_suffix("")
                self.path.replace(final.with_name(f"{final.stem}-{_checksum(self.path)}.jsa"))
            self.path.unlink(missing_ok=True)
        if self.directory is not None:
            os.close(self.directory)


def find(java: Java, spark_version: str) -> Archive | None:
    """The archive that there is, or one to be made; None where that is not wanted or cannot be."""
    directory = _directory()
    if directory is None or " " in str(directory):  # in Java's options, a blank ends one
        return None
    name = _name(java, spark_version)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _sweep(directory)
        if (there := _sound(directory, name)) is not None:
            return Archive(there, True)
        unfinished = directory / f"{name}.jsa.{os.getpid()}"
        unfinished.touch()  # whether it can be written
        unfinished.unlink()
    except OSError:
        return None
    return Archive(unfinished, False, os.open(directory, os.O_DIRECTORY) if _our_files().is_dir() else None)


def _sound(directory: Path, name: str) -> Path | None:
    """Returns an archive that is complete. Two sessions that began together have left two: the others, and damaged
    ones, are deleted. A process that has one open keeps it.
    """
    found = None
    for path in sorted(directory.glob(f"{name}-*.jsa")):
        if found is None and path.stem == f"{name}-{_checksum(path)}":
            found = path
        else:
            path.unlink(missing_ok=True)
    return found


def _directory() -> Path | None:
    given = os.environ.get(VARIABLE)
    if given == "off":
        return None
    if given:
        return Path(given).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "tailrace" / "spark"
    except RuntimeError:  # the user has no home directory
        return None


def _name(java: Java, spark_version: str) -> str:
    import pyspark

    what = f"{java.program}\n{java.version}\n{Path(pyspark.__file__).resolve()}"
    mark = hashlib.sha256(what.encode()).hexdigest()[:12]
    return f"java-{java.major}-spark-{spark_version}-{mark}"


def _checksum(path: Path) -> str:
    """Returns the checksum of nearly 200 MB, which takes up to a third of a second."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found = zlib.crc32(piece, found)
    return f"{found:08x}"


def _sweep(directory: Path) -> None:
    """Deletes unfinished archives of processes that have ended."""
    for path in directory.glob("*.jsa.*"):
        if _is_abandoned(path):
            path.unlink(missing_ok=True)


def _is_abandoned(path: Path) -> bool:
    """By the process id in its name, which another process may have by now; or where there is no /proc, by its age."""
    if _our_files().is_dir() and not Path("/proc", path.suffix[1:]).exists():
        return True
    return time.time() - path.stat().st_mtime > _ABANDONED_S


def _our_files() -> Path:
    return Path(f"/proc/{os.getpid()}/fd")
