"""Reads a log while a broker may be writing to it: its segments, and where it can be truncated.

A *look* lists the segments of a partition. A copy made from one look is correct if `agree` finds that a second look
matches it. Between the two a broker may

    append, roll         the log grows past what was listed
    delete the oldest    the start offset is on disk before the files are deleted: the log begins there now
    replace segments     compaction: other checksums, or other names; everything is read again. While files are being
                         renamed, a `.swap` file exists and the reader waits. If it stays, the swap was interrupted:
                         then either the old segments count, or the new ones
    delete the topic     the directory is gone, or belongs to another topic

Names are listed before sizes: a segment that has a successor when it is listed is sealed when it is measured.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tailrace.backup.copy import sha256_of
from tailrace.log.disk.interface import File, Files, join, read_whole
from tailrace.log.files.checkpoints import RECOVERY_POINTS, START_OFFSETS, CorruptCheckpoint
from tailrace.log.files.checksums import Gaps, SegmentChecksums
from tailrace.log.files.directory_state import DirectoryState
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.leader_epochs import EpochStart, LeaderEpochs
from tailrace.log.files.partition_metadata import read_topic_id
from tailrace.log.files.swap_file import announced, replaced_segments
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.names import CHECKSUMS, LOG, SWAP, TopicPartition, numbered, parse_numbered
from tailrace.log.scan.scan import Boundary, ScanRange
from tailrace.log.scan.walk import walk


@dataclass(frozen=True, slots=True)
class SeenSegment:
    base_offset: int
    size: int
    checksums: SegmentChecksums | None
    sums_sha256: str

    @property
    def is_summed(self) -> bool:
        """Whether checksums cover all of it."""
        return self.checksums is not None and self.checksums.log_size == self.size


@dataclass(frozen=True, slots=True)
class Look:
    """One log at one moment. `topic_id` is hexadecimal."""

    topic_id: str | None
    start_offset: int | None
    recovery_point: int | None
    segments: tuple[SeenSegment, ...]
    is_being_swapped: bool = False

    @property
    def is_contiguous(self) -> bool:
        """Whether each segment begins where the one before ends, as far as checksums tell. If not, one is damaged, or
        several are being replaced.
        """
        return all(_follows(segment, following.base_offset) for segment, following in pairwise(self.segments))


def _follows(segment: SeenSegment, offset: int) -> bool:
    if segment.checksums is None:
        return True
    end = segment.checksums.next_offset
    return end == offset if segment.checksums.gaps is Gaps.NONE and segment.is_summed else end <= offset


def agree(before: Look, after: Look) -> int | None:
    """Returns how many segments of the first look were since deleted from the front. None if the log has changed in
    another way than by growing.
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
    """Whether the bytes are unchanged. A checksum file that has appeared since covers the same bytes, unless it says
    that records were removed.
    """
    if now.size != before.size and not (may_grow and now.size > before.size):
        return False
    if now.sums_sha256 == before.sums_sha256:
        return True
    return not (before.is_summed and not may_grow) and (now.checksums is None or now.checksums.gaps is Gaps.NONE)


class Source:
    """A data directory. Its small files are read again for each log, and parsed when they have changed."""

    def __init__(self, files: Files, path: str) -> None:
        self.files = files
        self.path = path
        self._read: tuple[bytes | None, ...] = ()
        self._state = DirectoryState(files, path)

    @property
    def state(self) -> DirectoryState:
        """Returns the state that is on disk now."""
        read = tuple(read_whole(self.files, join(self.path, name)) for name in (RECOVERY_POINTS, START_OFFSETS))
        if read != self._read:
            self._read, self._state = read, DirectoryState(self.files, self.path)
        return self._state

    def look(self, partition: TopicPartition, *, past_swaps: bool = False) -> Look | None:
        """None if the log is gone. `past_swaps` leaves out the segments that an interrupted swap has replaced."""
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
        data = read_whole(self.files, join(directory, numbered(base_offset, CHECKSUMS))) or b""
        checksums = SegmentChecksums.decode(data)
        if checksums is not None and checksums.log_size > size:
            checksums = None
        return SeenSegment(base_offset, size, checksums, sha256_of(data) if checksums else "")

    def epochs(self, partition: TopicPartition) -> list[EpochStart] | None:
        """None if they are unknown."""
        data = read_whole(self.files, join(join(self.path, str(partition)), EPOCHS_FILE))
        try:
            return list(LeaderEpochs.decode(data)) if data is not None else None
        except CorruptCheckpoint:
            return None


class Cut(NamedTuple):
    """Where the last segment of a log can be truncated: after a whole batch. `is_sound` if every batch before is."""

    position: int
    next_offset: int
    is_sound: bool


def find_cut(file: File, seen: SeenSegment, recovery_point: int) -> Cut:
    """Finds the end of the last whole batch that was seen: what follows is a write in progress, or one torn by a crash.
    Bad bytes before that, or before the recovery point, are damage and are kept.
    """
    found: list[DamagedRange] = []
    size, next_offset = seen.size, seen.base_offset
    boundary = Boundary(seen.checksums.log_size, seen.checksums.next_offset) if seen.checksums else None
    gaps = seen.checksums is not None and seen.checksums.gaps is not Gaps.NONE
    for item in walk(ScanRange(file, 0, size, seen.base_offset, gaps), boundary=boundary):
        if isinstance(item, DamagedRange):
            found.append(item)
            next_offset = item.last_offset + 1
        else:
            next_offset = item.header.next_offset
    flushed = max(recovery_point, seen.checksums.next_offset if seen.checksums else 0)
    if found and found[-1].end == size and found[-1].first_offset >= flushed:
        torn = found.pop()
        return Cut(torn.position, torn.first_offset, not found)
    return Cut(size, next_offset, not found)
