"""The state of a log during recovery, which the passes fill one after the other, and the report of a recovery."""

from collections.abc import Callable
from typing import NamedTuple

from tailrace.log.disk.interface import Files
from tailrace.log.files.directory_state import PartitionDirectory
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.files.recorded_gaps import RecordedGap
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.damage import DamagedRange, missing_file
from tailrace.log.layout.errors import SegmentsMissing
from tailrace.log.layout.names import INTERNAL_TOPICS
from tailrace.log.scan.restore import Journaled
from tailrace.log.segment.derived_cache import DerivedCache
from tailrace.log.segment.segment import Segment
from tailrace.log.state.producer_state import ProducerState

NO_SEGMENT = "a checkpoint names it, but it has no segment"


class Truncation(NamedTuple):
    """Where recovery truncated a log, and where the bytes behind are kept."""

    file: str
    position: int
    length: int
    first_offset: int
    reason: str
    kept_as: tuple[str, ...]


class LostTail(NamedTuple):
    """The bytes behind the end of a log, of writes that did not reach the disk completely. `number` is that of the
    segment.
    """

    number: int
    position: int
    reason: str


class RecoveryReport:
    """What a start found in a log, and what it changed."""

    __slots__ = ("damage", "leader_epoch", "scanned_batches", "scanned_bytes", "truncation", "was_clean")

    def __init__(self, was_clean: bool) -> None:
        self.was_clean = was_clean
        self.scanned_batches = 0
        self.scanned_bytes = 0
        self.truncation: Truncation | None = None
        self.damage: list[DamagedRange] = []
        self.leader_epoch = 0


class RecoveryState:
    """The state of a log between the passes."""

    def __init__(
        self, files: Files, place: PartitionDirectory, config: LogConfig, cache: DerivedCache, journaled: Journaled
    ) -> None:
        self._journaled = journaled
        self._topic_id: bytes | None = None
        self.files = files
        self.place = place
        self.directory = place.directory
        self.config = config
        self.report = RecoveryReport(was_clean=place.clean)
        self._cache = cache
        self._start_offset = place.start_offset or 0
        self._segments: list[Segment] = []
        self._epochs = LeaderEpochs()
        self._epochs_are_known = False
        self._epochs_are_due = False  # the disk had no room for them
        self._truncation_due: Callable[[], object] | None = None  # a truncation that the disk had no room for
        self._producers = ProducerState()
        self._end = self._start_offset
        self._is_new = False
        self._start_is_doubtful = False
        self._epochs_are_judged = False
        self._epochs_are_rebuilt = False
        self.recorded_gaps: tuple[RecordedGap, ...] = ()

    def let_go(self) -> None:
        for segment in self._segments:
            segment.close()

    def _segment(self, base_offset: int, size: int) -> Segment:
        return Segment(
            self.files,
            self.directory,
            base_offset,
            size,
            epochs=self._epochs,
            cache=self._cache,
            interval_bytes=self.config.index_interval_bytes,
        )

    @property
    def _unflushed_from(self) -> float:
        return self.place.unflushed_from(0 if self._start_is_doubtful else self._start_offset)

    @property
    def known_epochs(self) -> LeaderEpochs | None:
        return self._epochs if self._epochs_are_known else None

    def _damaged(self, segment: Segment, damage: DamagedRange) -> None:
        segment.checks.report(damage)
        self.report.damage.append(damage)

    def _missing(self, damage: DamagedRange) -> None:
        """Reports flushed records that are lost. Raises SegmentsMissing for an internal topic, before anything is
        changed: else the next start would take what is left for the whole log.
        """
        if self.place.partition is not None and self.place.partition.topic in INTERNAL_TOPICS:
            raise SegmentsMissing(str(damage))
        self.report.damage.append(damage)

    def _go_on_at(self, end: int) -> None:
        """Begins a new segment at this offset. Offsets before it that the log does not have are reported as missing."""
        if self._end < end:
            self._missing(missing_file(self._end, end))
        self._segments.append(self._segment(end, 0))
        self._segments[-1].create()
        self._end = end
