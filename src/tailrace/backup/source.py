"""A log seen from outside, while a broker may be working in it: its segments, and where it can be truncated.

A *look* notes the segments of a partition. What is copied according to one look is right if a second look finds the
same: `agree` says so. Between the two a broker may

    append, roll         the log goes on behind what was noted
    delete the oldest    the start offset is on disk before the files go: the log begins there now
    replace segments     compaction: other sums, or other names; everything is looked at anew. While files are being
                         given other names, a `.swap` file is there: whoever sees it waits. If it stays, the swap
                         was cut short: then the old segments count, or the new ones
    delete the topic     the directory is gone, or another topic's

Names are listed before sizes: whatever has a segment behind it when it is listed is sealed when it is measured.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tailrace.backup.copy import sha256_of
from tailrace.log.disk.interface import File, Files, join, read_whole
from tailrace.log.files.checkpoints import RECOVERY_POINTS, START_OFFSETS, CorruptCheckpoint
from tailrace.log.files.checksums import Gaps, Sums
from tailrace.log.files.directory_state import DirectoryState
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.leader_epochs import EpochStart, LeaderEpochs
from tailrace.log.files.partition_metadata import read_topic_id
from tailrace.log.files.swap_file import announced, replaced_segments
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.names import LOG, SUMS, SWAP, TopicPartition, numbered, parse_numbered
from tailrace.log.scan.walk import Boundary, walk


@dataclass(frozen=True, slots=True)
class SeenSegment:
    base_offset: int
    size: int
    sums: Sums | None
    sums_sha256: str

    @property
    def is_summed(self) -> bool:
        """Whether sums speak of all of it."""
        return self.sums is not None and self.sums.log_size == self.size


@dataclass(frozen=True, slots=True)
class Look:
    """One log, as it is at a moment. `topic_id` is hexadecimal."""

    topic_id: str | None
    start_offset: int | None
    recovery_point: int | None
    segments: tuple[SeenSegment, ...]
    is_being_swapped: bool = False

    @property
    def is_contiguous(self) -> bool:
        """Whether segments follow on each other as far as their sums tell. If not, one is damaged, or several are just
        being replaced.
        """
        return all(_follows(segment, following.base_offset) for segment, following in pairwise(self.segments))


def _follows(segment: SeenSegment, offset: int) -> bool:
    if segment.sums is None:
        return True
    end = segment.sums.next_offset
    return end == offset if segment.sums.gaps is Gaps.NONE and segment.is_summed else end <= offset


def agree(before: Look, after: Look) -> int | None:
    """How many of the segments of the first look the log has lost at its front since; None where it has changed in
    another way than by going on.
    """
    if before.topic_id != after.topic_id:
        return None
    left = {segment.base_offset: segment for segment in after.segments}
    lost = 0
    while lost < len(before.segments) and before.segments[lost].base_offset not in left:
        lost += 1
    kept = before.segments[lost:]
    if lost and (not kept or kept[0].base_offset > (after.start_offset or 0)):
        return None
    for segment in kept:
        now = left.pop(segment.base_offset, None)
        if now is None or not _is_same(segment, now, may_grow=segment is kept[-1]):
            return None
    return lost if not kept or all(base > kept[-1].base_offset for base in left) else None


def _is_same(before: SeenSegment, now: SeenSegment, *, may_grow: bool) -> bool:
    """Whether its bytes are still those that were there. Sums that have come since are of the same bytes, unless they
    say that somebody has taken records out.
    """
    if now.size != before.size and not (may_grow and now.size > before.size):
        return False
    if now.sums_sha256 == before.sums_sha256:
        return True
    return not (before.is_summed and not may_grow) and (now.sums is None or now.sums.gaps is Gaps.NONE)


class Source:
    """A data directory. Its small files are read again for each log, and parsed where they have changed."""

    def __init__(self, files: Files, path: str) -> None:
        self.files = files
        self.path = path
        self._read: tuple[bytes | None, ...] = ()
        self._state = DirectoryState(files, path)

    @property
    def state(self) -> DirectoryState:
        """As it is on disk now."""
        read = tuple(read_whole(self.files, join(self.path, name)) for name in (RECOVERY_POINTS, START_OFFSETS))
        if read != self._read:
            self._read, self._state = read, DirectoryState(self.files, self.path)
        return self._state

    def look(self, partition: TopicPartition, *, past_swaps: bool = False) -> Look | None:
        """None where the log is gone. `past_swaps` leaves out what a swap that does not go on has replaced."""
        directory = join(self.path, str(partition))
        try:
            topic_id = self._topic_id(directory)
            place = self.state.partition_directory(directory, partition)
            bases = self._bases(directory)
            sizes = self.files.files_in(directory)
        except FileNotFoundError:
            return None
        if not self.files.exists(directory):
            return None
        replaced = replaced_segments(announced(self.files, directory, sizes), sizes) if past_swaps else set()
        present = [base for base in bases if numbered(base, LOG) in sizes and base not in replaced]
        segments = tuple(self._segment(directory, base, sizes[numbered(base, LOG)]) for base in present)
        start_offset = place.start_offset
        if segments and segments[0].base_offset > (start_offset or 0):
            start_offset = place.with_latest_start(self.files).start_offset
        while len(segments) > 1 and segments[1].base_offset <= (start_offset or 0):
            segments = segments[1:]  # about to be deleted
        is_being_swapped = any(name.endswith(SWAP) for name in sizes) and not past_swaps
        return Look(topic_id, start_offset, place.recovery_point, segments, is_being_swapped)

    def _topic_id(self, directory: str) -> str | None:
        try:
            return read_topic_id(self.files, directory).hex()
        except CorruptCheckpoint:
            return None

    def _bases(self, directory: str) -> list[int]:
        parsed = map(parse_numbered, self.files.files_in(directory))
        return sorted(found[0] for found in parsed if found and found[1] == LOG)

    def _segment(self, directory: str, base_offset: int, size: int) -> SeenSegment:
        data = read_whole(self.files, join(directory, numbered(base_offset, SUMS))) or b""
        sums = Sums.decode(data)
        if sums is not None and sums.log_size > size:
            sums = None
        return SeenSegment(base_offset, size, sums, sha256_of(data) if sums else "")

    def epochs(self, partition: TopicPartition) -> list[EpochStart] | None:
        """None where nobody knows them."""
        data = read_whole(self.files, join(join(self.path, str(partition)), EPOCHS_FILE))
        try:
            return list(LeaderEpochs.decode(data)) if data is not None else None
        except CorruptCheckpoint:
            return None


class Cut(NamedTuple):
    """Where the last segment of a log can be cut: behind a whole batch. `is_sound` if every batch before is."""

    position: int
    next_offset: int
    is_sound: bool


def find_cut(file: File, seen: SeenSegment, recovery_point: int) -> Cut:
    """Behind the last whole batch of what was seen: what follows is a write under way, or one that a crash tore. Bad
    bytes before that, or before the recovery point, are damage, and are not cut off.
    """
    found: list[DamagedRange] = []
    size, next_offset = seen.size, seen.base_offset
    boundary = Boundary(seen.sums.log_size, seen.sums.next_offset) if seen.sums else None
    gaps = seen.sums is not None and seen.sums.gaps is not Gaps.NONE
    for item in walk(file, 0, size, seen.base_offset, gaps=gaps, boundary=boundary):
        if isinstance(item, DamagedRange):
            found.append(item)
            next_offset = item.last_offset + 1
        else:
            next_offset = item.header.next_offset
    flushed = max(recovery_point, seen.sums.next_offset if seen.sums else 0)
    if found and found[-1].end == size and found[-1].first_offset >= flushed:
        torn = found.pop()
        return Cut(torn.position, torn.first_offset, not found)
    return Cut(size, next_offset, not found)
