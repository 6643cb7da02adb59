"""Indexes and metadata that can be rebuilt from a segment: offset and time index, last offset, largest timestamp.

The same `add` builds them batch by batch during appends, recovery and rebuilds, so the results are equal. On disk they
are the `.index`, `.timeindex` and `.sums` files. `load` uses these as far as their checksums match, and rebuilds the
rest.
"""

import logging

from tailrace.log.disk.interface import File, Files, read_whole, remove_if_there, replace_whole, write_whole
from tailrace.log.files.checksums import Gaps, Prefix, SegmentChecksums
from tailrace.log.files.index import OffsetIndex, TimeIndex, TransactionIndex
from tailrace.log.layout.names import CHECKSUMS, INDEX, TIME_INDEX, TRANSACTION_INDEX
from tailrace.log.scan.scan import Boundary, FoundBatch, Scan, ScanRange, header_at
from tailrace.log.scan.walk import walk
from tailrace.records.batch import LENGTH_END, NO_TIMESTAMP, BatchHeader

logger = logging.getLogger("tailrace.log.segment")


class Derived:
    __slots__ = (
        "bytes_since_entry",
        "checksummed_end",
        "checksums",
        "gaps",
        "index",
        "is_partial",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "time_index",
    )

    def __init__(self, index: OffsetIndex, time_index: TimeIndex, next_offset: int, gaps: Gaps) -> None:
        self.index = index
        self.time_index = time_index
        self.next_offset = next_offset
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.gaps = gaps
        self.is_partial = False  # built from a log with lost records, which may have had later timestamps
        self.checksums: SegmentChecksums | None = None
        self.checksummed_end = 0  # the end offset when the checksums were written: records may have been lost since
        self.bytes_since_entry = 0

    @classmethod
    def empty(cls, base_offset: int, gaps: Gaps = Gaps.NONE) -> "Derived":
        return cls(OffsetIndex(base_offset), TimeIndex(base_offset), base_offset, gaps)

    @property
    def may_have_gaps(self) -> bool:
        return self.gaps is not Gaps.NONE

    @property
    def boundary(self) -> Boundary | None:
        """The end of the checksums: a batch begins there, whatever happened to the bytes before it."""
        return Boundary(self.checksums.log_size, self.checksums.next_offset) if self.checksums else None

    @property
    def resident_bytes(self) -> int:
        chunks = len(self.checksums.chunks) if self.checksums else 0
        return len(self.index.data) + len(self.time_index.data) + 36 * chunks

    def add(self, position: int, header: BatchHeader, interval_bytes: int) -> None:
        """Adds the batch with this header at `position`, behind all that were added before."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > interval_bytes:
            self.index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_entry = 0
        self.bytes_since_entry += LENGTH_END + header.length
        self.next_offset = last_offset + 1

    def seal(self) -> None:
        """Completes the time index with a last entry, so that it alone has the largest timestamp. No batch
        may follow.
        """
        if self.max_timestamp != NO_TIMESTAMP:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)

    def copy(self) -> "Derived":
        """Returns a copy that later calls of `add` do not change."""
        copied = Derived(self.index.copy(), self.time_index.copy(), self.next_offset, self.gaps)
        copied.max_timestamp, copied.max_timestamp_offset = self.max_timestamp, self.max_timestamp_offset
        copied.checksums, copied.bytes_since_entry = self.checksums, self.bytes_since_entry
        copied.is_partial, copied.checksummed_end = self.is_partial, self.checksummed_end
        return copied

    def summarise(self, log_size: int, chunks: tuple[int, ...], transactions: TransactionIndex) -> SegmentChecksums:
        return SegmentChecksums(
            log_size=log_size,
            next_offset=self.next_offset,
            max_timestamp=self.max_timestamp,
            max_timestamp_offset=self.max_timestamp_offset,
            chunks=chunks,
            gaps=self.gaps,
            offset_index=Prefix.of(self.index.data),
            time_index=Prefix.of(self.time_index.data),
            transaction_index=Prefix.of(transactions.data),
        )


class DerivedFiles:
    """The files beside one segment's log file that can be rebuilt from it. `stem` is their path without a suffix."""

    def __init__(self, files: Files, stem: str, log: File, base_offset: int, interval_bytes: int) -> None:
        self._files = files
        self._stem = stem
        self._log = log
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self.gaps_without_checksums = Gaps.UNKNOWN  # another value if the owner of the log knows more

    def _read(self, suffix: str) -> bytes | None:
        """Returns the file's bytes, or None if it does not exist or cannot be read: it can be rebuilt."""
        try:
            return read_whole(self._files, self._stem + suffix)
        except OSError as error:
            logger.warning("cannot read %s: %s. It is rebuilt from the log", self._stem + suffix, error)
            return None

    def read_checksums(self) -> SegmentChecksums | None:
        data = self._read(CHECKSUMS)
        return SegmentChecksums.decode(data) if data else None

    def load(self, size: int) -> Derived:
        """Loads what describes the first `size` bytes, from the files as far as they are intact, else from the log."""
        derived, position = self.load_before(size)
        if derived.boundary is None or not self._goes_on(derived.boundary, size, derived.may_have_gaps):
            return self.rebuild_from_log(size)
        return self._extend(derived, position, size)

    def _goes_on(self, boundary: Boundary, size: int, gaps: bool) -> bool:
        """Returns whether the log ends where the checksums do, or a batch follows. If not, its bytes may have been
        shifted.
        """
        scan = Scan(ScanRange(self._log, boundary.position, size, boundary.offset, gaps))
        return boundary.position == size or any(True for _ in scan)

    def rebuild_from_log(self, size: int) -> Derived:
        """Rebuilds everything from the log, for a segment whose batches are not where its index says. The checksum file
        is used only if no bytes are bad: it does not describe shifted bytes.
        """
        checksums = self.read_checksums()
        derived = self.rebuild(size, checksums.gaps if checksums else self.gaps_without_checksums)
        if checksums is not None:
            derived.checksummed_end = checksums.next_offset
        if checksums is not None and not derived.is_partial and checksums.log_size == size:
            derived.checksums = checksums
        elif checksums is not None and checksums.max_timestamp > derived.max_timestamp:
            derived.max_timestamp, derived.max_timestamp_offset = (
                checksums.max_timestamp,
                checksums.max_timestamp_offset,
            )
        return derived

    def rebuild(self, size: int, gaps: Gaps) -> Derived:
        """Rebuilds everything from the log."""
        return self._extend(Derived.empty(self._base_offset, gaps), 0, size)

    def _extend(self, derived: Derived, position: int, size: int) -> Derived:
        extension = ScanRange(self._log, position, size, derived.next_offset, derived.may_have_gaps)
        for item in walk(extension, boundary=derived.boundary):
            # Bad bytes are skipped here: reading them raises Damaged.
            if isinstance(item, FoundBatch):
                derived.add(item.position, item.header, self._interval_bytes)
            else:
                derived.is_partial = True
        return derived

    def load_before(self, size: int, offset: int | None = None) -> tuple[Derived, int]:
        """Loads what the files know of the log before `offset`, or of all of it, and the position where that ends. Uses
        only what the checksum file confirms: after a crash one index may be older than another, and an index of Kafka's
        may have anything.
        """
        checksums = self.read_checksums()
        index = OffsetIndex(self._base_offset, self._read(INDEX) or b"")
        times = TimeIndex(self._base_offset, self._read(TIME_INDEX) or b"")
        derived = Derived(index, times, self._base_offset, checksums.gaps if checksums else self.gaps_without_checksums)
        if checksums is not None:
            derived.checksummed_end = checksums.next_offset
        if checksums is not None and checksums.log_size <= size:
            derived.checksums = checksums
            if checksums.offset_index.matches(index.data) and checksums.time_index.matches(times.data):
                del index.data[checksums.offset_index.size :], times.data[checksums.time_index.size :]
                if offset is None or offset >= checksums.next_offset:
                    return self._as_summed(derived, checksums), checksums.log_size
                return self._before(derived, offset)
        index.data.clear()
        times.data.clear()
        return derived, 0

    def _as_summed(self, derived: Derived, checksums: SegmentChecksums) -> Derived:
        last = derived.index.last()
        derived.next_offset = checksums.next_offset
        derived.max_timestamp, derived.max_timestamp_offset = checksums.max_timestamp, checksums.max_timestamp_offset
        derived.bytes_since_entry = checksums.log_size - (last.position if last else 0)
        return derived

    def _before(self, derived: Derived, offset: int) -> tuple[Derived, int]:
        """Limits `derived` to the last index entry before `offset`, if it leads to the batch that it names."""
        index, times = derived.index, derived.time_index
        entry = index.at_or_before(offset - 1)
        header = header_at(self._log, entry.position) if entry else None
        if entry is None or header is None or header.last_offset != entry.last_offset:
            index.data.clear()
            times.data.clear()
            return derived, 0
        index.keep_before(entry.position)
        times.keep_before(header.base_offset)
        derived.next_offset = header.base_offset
        if (latest := times.last()) is not None:
            derived.max_timestamp, derived.max_timestamp_offset = latest
        # The batch there comes next, and gets the same entry again.
        derived.bytes_since_entry = self._interval_bytes + 1
        return derived, entry.position

    def save(
        self, derived: Derived, transactions: TransactionIndex, checksums: SegmentChecksums | None, *, sync: bool
    ) -> None:
        """Saves to the files. `sync` is for a sealed segment, whose files no later checkpoint writes again.

        The file of aborted transactions is always replaced atomically, and synced: nothing else would reveal a missing
        entry, and readers would get aborted records.
        """
        write_whole(self._files, self._stem + INDEX, derived.index.data, sync=sync)
        write_whole(self._files, self._stem + TIME_INDEX, derived.time_index.data, sync=sync)
        self.save_transactions(transactions)
        if checksums is not None:
            write_whole(self._files, self._stem + CHECKSUMS, checksums.encode(), sync=sync)

    def save_transactions(self, transactions: TransactionIndex) -> None:
        if transactions.data:
            replace_whole(self._files, self._stem + TRANSACTION_INDEX, transactions.data)
        else:
            remove_if_there(self._files, self._stem + TRANSACTION_INDEX)

    def load_transactions(self, size: int, before: int | None = None) -> TransactionIndex | None:
        """Loads the transactions that were aborted in the first `size` bytes, or before an offset. Returns None unless
        the checksum file confirms the file, or its absence: then they must be found by reading the log.
        """
        data = self._read(TRANSACTION_INDEX) or b""
        checksums = self.read_checksums()
        if (
            checksums is None
            or not checksums.transaction_index.matches(data)
            or len(data) % TransactionIndex.ENTRY_SIZE
        ):
            return None
        is_known = checksums.log_size == size or (before is not None and checksums.next_offset >= before)
        return TransactionIndex(data) if is_known else None

    def remove(self) -> None:
        self.remove_all_but_transactions()
        remove_if_there(self._files, self._stem + TRANSACTION_INDEX)

    def remove_all_but_transactions(self) -> None:
        for suffix in (INDEX, TIME_INDEX, CHECKSUMS):
            remove_if_there(self._files, self._stem + suffix)
