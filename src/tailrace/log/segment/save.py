"""The save of one segment's indexes and checksums, begun on the loop and run in any thread."""

from typing import TYPE_CHECKING

from tailrace.log.files.checksums import ChunkChecksums, SegmentChecksums
from tailrace.log.files.index import TransactionIndex
from tailrace.log.segment.derived import Derived

if TYPE_CHECKING:
    from tailrace.log.segment.segment import Segment


class SegmentSave:
    """A segment's indexes on their way to disk. `run` may be called in any thread."""

    def __init__(
        self,
        segment: "Segment",
        derived: Derived,
        transactions: TransactionIndex,
        chunks: tuple[int, ...] | None,
        size: int,
        sealed: bool,
    ) -> None:
        self.segment = segment
        self.sealed = sealed
        self.checksums: SegmentChecksums | None = None
        self._derived = derived
        self._transactions = transactions
        self._chunks = chunks
        self.size = size

    def run(self) -> None:
        chunks = self._chunks
        if chunks is None and self.sealed:
            chunks = self._compute_checksums()
        if chunks is not None and not self.segment.checks.damage:
            self.checksums = self._derived.summarise(self.size, chunks, self._transactions)
        self.segment.derived_files.save(self._derived, self._transactions, self.checksums, sync=self.sealed)

    def _compute_checksums(self) -> tuple[int, ...]:
        """Computes the checksums of a segment that an earlier process began. Checks all of it first, so that no corrupt
        bytes are sealed as sound.
        """
        self.segment.check(0, self.size)
        chunks = ChunkChecksums()
        chunks.read_up_to(self.segment.log, self.size)
        return chunks.checksums
