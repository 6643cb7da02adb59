"""Two pipelines at work while a shop is busy: from events to a topic, and from there to Parquet.

The shop opens before the pipelines start, so there is something to catch up with. How far a pipeline is behind is asked
of the broker by an ordinary Kafka client, which knows nothing of Spark.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from demo import pipelines
from demo.clients import silence
from demo.events import Book, total, window_of
from demo.generator import EVENTS_PER_SECOND, Generator
from demo.screen import TICK_SECONDS, Screen, bars
from demo.spark_start import SparkStart
from tailrace.spark import Parquet, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIVE_SECONDS = 20.0  # after the pipeline has caught up
START_SECONDS = 300.0  # for Spark to start, and to catch up, on a busy machine
END_SECONDS = 60.0  # for the last windows to be written
EVERY = "1 second"
COLUMN_SECONDS = 1.0  # of a bar
COLUMNS = 34  # of the last seconds


class Failed(Exception):
    """A pipeline that ended, or did not come to its end in time."""


class Running(threading.Thread):
    """A pipeline at work: what it has said of its batches, and why it ended."""

    def __init__(self, pipeline: Pipeline, spark: "SparkSession", bootstrap: str, **settings: Any) -> None:
        super().__init__(name=pipeline.name, daemon=True)
        self.rows = self.corrupt = self.late = 0
        self.rows_per_second = 0
        self.watermark_ms = 0
        self.error: Exception | None = None
        self._enough = threading.Event()
        self._run = lambda: pipeline.run(
            bootstrap, spark=spark, every=EVERY, stop=self._enough, on_progress=self._note, **settings
        )

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - the thread that waits for it reports it
            self.error = error

    def _note(self, progress: dict[str, Any]) -> None:
        self.rows += progress["rows"]
        self.corrupt += progress["corrupt"] or 0
        self.late += progress["late"]
        self.rows_per_second = progress["rows_per_second"] if progress["rows"] else self.rows_per_second
        if progress["watermark"]:
            moment = datetime.fromisoformat(progress["watermark"])
            self.watermark_ms = round(moment.timestamp() * 1000)

    def finish(self) -> None:
        self._enough.set()
        self.join()


class Lag:
    """How many messages a group is behind, as any Kafka client can tell."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.messages: int | None = None
        self._topic = topic
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group}, logger=silence)

    def look(self) -> int | None:
        try:
            topic = self._consumer.list_topics(self._topic, timeout=2).topics[self._topic]
            places = self._consumer.committed([TopicPartition(self._topic, index) for index in topic.partitions], 2)
            ends = [self._consumer.get_watermark_offsets(place, timeout=2)[1] for place in places]
            self.messages = sum(end - max(0, place.offset) for end, place in zip(ends, places, strict=True))
        except KafkaException:
            self.messages = None
        return self.messages

    def close(self) -> None:
        self._consumer.close()


@dataclass(slots=True)
class LiveView:
    """Who has done how much, second by second."""

    generator: Generator
    starting: SparkStart
    lag: Lag
    traffic: Running | None = None
    archive: Running | None = None
    sent: list[int] = field(default_factory=list)  # in each second
    lags: list[int] = field(default_factory=list)
    _seen: int = 0
    _look_at: float = field(default_factory=time.monotonic)

    def tick(self) -> None:
        if self.traffic is not None:
            self.generator.closed_until_ms = window_of(self.traffic.watermark_ms)
        if time.monotonic() < self._look_at:
            return
        self._look_at += COLUMN_SECONDS
        sent = self.generator.book.sent
        self.sent.append(sent - self._seen)
        self._seen = sent
        self.lags.append(self.lag.look() or 0)

    def draw(self) -> RenderableType:
        table = Table.grid(padding=(0, 3))
        for justify in ("left", "right", "left", "left"):
            table.add_column(justify=justify)
        book = self.generator.book
        table.add_row("shop", f"{book.sent:,}", "events sent", bars(self.sent[-COLUMNS:], "cyan", self._pace))
        table.add_row("", f"{book.malformed:,}", "of them malformed", Text("blanks, two objects …", "dim"))
        table.add_row("", f"{total(book.late):,}", "of them late", Text("for windows that are closed", "dim"))
        table.add_row("traffic", *self._traffic())
        table.add_row(
            "", f"{self.behind:,}", "behind", bars(self.lags[-COLUMNS:], "magenta", max(self.lags, default=0))
        )
        if self.traffic is not None and self.traffic.rows:
            late = "left out: groups, as Spark counts"
            table.add_row("", f"{self.traffic.corrupt:,}", "malformed", Text("left out, and counted", "dim"))
            table.add_row("", f"{self.traffic.late:,}", "late", Text(late, "dim"))
        if self.archive is not None:
            table.add_row("archive", f"{self.archive.rows:,}", "windows", Text("from topic traffic to Parquet", "dim"))
        return Padding(table, (1, 2, 0, 2))

    def _traffic(self) -> tuple[RenderableType, ...]:
        if self.traffic is None or not self.traffic.rows:
            return "0", "events read", Text(self.spark, "yellow")
        return f"{self.traffic.rows:,}", "events read", f"{self.traffic.rows_per_second:,} rows/s"

    @property
    def behind(self) -> int:
        return self.lags[-1] if self.lags else 0

    @property
    def spark(self) -> str:
        if self.starting.seconds is None:
            return f"Spark starts … {time.monotonic() - self.starting.began:.0f} s"
        return "Spark has started, first batch …"

    @property
    def _pace(self) -> float:
        return 2 * EVENTS_PER_SECOND * COLUMN_SECONDS

    def line(self) -> str:
        book = self.generator.book
        head = f"sent {book.sent:>7,}   late {total(book.late):>5,}   behind {self.behind:>6,}"
        if self.traffic is None or not self.traffic.rows:
            return f"{head}   {self.spark}"
        return f"{head}   read {self.traffic.rows:>7,}   windows {self.archive.rows if self.archive else 0:>3,}"


