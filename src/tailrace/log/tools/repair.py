"""Repairs logs that no process has open: first makes a plan, then, if the operator agrees, carries out its steps.

A plan is made from the findings of `verify`, so that both report the same damage:

    bad bytes in a segment             removed, after a copy of them was made; sound bytes stay unchanged
    a flipped bit that is proven       corrected: nothing is lost
    missing records                    given up: a gap is recorded, and readers skip it
    a lost partition                   created again behind all offsets that it had, if the operator accepts the loss
    offsets that two segments have     the second copy is moved aside
    a wrong derived file               rebuilt, or left to the next start, which rebuilds it
    the rest of a torn write           left to the next start, which truncates it
    records only in the journal        left to the next start, which restores them
    an interrupted swap                completed before a plan is made for a repair: until then it is not known which
                                       files of a compacted log count

A loss is recorded before it is carried out (`recorded_gaps`). `repair_steps` carries out the steps, so that a crash at
any point leaves either the old state or one that the next plan repairs. A plan after a repair has nothing to do.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tailrace.log.disk.interface import Files, join, parent, read_whole
from tailrace.log.files.checkpoints import CorruptCheckpoint
from tailrace.log.files.checksums import SegmentChecksums
from tailrace.log.files.directory_state import PartitionDirectory
from tailrace.log.files.journal_file import read_journal
from tailrace.log.files.partition_metadata import read_topic_id
from tailrace.log.files.recorded_gaps import FILE_NAME as GAPS_FILE
from tailrace.log.files.recorded_gaps import CorruptGaps, read_gaps
from tailrace.log.files.swap_file import announced, finish_swaps
from tailrace.log.layout.damage import DamagedRange, overlap
from tailrace.log.layout.names import CHECKSUMS, DERIVED, LOG, SNAPSHOT, SWAP, is_leftover, numbered, parse_numbered
from tailrace.log.scan.restore import Journaled, JournaledLog, by_log
from tailrace.log.tools.bit_flip import Flip, chunks_of, find_flips
from tailrace.log.tools.derived_files import DerivedFault
from tailrace.log.tools.locate import Places
from tailrace.log.tools.lost_partitions import LostPartition
from tailrace.log.tools.survey import Tail
from tailrace.log.tools.verify import PartitionSummary, PartitionVerification, ProgressCallback

SEARCHES_MAX = 60  # searches for a flipped bit in one partition


class Action(StrEnum):
    CUT_OUT = "cut out"
    HEAL = "heal"
    GIVE_UP = "give up"
    SET_ASIDE = "set aside"
    REBUILD = "rebuild"
    REMOVE = "remove"
    LEAVE = "leave"
    COMPLETE = "complete"


_MEANING = {
    Action.CUT_OUT: "its bytes are copied aside and removed, and the gap is recorded",
    Action.HEAL: "the bit is corrected, and nothing is lost",
    Action.GIVE_UP: "the records cannot be restored: the gap is recorded",
    Action.SET_ASIDE: "it is kept under another name",
    Action.REBUILD: "it is rebuilt",
    Action.REMOVE: "it is removed",
    Action.LEAVE: "it is left to the next start",
    Action.COMPLETE: "the next start or repair completes it first: then there may be less to do",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do, and why. `damage` has the affected bytes and offsets, if it is about records."""

    action: Action
    file: str
    reason: str
    damage: DamagedRange | None = None
    flips: tuple[Flip, ...] = ()

    @property
    def meaning(self) -> str:
        return _MEANING[self.action]

    @property
    def loses_offsets(self) -> int:
        """How many offsets are lost for good."""
        if self.damage is None or self.action not in (Action.CUT_OUT, Action.GIVE_UP):
            return 0
        return self.damage.last_offset - self.damage.first_offset + 1

    def as_json(self) -> dict[str, object]:
        shown: dict[str, object] = {"action": self.action.value, "file": self.file, "reason": self.reason}
        if self.damage is not None:
            shown |= {name: value for name, value in self.damage.as_json().items() if name not in shown}
        return shown | {"offsets_lost": self.loses_offsets}


@dataclass(slots=True)
class PartitionPlan:
    place: PartitionDirectory
    summary: PartitionSummary
    steps: list[Step] = field(default_factory=list)
    tail: list[Tail] = field(default_factory=list)
    journaled: Journaled = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        """Whether the log belongs to an internal topic, from which the broker rebuilds its state."""
        return self.place.partition is not None and self.place.partition.topic.startswith("__")

    @property
    def to_do(self) -> list[Step]:
        return [step for step in self.steps if step.action not in (Action.LEAVE, Action.COMPLETE)]

    @property
    def offsets_lost(self) -> int:
        return sum(step.loses_offsets for step in self.steps)

    def as_json(self) -> dict[str, object]:
        return {
            "partition": self.place.name,
            "internal": self.is_internal,
            "records_kept": self.summary.records,
            "offsets_lost": self.offsets_lost,
            "steps": [step.as_json() for step in self.steps],
        }


