"""The scrubber: reads all sealed segments in turn, at a bounded rate, to find corruption before a consumer does.

    round      every log in the order of names, every sealed segment in the order of offsets; so the segment read
               longest ago comes first. The next round begins `tailrace.scrub.interval.ms` after the last one began, or
               when that is done
    tick       as much as `tailrace.scrub.bytes.per.second` allows, as one job in a thread (`log/scrub.py`)
    progress   is saved once a minute in `scrub-checkpoint`. A restart continues there, so that a large directory is
               read completely however often the broker starts

Findings are logged and counted.
"""

import logging
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.core.delayed import StartJob
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import join
from tailrace.log.files.checkpoints import CorruptCheckpoint, decode_lines, encode_lines
from tailrace.log.files.checksums import CHUNK_BYTES
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.log.scrub import ScrubChunk, ScrubJob
from tailrace.log.segment.segment import Segment

logger = logging.getLogger("tailrace.broker.background")

FILE_NAME = "scrub-checkpoint"
NOTE_MS = 60_000
LOOKS_MAX = 1000  # logs per tick: many have no sealed segment

_ROUND_IS_OVER = TopicPartition(".", 0)  # no topic has this name


class ScrubProgress(NamedTuple):
    """When the round began, and how far it has come: a partition, None at the beginning, a segment, and a byte."""

    began_ms: int
    partition: TopicPartition | None = None
    base_offset: int = 0
    position: int = 0

    @property
    def is_over(self) -> bool:
        return self.partition == _ROUND_IS_OVER

    def start_in(self, partition: TopicPartition, segment: Segment) -> int:
        """The byte from which the segment is still to be read."""
        if partition != self.partition or segment.base_offset > self.base_offset:
            return 0
        if segment.base_offset < self.base_offset or self.position >= segment.size:
            return segment.size
        return self.position // CHUNK_BYTES * CHUNK_BYTES

    def encode(self) -> bytes:
        topic, partition = self.partition or TopicPartition("", 0)
        return encode_lines([f"{self.began_ms} {topic or '..'} {partition} {self.base_offset} {self.position}"])

    @classmethod
    def decode(cls, data: bytes) -> "ScrubProgress | None":
        try:
            ((began_ms, topic, partition, base_offset, position),) = decode_lines(data, fields=5)
            place = TopicPartition(topic, int(partition)) if topic != ".." else None
            return cls(int(began_ms), place, int(base_offset), int(position))
        except (CorruptCheckpoint, ValueError):
            return None


class Scrubber:
    def __init__(self, directory: DataDirectory, configs: BrokerConfigs, start_job: StartJob) -> None:
        self.scrubbed_bytes = 0
        self.rounds = 0
        self.faults = 0
        self._directory = directory
        self._start_job = start_job
        self._rate = configs.number("tailrace.scrub.bytes.per.second")
        self._interval_ms = configs.number("tailrace.scrub.interval.ms")
        self._path = join(directory.path, FILE_NAME)
        self._progress = ScrubProgress.decode(self._noted()) if self._rate else None
        self._round: Iterator[ScrubChunk | None] | None = None
        self._allowance = 0.0
        self._ticked_ms: int | None = None
        self._noted_ms = 0
        self._is_at_work = False

    def _noted(self) -> bytes:
        """Returns the saved progress of the last round. Returns b"" if that cannot be read: a new round begins."""
        try:
            return self._directory.read_file(FILE_NAME) or b""
        except OSError as error:
            logger.warning("cannot read %s: %s. Scrubbing begins a new round", self._path, error)
            return b""

    def tick(self, now_ms: int) -> None:
        if not self._rate:
            return
        passed_ms = now_ms - self._ticked_ms if self._ticked_ms is not None else 0
        self._ticked_ms = now_ms
        self._allowance = min(self._allowance + self._rate * max(0, passed_ms) / 1000, max(self._rate, CHUNK_BYTES))
        if self._is_at_work or self._allowance < CHUNK_BYTES:
            return
        if self._round is None:
            if self._progress is None or self._is_due(self._progress, now_ms):
                self._progress = ScrubProgress(now_ms)
            elif self._progress.is_over:
                return
            self._round = self._pieces(self._progress)
        self._scrub(now_ms)

    def _is_due(self, last: ScrubProgress, now_ms: int) -> bool:
        return last.is_over and not 0 <= now_ms - last.began_ms < self._interval_ms

    def _pieces(self, progress: ScrubProgress) -> Iterator[ScrubChunk | None]:
        """Yields the rest of the round, reading the list of logs as it goes; None after each log."""
        for partition in sorted(self._directory.logs):
            log = self._directory.logs.get(partition)
            if log is not None and (progress.partition is None or partition >= progress.partition):
                for segment in log.sealed_segments:
                    start = progress.start_in(partition, segment)
                    if segment.is_saved:
                        yield from (
                            ScrubChunk(partition, log, segment, at)
                            for at in range(start, max(segment.size, 1), CHUNK_BYTES)
                        )
            yield None

    def _scrub(self, now_ms: int) -> None:
        """Starts a job with as many pieces as the rate allows now, if there are any."""
        pieces, is_over = self._take()
        assert self._progress is not None
        reached = self._progress
        if is_over:
            reached = ScrubProgress(reached.began_ms, _ROUND_IS_OVER)
        elif pieces:
            last = pieces[-1]
            reached = ScrubProgress(reached.began_ms, last.partition, last.segment.base_offset, last.end)
        if not pieces and not is_over:
            return
        note = None
        if is_over or now_ms - self._noted_ms >= NOTE_MS:
            note, self._noted_ms = (self._path, reached.encode()), now_ms
        job = self._directory.begin_scrub(pieces, note)
        self._is_at_work = True
        self._start_job(job, lambda: self._finish(job, reached))

    def _take(self) -> tuple[list[ScrubChunk], bool]:
        """Returns the next pieces of the round, and whether these are the last."""
        assert self._round is not None
        pieces: list[ScrubChunk] = []
        for _ in range(LOOKS_MAX):
            if self._allowance < CHUNK_BYTES:
                break
            try:
                piece = next(self._round)
            except StopIteration:
                return pieces, True
            if piece is not None:
                pieces.append(piece)
                self._allowance -= piece.end - piece.start
        return pieces, False

    def _finish(self, job: ScrubJob, reached: ScrubProgress) -> None:
        self._is_at_work = False
        self._progress = reached
        if reached.is_over:
            self._round = None
            self.rounds += 1
        self._say(job)

    def look_at(self, partition: TopicPartition, log: Log, segment: Segment) -> None:
        """Verifies a sealed segment in which another reader found corruption: if confirmed, readers are refused the
        range.
        """
        pieces = [ScrubChunk(partition, log, segment, at) for at in range(0, max(segment.size, 1), CHUNK_BYTES)]
        job = self._directory.begin_scrub(pieces)
        self._start_job(job, lambda: self._say(job))

    def _say(self, job: ScrubJob) -> None:
        self.scrubbed_bytes += job.scrubbed_bytes
        self.faults += len(job.faults)
        for text in job.damage:
            logger.error("corruption found: %s. Run tailrace log repair to see what can be done about it", text)
        for text in job.faults:
            logger.warning("corruption found: %s", text)
