"""One compaction pass: reads a log's segments and writes, beside them, the segments that replace them.

    map      collects the keys of the new part, as far as they fit into memory; the pass ends there
    clean    filters every segment from the first on, batch by batch; merges small segments into one

Each new segment is on disk, with its indexes, before `clean` yields it; the next one is begun when the caller resumes
the generator. Existing files are not changed. Bytes that cannot be trusted end the pass.

A new segment keeps its end offset: if its last batch is removed, an empty batch takes its place. So what a reader finds
behind a gap never depends on what was written later.

The page cache is left as it was: what was not cached before is dropped after it was read, and so is what was written.
"""

from collections.abc import Callable, Iterator

from tailrace.log.compaction.filter import BatchFilter, TransactionWalk
from tailrace.log.compaction.keys import KeyOffsets
from tailrace.log.compaction.messages import CleanedGroup, PassFailed, PassMessage, PassResult, PassSpec
from tailrace.log.disk.interface import Data, File, Files, join, read_whole, write_whole
from tailrace.log.files.checksums import CHUNK_BYTES, ChunkChecksums, Gaps, SegmentChecksums
from tailrace.log.files.index import POSITION_MAX, RELATIVE_OFFSET_MAX, AbortedTransaction, TransactionIndex
from tailrace.log.layout.names import CHECKSUMS, CLEANED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, numbered
from tailrace.log.scan.scan import FoundBatch, Scan, ScanRange
from tailrace.log.segment.derived import Derived
from tailrace.records.batch import BatchHeader, read_header
from tailrace.records.errors import CorruptBatch
from tailrace.records.raw_records import emptied, records_of

PIECE_BYTES = 1 << 20  # written at a time
SEGMENTS_MAX = 32  # merged into one: each keeps its descriptor open until it is replaced
SYNC_BYTES = 8 << 20  # synced at a time, so that other flushes wait for little of ours

Pace = Callable[[int], None]


class DamagedSegment(Exception):
    """Bytes of the log are damaged, in the segment at `base_offset`."""

    def __init__(self, base_offset: int, what: str) -> None:
        super().__init__(f"{numbered(base_offset, LOG)} is damaged{what}")
        self.base_offset = base_offset


class Failed(Exception):
    """The pass failed, though the log is sound."""


def clean(files: Files, spec: PassSpec, pace: Pace = lambda _: None) -> Iterator[PassMessage]:
    """Yields the groups of one pass, and then its result or failure. Calls `pace` with the number of bytes that are
    about to be read, or were written; it may sleep.
    """
    try:
        yield from Cleaning(files, spec, pace).run()
    except DamagedSegment as error:
        yield PassFailed(str(error), damaged_base=error.base_offset)
    except (Failed, OSError) as error:
        yield PassFailed(str(error))


