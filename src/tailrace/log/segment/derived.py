"""Indexes and metadata that can be rebuilt from a segment: offset and time index, last offset, largest timestamp.

The same `add` builds it batch by batch while appending, while recovering and while rebuilding, so the results are
equal. On disk it is the `.index`, `.timeindex` and `.sums` files. `load` believes them as far as their checksums go
and rebuilds the rest.
"""

import logging

from tailrace.log.disk.interface import File, Files, read_whole, remove_if_there, replace_whole, write_whole
from tailrace.log.files.checksums import Gaps, Prefix, Sums
from tailrace.log.files.index import OffsetIndex, TimeIndex, TransactionIndex
from tailrace.log.layout.names import INDEX, SUMS, TIME_INDEX, TRANSACTION_INDEX
from tailrace.log.scan.scan import FoundBatch, Scan, header_at
from tailrace.log.scan.walk import Boundary, walk
from tailrace.records.batch import LENGTH_END, NO_TIMESTAMP, BatchHeader

logger = logging.getLogger("tailrace.log.segment")


class Derived:
    __slots__ = (
        "bytes_since_entry",
        "gaps",
        "index",
        "is_partial",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "summed_to",
        "sums",
        "time_index",
    )

    def __init__(self, index: OffsetIndex, time_index: TimeIndex, next_offset: int, gaps: Gaps) -> None:
        self.index = index
        self.time_index = time_index
        self.next_offset = next_offset
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.gaps = gaps
        self.is_partial = False  # built from a log that has lost records: it may have had later timestamps
        self.sums: Sums | None = None
        self.summed_to = 0  # where the log ended when sums were written, though it may have lost bytes since
        self.bytes_since_entry = 0

    @classmethod
    def empty(cls, base_offset: int, gaps: Gaps = Gaps.NONE) -> "Derived":
        return cls(OffsetIndex(base_offset), TimeIndex(base_offset), base_offset, gaps)

    @property
    def may_have_gaps(self) -> bool:
        return self.gaps is not Gaps.NONE

    @property
    def boundary(self) -> Boundary | None:
        """Where the sums end: a batch begins there, whatever has become of the bytes before."""
        return Boundary(self.sums.log_size, self.sums.next_offset) if self.sums else None

    @property
    def resident_bytes(self) -> int:
        chunks = len(self.sums.chunks) if self.sums else 0
        return len(self.index.data) + len(self.time_index.data) + 36 * chunks

    def add(self, position: int, header: BatchHeader, interval_bytes: int) -> None:
        """The batch with this header stands at `position`, behind all that were added before."""
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
        """No more batches come: the time index gets its last word, so that it alone tells the largest timestamp."""
        if self.max_timestamp != NO_TIMESTAMP:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)

    def copy(self) -> "Derived":
        """A copy that stays as it is while this one goes on."""
        copied = Derived(self.index.copy(), self.time_index.copy(), self.next_offset, self.gaps)
        copied.max_timestamp, copied.max_timestamp_offset = self.max_timestamp, self.max_timestamp_offset
        copied.sums, copied.bytes_since_entry = self.sums, self.bytes_since_entry
        copied.is_partial, copied.summed_to = self.is_partial, self.summed_to
        return copied

    def summarise(self, log_size: int, chunks: tuple[int, ...], transactions: TransactionIndex) -> Sums:
        return Sums(
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
    """The files beside one segment's log that hold what is derived from it. `stem` is their path without a suffix."""

    def __init__(self, files: Files, stem: str, log: File, base_offset: int, interval_bytes: int) -> None:
        self._files = files
        self._stem = stem
        self._log = log
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self.gaps_without_sums = Gaps.UNKNOWN  # another value where the owner of the log can tell

    def _read(self, suffix: str) -> bytes | None:
        """None where there is no such file, or where it cannot be read: it can be rebuilt."""
        try:
            return read_whole(self._files, self._stem + suffix)
        except OSError as error:
            logger.warning("%s cannot be read, and is rebuilt: %s", self._stem + suffix, error)
            return None

    def read_sums(self) -> Sums | None:
        data = self._read(SUMS)
        return Sums.decode(data) if data else None

    def load(self, size: int) -> Derived:
        """What is derived from the first `size` bytes: from the files as far as they are whole, else from the log
        itself.
        """
        derived, position = self.load_before(size)
        if derived.boundary is None or not self._goes_on(derived.boundary, size, derived.may_have_gaps):
            return self.derive_anew(size)
        return self._extend(derived, position, size)

    def _goes_on(self, boundary: Boundary, size: int, gaps: bool) -> bool:
        """Whether the log ends where the sums do, or a batch follows: if not, its bytes may have been shifted."""
        scan = Scan(self._log, boundary.position, size, boundary.offset, gaps=gaps)
        return boundary.position == size or any(True for _ in scan)

    def derive_anew(self, size: int) -> Derived:
        """Derives from the log alone, for a segment whose batches do not stand where its files say. The checksum file
        counts only if no bytes are bad: of shifted bytes it says nothing.
        """
        sums = self.read_sums()
        derived = self.rebuild(size, sums.gaps if sums else self.gaps_without_sums)
        if sums is not None:
            derived.summed_to = sums.next_offset
        if sums is not None and not derived.is_partial and sums.log_size == size:
            derived.sums = sums
        elif sums is not None and sums.max_timestamp > derived.max_timestamp:
            derived.max_timestamp, derived.max_timestamp_offset = sums.max_timestamp, sums.max_timestamp_offset
        return derived

    def rebuild(self, size: int, gaps: Gaps) -> Derived:
        """The same from the log alone."""
        return self._extend(Derived.empty(self._base_offset, gaps), 0, size)

    def _extend(self, derived: Derived, position: int, size: int) -> Derived:
        for item in walk(
            self._log, position, size, derived.next_offset, gaps=derived.may_have_gaps, boundary=derived.boundary
        ):
            # What is bad is passed over here: whoever reads those bytes is told.
            if isinstance(item, FoundBatch):
                derived.add(item.position, item.header, self._interval_bytes)
            else:
                derived.is_partial = True
        return derived

    def load_before(self, size: int, offset: int | None = None) -> tuple[Derived, int]:
        """What the files know of the log before `offset`, or of all of it, and the position behind which they know
        nothing. Only what sums vouch for is believed: after a crash one index may be older than another, and one of
        Kafka's may be anything.
        """
        sums = self.read_sums()
        index = OffsetIndex(self._base_offset, self._read(INDEX) or b"")
        times = TimeIndex(self._base_offset, self._read(TIME_INDEX) or b"")
        derived = Derived(index, times, self._base_offset, sums.gaps if sums else self.gaps_without_sums)
        if sums is not None:
            derived.summed_to = sums.next_offset
        if sums is not None and sums.log_size <= size:
            derived.sums = sums
            if sums.offset_index.matches(index.data) and sums.time_index.matches(times.data):
                del index.data[sums.offset_index.size :], times.data[sums.time_index.size :]
                if offset is None or offset >= sums.next_offset:
                    return self._as_summed(derived, sums), sums.log_size
                return self._before(derived, offset)
        index.data.clear()
        times.data.clear()
        return derived, 0

    def _as_summed(self, derived: Derived, sums: Sums) -> Derived:
        last = derived.index.last()
        derived.next_offset = sums.next_offset
        derived.max_timestamp, derived.max_timestamp_offset = sums.max_timestamp, sums.max_timestamp_offset
        derived.bytes_since_entry = sums.log_size - (last.position if last else 0)
        return derived

    def _before(self, derived: Derived, offset: int) -> tuple[Derived, int]:
        """Up to the last entry before `offset`, if it leads to the batch it names."""
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
        # The batch there comes next and gets its entry again, just as it did the first time.
        derived.bytes_since_entry = self._interval_bytes + 1
        return derived, entry.position

    def save(self, derived: Derived, transactions: TransactionIndex, sums: Sums | None, *, sync: bool) -> None:
        """Afterwards the files hold this. `sync` where no checkpoint comes back to them: for a sealed segment.

        Aborted transactions are replaced as a whole, and synced, at any rate: nothing else tells that some are
        missing, and readers would get them.
        """
        write_whole(self._files, self._stem + INDEX, derived.index.data, sync=sync)
        write_whole(self._files, self._stem + TIME_INDEX, derived.time_index.data, sync=sync)
        self.save_transactions(transactions)
        if sums is not None:
            write_whole(self._files, self._stem + SUMS, sums.encode(), sync=sync)

    def save_transactions(self, transactions: TransactionIndex) -> None:
        if transactions.data:
            replace_whole(self._files, self._stem + TRANSACTION_INDEX, transactions.data)
        else:
            remove_if_there(self._files, self._stem + TRANSACTION_INDEX)

    def load_transactions(self, size: int, before: int | None = None) -> TransactionIndex | None:
        """The transactions that were aborted in the first `size` bytes, or before an offset. None where no sums vouch
        for the file, or for its absence: then they must be found anew.
        """
        data = self._read(TRANSACTION_INDEX) or b""
        sums = self.read_sums()
        if sums is None or not sums.transaction_index.matches(data) or len(data) % TransactionIndex.ENTRY_SIZE:
            return None
        is_known = sums.log_size == size or (before is not None and sums.next_offset >= before)
        return TransactionIndex(data) if is_known else None

    def remove(self) -> None:
        self.remove_all_but_transactions()
        remove_if_there(self._files, self._stem + TRANSACTION_INDEX)

    def remove_all_but_transactions(self) -> None:
        for suffix in (INDEX, TIME_INDEX, SUMS):
            remove_if_there(self._files, self._stem + suffix)
