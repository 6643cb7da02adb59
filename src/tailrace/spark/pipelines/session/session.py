"""A Spark session with the settings that pipelines need. From the second one on, it starts in about half the time
(`class_archive`).
"""

import atexit
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.spark.pipelines.session import class_archive as archive
from tailrace.spark.pipelines.session import java, java_log, launcher
from tailrace.spark.source.options import BadOptions

if TYPE_CHECKING:
    from socketserver import BaseServer

    from pyspark.sql import SparkSession

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_GATEWAY = "PYSPARK_GATEWAY_PORT"  # set by spark-submit
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_ENDING_S = 120.0  # that Java may take to end
_archives: list[archive.Archive] = []  # of the sessions of this process


def session(app: str = "tailrace", master: str | None = None, **conf: str) -> "SparkSession":
    """The session of this process: on `master`, where spark-submit says, or on this machine. `conf` are settings of
    Spark, which count more than ours: `session("etl", **{"spark.ui.enabled": "true"})`. Raises NoJava.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    is_submitted = _GATEWAY in os.environ
    wanted = settings(master or (None if is_submitted else local_master())) | conf
    kept = None
    if SparkContext._gateway is None and not is_submitted:  # else Java runs already, as it was started
        kept = archive.find(java.find(), _spark_version())
        wanted[_JAVA_OPTIONS] = " ".join(_java_options(wanted, kept))
        _set_environment(wanted["spark.master"])
        java_log.choose()
        launcher.start_java(wanted)
    builder = SparkSession.builder.appName(app)
    for name, value in wanted.items():
        builder = builder.config(name, str(value))
    made: SparkSession = builder.getOrCreate()
    expect_the_end_of_java(getattr(made._sc, "_accumulatorServer", None))
    if kept is not None:
        atexit.register(kept.finish, _end_java)
        _archives.append(kept)
    return made


def stores_classes() -> bool:
    """Whether Java stores Spark's classes when this process ends, so that later sessions start faster: some seconds."""
    return any(not kept.is_there for kept in _archives)


def expect_the_end_of_java(server: "BaseServer | None") -> None:
    """Keeps stack traces from being printed when a signal ends Java and this process together. If Java ends first, a
    thread of PySpark that reads from it would print one although nothing is wrong; and so would Py4J, before it raises
    what we catch.
    """
    logging.getLogger().addFilter(is_not_of_a_lost_java)
    if server is None:
        return
    tell = server.handle_error

    def tell_of_others(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            tell(request, client_address)

    server.handle_error = tell_of_others  # type: ignore[method-assign]


def is_not_of_a_lost_java(record: logging.LogRecord) -> bool:
    """A filter for the root logger, to which Py4J logs that a call got no response. Its caller gets an exception
    anyway.
    """
    if record.module != "java_gateway" or record.exc_info is None:
        return True
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    return not isinstance(record.exc_info[1], Py4JNetworkError)


def any_session(
    app: str,
    master: str | None = None,
    *,
    given: "SparkSession | None" = None,
    conf: Mapping[str, str] | None = None,
) -> "SparkSession":
    """The one given; or the one that there is, as it is, also where another thread made it; or one that is made, with
    `conf`. Raises BadOptions where it is on another master, or one of Spark Connect.
    """
    there = given or running_session()
    _require_own_process(there)
    if given is not None:
        return given
    if there is None:
        return session(app, master, **(conf or {}))
    if master is not None and there.sparkContext.master != master:
        raise BadOptions(f"there is a session on {there.sparkContext.master} already: master={master!r} needs another")
    return there


def running_session() -> "SparkSession | None":
    """The one that there is, if it was not stopped."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if there is None or (not _is_of_connect(there) and there._sc._jsc is None):
        return None
    return there


def _require_own_process(there: "SparkSession | None") -> None:
    """Raises BadOptions for a session of Spark Connect."""
    if _is_of_connect(there):
        raise BadOptions(
            "pipelines do not run on Spark Connect: they need a session in their own process, such as that of "
            '`session()` of tailrace.spark. The format itself works there: spark.readStream.format("tailrace")'
        )


def _is_of_connect(there: "SparkSession | None") -> bool:
    return type(there).__module__.startswith("pyspark.sql.connect.")


def local_master() -> str:
    """All cores; a task that fails, since its Python process was killed, is tried again, as on a cluster."""
    return f"local[{_cores()},4]"


def settings(master: str | None) -> dict[str, str]:
    """Those that we choose; where no master is given, it is known already."""
    found = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        # Else a batch that is tried again may be split in another way, and a topic get other messages.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
    }
    if master is not None:
        found["spark.master"] = master
    if (master or "").startswith("local"):
        found |= {"spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": str(_cores())}
    return found


def _java_options(wanted: Mapping[str, str], kept: archive.Archive | None) -> Iterator[str]:
    if _JAVA_OPTIONS in wanted:
        yield wanted[_JAVA_OPTIONS]
    if _LOGGING.is_file() and " " not in str(_LOGGING):
        yield f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    if kept is not None:
        yield kept.java_options


def _set_environment(master: str) -> None:
    """Which Java and its Python processes take over."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _spark_version() -> str:
    from pyspark.version import __version__

    return str(__version__)


def end_session(made: "SparkSession") -> None:
    """Ends a session and its Java process, so that the next one gets a new process. Java may be damaged: it is not
    waited for.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with suppress(Exception):
        made.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _end_java() -> int:
    """Ends the Java process of this one, and waits for it."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return -1
    with suppress(Exception):  # it may have been stopped already
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    return int(process.wait(_ENDING_S))