class Cleaning:
    def __init__(self, files: Files, spec: PassSpec, pace: Pace) -> None:
        self._files = files
        self._spec = spec
        self._pace = pace
        self._result = PassResult(spec.end)

    def run(self) -> Iterator[CleanedGroup | PassResult]:
        spec, result = self._spec, self._result
        keys = self._map_keys()
        result.keys = len(keys)
        transactions = TransactionWalk(spec.aborted)
        batches = BatchFilter(keys, result.end, transactions, spec.producers, spec.now_ms, spec.delete_retention_ms)
        ends = [base for base, _ in spec.segments[1:]] + [spec.end]
        group: Group | None = None
        for (base, size), end in zip(spec.segments, ends, strict=True):
            if base >= result.end:
                break
            if group is not None and not group.has_room_for(size, end):
                yield from self._close(group)
                group = None
            if group is None:
                group = Group(self._files, spec, base, self._pace)
            self._clean_segment(group, batches, base, size)
        if group is not None:
            yield from self._close(group)
        result.without_key, result.unreadable = batches.without_key, batches.unreadable
        yield result

    def _close(self, group: "Group") -> Iterator[CleanedGroup]:
        result = self._result
        horizon = group.next_horizon_ms
        if horizon is not None and (result.next_horizon_ms is None or horizon < result.next_horizon_ms):
            result.next_horizon_ms = horizon
        if group.is_changed:
            result.bytes_written += group.size
            yield group.finish()
        else:
            group.discard()

    # The keys

    def _map_keys(self) -> KeyOffsets:
        """Maps the keys of the new part. On return, the pass ends at the first batch whose keys do not fit."""
        spec, settings = self._spec, self._spec.settings
        keys = KeyOffsets(settings.dedupe_buffer_bytes, settings.load_factor, spec.end - spec.first_dirty)
        transactions = TransactionWalk(spec.aborted)
        for base, size in self._dirty_segments():
            for found in self._batches(base, size):
                header = found.header
                if header.next_offset <= spec.first_dirty or header.is_control:
                    continue
                if header.is_transactional and transactions.see_data(header):
                    continue
                if not self._map_batch(keys, found):
                    self._result.end = header.base_offset
                    return keys
        return keys

    def _dirty_segments(self) -> list[tuple[int, int]]:
        bases = [base for base, _ in self._spec.segments]
        first = max(0, sum(base <= self._spec.first_dirty for base in bases) - 1)
        return self._spec.segments[first:]

    def _map_batch(self, keys: KeyOffsets, found: FoundBatch) -> bool:
        """Returns False if the keys do not fit."""
        header = found.header
        try:
            _, rows = records_of(found.window, found.at, header)
        except CorruptBatch:
            return True  # it is kept unchanged
        if not keys.has_room_for(len(rows)):
            rooms = keys.capacity
            if len(rows) > rooms and not len(keys):
                raise Failed(
                    f"a batch of {len(rows)} records does not fit into log.cleaner.dedupe.buffer.size: {rooms}"
                )
            return False
        for row in rows:
            if row.key is not None:
                keys.put(row.key, header.base_offset + row.offset_delta)
        return True

    # The segments

    def _clean_segment(self, group: "Group", batches: BatchFilter, base: int, size: int) -> None:
        group.begin(base)
        self._result.bytes_read += size
        checksums = self._checksums(base)
        chunks = ChunkChecksums()
        for found in self._batches(base, size):
            header = found.header
            chunks.update(found.window[found.at : found.at + header.size])
            kept = batches.filter(found.window, found.at, header)
            if kept is None:
                group.drop(header)
            elif isinstance(kept, memoryview):
                group.keep(header, kept)
            else:
                group.change(read_header(kept), kept)
        if checksums is not None and checksums.log_size == size and checksums.chunks != chunks.checksums:
            raise DamagedSegment(base, ": its checksum does not match")
        group.add_aborted(batches.aborted)
        batches.aborted = []

    def _checksums(self, base: int) -> SegmentChecksums | None:
        data = read_whole(self._files, join(self._spec.directory, numbered(base, CHECKSUMS)))
        return SegmentChecksums.decode(data) if data else None

    def _batches(self, base: int, size: int) -> Iterator[FoundBatch]:
        """Yields every batch of a segment. Raises DamagedSegment if anything else is in between."""
        file = self._files.open(join(self._spec.directory, numbered(base, LOG)))
        try:
            file.pin()
            try:
                yield from self._batches_of(file, base, size)
            finally:
                file.unpin()
        finally:
            file.close()

    def _batches_of(self, file: File, base: int, size: int) -> Iterator[FoundBatch]:
        checksums = self._checksums(base)
        gaps = checksums is None or checksums.gaps is not Gaps.NONE
        is_cold = [file.read_cached_at(at, 1) is None for at in range(0, size, CHUNK_BYTES)]
        scan = Scan(ScanRange(file, 0, size, base, gaps))
        paced = 0
        for found in scan:
            yield found
            if found.position - paced >= PIECE_BYTES:
                self._pace(found.position - paced)
                _forget(file, is_cold, paced, found.position)
                paced = found.position
        self._pace(size - paced)
        _forget(file, is_cold, paced, size)
        if scan.trouble is not None:
            raise DamagedSegment(base, f" at byte {scan.position}: {scan.trouble}")


