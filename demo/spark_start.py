"""Spark for act two, started while act one still plays, so that no one has to watch it start.

`begin` returns at once; a thread starts the session. During act one there is time for a rehearsal, too, which compiles
what the first batch needs. Act two does not wait for the rehearsal, and does not fail with it.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from demo.broker_process import BrokerProcess
from demo.clients import silence
from demo.generator import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}  # for a Java that lives for a minute

Rehearsal = Callable[["SparkSession", BrokerProcess], None]


class SparkStart:
    """A Spark session on its way. What Spark says on standard error goes to a file from `begin` until `close`."""

    def __init__(self) -> None:
        self.began = 0.0
        self.seconds: float | None = None  # that the start took
        self.session: SparkSession | None = None
        self.error: Exception | None = None
        self._thread: threading.Thread | None = None
        self._kept = ExitStack()

    def begin(self, rehearsal: Rehearsal | None = None) -> None:
        """Starts the session; does nothing where that has begun already. Needs Java and PySpark."""
        if self._thread is not None:
            return
        kept = tempfile.TemporaryDirectory(prefix="tailrace-demo-", ignore_cleanup_errors=True)
        self._directory = Path(self._kept.enter_context(kept))
        self._log = self._directory / "spark.log"
        self._kept.enter_context(_quiet(self._log))
        self.began = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=[rehearsal], name="spark", daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether the session is there, or could not be started."""
        return self.session is not None or self.error is not None

    @property
    def said(self) -> str:
        """The end of what Spark said."""
        return self._log.read_text()[-2000:] if self._thread is not None else ""

    def close(self) -> None:
        if self.session is not None:
            self.session.stop()
        self._kept.close()

    def _run(self, rehearsal: Rehearsal | None) -> None:
        from tailrace.spark import session  # here, since PySpark need not be there

        try:
            self.session = session("demo", **QUICK)
        except Exception as error:  # noqa: BLE001 - act two raises it
            self.error = error
            return
        self.seconds = time.monotonic() - self.began
        if rehearsal is not None:
            broker = BrokerProcess(self._directory)
            self._kept.callback(broker.kill)  # also where the demo ends before the rehearsal
            with suppress(Exception):  # it only saves time
                rehearsal(self.session, broker)
            broker.kill()


def rehearse(spark: "SparkSession", broker: BrokerProcess) -> None:
    """Copies an event from one topic to another, on a broker that is used for nothing else.

    That starts Spark's Python workers, and compiles what they read and write messages with.
    """
    broker.start()
    while not broker.is_ready():
        time.sleep(0.05)
    producer = Producer({"bootstrap.servers": broker.bootstrap}, logger=silence)
    producer.produce(TOPIC, "rehearsal")
    producer.flush()
    where = {"kafka.bootstrap.servers": broker.bootstrap}
    events = spark.read.format("tailrace").options(**where, subscribe=TOPIC).load().select("key", "value")
    to = {**where, "topic": "copy", "delivery": "at-least-once"}
    events.write.format("tailrace").options(**to).mode("append").save()


@contextmanager
def _quiet(path: Path) -> Iterator[None]:
    """Sends to a file what this process, and those that it starts, write to standard error."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
