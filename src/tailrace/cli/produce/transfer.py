"""One run of `tailrace produce`: sends input lines as messages, and reports how far it got."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from tailrace.cli.common import output
from tailrace.cli.common.client import ClusterMetadata, KafkaException, TopicCollection
from tailrace.cli.common.connection import REQUEST_SECONDS, Connection, until
from tailrace.cli.common.messages import BadMessage, Row
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.common.topics.selection import require, similar
from tailrace.cli.produce import refusals, sender
from tailrace.cli.produce.bookmark import Bookmark, ResumePoint
from tailrace.cli.produce.input_lines import Line, Lines
from tailrace.cli.produce.line_parser import Parser
from tailrace.cli.produce.sender import Sender
from tailrace.cli.topic.view import configs
from tailrace.util.shutdown import on_signals

_BIRTH_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_NOTE_SECONDS = 1.0
_BAR_FROM_BYTES = 1 << 20
_LINES_PER_LOOK = 256


class Transfer:
    """Sends a file, or with None what comes from stdin, to a topic.

    A topic that does not exist is created if `may_create`, and if the broker creates topics that clients name.
    """

    def __init__(
        self, connection: Connection, topic: str, file: Path | None, parser: Parser, *, may_create: bool
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._file = file
        self._parser = parser
        self._admin = connection.admin()
        self._without_time = 0
        self._begun_input: tuple[Lines, Iterator[Line | None]] | None = None
        metadata = connection.metadata(self._admin)
        if topic not in metadata.topics and may_create and not similar(topic, metadata.topics):
            self._begun_input = self._with_a_good_first_line()
            metadata = self._ask_for_topic()
        require([topic], metadata.topics, connection.bootstrap, makes=True)
        self._cluster = str(metadata.cluster_id)
        self._partitions = len(metadata.topics[topic].partitions)
        if parser.partition is not None and parser.partition >= self._partitions:
            raise Failure(self._no_partition(parser.partition), ExitCode.NOT_FOUND)

    def _with_a_good_first_line(self) -> tuple[Lines, Iterator[Line | None]]:
        """The input, once its first line was parsed. No topic is created for input that cannot be sent."""
        lines = Lines(self._open(0))
        read = iter(lines)
        first = next((line for line in read if line is not None), None)
        if first is not None:
            try:
                self._parser.row(first.content)
            except BadMessage as error:
                raise Failure(f"line 1: {error}\n  {self._topic} does not exist, and was not created") from None
        return lines, read if first is None else chain([first], read)

    def _lines(self, begun: ResumePoint) -> tuple[Lines, Iterator[Line | None]]:
        """The input from there on, with its lines."""
        if self._begun_input is not None and self._file is None:
            return self._begun_input
        lines = Lines(self._open(begun.position), position=begun.position, number=begun.lines)
        return lines, iter(lines)

    def _ask_for_topic(self) -> ClusterMetadata:
        """Whether a topic is made for those who name it is the broker's to say; when it is, that takes a moment."""
        with suppress(KafkaException):
            self._admin.list_topics(self._topic, timeout=REQUEST_SECONDS)
        if until(lambda: self._topic in self._connection.metadata(self._admin).topics, _BIRTH_SECONDS):
            output.warn(f"the broker created {self._topic}, which did not exist")
        return self._connection.metadata(self._admin)

    def check(self, *, resume: bool) -> None:
        """Reads and parses everything, and writes nothing."""
        begun = self._begun(self._bookmark() if self._file else None, resume)
        lines, read = self._lines(begun)
        try:
            for line in read:
                if line is not None:
                    self._row(line)
        except BadMessage as error:
            raise Failure(f"line {lines.number}: {error}") from None
        print(f"would write {output.plural(lines.number - begun.lines, 'message')} to {self._topic}")

    def run(self, *, resume: bool, acks: str, compression: str, timeout: float) -> None:
        bookmark = self._bookmark() if self._file else None
        begun = self._begun(bookmark, resume)
        lines, read = self._lines(begun)
        batch_bytes = int(self._configs().get(refusals.MAX_MESSAGE_BYTES, 0)) or None
        settings = sender.properties(acks=acks, compression=compression, timeout=timeout, batch_bytes=batch_bytes)
        producer = self._connection.producer(settings)
        total = self._file.stat().st_size if self._file else 0
        since = time.monotonic()
        with output.progress_bar(f"Writing to {self._topic}", total, _BAR_FROM_BYTES) as advance:
            watch = _Watch(bookmark, advance)
            watch.sender = Sender(self._connection, producer, self._topic, begun, watch.look)
            bad = self._send(lines, read, watch)
            watch.sender.finish()
        self._end(watch, bad, since, told=acks != "0")

    def _send(self, lines: Lines, read: Iterator[Line | None], watch: "_Watch") -> str | None:
        """Until there are no more lines, or reason to stop. Says what is wrong with a line, if that is the reason."""
        sender = watch.sender
        try:
            for line in read:
                if line is None:
                    sender.poll()
                else:
                    sender.send(self._row(line), line)
                if (line is None or line.number % _LINES_PER_LOOK == 0) and watch.look():
                    break
                if sender.trouble is not None:
                    break
        except BadMessage as error:
            return f"line {lines.number}: {error}"
        except Failure as failure:  # a line that is too long
            return str(failure)
        return None

    def _row(self, line: Line) -> Row:
        row = self._parser.row(line.content)
        if row.partition is not None and row.partition >= self._partitions:
            raise BadMessage(self._no_partition(row.partition))
        self._without_time += row.timestamp == 0
        return row

    def _end(self, watch: "_Watch", bad: str | None, since: float, *, told: bool) -> None:
        """Prints what was done and, if that is not everything, what to do next."""
        sender = watch.sender
        done = f"{output.plural(sender.acknowledged, 'message')} {'written' if told else 'sent'} to {self._topic}"
        if self._without_time:
            output.warn(
                f"{self._without_time:,} had timestamp 0, which this client cannot write: they have the time of now"
            )
        if bad is None and sender.trouble is None and not watch.stop.is_set():
            watch.forget()
            seconds = time.monotonic() - since
            speed = f" in {seconds:.1f} s ({sender.acknowledged / seconds:,.0f}/s)" if seconds >= 1 else ""
            print(done + speed, file=sys.stderr)
            return
        watch.note()
        rest = self._rest(sender)
        if bad is not None:
            raise Failure(f"{bad}\n  {done}{rest}")
        if sender.trouble is not None:
            code = ExitCode.NOT_REACHABLE if refusals.is_silence(sender.trouble) else ExitCode.FAILED
            why = refusals.in_words(
                sender.trouble,
                bootstrap=self._connection.bootstrap,
                topic=self._topic,
                message=sender.failed_message or Row(None, None),
                settings=self._configs(),
            )
            raise Failure(f"line {sender.failed_line} is not acknowledged: {why}\n  {done}{rest}", code)
        output.interrupt(f"{done}{rest}")

    def _rest(self, sender: Sender) -> str:
        if not self._file and not sender.on_the_way:
            return ""
        first = sender.progress.lines + 1
        hint = "; --resume goes on there" if self._file else ""
        return f"; the first line that is not: {first}{hint}"

    def _configs(self) -> dict[str, str]:
        """Those of the topic; none where the broker does not tell, since not every client may ask."""
        try:
            found = configs(self._connection, self._admin, self._topic)
        except Failure:
            return {}
        return {name: str(entry.value) for name, entry in found.items()}

    def _bookmark(self) -> Bookmark:
        assert self._file is not None
        futures = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=REQUEST_SECONDS)
        topic = self._connection.result(futures[self._topic], f"{self._topic} cannot be looked up")
        return Bookmark(self._file, cluster=self._cluster, topic=self._topic, topic_id=str(topic.topic_id))

    def _begun(self, bookmark: Bookmark | None, resume: bool) -> ResumePoint:
        start = ResumePoint(0, 0)
        if bookmark is None:
            return start
        if not resume:
            if bookmark.path.exists():
                output.warn(f"an earlier load of {self._file} was interrupted; this one starts at the first line again")
            return start
        progress = bookmark.read()
        if progress is None:
            output.warn(f"no load of {self._file} into {self._topic} was interrupted: starting at line 1")
            return start
        output.warn(f"going on with line {progress.lines + 1} of {self._file}")
        return progress

    def _open(self, position: int) -> int:
        if self._file is None:
            if sys.stdin.isatty():
                print(f"Each line is a message to {self._topic}; ctrl-D ends.", file=sys.stderr)
            return sys.stdin.fileno()
        descriptor = os.open(self._file, os.O_RDONLY)
        os.lseek(descriptor, position, os.SEEK_SET)
        return descriptor

    def _no_partition(self, number: int) -> str:
        return f"{self._topic} has {output.plural(self._partitions, 'partition')}, from 0 on: there is no {number}"


class _Watch:
    """Notes how far the transfer got, and shows it, whatever else is waited for."""

    sender: Sender

    def __init__(self, bookmark: Bookmark | None, advance: Callable[[int], None]) -> None:
        self.stop = on_signals()
        self._bookmark = bookmark
        self._advance = advance
        self._shown = 0
        self._noted = self._looked = time.monotonic()
        self._said_stop = False

    def look(self) -> bool:
        """Whether to take no more lines."""
        now = time.monotonic()
        if now >= self._noted + _NOTE_SECONDS:
            self.note()
        if now >= self._looked + _LOOK_SECONDS:  # the way to the first line that waits may be long
            self._looked = now
            position = self.sender.progress.position
            self._advance(position - self._shown)
            self._shown = position
        if self.stop.is_set() and not self._said_stop and self.sender.on_the_way:
            output.warn("waiting for what is on the way; ctrl-C again ends at once")
            self._said_stop = True
        return self.stop.is_set()

    def note(self) -> None:
        self._noted = time.monotonic()
        if self._bookmark:
            self._bookmark.write(self.sender.progress)

    def forget(self) -> None:
        if self._bookmark:
            self._bookmark.remove()
