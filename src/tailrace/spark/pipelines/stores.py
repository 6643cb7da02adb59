"""Directories on any store that Spark reads and writes, through Hadoop's file systems in Spark's Java process.

A path means here what it means to Spark: the same default file system, credentials and working directory.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKSUM = "org.apache.hadoop.fs.ChecksumException"


class StoreError(Exception):
    """The store failed. Another try may succeed."""


@dataclass(frozen=True, slots=True)
class Directory:
    session: "SparkSession"
    path: str

    def inside(self, name: str) -> "Directory":
        return Directory(self.session, f"{self.path.rstrip('/')}/{name}")

    def names(self) -> list[str]:
        """The names in it, without those of checksum files; none where there is no such directory."""
        with self._errors("list"):
            here = self._java_path()
            system = self._system(here)
            if not system.exists(here):
                return []
            return [status.getPath().getName() for status in system.listStatus(here)]

    def read(self, name: str) -> bytes | None:
        """The content of a file: None where there is none, empty where it does not match its checksum."""
        with self._errors(f"read {name} in"):
            path = self.inside(name)._java_path()
            system = self._system(path)
            return _read(system, path) if system.exists(path) else None

    def write(self, name: str, content: bytes, *, replace: bool) -> None:
        """Makes a file, or replaces it. After a kill it is the old one, the new one, or missing; it is never cut.

        Raises StoreError where it is there and must not be replaced: another process has made it.
        """
        with self._errors(f"write {name} in"):
            path = self.inside(name)._java_path()
            beside = self.inside(f"_{name.lstrip('_')}.{uuid.uuid4()}.tmp")._java_path()  # Spark ignores names with _
            system = self._system(path)
            _create(system, beside, content)
            if replace:
                system.delete(path, False)
            elif system.exists(path):
                system.delete(beside, False)
                raise StoreError(f"{self.path}/{name} was made by another process in the meantime")
            _rename(system, beside, path)

    def _java_path(self) -> Any:
        jvm: Any = self.session._jvm
        return jvm.org.apache.hadoop.fs.Path(self.path)

    def _system(self, path: Any) -> Any:
        return path.getFileSystem(self.session._jsparkSession.sessionState().newHadoopConf())

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Errors of Java code as StoreError; those of a Java process that has ended pass."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            yield
        except Py4JJavaError as error:
            why = str(error.java_exception.toString()).split("\n")[0]
            raise StoreError(f"cannot {doing} {self.path}: {why}") from error


def _read(system: Any, path: Any) -> bytes:
    from py4j.protocol import Py4JJavaError

    stream = system.open(path)
    try:
        return bytes(stream.readAllBytes())
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != _CHECKSUM:
            raise
        return b""
    finally:
        stream.close()


def _create(system: Any, path: Any, content: bytes) -> None:
    stream = system.create(path, False)
    try:
        stream.write(bytearray(content))
    finally:
        stream.close()


def _rename(system: Any, path: Any, to: Any) -> None:
    if not system.rename(path, to):
        raise StoreError(f"cannot rename {path.toString()} to {to.toString()}")
