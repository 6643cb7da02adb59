"""The steps of a repair of one partition, in an order in which a crash at any point loses nothing.

Before a segment is changed, the bytes to be removed are copied aside, and the gap is recorded. The segment is replaced
by a new file that was written beside it, verified and synced. The old checksum file stays until then: it covers more
bytes than the new file has, so it reports the gap as missing records until the new one replaces it. So a crash leaves
either damage that the next plan finds, or none.
"""

from collections.abc import Iterable, Sequence

from tailrace.log.disk.interface import File, Files, join, remove_if_there, replace_whole
from tailrace.log.files.checkpoints import RECOVERY_POINTS, START_OFFSETS, encode_offsets
from tailrace.log.files.checksums import ChunkChecksums, Gaps, SegmentChecksums
from tailrace.log.files.directory_state import DirectoryState
from tailrace.log.files.index import TransactionIndex
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.files.recorded_gaps import FILE_NAME as GAPS_FILE
from tailrace.log.files.recorded_gaps import CorruptGaps, RecordedGap, add_gaps, has_gap, read_gaps
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import CHECKSUMS, CUT, LOG, TEMPORARY, is_leftover, numbered, parse_numbered
from tailrace.log.recovery.epoch_check import epochs_of
from tailrace.log.scan.scan import FoundBatch, ScanRange
from tailrace.log.scan.walk import walk
from tailrace.log.segment.derived import Derived
from tailrace.log.segment.derived_cache import DerivedCache
from tailrace.log.segment.segment import Segment
from tailrace.log.segment.truncation import copy_aside, move_aside, unused
from tailrace.log.state.replay import replay_segments
from tailrace.log.tools.bit_flip import Flip, correct
from tailrace.log.tools.lost_partitions import LostPartition
from tailrace.log.tools.repair import Action, PartitionPlan, RepairPlan, Step, plan_partition
from tailrace.log.tools.survey import Survey
from tailrace.records.record import encode_batch

_COPY_BYTES = 1 << 20
ROUNDS_MAX = 20
_DELTAS = 1 << 31  # offsets that one batch can span


class NotRepaired(LogError):
    """A step cannot be carried out as planned; nothing was changed by it."""


