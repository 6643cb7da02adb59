"""A survey: one partition read from its first byte to its last, without opening the log.

It yields every sound batch and, in between, the damage, or the tail that a crash left. It uses the rules of recovery to
tell these apart, so that it predicts what a start of the broker will find. `log verify` counts the findings, `log dump`
prints them.

Nothing is written or locked. A broker may append at the same time: what it adds after the survey has begun is not read.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from tailrace.log.disk.interface import Files, join, read_whole
from tailrace.log.files.checkpoints import START_OFFSETS, CorruptCheckpoint
from tailrace.log.files.checksums import CHUNK_BYTES, ChunkChecksums, Gaps
from tailrace.log.files.directory_state import PartitionDirectory
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.files.recorded_gaps import FILE_NAME as GAPS_FILE
from tailrace.log.files.recorded_gaps import CorruptGaps, RecordedGap, has_gap, read_gaps
from tailrace.log.files.swap_file import announced, replaced_segments
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.damage import DamagedRange, missing_file, overlap
from tailrace.log.layout.names import LOG, numbered, parse_numbered
from tailrace.log.recovery.epoch_check import corrected_epochs, epochs_of, sound_but_for_its_epoch
from tailrace.log.scan.scan import FoundBatch, ScanRange
from tailrace.log.scan.walk import walk
from tailrace.log.segment.derived import Derived
from tailrace.log.segment.derived_cache import DerivedCache
from tailrace.log.segment.segment import Segment
from tailrace.log.segment.tail import due_end, ends_the_log, may_be_unflushed


class Tail(NamedTuple):
    """Where the next start will end the log: writes behind it did not reach the disk completely."""

    file: str
    position: int
    length: int
    first_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.file} ends in a torn write at byte {self.position} ({self.length} bytes): the next start ends the "
            f"log at offset {self.first_offset} and keeps these bytes aside ({self.reason})"
        )

    def as_json(self) -> dict[str, str | int]:
        return self._asdict()


Finding = FoundBatch | DamagedRange | Tail


class SurveyedSegment:
    """A segment, and its indexes and checksums."""

    def __init__(
        self, segment: Segment, following: int | None, place: PartitionDirectory, recorded: Sequence[RecordedGap]
    ) -> None:
        self.segment = segment
        self.following = following
        self.derived, _ = segment.derived_files.load_before(segment.size)
        # Checksums of more bytes than there are cannot be compared, but still tell that the log was longer, and dense.
        checksums = segment.derived_files.read_checksums()
        if self.derived.gaps is Gaps.UNKNOWN and checksums is not None:
            self.derived.gaps = checksums.gaps
        if self.derived.gaps is Gaps.UNKNOWN and place.was_never_compacted(following):
            self.derived.gaps = Gaps.NONE
        if not self.has_checksums and has_gap(recorded, segment.base_offset, following):
            self.derived.gaps = Gaps.REPAIRED  # by a repair that was interrupted, or whose checksum file is lost
        self.known_end = following or max(checksums.next_offset if checksums else 0, place.recovery_point or 0)

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def has_checksums(self) -> bool:
        return self.derived.checksums is not None


class Survey:
    """Can be iterated once. When done, `notes` has further observations, and `end_offset` is where the log ends.

    `first` and `last`, both inclusive, leave out the segments without an offset between them.
    """

    def __init__(self, files: Files, place: PartitionDirectory, *, first: int = 0, last: int | None = None) -> None:
        self.place = place
        self.notes: list[str] = []
        self.gaps = 0
        self.gap_offsets = 0
        self.unexplained_offsets = 0  # missing, and no file tells whether compaction or a repair has left the gap
        self.current: SurveyedSegment | None = None
        self.leftovers = 0
        self._files = files
        self.names = files.files_in(place.directory)
        self.epochs, self.epochs_are_damaged = _read_epochs(files, place.directory)
        self.epochs_are_wrong = False
        self._epochs_are_judged = False
        self._claimed_end = 0  # a start offset behind the end
        self.recorded_gaps = self._read_gaps()
        self.segments = self._list()
        self.start_offset = self._begin()
        self.end_offset = self.start_offset
        self._unflushed_from = self.place.unflushed_from(self.start_offset)
        self._first = max(first, self.start_offset)
        self._last = last

    def _begin(self) -> int:
        """Lists the segments of the log, without leftovers of a deletion. Returns the start offset."""
        first = self.segments[0].base_offset if self.segments else 0
        if first > (self.place.start_offset or 0):
            self.place = self.place.with_latest_start(self._files)
        start_offset = self.place.start_offset
        if start_offset is None or self._is_behind_the_end(start_offset):
            return first
        while len(self.segments) > 1 and self.segments[1].base_offset <= start_offset:
            self.segments.pop(0)
            self.leftovers += 1
        return start_offset

    def _is_behind_the_end(self, start_offset: int) -> bool:
        """Returns whether the log contradicts its start offset in the checkpoint, by the rules of recovery
        (`_settle_start`).
        """
        recovery_point = self.place.recovery_point or 0
        if not self.segments or start_offset <= max(self.segments[-1].base_offset, recovery_point):
            return False
        last = self.segments[-1]
        end = max(last.derived_files.load(last.size).next_offset, recovery_point)
        if start_offset <= end:
            return False
        self.notes.append(
            f"{START_OFFSETS} has start offset {start_offset}, but the log ends at {end}: the next start "
            f"uses {self.segments[0].base_offset}"
        )
        if self.place.may_have_reached(start_offset, end):
            self._claimed_end = start_offset
        return True

    def _list(self) -> list[Segment]:
        parsed = [(parse_numbered(name), size) for name, size in self.names.items()]
        cache = DerivedCache()
        replaced = self._replaced()
        bases = sorted((found[0], size) for found, size in parsed if found and found[1] == LOG)
        bases = [(base_offset, size) for base_offset, size in bases if base_offset not in replaced]
        return [
            Segment(
                self._files,
                self.place.directory,
                base_offset,
                size,
                epochs=self.epochs,
                cache=cache,
                interval_bytes=LogConfig().index_interval_bytes,
            )
            for base_offset, size in bases
        ]

    def _replaced(self) -> set[int]:
        """Returns segments that still exist although compacted ones have replaced them: the next start removes them."""
        swaps = announced(self._files, self.place.directory, self.names)
        if swaps:
            self.notes.append(f"{len(swaps)} compactions were interrupted: the next start completes them")
        return replaced_segments(swaps, self.names)

    def _read_gaps(self) -> tuple[RecordedGap, ...]:
        try:
            return read_gaps(self._files, self.place.directory)
        except (CorruptGaps, OSError) as error:
            self.notes.append(f"cannot read {GAPS_FILE}, the gaps that repairs have recorded: {error}")
            self.place = self.place._replace(history=None)  # a repair may have left any gap
            return ()

    @property
    def wanted(self) -> list[int]:
        """The numbers of the segments that are read."""
        bases = [segment.base_offset for segment in self.segments]
        return [
            number
            for number, base in enumerate(bases)
            if (number + 1 == len(bases) or bases[number + 1] > self._first)
            and (self._last is None or base <= self._last)
        ]

    def __iter__(self) -> Iterator[Finding]:
        wanted = self.wanted
        if self.epochs_are_damaged:
            self._rebuild_epochs()
        for number in wanted:
            before = self._before_the_first() if number == 0 else self._between(number) if number != wanted[0] else ()
            for finding in chain(before, self._segment(number)):
                yield finding
                if isinstance(finding, Tail):
                    return
        recovery_point = max(self.place.recovery_point or 0, self._claimed_end)
        if self.end_offset < recovery_point and len(self.segments) - 1 in (*wanted, -1):
            yield missing_file(self.end_offset, recovery_point)
            self.end_offset = recovery_point

    # Between segments

    def _before_the_first(self) -> Iterator[Finding]:
        first = self.segments[0].base_offset
        if first > self.start_offset >= self._unflushed_from:
            length = sum(segment.size for segment in self.segments)
            name = numbered(self.start_offset, LOG)
            yield Tail(name, 0, length, self.start_offset, "its first segment is missing")
        elif first > self.start_offset:
            yield missing_file(self.start_offset, first)

    def _between(self, number: int) -> Iterator[Finding]:
        """Reports a segment that does not begin where the previous one ended."""
        segment, end = self.segments[number], self.end_offset
        if end > segment.base_offset:
            yield overlap(segment.name, segment.base_offset, end)
        elif end < segment.base_offset:
            due, last = segment.base_offset, self.segments[number - 1]
            if self.current is not None:
                due = due_end(self.current.derived, due, self.recorded_gaps)
            if end >= due:
                self._reach(segment.base_offset)
            elif may_be_unflushed(end, last, self._unflushed_from):
                yield self._tail(number - 1, last.size, "bytes are missing between two segments")
            else:
                yield missing_file(end, due)

    def _reach(self, offset: int) -> None:
        """Notes that the next batch begins at `offset`, which may leave a gap where gaps are allowed."""
        if offset > self.end_offset:
            self.gaps += 1
            self.gap_offsets += offset - self.end_offset
            if self.current is not None and self.current.derived.gaps is Gaps.UNKNOWN:
                self.unexplained_offsets += offset - self.end_offset

    def _tail(self, number: int, position: int, reason: str) -> Tail:
        segment = self.segments[number]
        behind = sum(later.size for later in self.segments[number + 1 :])
        return Tail(segment.name, position, segment.size - position + behind, self.end_offset, reason)

    # Inside a segment

    def _segment(self, number: int) -> Iterator[Finding]:
        segment = self.segments[number]
        following = self.segments[number + 1].base_offset if number + 1 < len(self.segments) else None
        try:
            segment.log.pin()
        except FileNotFoundError:
            self.notes.append(f"{segment.name} was deleted while the log was read")
            self.end_offset = following or self.end_offset
            return
        try:
            self.current = SurveyedSegment(segment, following, self.place, self.recorded_gaps)
            self.end_offset = segment.base_offset
            yield from self._walk(number, self.current)
        finally:
            segment.log.unpin()
            segment.close()

    def _walk(self, number: int, current: SurveyedSegment) -> Iterator[Finding]:
        segment, derived = current.segment, current.derived
        checked = ChecksumCheck(current)
        items = self._items(current, 0, segment.base_offset)
        while (item := next(items, None)) is not None:
            if isinstance(item, FoundBatch):
                checked.found(item)
                self._reach(item.header.base_offset)
                self.end_offset = item.header.next_offset
                yield item
                continue
            sound = sound_but_for_its_epoch(segment, item, current.following)
            if sound is not None and self._contradicts_the_epochs():
                items = self._items(current, item.position, item.first_offset)
                continue
            if sound is not None:
                item = item._replace(last_offset=max(item.last_offset, sound.last_offset))
            if sound is None and self._ends_here(item, number):
                yield from self._end(item, number)
                return
            checked.damaged(item)
            self.end_offset = item.last_offset + 1
            yield item
        derived.next_offset = self.end_offset
        yield from checked.damage_beyond()

    def _items(self, current: SurveyedSegment, position: int, expected: int) -> Iterator[FoundBatch | DamagedRange]:
        derived = current.derived
        surveyed = ScanRange(
            current.segment.log,
            position,
            current.segment.size,
            expected,
            gaps=derived.may_have_gaps,
            epochs=self.epochs,
            limit=current.following,
            anchors=derived.index.positions_after(position),
        )
        return walk(surveyed, boundary=derived.boundary, end_offset=current.known_end)

    def _contradicts_the_epochs(self) -> bool:
        """Returns whether the checkpoint of the epochs is wrong, rather than a batch. If so, on return the epochs are
        those of the batches.
        """
        if self._epochs_are_judged:
            return False
        self._epochs_are_judged = True
        segments = self._list()  # opened again: those that were read are closed
        corrected = corrected_epochs(self.epochs, segments)
        for segment in segments:
            segment.close()
        if corrected is None:
            return False
        self.epochs.replace(corrected)
        self.epochs_are_wrong = True
        return True

    def _rebuild_epochs(self) -> None:
        """Rebuilds the epochs like recovery."""
        segments = self._list()
        self.epochs.replace(epochs_of(segments))
        self._epochs_are_judged = True
        for segment in segments:
            segment.close()

    def _ends_here(self, damage: DamagedRange, number: int) -> bool:
        follower = self.segments[number + 1] if number + 1 < len(self.segments) else None
        return ends_the_log(damage, self.segments[number], follower, self._unflushed_from)

    def _end(self, damage: DamagedRange, number: int) -> Iterator[Tail]:
        segment = self.segments[number]
        if segment is self.segments[-1] and segment.log.size() > segment.size:
            self.notes.append(f"{segment.name} was being appended to: its last {damage.length} bytes were not read")
        else:
            yield self._tail(number, damage.position, damage.reason)


class ChecksumCheck:
    """Compares the checksum file with the bytes, alongside a walk: finds damage although every batch is sound."""

    def __init__(self, current: SurveyedSegment) -> None:
        self._segment = current.segment
        self._derived: Derived = current.derived
        self._chunks: ChunkChecksums | None = ChunkChecksums()
        self._known: list[DamagedRange] = []

    def found(self, item: FoundBatch) -> None:
        checksums, chunks = self._derived.checksums, self._chunks
        if checksums is not None and chunks is not None and chunks.size < checksums.log_size:
            chunks.update(item.window[item.at : item.at + item.header.size])

    def damaged(self, damage: DamagedRange) -> None:
        self._chunks = None
        self._known.append(damage)

    def damage_beyond(self) -> list[DamagedRange]:
        """Returns damage that the walk did not find. Reads bytes again only if something is wrong."""
        checksums, checks = self._derived.checksums, self._segment.checks
        if checksums is None or (self._chunks is not None and self._chunks.checksums == checksums.chunks):
            return []
        for damage in self._known:  # these explain a wrong chunk: other batches in it are sound
            checks.report(damage)
            for number in range(
                damage.position // CHUNK_BYTES, min(damage.end // CHUNK_BYTES + 1, len(checksums.chunks))
            ):
                checks.trust(*checksums.chunk_bounds(number))
        if not checks.ensure(0, checksums.log_size, self._segment.size, self._derived) and self._known:
            return []  # shifted by known damage: the checksums do not apply to the bytes behind it
        return [damage for damage in checks.damage if damage not in self._known]


def _read_epochs(files: Files, directory: str) -> tuple[LeaderEpochs, bool]:
    """Returns the leader epochs, none if unknown, and whether there is a file that cannot be read."""
    try:
        data = read_whole(files, join(directory, EPOCHS_FILE))
        return (LeaderEpochs() if data is None else LeaderEpochs.decode(data)), False
    except (CorruptCheckpoint, OSError):
        return LeaderEpochs(), True
