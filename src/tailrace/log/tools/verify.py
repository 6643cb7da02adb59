"""Verifies logs: finds everything that is wrong in a partition or a data directory, without changing it.

    lost      partitions that a checkpoint names and that have no segment, or that cannot be read at all
    damage    untrustworthy or missing bytes: records are lost unless there is another copy
    tail      the rest of unacknowledged writes after a crash: the next start truncates it, and keeps it aside
    derived   files that will be rebuilt from the log
    gaps      recorded gaps that repairs have left
    notes     other observations that are not faults

A log is healthy if it has no damage, and a data directory if in addition no partition is lost.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from tailrace.log.disk.interface import Files
from tailrace.log.files.directory_state import PartitionDirectory
from tailrace.log.files.recorded_gaps import RecordedGap
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.names import CUT, TopicPartition
from tailrace.log.scan.scan import FoundBatch
from tailrace.log.tools.derived_files import UNREADABLE, DerivedFault, SegmentAudit, audit_partition
from tailrace.log.tools.locate import Places
from tailrace.log.tools.lost_partitions import LostPartition
from tailrace.log.tools.survey import Finding, Survey, SurveyedSegment, Tail

ProgressCallback = Callable[[int], None]

_PROGRESS_BYTES = 4 << 20


@dataclass(slots=True)
class PartitionSummary:
    name: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0
    state: Literal["healthy", "torn", "damaged", "lost"] = "healthy"


@dataclass(slots=True)
class Verification:
    partitions: list[PartitionSummary] = field(default_factory=list)
    lost: list[LostPartition] = field(default_factory=list)
    damage: list[DamagedRange] = field(default_factory=list)
    tail: list[Tail] = field(default_factory=list)
    derived: list[DerivedFault] = field(default_factory=list)
    gaps: list[tuple[str, RecordedGap]] = field(default_factory=list)  # with the names of their partitions
    notes: list[str] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return not self.damage and not self.lost

    def as_json(self) -> dict[str, object]:
        return {
            "partitions": [asdict(partition) for partition in self.partitions],
            "lost": [lost.as_json() for lost in self.lost],
            "damage": [damage.as_json() for damage in self.damage],
            "tail": [tail.as_json() for tail in self.tail],
            "derived": [fault.as_json() for fault in self.derived],
            "gaps": [{"partition": partition, **gap.as_json()} for partition, gap in self.gaps],
            "notes": self.notes,
            "healthy": self.healthy,
        }

    def add(self, other: "Verification") -> None:
        self.partitions += other.partitions
        self.lost += other.lost
        self.damage += other.damage
        self.tail += other.tail
        self.derived += other.derived
        self.gaps += other.gaps
        self.notes += other.notes


def bytes_to_read(files: Files, places: Places) -> int:
    """Returns what `verify` will report as progress in total, as far as it can be known beforehand."""
    return sum(_bytes_of(files, place) for place in places.found)


def _bytes_of(files: Files, place: PartitionDirectory) -> int:
    try:
        survey = Survey(files, place)
    except OSError:
        return 0  # `verify` reports it
    return sum(survey.segments[number].size for number in survey.wanted)


def verify(files: Files, places: Places, progress: ProgressCallback | None = None) -> Verification:
    """Verifies everything under a path. Calls `progress`, every few MiB, with the number of bytes read since the last
    call.
    """
    result = Verification()
    for name in places.state.damaged if places.state else ():
        result.derived.append(DerivedFault(name, f"{UNREADABLE}: the next start scans every log"))
    for lost in places.lost:
        result.add(_lost(lost))
    for place in places.found:
        try:
            result.add(PartitionVerification(files, place, progress).run())
        except OSError as error:
            result.add(_unreadable(place, error))
    return result


def _lost(lost: LostPartition) -> Verification:
    offsets = {"start_offset": lost.start_offset, "end_offset": lost.end_offset}
    return Verification([PartitionSummary(str(lost.partition), **offsets, state="lost")], lost=[lost])


def _unreadable(place: PartitionDirectory, error: OSError) -> Verification:
    """Returns the result for a log that no start could open."""
    partition = place.partition or TopicPartition(place.name, 0)
    reason = f"it cannot be read: {error.filename or place.directory}: {error.strerror or error}"
    return _lost(LostPartition(partition, reason, place.start_offset or 0, place.recovery_point or 0, place.clean))


class PartitionVerification:
    def __init__(self, files: Files, place: PartitionDirectory, progress: ProgressCallback | None) -> None:
        self._files = files
        self._place = place
        self._progress = progress
        self._unreported = 0
        self._survey = Survey(files, place)
        self._audit: SegmentAudit | None = None
        self._with_checksums = 0
        self._without_checksums = 0
        segments = self._survey.segments
        size = sum(segment.size for segment in segments)
        self._summary = PartitionSummary(place.name, segments=len(segments), bytes=size)
        self._result = Verification([self._summary])

    def run(self) -> Verification:
        for finding in self._survey:
            self._follow()
            self._take(finding)
        self._follow(done=True)
        self._summary.start_offset = min(self._survey.start_offset, self._survey.end_offset)
        self._summary.end_offset = self._survey.end_offset
        if self._result.damage:
            self._summary.state = "damaged"
        elif self._result.tail:
            self._summary.state = "torn"
        self._result.damage.sort(key=lambda damage: damage.first_offset)
        self._add_faults(audit_partition(self._files, self._survey))
        self._result.gaps += [(self._place.name, gap) for gap in self._recorded_gaps()]
        self._result.notes += [f"{self._place.name}: {note}" for note in self._notes()]
        self._tell(0, at_least=1)
        return self._result

    def _follow(self, *, done: bool = False) -> None:
        """Begins the audit of the derived files of each segment that the survey reaches, and ends the previous one."""
        current = self._survey.current
        if self._audit is not None and (done or self._audit.current is not current):
            if not self._result.tail:  # else its files describe bytes that the next start truncates
                self._add_faults(self._audit.faults())
            self._audit = None
        if current is not None and self._audit is None and not done:
            self._audit = SegmentAudit(self._files, self._place.directory, current)
            self._with_checksums += current.has_checksums
            self._without_checksums += not current.has_checksums and self._should_have_checksums(current)

    def _should_have_checksums(self, current: SurveyedSegment) -> bool:
        """Whether the segment must have a checksum file: it is sealed, and the recovery point lies behind it."""
        return current.following is not None and current.following <= (self._place.recovery_point or 0)

    def _take(self, finding: Finding) -> None:
        match finding:
            case FoundBatch(position, header):
                self._summary.batches += 1
                self._summary.records += header.record_count
                self._tell(header.size)
                if self._audit is not None:
                    self._audit.found(position, header)
            case DamagedRange():
                self._result.damage.append(finding._replace(file=self._place.prefix + finding.file))
                self._tell(finding.length)
                if self._audit is not None:
                    self._audit.skipped(finding.end, finding.last_offset + 1)
            case Tail():
                self._result.tail.append(finding._replace(file=self._place.prefix + finding.file))
                self._tell(finding.length)

    def _tell(self, size: int, *, at_least: int = _PROGRESS_BYTES) -> None:
        self._unreported += size
        if self._progress is not None and self._unreported >= at_least:
            self._progress(self._unreported)
            self._unreported = 0

    def _add_faults(self, faults: Iterable[DerivedFault]) -> None:
        self._result.derived += [replace(fault, file=self._place.prefix + fault.file) for fault in faults]

    def _recorded_gaps(self) -> list[RecordedGap]:
        """Returns the recorded gaps inside the log; others are of records that were deleted since."""
        survey = self._survey
        return [gap for gap in survey.recorded_gaps if gap.last_offset + 1 >= survey.start_offset]

    def _notes(self) -> Iterator[str]:
        survey = self._survey
        yield from survey.notes
        recorded = self._recorded_gaps()
        if survey.unexplained_offsets:
            yield (
                f"{survey.unexplained_offsets} offsets are missing in segments without a checksum file: compaction may "
                "have left these gaps, or records may be lost. Compare with a backup if the topic was never compacted"
            )
        missing = survey.gap_offsets - survey.unexplained_offsets - sum(gap.offsets for gap in recorded)
        if missing > 0:
            gaps = max(1, survey.gaps - len(recorded))
            yield f"{missing} offsets are missing in {gaps} gaps, as compaction leaves them"
        if survey.leftovers:
            yield f"{survey.leftovers} segments below the start of the log are about to be deleted and were not read"
        if self._with_checksums and self._without_checksums:  # Kafka writes none
            yield f"{self._without_checksums} sealed segments have no checksum file: the CRC of each batch was checked"
        for name, size in survey.names.items():
            if CUT in name:
                yield f"{name} keeps {size} bytes that a start or a repair has removed from the log"
