"""One segment during recovery's scan: its batches, its bad bytes, and the indexes that are built from them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.log.files.checksums import ChunkChecksums, Gaps
from tailrace.log.files.index import TransactionIndex
from tailrace.log.files.recorded_gaps import has_gap
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.scan.scan import FoundBatch, ScanRange
from tailrace.log.scan.walk import walk
from tailrace.log.segment.segment import Segment
from tailrace.records.batch import LENGTH_END

if TYPE_CHECKING:
    from tailrace.log.recovery.log_scan import LogScan


class SegmentWalk:
    def __init__(self, scan: "LogScan", segment: Segment, number: int, producers_from: int) -> None:
        files = segment.derived_files
        self._scan = scan
        self._segment = segment
        self._producers_from = producers_from
        self._following = scan.base_offset_of(number + 1)
        scan_from = max(producers_from, segment.base_offset)
        self.derived, self._start = files.load_before(segment.size, scan_from)
        self._position = self._start
        self._interval_bytes = scan.config.index_interval_bytes
        if self.derived.gaps is Gaps.UNKNOWN and scan.place.was_never_compacted(self._following):
            self.derived.gaps = Gaps.NONE
        if self.derived.checksums is None and has_gap(scan.recorded_gaps, segment.base_offset, self._following):
            self.derived.gaps = Gaps.REPAIRED
        self._chunks = self._resume_chunks()
        is_whole = scan_from == segment.base_offset
        self._transactions = TransactionIndex() if is_whole else scan.aborted_before(segment, scan_from)

    def _resume_chunks(self) -> ChunkChecksums | None:
        if self.derived.checksums is not None:
            return ChunkChecksums.resume(self.derived.checksums)
        return ChunkChecksums() if self._start == 0 else None

    def __iter__(self) -> Iterator[FoundBatch | DamagedRange]:
        return self.again_from(self._start, self.derived.next_offset)

    def again_from(self, position: int, expected: int) -> Iterator[FoundBatch | DamagedRange]:
        """Walks again from this position, where offset `expected` is due."""
        walked = ScanRange(
            self._segment.log,
            position,
            self._segment.size,
            expected,
            gaps=self.derived.may_have_gaps,
            epochs=self._scan.known_epochs,
            limit=self._following,
        )
        end_offset = self._scan.end_offset_of(self._following)
        return walk(walked, boundary=self.derived.boundary, end_offset=end_offset)

    def found(self, item: FoundBatch) -> None:
        position, header, _, _ = item
        self.derived.add(position, header, self._interval_bytes)
        if header.base_offset >= self._producers_from:
            self._scan.replay(item, self._transactions)
        self._position = position + LENGTH_END + header.length

    def damaged(self, damage: DamagedRange) -> None:
        self._chunks = None
        self._position = damage.end
        self.derived.next_offset = damage.last_offset + 1

    def adopt(self) -> None:
        """Adopts the indexes that were built into the segment, and marks the walked bytes as checked."""
        if self._chunks is not None:
            self._chunks.read_up_to(self._segment.log, self._position)
        self._segment.adopt(self.derived, self._transactions, self._chunks)
        if self._following is not None:
            self._segment.seal()
        self._segment.checks.trust(self._start, self._position)