def _forget(file: File, is_cold: list[bool], start: int, end: int) -> None:
    """Drops from the page cache what was not in it before. A chunk that was read only in part is dropped later."""
    for number in range(start // CHUNK_BYTES, -(-end // CHUNK_BYTES)):
        if is_cold[number]:
            file.forget_cached(number * CHUNK_BYTES, CHUNK_BYTES)


class Group:
    """Consecutive segments, and the new one that is written from them."""

    def __init__(self, files: Files, spec: PassSpec, base_offset: int, pace: Pace) -> None:
        self._files = files
        self._spec = spec
        self._pace = pace
        self._stem = join(spec.directory, numbered(base_offset, ""))
        self._bases: list[int] = []
        self._derived = Derived.empty(base_offset, Gaps.COMPACTED)
        self._aborted = TransactionIndex()
        self._chunks = ChunkChecksums()
        self._buffer = bytearray()
        self._written = 0
        self._synced = 0
        self._dropped: BatchHeader | None = None  # the last batch that was read, if it was removed
        self._has_changed = False
        self.next_horizon_ms: int | None = None
        self._log = files.open(self._stem + LOG + CLEANED, create=True)
        self._log.truncate(0)

    @property
    def size(self) -> int:
        return self._written + len(self._buffer)

    @property
    def is_changed(self) -> bool:
        has_lost_its_end = self._dropped is not None and self._dropped.record_count > 0
        return self._has_changed or has_lost_its_end or len(self._bases) > 1

    def begin(self, base_offset: int) -> None:
        self._bases.append(base_offset)

    def has_room_for(self, size: int, end: int) -> bool:
        """Returns whether a segment of this size, with offsets before `end`, can be merged into this group."""
        if len(self._bases) >= SEGMENTS_MAX or end - 1 - self._bases[0] > RELATIVE_OFFSET_MAX:
            return False
        return self.size + size <= min(self._spec.segment_bytes, POSITION_MAX)

    def drop(self, header: BatchHeader) -> None:
        self._has_changed |= self._dropped is not None
        self._dropped = header

    def keep(self, header: BatchHeader, batch: Data) -> None:
        self._has_changed |= self._dropped is not None
        self._dropped = None
        horizon = header.delete_horizon
        now_ms = self._spec.now_ms
        if horizon is not None and (horizon > now_ms or horizon == now_ms + self._spec.delete_retention_ms):
            self.next_horizon_ms = horizon if self.next_horizon_ms is None else min(horizon, self.next_horizon_ms)
        if self.size + len(batch) > POSITION_MAX:
            raise Failed(f"the compacted {numbered(self._bases[0], LOG)} would be too large for one segment")
        self._derived.add(self.size, header, self._spec.index_interval_bytes)
        self._buffer += batch
        if len(self._buffer) >= PIECE_BYTES:
            self._write()

    def change(self, header: BatchHeader, batch: Data) -> None:
        self._has_changed = True
        self.keep(header, batch)

    def add_aborted(self, aborted: list[AbortedTransaction]) -> None:
        for transaction in aborted:
            self._aborted.append(transaction)

    def _write(self) -> None:
        self._log.write_at(self._written, self._buffer)
        self._chunks.update(self._buffer)
        self._pace(len(self._buffer))
        self._written += len(self._buffer)
        self._buffer.clear()
        if self._written - self._synced >= SYNC_BYTES:
            self._sync()

    def _sync(self) -> None:
        self._log.sync()
        self._log.forget_cached(self._synced, self._written - self._synced)
        self._synced = self._written

    def finish(self) -> CleanedGroup:
        """Completes the new segment. On return, all its files, and their names, are on disk."""
        if self._dropped is not None:
            place = emptied(self._dropped)
            self.keep(read_header(place), place)
        self._write()
        self._sync()
        self._log.close()
        self._derived.seal()
        checksums = self._derived.summarise(self._written, self._chunks.checksums, self._aborted)
        contents: dict[str, Data] = {
            INDEX: self._derived.index.data,
            TIME_INDEX: self._derived.time_index.data,
            CHECKSUMS: checksums.encode(),
        }
        if self._aborted.data:
            contents[TRANSACTION_INDEX] = self._aborted.data
        for suffix, content in contents.items():
            write_whole(self._files, self._stem + suffix + CLEANED, content)
        self._files.sync_directory(self._spec.directory)
        return CleanedGroup(self._bases, self._written, [LOG, *contents])

    def discard(self) -> None:
        """Drops the new segment: nothing was removed, so the old one is kept."""
        self._log.close()
        self._files.remove(self._stem + LOG + CLEANED)
