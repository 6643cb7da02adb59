"""Parts of the world that some tests need and not every machine has.

A test marked `@pytest.mark.needs("kafka")` is skipped, with the reason, where the part is missing. Where the
environment names the part (`TAILRACE_REQUIRE=java,kafka`), as CI does, its absence is a failure instead.
"""

import functools
import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import postgres

from tailrace.spark.pipelines.session import java

KAFKA_VERSION = "4.3.1"
KAFKAJS_VERSION = "2.2.4"
CONNECTOR_VERSION = "4.2.0"  # of Spark's own, and of the PySpark that it is for


def kafka_jars() -> Path:
    """Where scripts/fetch-kafka puts Kafka's jars; a class path is `f"{kafka_jars()}/*"`."""
    default = Path.home() / ".cache" / "tailrace" / f"kafka-{KAFKA_VERSION}"
    return Path(os.environ.get("TAILRACE_KAFKA_JARS") or default)


def kafkajs() -> Path:
    """Where scripts/fetch-kafkajs puts KafkaJS: a directory with `node_modules` in it."""
    default = Path.home() / ".cache" / "tailrace" / f"kafkajs-{KAFKAJS_VERSION}"
    return Path(os.environ.get("TAILRACE_KAFKAJS") or default)


def frameworks() -> Path:
    """Where scripts/fetch-frameworks puts stream frameworks: a virtual environment of their own."""
    return Path(os.environ.get("TAILRACE_FRAMEWORKS") or Path.home() / ".cache" / "tailrace" / "frameworks")


def spark_connector() -> Path:
    """Where scripts/fetch-spark-connector puts Spark's own connector: `jars`, and its PySpark in `venv`."""
    default = Path.home() / ".cache" / "tailrace" / f"spark-{CONNECTOR_VERSION}"
    return Path(os.environ.get("TAILRACE_SPARK_CONNECTOR") or default)


def _java_missing() -> str | None:
    """Tests start `java` by its name, whatever JAVA_HOME says."""
    try:
        java.find_in(None)
    except java.NoJava as missing:
        return str(missing)
    return None


def _kafka_missing() -> str | None:
    tools = kafka_jars() / f"kafka-tools-{KAFKA_VERSION}.jar"
    return missing("java") or (None if tools.exists() else f"no {tools}; scripts/fetch-kafka gets it")


def _node_missing() -> str | None:
    if not shutil.which("node"):
        return "no node on the PATH"
    package = kafkajs() / "node_modules" / "kafkajs" / "package.json"
    return None if package.exists() else f"no {package}; scripts/fetch-kafkajs gets it"


def _kcat_missing() -> str | None:
    return None if shutil.which("kcat") else "no kcat on the PATH; on Debian or Ubuntu: apt-get install kcat"


def _systemd_missing() -> str | None:
    if shutil.which("systemd-analyze"):
        return None
    return "no systemd-analyze on the PATH; on Debian or Ubuntu: apt-get install systemd"


def _frameworks_missing() -> str | None:
    wanted = Path(__file__).parents[1] / "compat" / "frameworks" / "requirements.txt"
    installed = frameworks() / wanted.name
    if installed.exists() and installed.read_bytes() == wanted.read_bytes():
        return None
    return f"{frameworks()} has not what {wanted} says; scripts/fetch-frameworks gets it"


def _arrow_missing() -> str | None:
    absent = [name for name in ("numba", "pyarrow") if not importlib.util.find_spec(name)]
    return f"{' and '.join(absent)} not installed; make setup brings them" if absent else None


def _spark_missing() -> str | None:
    absent = None if importlib.util.find_spec("pyspark") else "pyspark is not installed; make setup brings it"
    return missing("java") or missing("arrow") or absent


def _connect_missing() -> str | None:
    """Spark Connect, and declarative pipelines, which stand on it."""
    absent = None if importlib.util.find_spec("grpc") else "grpcio is not installed; make setup brings it"
    return missing("spark") or absent


def _postgres_missing() -> str | None:
    if postgres.programs() is None:
        return "no initdb on the PATH or in /usr/lib/postgresql; on Debian or Ubuntu: apt-get install postgresql"
    return None if importlib.util.find_spec("psycopg") else "psycopg is not installed; make setup brings it"


def _connector_missing() -> str | None:
    if reason := missing("spark"):
        return reason
    if (version := importlib.metadata.version("pyspark")) != CONNECTOR_VERSION:
        return f"it is for PySpark {CONNECTOR_VERSION}, and this is {version}; scripts/test-matrix runs it there"
    installed = spark_connector() / "installed.txt"
    return None if installed.exists() else f"no {installed}; scripts/fetch-spark-connector gets it"


PROBES: dict[str, Callable[[], str | None]] = {
    "java": _java_missing,
    "kafka": _kafka_missing,
    "node": _node_missing,
    "kcat": _kcat_missing,
    "systemd": _systemd_missing,
    "frameworks": _frameworks_missing,
    "arrow": _arrow_missing,
    "spark": _spark_missing,
    "connect": _connect_missing,
    "connector": _connector_missing,
    "postgres": _postgres_missing,
}


@functools.cache
def missing(part: str) -> str | None:
    """Why the part can't be used here; None where it can."""
    return PROBES[part]()


def required() -> frozenset[str]:
    names = frozenset(name.strip() for name in os.environ.get("TAILRACE_REQUIRE", "").split(",")) - {""}
    if unknown := names - PROBES.keys():
        raise ValueError(f"TAILRACE_REQUIRE names {sorted(unknown)}; known are {sorted(PROBES)}")
    return names