@dataclass(slots=True)
class RepairPlan:
    partitions: list[PartitionPlan]
    damaged_files: list[str]  # files of the data directory itself
    lost: tuple[LostPartition, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.damaged_files and not self.lost and not any(plan.to_do for plan in self.partitions)

    @property
    def offsets_lost(self) -> int:
        lost = sum(lost.end_offset - lost.start_offset for lost in self.lost)
        return lost + sum(plan.offsets_lost for plan in self.partitions)

    @property
    def internal_losses(self) -> list[str]:
        """The partitions of internal topics that would lose records, by name."""
        damaged = [plan.place.name for plan in self.partitions if plan.is_internal and plan.offsets_lost]
        return [*(str(lost.partition) for lost in self.lost if lost.is_internal), *damaged]

    def as_json(self) -> dict[str, object]:
        return {
            "partitions": [plan.as_json() for plan in self.partitions if plan.steps],
            "lost": [{**lost.as_json(), "goes_on_at": lost.next_offset} for lost in self.lost],
            "damaged_files": self.damaged_files,
            "offsets_lost": self.offsets_lost,
        }


def make_plan(files: Files, places: Places, progress: ProgressCallback | None = None) -> RepairPlan:
    """Finds what is wrong in these logs, and what to do about it. Reads all of them, and writes nothing."""
    journaled: Journaled = {}
    if places.found and not places.found[0].clean:
        journaled = by_log(read_journal(files, parent(places.found[0].directory)))
    plans = [plan_partition(files, place, progress, journaled) for place in places.found]
    return RepairPlan(plans, list(places.state.damaged) if places.state else [], places.lost)


def complete_swaps(files: Files, places: Places) -> list[str]:
    """Completes interrupted swaps, like a start. Returns the partitions that had one. Must precede a plan that is
    carried out: no plan can be made while old and new files of a log exist side by side.
    """
    completed = []
    for place in places.found:
        if announced(files, place.directory, names := files.files_in(place.directory)):
            finish_swaps(files, place.directory, names)
            completed.append(place.name)
    return completed


def plan_partition(
    files: Files,
    place: PartitionDirectory,
    progress: ProgressCallback | None = None,
    journaled: Journaled | None = None,
) -> PartitionPlan:
    place = place._replace(prefix="")
    found = PartitionVerification(files, place, progress).run()
    names = files.files_in(place.directory)
    steps = [
        Step(Action.COMPLETE, numbered(swap.base_offset, SWAP), "a replacement by compaction was interrupted")
        for swap in announced(files, place.directory, names)
    ]
    steps += _set_gaps_aside(files, place)
    bad_bytes = [bad for bad in found.damage if bad.length]
    known = _journaled(files, place, journaled or {})
    if known is not None and any(known.has(bad) for bad in bad_bytes):  # positions must not change
        steps += [
            Step(Action.LEAVE, bad.file, f"{bad.reason}; the journal is restored first", bad) for bad in bad_bytes
        ]
    else:
        steps += _heal_or_cut(files, place, bad_bytes)
    steps += [_missing_or_double(bad, names) for bad in found.damage if not bad.length]
    rewritten = {parse_numbered(step.file) for step in steps if step.action in (Action.CUT_OUT, Action.HEAL)}
    steps += [_derived(fault) for fault in found.derived if not _goes_with(fault.file, rewritten)]
    leftovers = sorted(name for name in names if is_leftover(name, names))
    steps += [Step(Action.REMOVE, name, "an earlier process has left it behind") for name in leftovers]
    for tail in found.tail:
        steps.append(Step(Action.LEAVE, tail.file, f"a torn write at byte {tail.position} ({tail.reason})"))
    return PartitionPlan(place, found.partitions[0], steps, found.tail, journaled or {})


def _journaled(files: Files, place: PartitionDirectory, journaled: Journaled) -> JournaledLog | None:
    """Returns what the journal has of this log, as opposed to another log that had its name."""
    if not journaled:
        return None
    try:
        topic_id = read_topic_id(files, place.directory)
    except (CorruptCheckpoint, OSError):
        return None
    return journaled.get((place.name.encode(), topic_id))


def _set_gaps_aside(files: Files, place: PartitionDirectory) -> list[Step]:
    try:
        read_gaps(files, place.directory)
    except (CorruptGaps, OSError) as error:
        return [Step(Action.SET_ASIDE, GAPS_FILE, f"it cannot be read: {error}")]
    return []


def _heal_or_cut(files: Files, place: PartitionDirectory, damage: Sequence[DamagedRange]) -> Iterator[Step]:
    """Yields a step for each damaged range. A search for a flipped bit takes a second: their number is limited, and
    there is none where more than one bit must be wrong.
    """
    places = Counter((bad.file, number) for bad in damage for number in chunks_of(bad))
    searches = 0
    for bad in damage:
        flips: tuple[Flip, ...] = ()
        if searches < SEARCHES_MAX and all(places[bad.file, number] == 1 for number in chunks_of(bad)):
            searches += len(chunks_of(bad))
            flips = _flips(files, join(place.directory, bad.file), bad)
        yield Step(Action.HEAL if flips else Action.CUT_OUT, bad.file, bad.reason, bad, flips)


def _flips(files: Files, path: str, bad: DamagedRange) -> tuple[Flip, ...]:
    checksums = SegmentChecksums.decode(read_whole(files, path.removesuffix(LOG) + CHECKSUMS) or b"")
    log = files.open(path)
    try:
        return find_flips(log, checksums, bad) if checksums is not None and checksums.log_size <= log.size() else ()
    finally:
        log.close()


def _missing_or_double(bad: DamagedRange, names: dict[str, int]) -> Step:
    is_double = bad == overlap(bad.file, bad.first_offset, bad.last_offset + 1) and bad.file in names
    return Step(Action.SET_ASIDE if is_double else Action.GIVE_UP, bad.file, bad.reason, bad)


def _goes_with(file: str, rewritten: set[tuple[int, str] | None]) -> bool:
    """Returns whether a derived file is rebuilt in any case, with its log."""
    parsed = parse_numbered(file)
    return parsed is not None and parsed[1] in DERIVED and (parsed[0], LOG) in rewritten


def _derived(fault: DerivedFault) -> Step:
    """Returns the step for a derived file. A snapshot is left to the next start, as it would need a replay of
    the log.
    """
    parsed = parse_numbered(fault.file)
    action = Action.REMOVE if parsed is not None and parsed[1] == SNAPSHOT else Action.REBUILD
    return Step(action, fault.file, fault.reason)