@dataclass(frozen=True, slots=True)
class Lived:
    """What is left when the shop has closed."""

    spark: "SparkSession"
    book: Book
    malformed: int  # as the pipeline has counted them
    state: Path  # of traffic
    parquet: Path


def run(bootstrap: str, directory: Path, starting: SparkStart, screen: Screen) -> Lived:
    """Raises Failed, and what a pipeline raises."""
    scene = _Scene(bootstrap, directory, starting)
    try:
        with screen.playing(scene.view) as let_pass:
            scene.play(let_pass)
    finally:
        scene.close()
    return scene.result()


class _Scene:
    def __init__(self, bootstrap: str, directory: Path, starting: SparkStart) -> None:
        self.bootstrap = bootstrap
        self.state, self.parquet = directory / "state", directory / "traffic"
        self.generator = Generator(bootstrap)
        traffic, archive = pipelines.traffic, pipelines.archive
        self.lag = Lag(bootstrap, traffic.group, traffic.source[0])
        self.archive_lag = Lag(bootstrap, archive.group, archive.source[0])
        self.view = LiveView(self.generator, starting, self.lag)

    def play(self, let_pass: Callable[[float], None]) -> None:
        """The shop opens, Spark starts, and traffic and archive follow; the shop closes, and both come to the end."""
        view, generator = self.view, self.generator
        generator.start()
        view.starting.begin()
        self._wait(lambda: view.starting.is_ready, START_SECONDS, let_pass, "Spark has not started")
        traffic = view.traffic = self._run(pipelines.traffic)
        self._wait(lambda: traffic.rows > 0, START_SECONDS, let_pass, "traffic has read nothing")
        view.archive = self._run(pipelines.archive, sink=Parquet(str(self.parquet)))
        self._wait(lambda: traffic.watermark_ms > 0, START_SECONDS, let_pass, "traffic has closed no window")
        let_pass(LIVE_SECONDS)
        generator.finish()
        self._wait(
            lambda: traffic.watermark_ms >= generator.book.watermark_ms and self.lag.look() == 0,
            *(END_SECONDS, let_pass, "traffic has not come to the end"),
        )
        self._wait(lambda: self.archive_lag.look() == 0, END_SECONDS, let_pass, "archive has not come to the end")

    def _run(self, pipeline: Pipeline, **settings: Any) -> Running:
        spark = self.view.starting.session
        assert spark is not None
        running = Running(pipeline, spark, self.bootstrap, state=self.state / pipeline.name, **settings)
        running.start()
        return running

    def _wait(
        self, is_so: Callable[[], bool], seconds: float, let_pass: Callable[[float], None], otherwise: str
    ) -> None:
        deadline = time.monotonic() + seconds
        while True:
            self._check()
            if is_so():
                return
            if time.monotonic() >= deadline:
                raise Failed(f"{otherwise} within {seconds:.0f} s")
            let_pass(TICK_SECONDS)

    def _check(self) -> None:
        for thread in (self.view.starting, self.view.traffic, self.view.archive):
            if thread is not None and thread.error is not None:
                raise thread.error

    def close(self) -> None:
        self.generator.finish()
        for running in (self.view.traffic, self.view.archive):
            if running is not None:
                running.finish()
        self.lag.close()
        self.archive_lag.close()

    def result(self) -> Lived:
        self._check()
        assert self.view.starting.session is not None
        assert self.view.traffic is not None
        malformed = self.view.traffic.corrupt
        state = self.state / pipelines.traffic.name
        return Lived(self.view.starting.session, self.generator.book, malformed, state, self.parquet)
