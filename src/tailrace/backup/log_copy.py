"""Copies one log into the store, as `source` saw it at one moment.

Sealed segments are copied first. They may be replaced meanwhile, so the log is looked at again and must not have
changed. The last segment only grows: its file is opened before that second look, and copied after it, up to the end
seen at the first one. So a log must stay unchanged only for as long as copying its new sealed segments takes. If it
does not, the next round finds the bytes already copied in the store.
"""

from collections.abc import Callable
from errno import EIO
from types import TracebackType

from tailrace.backup.copy import Copied, CutShort, sha256_of
from tailrace.backup.manifest import KnownSegments, StoredFile, StoredLog, StoredSegment
from tailrace.backup.source import Cut, Look, SeenSegment, Source, find_cut
from tailrace.backup.store import WritableStore
from tailrace.backup.view import ObjectFile
from tailrace.log.disk.interface import File, join, read_whole
from tailrace.log.files.checksums import ChunkChecksums, Prefix, SegmentChecksums
from tailrace.log.files.leader_epochs import EpochStart
from tailrace.log.files.recorded_gaps import FILE_NAME as GAPS_FILE
from tailrace.log.layout.names import (
    CHECKSUMS,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    TopicPartition,
    numbered,
)
from tailrace.log.state.producer_state import CorruptSnapshot, decode_snapshot
from tailrace.log.state.replay import snapshot_offsets

_PAGE_BYTES = 4096
_UNREADABLE = b"\xff"  # not zeros, which look like a write that was lost


def find_known(
    known: KnownSegments, has: Callable[[StoredFile], bool], look: Look, name: TopicPartition, seen: SeenSegment
) -> StoredSegment | None:
    """Returns the stored segment that is identical to this one, if all its objects exist."""
    if not seen.is_summed:
        return None
    found = known.find(look.topic_id, str(name), seen.base_offset, seen.size, seen.sums_sha256)
    return found if found is not None and all(map(has, found.files)) else None


class SalvagedFile(ObjectFile):
    """A file that can be read although its disk cannot read some pages: a marker takes the place of their bytes. The
    batches on those pages then count as damaged, as they do in the data directory, and all others can be copied.
    """

    def read_at(self, position: int, size: int) -> bytes:
        try:
            return super().read_at(position, size)
        except OSError as error:
            if error.errno != EIO:
                raise
        ends = [*range(position - position % _PAGE_BYTES + _PAGE_BYTES, position + size, _PAGE_BYTES), position + size]
        starts = [position, *ends[:-1]]
        return b"".join(self._page(start, end - start) for start, end in zip(starts, ends, strict=True))

    def _page(self, position: int, size: int) -> bytes:
        try:
            return super().read_at(position, size)
        except OSError as error:
            if error.errno != EIO:
                raise
            return _UNREADABLE * size