class PartitionRepair:
    """Carries out the plan of one partition. `repaired_at` is the time, as text."""

    def __init__(self, files: Files, plan: PartitionPlan, repaired_at: str) -> None:
        self._files = files
        self._plan = plan
        self._directory = plan.place.directory
        self._repaired_at = repaired_at
        self._interval_bytes = LogConfig().index_interval_bytes
        rebuilds_epochs = any(step.file == EPOCHS_FILE for step in self._steps(Action.REBUILD))
        self._epochs = LeaderEpochs() if rebuilds_epochs else Survey(files, plan.place).epochs

    def run(self) -> None:
        """Carries out the plan. If that reveals more to do, another plan has it."""
        for step in self._steps(Action.SET_ASIDE):
            if step.damage is None:
                self._set_file_aside(step.file)
        for step in self._steps(Action.REMOVE):  # before files of the same name are written
            remove_if_there(self._files, join(self._directory, step.file))
        self._rewrite_segments()
        for step in self._steps(Action.SET_ASIDE):
            if step.damage is not None:
                self._set_segment_aside(step.damage)
                return  # this changes the set of segments: the next plan has the rest
        for step in self._steps(Action.GIVE_UP):
            self._give_up(step)
        self._rebuild([step.file for step in self._steps(Action.REBUILD)])
        self._files.sync_directory(self._directory)

    def _steps(self, *actions: Action) -> list[Step]:
        return [step for step in self._plan.steps if step.action in actions]

    # Bad bytes

    def _rewrite_segments(self) -> None:
        steps = self._steps(Action.CUT_OUT, Action.HEAL)
        for file in dict.fromkeys(step.file for step in steps):
            parsed = parse_numbered(file)
            assert parsed is not None
            self._rewrite(parsed[0], [step for step in steps if step.file == file])

    def _rewrite(self, base_offset: int, steps: Sequence[Step]) -> None:
        """Writes the segment anew without its bad bytes."""
        segment = self._segment(base_offset)
        lost = []
        for step in steps:
            assert step.damage is not None
            copy = copy_aside(self._files, self._directory, segment, step.damage.position, step.damage.end)
            if step.action is Action.CUT_OUT:
                lost.append((step.damage, copy))
        self._record(self._gap(damage, copy) for damage, copy in lost if damage.offsets)
        transactions = segment.derived_files.load_transactions(segment.size)
        checksums = segment.derived_files.read_checksums()
        cuts = _merged(damage for damage, _ in lost)
        flips = [flip for step in steps for flip in step.flips]
        new = self._files.open(segment.log.path + TEMPORARY, create=True)
        try:
            size = _write_without(segment.log, segment.size, new, cuts, flips)
            derived, chunks = self._derive(new, base_offset, self._sound_size(segment, cuts, size))
        finally:
            new.close()
        if checksums is not None and checksums.log_size <= size and cuts:  # they would cover other bytes
            remove_if_there(self._files, segment.log.path.removesuffix(LOG) + CHECKSUMS)
            self._files.sync_directory(self._directory)
        self._files.rename(new.path, segment.log.path)
        self._files.sync_directory(self._directory)
        segment.close()
        derived.gaps = Gaps.REPAIRED if cuts or checksums is None else checksums.gaps
        self._save(base_offset, derived, chunks, transactions)
        if cuts and self._bases()[-1] == base_offset and not self._plan.tail:
            self._go_on_behind(derived.next_offset)

    def _go_on_behind(self, next_offset: int) -> None:
        """Seals the last segment, which has a gap now, and begins another one for later appends."""
        end = self._plan.summary.end_offset
        if next_offset < end:
            self._fill(next_offset, end)
        else:
            replace_whole(self._files, join(self._directory, numbered(end, LOG)), b"")

    def _sound_size(self, segment: Segment, cuts: Sequence[tuple[int, int]], size: int) -> int:
        """Returns how much of the new file is kept: the next start truncates a torn write at its end."""
        for tail in self._plan.tail:
            if tail.file == segment.name:
                return tail.position - sum(end - start for start, end in cuts if start < tail.position)
        return size

    def _derive(self, log: File, base_offset: int, size: int) -> tuple[Derived, ChunkChecksums]:
        """Builds the indexes and checksums of this many bytes. Raises NotRepaired unless all of them are sound."""
        derived, chunks = Derived.empty(base_offset), ChunkChecksums()
        following = min((base for base in self._bases() if base > base_offset), default=None)
        for item in walk(ScanRange(log, 0, size, base_offset, gaps=True, epochs=self._epochs, limit=following)):
            if not isinstance(item, FoundBatch):
                raise NotRepaired(f"{self._plan.place.name} would still be damaged: {item}")
            if item.header.base_offset != derived.next_offset:
                derived.gaps = Gaps.UNKNOWN
            derived.add(item.position, item.header, self._interval_bytes)
        chunks.read_up_to(log, size)
        return derived, chunks

    # Missing and duplicate offsets

    def _give_up(self, step: Step) -> None:
        """Makes readers skip the missing offsets: inside a segment, or whole segments."""
        damage = step.damage
        assert damage is not None
        self._record([self._gap(damage, None)])
        if self._files.files_in(self._directory).get(damage.file):
            parsed = parse_numbered(damage.file)
            assert parsed is not None
            self._build(parsed[0], Gaps.REPAIRED)
        else:
            self._fill(damage.first_offset, damage.last_offset + 1)

    def _fill(self, first: int, following: int) -> None:
        """Writes a segment without records for these offsets, with empty batches as compaction leaves them. So readers
        can continue, also at the end of the log, and no offset is reused.
        """
        path = join(self._directory, numbered(first, LOG))
        epoch = self._epochs.range_at(first)[0] or 0
        data = b"".join(
            encode_batch([], base_offset=base, leader_epoch=epoch, last_offset_delta=min(following - base, _DELTAS) - 1)
            for base in range(first, following, _DELTAS)
        )
        replace_whole(self._files, path, data)
        self._build(first, Gaps.REPAIRED)

    def _set_segment_aside(self, double: DamagedRange) -> None:
        """Moves a duplicate segment aside. Offsets that the segment before it lacks get a segment of their own."""
        parsed, end = parse_numbered(double.file), double.last_offset + 1
        assert parsed is not None
        segment = self._segment(parsed[0])
        position = self._position_of(segment, end)
        if position < segment.size and end not in self._bases():
            self._copy_segment(segment, position, end)
        move_aside(self._files, self._directory, segment)
        self._files.sync_directory(self._directory)

    def _position_of(self, segment: Segment, offset: int) -> int:
        """Returns where the first batch with `offset`, or a later one, begins. Raises NotRepaired if it has earlier
        offsets, too.
        """
        for item in walk(ScanRange(segment.log, 0, segment.size, segment.base_offset, gaps=True)):
            if isinstance(item, FoundBatch) and item.header.next_offset > offset:
                if item.header.base_offset < offset:
                    raise NotRepaired(
                        f"{segment.name} in {self._directory} has a batch that spans offset {offset}, where the "
                        "previous segment ends. Move one of the two out of the directory, and repair again"
                    )
                return item.position
        return segment.size

    def _copy_segment(self, segment: Segment, position: int, base_offset: int) -> None:
        new = self._files.open(join(self._directory, numbered(base_offset, LOG) + TEMPORARY), create=True)
        try:
            _write_without(segment.log, segment.size, new, [(0, position)], [])
        finally:
            new.close()
        self._files.rename(new.path, join(self._directory, numbered(base_offset, LOG)))
        self._files.sync_directory(self._directory)
        self._build(base_offset)

    # Derived files

    def _rebuild(self, names: Sequence[str]) -> None:
        for base_offset in sorted({parsed[0] for name in names if (parsed := parse_numbered(name))}):
            self._build(base_offset)
        if EPOCHS_FILE in names:
            self._rebuild_epochs()

    def _build(self, base_offset: int, gaps: Gaps | None = None) -> None:
        """Rebuilds the files beside a segment. Unless `gaps` is given, the old checksum file, or else the segment
        itself, decides which gaps it may have.
        """
        segment = self._segment(base_offset)
        size = self._sound_size(segment, (), segment.size)
        checksums = segment.derived_files.read_checksums()
        transactions = segment.derived_files.load_transactions(segment.size)
        segment.log.sync()
        derived, chunks = self._derive(segment.log, base_offset, size)
        segment.close()
        known = checksums if checksums is not None and checksums.log_size <= segment.size else None
        derived.gaps = self._gaps_of(base_offset, derived, known) if gaps is None else gaps
        self._save(base_offset, derived, chunks, transactions)

    def _gaps_of(self, base_offset: int, derived: Derived, checksums: SegmentChecksums | None) -> Gaps:
        """Returns what kind of gaps a segment has, or may have."""
        following = min((base for base in self._bases() if base > base_offset), default=derived.next_offset)
        is_dense = derived.gaps is Gaps.NONE and derived.next_offset == following
        if not is_dense and has_gap(read_gaps(self._files, self._directory), base_offset, following):
            return Gaps.REPAIRED
        if checksums is not None:
            return checksums.gaps
        return Gaps.NONE if is_dense else Gaps.UNKNOWN

    def _save(
        self, base_offset: int, derived: Derived, chunks: ChunkChecksums, transactions: TransactionIndex | None
    ) -> None:
        segments = [self._segment(base) for base in self._bases()]
        segment = next(one for one in segments if one.base_offset == base_offset)
        if transactions is None:
            segment.adopt(derived, TransactionIndex(), None)
            _, transactions = replay_segments(self._files, self._directory, segments, derived.next_offset, segment)
        if segment is not segments[-1]:
            derived.seal()
        checksums = derived.summarise(chunks.size, chunks.checksums, transactions)
        segment.derived_files.save(derived, transactions, checksums, sync=True)
        self._files.sync_directory(self._directory)
        for one in segments:
            one.close()

    def _rebuild_epochs(self) -> None:
        """Rebuilds the leader epochs from the batches, which have theirs in their headers."""
        segments = [self._segment(base_offset) for base_offset in self._bases()]
        epochs = epochs_of(segments)
        for segment in segments:
            segment.close()
        self._set_file_aside(EPOCHS_FILE)
        replace_whole(self._files, join(self._directory, EPOCHS_FILE), epochs.encode())

    # Helpers

    def _record(self, gaps: Iterable[RecordedGap]) -> None:
        if new := list(gaps):
            add_gaps(self._files, self._directory, new)

    def _gap(self, damage: DamagedRange, kept_as: str | None) -> RecordedGap:
        return RecordedGap(damage.first_offset, damage.last_offset, damage.reason, self._repaired_at, kept_as)

    def _bases(self) -> list[int]:
        parsed = map(parse_numbered, self._files.files_in(self._directory))
        return sorted(found[0] for found in parsed if found and found[1] == LOG)

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self._files,
            self._directory,
            base_offset,
            self._files.files_in(self._directory)[numbered(base_offset, LOG)],
            epochs=self._epochs,
            cache=DerivedCache(),
            interval_bytes=self._interval_bytes,
        )

    def _set_file_aside(self, name: str) -> None:
        set_file_aside(self._files, self._directory, name)


