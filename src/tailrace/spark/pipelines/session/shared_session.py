"""The session that the pipelines of a process share, and its replacement where it seems to be damaged."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.session.session import any_session, end_session, running_session, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedSession:
    """`remake` gets the old session, and returns the one that takes its place."""

    def __init__(self, made: "SparkSession", remake: "Callable[[SparkSession], SparkSession]") -> None:
        self._current = made
        self._remake = remake
        self._lock = threading.Lock()

    @property
    def current(self) -> "SparkSession":
        """While it is replaced, waits for the new one."""
        with self._lock:
            return self._current

    def replace(self, old: "SparkSession") -> None:
        """Puts a new one in its place, unless another pipeline has done so."""
        with self._lock:
            if self._current is old:
                self._current = self._remake(old)


def of_given(given: "SparkSession") -> SharedSession:
    """A session that its user has made, and whose Java process therefore stays."""
    return SharedSession(given, lambda old: old.newSession())


def own(app: str, master: str | None = None, **conf: str) -> SharedSession:
    """Returns a session of our own, with a Java process that a replacement starts anew."""

    def remake(old: "SparkSession") -> "SparkSession":
        end_session(old)
        return session(app, master, **conf)

    return SharedSession(session(app, master, **conf), remake)


def shared_session(given: "SparkSession | SharedSession | None", app: str, master: str | None) -> SharedSession:
    """Returns the session given to `run`; else the active one, or one of our own. Raises BadOptions."""
    if isinstance(given, SharedSession):
        return given
    if given is None and running_session() is None:
        return own(app, master)
    return of_given(any_session(app, master, given=given))