class LogCopy:
    """Copies one log: enter it, look at the log again, and call `finish` if nothing has changed."""

    def __init__(
        self,
        source: Source,
        store: WritableStore,
        copied: Copied,
        known: KnownSegments,
        name: TopicPartition,
        look: Look,
    ) -> None:
        self.is_suspect = not look.is_contiguous  # or a segment has no checksum file, or does not match it
        self._look = look
        self._source = source
        self._files = source.files
        self._directory = join(source.path, str(name))
        self._store = store
        self._copied = copied
        self._known = known
        self._name = name
        self._sealed: list[StoredSegment | None] = []  # None for one that was gone
        self._last: File | None = None
        self._epochs: list[EpochStart] | None = None
        self._snapshots: list[tuple[int, StoredFile]] = []
        self._gaps: StoredFile | None = None

    def __enter__(self) -> "LogCopy":
        """Copies all segments but the last into the store, unless they are gone, and opens the last one."""
        seen = self._look.segments
        bases = [segment.base_offset for segment in seen]
        for segment, following in zip(seen, bases[1:], strict=False):
            self._sealed.append(self._sealed_segment(segment, following))
        if seen:
            self._last = self._hold(seen[-1])
            self._epochs = self._source.epochs(self._name)
            self._snapshots = self._find_snapshots(bases)
            self._gaps = self._copy_gaps()  # after the segments: a repair records a gap before it makes it
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last is not None:
            _let_go(self._last)

    def finish(self, lost: int | None, latest_start: int | None) -> StoredLog | None:
        """Returns the log without the `lost` segments that were deleted from its front meanwhile. None if it has
        changed in another way (`lost` is None), or a part of it is missing.
        """
        if lost is None or None in self._sealed[lost:]:
            return None
        segments = [segment for segment in self._sealed[lost:] if segment is not None]
        if self._look.segments:
            last = self._last_segment(self._look.segments[-1])
            if last is None:
                return None
            segments.append(last)
        return self._stored(tuple(segments), latest_start)

    def _stored(self, segments: tuple[StoredSegment, ...], latest_start: int | None) -> StoredLog:
        look = self._look
        base = segments[0].base_offset if segments else 0
        start = base if look.start_offset is None else look.start_offset
        if base > start:
            start = max(start, latest_start or 0)
        end = segments[-1].next_offset if segments else start
        epochs = [start for start in self._epochs or () if start.start_offset <= end]
        return StoredLog(
            name=str(self._name),
            topic_id=look.topic_id,
            start_offset=min(start, end),
            end_offset=end,
            recovery_point=look.recovery_point,
            epochs=None if self._epochs is None else tuple((start.epoch, start.start_offset) for start in epochs),
            segments=segments,
            snapshots=tuple(file for offset, file in self._snapshots if offset >= base),
            gaps=self._gaps,
        )

    # Segments

    def _sealed_segment(self, seen: SeenSegment, following: int) -> StoredSegment | None:
        if (found := self._find_known(seen)) is not None:
            return found
        file = self._hold(seen)
        if file is None:
            return None
        try:
            next_offset = seen.checksums.next_offset if seen.checksums is not None and seen.is_summed else following
            return self._copy(
                file, seen, Cut(seen.size, next_offset, seen.is_summed)
            )  # without checksums it cannot be trusted
        finally:
            _let_go(file)

    def _last_segment(self, seen: SeenSegment) -> StoredSegment | None:
        if (found := self._find_known(seen)) is not None or self._last is None:
            return found
        if seen.checksums is not None and seen.is_summed:
            return self._copy(self._last, seen, Cut(seen.size, seen.checksums.next_offset, True))
        return self._copy(self._last, seen, find_cut(self._last, seen, self._look.recovery_point or 0))

    def _find_known(self, seen: SeenSegment) -> StoredSegment | None:
        return find_known(self._known, self._store.has, self._look, self._name, seen)

    def _hold(self, seen: SeenSegment) -> File | None:
        """Opens the file, so that it can be read to its end even if it is renamed or deleted. None if it is gone."""
        path = self._path(seen, LOG)
        file = SalvagedFile(path, self._files.open(path))
        try:
            file.pin()
        except FileNotFoundError:
            return None
        return file

    def _copy(self, file: File, seen: SeenSegment, cut: Cut) -> StoredSegment | None:
        chunks = ChunkChecksums()
        try:
            log = self._store.put(file, cut.position, self._copied, chunks)
        except CutShort:  # another file has its name by now
            return None
        segment = StoredSegment(seen.base_offset, cut.next_offset, (log, *self._derived(seen)))
        if seen.checksums is not None and seen.is_summed and chunks.checksums == seen.checksums.chunks:
            self._known.add(self._look.topic_id, str(self._name), segment)
            self._store.note(self._look.topic_id, str(self._name), segment)
        elif seen.is_summed or not cut.is_sound:
            self.is_suspect = True
        return segment

    def _derived(self, seen: SeenSegment) -> list[StoredFile]:
        """Copies the derived files of the segment if they match its checksums. Recovery rebuilds missing ones."""
        data = read_whole(self._files, self._path(seen, CHECKSUMS)) or b""
        checksums = seen.checksums
        if checksums is None or sha256_of(data) != seen.sums_sha256:
            return []
        stored = [(CHECKSUMS, data)]
        for suffix, prefix in _prefixes(checksums):
            derived = read_whole(self._files, self._path(seen, suffix)) or b""
            if not prefix.matches(derived):
                return []
            if prefix.size:
                stored.append((suffix, derived[: prefix.size]))
        return [
            self._store.put_whole(numbered(seen.base_offset, suffix), derived, self._copied)
            for suffix, derived in stored
        ]

    def _path(self, seen: SeenSegment, suffix: str) -> str:
        return join(self._directory, numbered(seen.base_offset, suffix))

    def _find_snapshots(self, bases: list[int]) -> list[tuple[int, StoredFile]]:
        """Finds the newest snapshot that recovery may use, and the newest before the last segment, in case the files of
        that segment are lost.
        """
        newest = max(self._look.recovery_point or 0, self._look.start_offset or 0)
        try:
            offsets = [offset for offset in snapshot_offsets(self._files, self._directory) if offset >= bases[0]]
        except FileNotFoundError:  # the log is gone
            return []
        found: dict[int, StoredFile] = {}
        for at_most in {newest, min(newest, bases[-1])}:
            usable = (offset for offset in offsets if offset <= at_most)
            next((offset for offset in usable if offset in found or self._take_snapshot(offset, found)), None)
        return sorted(found.items())

    def _take_snapshot(self, offset: int, found: dict[int, StoredFile]) -> bool:
        """Copies one snapshot, and returns whether it is whole."""
        name = numbered(offset, SNAPSHOT)
        data = read_whole(self._files, join(self._directory, name)) or b""
        try:
            decode_snapshot(data)
        except CorruptSnapshot:
            return False
        found[offset] = self._store.put_whole(name, data, self._copied)
        return True

    def _copy_gaps(self) -> StoredFile | None:
        """Copies the record of known gaps: without it, readers and the broker's own replay would meet unknown gaps."""
        data = read_whole(self._files, join(self._directory, GAPS_FILE))
        return None if data is None else self._store.put_whole(GAPS_FILE, data, self._copied)


def _let_go(file: File) -> None:
    file.unpin()
    file.close()


def _prefixes(checksums: SegmentChecksums) -> list[tuple[str, Prefix]]:
    return [
        (INDEX, checksums.offset_index),
        (TIME_INDEX, checksums.time_index),
        (TRANSACTION_INDEX, checksums.transaction_index),
    ]