def set_file_aside(files: Files, directory: str, name: str) -> None:
    """Renames a small file that cannot be read, durably, if it exists."""
    if files.exists(join(directory, name)):
        files.rename(join(directory, name), join(directory, unused(files, directory, name + CUT)))
        files.sync_directory(directory)


def _merged(damage: Iterable[DamagedRange]) -> list[tuple[int, int]]:
    """Returns the damaged ranges of bytes, in order, without overlaps."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((one.position, one.end) for one in damage):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _write_without(old: File, size: int, new: File, cuts: Sequence[tuple[int, int]], flips: Sequence[Flip]) -> int:
    """Writes the bytes of `old` to `new`, durably, without those in `cuts` and with these bits corrected. Returns the
    number of bytes.
    """
    new.truncate(0)
    written = 0
    for start, end in zip([0, *(end for _, end in cuts)], [*(start for start, _ in cuts), size], strict=True):
        for position in range(start, end, _COPY_BYTES):
            data = bytearray(old.read_at(position, min(_COPY_BYTES, end - position)))
            correct(data, position, flips)
            new.write_at(written, data)
            written += len(data)
    new.sync()
    return written


def carry_out(files: Files, plan: RepairPlan, data_directory: str, repaired_at: str) -> None:
    """Carries out a plan, and what it reveals. Raises NotRepaired if a step is impossible; the other partitions are
    repaired all the same.
    """
    for name in plan.damaged_files:
        set_file_aside(files, data_directory, name)
    for lost in plan.lost:
        create_again(files, lost, data_directory, repaired_at)
    refused = []
    for partition in plan.partitions:
        try:
            _repair_partition(files, partition, repaired_at)
        except NotRepaired as error:
            refused.append(str(error))
    if refused:
        raise NotRepaired("\n".join(refused))


def create_again(files: Files, lost: LostPartition, data_directory: str, repaired_at: str) -> None:
    """Creates an empty log for the lost partition, durably, behind all offsets that it had. Its segment comes last, and
    without one the partition counts as lost: after a crash, a repair begins again.
    """
    following = lost.next_offset
    state = DirectoryState(files, data_directory)
    for name, offsets in ((RECOVERY_POINTS, state.recovery_points), (START_OFFSETS, state.start_offsets)):
        if offsets is not None:
            replace_whole(files, join(data_directory, name), encode_offsets(offsets | {lost.partition: following}))
    directory = join(data_directory, str(lost.partition))
    files.make_directory(directory)
    files.sync_directory(data_directory)
    if following > lost.start_offset:
        unknown = "" if lost.is_exact else f"; its end behind offset {lost.end_offset} is unknown"
        gap = RecordedGap(lost.start_offset, following - 1, lost.reason + unknown, repaired_at, None)
        try:
            add_gaps(files, directory, [gap])
        except CorruptGaps:
            set_file_aside(files, directory, GAPS_FILE)
            add_gaps(files, directory, [gap])
    replace_whole(files, join(directory, numbered(following, LOG)), b"")
    names = files.files_in(directory)
    for name in names:
        if is_leftover(name, names):
            files.remove(join(directory, name))
    files.sync_directory(directory)


def _repair_partition(files: Files, plan: PartitionPlan, repaired_at: str) -> None:
    for _ in range(ROUNDS_MAX):
        if not plan.to_do:
            return
        PartitionRepair(files, plan, repaired_at).run()
        plan = plan_partition(files, plan.place, journaled=plan.journaled)
    raise NotRepaired(f"{plan.place.name} needs another repair: repair it again")
