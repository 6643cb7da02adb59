"""A segment: one append-only file of batches, with its indexes and its known damage.

The active segment, the last of its log, is written by one thread, the log's owner. Reading is safe from any thread:
written bytes never change, indexes only grow, and what readers find out about a segment's damage is kept behind a mutex
(`Checks`).

With `wait=False` a method uses only memory and the page cache, and raises `WouldWait` if that is not enough: so an
event loop can try first, and then repeat the call in a thread.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from errno import EEXIST, EIO

from tailrace.log.disk.interface import Data, Files, join, name_of, parent, remove_if_there
from tailrace.log.files.checksums import ChunkChecksums, Gaps
from tailrace.log.files.index import AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.errors import Damaged
from tailrace.log.layout.names import LOG, numbered
from tailrace.log.segment.derived import Derived, DerivedFiles
from tailrace.log.segment.derived_cache import DerivedCache
from tailrace.log.segment.preallocation import Blocks
from tailrace.log.segment.save import SegmentSave
from tailrace.log.segment.slices import HEADERS_BYTES, end_of_whole_batches
from tailrace.log.segment.trust import Checks
from tailrace.records.batch import HEADER, HEADER_SIZE, LENGTH_END, LENGTH_MIN, BatchHeader


class WouldWait(Exception):
    """The result is not in memory. Call again where waiting for a disk is allowed."""


class Segment:
    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        size: int,
        *,
        epochs: LeaderEpochs,
        cache: DerivedCache,
        interval_bytes: int,
    ) -> None:
        """Represents an existing segment. Reads nothing until it is needed."""
        self.base_offset = base_offset
        self.size = size
        self.first_append_ms: int | None = None
        self.log = files.open(join(directory, numbered(base_offset, LOG)))
        self.derived_files = DerivedFiles(
            files, join(directory, numbered(base_offset, "")), self.log, base_offset, interval_bytes
        )
        self.checks = Checks(self.log, base_offset, size, epochs)
        self._blocks = Blocks(self.log, size)
        self._files = files
        self._cache = cache
        self.interval_bytes = interval_bytes
        self._derived: Derived | None = None
        self._transactions: TransactionIndex | None = None
        self._chunks: ChunkChecksums | None = None
        self._largest_timestamp: tuple[int, int] | None = None  # the segment's size, and the timestamp for that size
        self._is_sealed = False
        self._is_saved = True  # the indexes on disk are those in memory
        self._is_shifted = False  # batches are not where its index files say: these are no longer read
        self._is_held = False  # by the log's owner, who changes it; otherwise the cache may drop it from memory
        self._loading = threading.Lock()

    def create(self) -> None:
        """Creates the empty file. Its name is durable once the directory is synced."""
        file = self._files.open(self.log.path, create=True)
        size = file.size()
        file.close()
        if size:
            raise FileExistsError(EEXIST, "a new segment would overwrite a file that is not empty", self.log.path)
        self.adopt(Derived.empty(self.base_offset), TransactionIndex(), ChunkChecksums())

    def adopt(self, derived: Derived, transactions: TransactionIndex, chunks: ChunkChecksums | None) -> None:
        """Takes over indexes that were built by walking the file, or those of an empty file."""
        self._derived = derived
        self._transactions = transactions
        self._chunks = chunks
        self._is_held, self._is_saved = True, False

    @property
    def name(self) -> str:
        return name_of(self.log.path)

    # Appending: only for the owner of the log

    def write(self, data: Data) -> None:
        """Writes these batches at the end of the file; `note` must follow. On OSError the segment is unchanged."""
        if self._derived is None:
            self.derived()  # first: a batch that cannot be noted must not be written
        start, size = self.size, len(data)
        if start + size > self._blocks.end:
            self._blocks.reserve(start, size)
        self.log.write_at(start, data)

    def note(self, data: Data, headers: Sequence[BatchHeader]) -> None:
        """Notes the batches that were written last, with these headers: from now on they count."""
        derived, position = self._derived, self.size
        assert derived is not None, "`write` has loaded it"
        for header in headers:
            derived.add(position, header, self.interval_bytes)
            position += LENGTH_END + header.length
        if self._chunks is not None:
            self._chunks.update(data)
        self.size = position
        self._is_saved = False

    def has_full_index(self, limit: int) -> bool:
        """Returns whether one of the indexes, of at most `limit` bytes, has no room for another entry. The time index
        also needs room for its last entry, which sealing adds.
        """
        derived = self.derived()
        return (
            len(derived.index.data) + OffsetIndex.ENTRY_SIZE > limit
            or len(derived.time_index.data) + 2 * TimeIndex.ENTRY_SIZE > limit
        )

    def open_for_append(self) -> None:
        """Prepares the segment, the last of its log, for appends."""
        derived = self.derived()
        self._is_held, self._is_sealed = True, False
        self._cache.forget(self)
        if derived.checksums is not None and derived.checksums.log_size == self.size and self._chunks is None:
            self._chunks = ChunkChecksums.resume(derived.checksums)

    def undo_append(self) -> None:
        """Truncates the file after a failed append, which may have written a part of it."""
        self.log.truncate(self.size)
        self._blocks.give_back(self.size)

    def seal(self) -> None:
        """Seals the segment: nothing may be appended any more."""
        self.derived().seal()
        self._is_sealed, self._is_saved = True, False

    # Indexes and metadata

    def derived(self, *, wait: bool = True) -> Derived:
        derived = self._derived
        if derived is None:
            if not wait:
                raise WouldWait
            with self._loading:  # only one reader loads it
                derived = self._derived
                if derived is None:
                    derived = self._derived = self._load()
        if not self._is_held:
            self._cache.used(self, derived.resident_bytes)
        return derived

    def _load(self) -> Derived:
        files = self.derived_files
        return files.rebuild_from_log(self.size) if self._is_shifted else files.load(self.size)

    def rule_out_gaps(self) -> None:
        """Makes gaps damage, whatever happens to the checksum file: no compaction and no repair has left one in this
        sealed segment.
        """
        self.derived_files.gaps_without_checksums = Gaps.NONE
        if (derived := self._derived) is not None and derived.gaps is Gaps.UNKNOWN:
            derived.gaps = Gaps.NONE
            self.checks.distrust(0, self.size, self.size)

    @property
    def largest_timestamp(self) -> int | None:
        """The largest timestamp of its records, if in memory: None if it is not, or if no record has one."""
        if (derived := self._derived) is not None and derived.max_timestamp >= 0:
            return derived.max_timestamp
        known = self._largest_timestamp
        return known[1] if known is not None and known[0] == self.size else None

    def find_largest_timestamp(self) -> int:
        """Returns the largest timestamp, from the disk if needed, and keeps it in memory. May be called from any
        thread. If no record has a timestamp, returns the file's modification time, as Kafka does.
        """
        size, checksums = self.size, self.derived_files.read_checksums()
        is_summed = checksums is not None and checksums.log_size == size  # then the indexes need not be loaded
        found = (checksums if checksums is not None and is_summed else self.derived()).max_timestamp
        if found < 0:
            found = self._files.modified_ms(self.log.path)
        self._largest_timestamp = size, found
        return found

    def transactions(self, *, wait: bool = True) -> TransactionIndex | None:
        """Returns the aborted transactions; None if their index is lost and the log must find them again."""
        if self._transactions is None:
            if not wait:
                raise WouldWait
            self._transactions = self.derived_files.load_transactions(self.size)
        return self._transactions

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        transactions = self.transactions()
        assert transactions is not None, "recovery rebuilds the index of the active segment"
        transactions.append(aborted)
        self._is_saved = False

    def adopt_transactions(self, transactions: TransactionIndex) -> None:
        self._transactions = transactions

    def forget_derived(self) -> None:
        if not self._is_held and (derived := self._derived) is not None:
            if derived.max_timestamp >= 0:
                self._largest_timestamp = self.size, derived.max_timestamp
            self._derived = None

    @property
    def is_saved(self) -> bool:
        return self._is_saved

    def begin_save(self, *, sealed: bool) -> SegmentSave:
        """Returns what is to be saved, as it is now: a copy unless the segment is sealed."""
        derived, transactions = self.derived(), self.transactions()
        assert transactions is not None, "recovery has found the aborted transactions"
        if not sealed:
            derived, transactions = derived.copy(), transactions.copy()
        chunks = self._chunks.checksums if self._chunks is not None else None
        return SegmentSave(self, derived, transactions, chunks, self.size, sealed)

    def rested(self, size: int) -> None:
        """Gives preallocated blocks back if the segment still has this size, which it had a while ago."""
        if size == self.size:
            self._blocks.give_back(size)

    def finish_save(self, save: SegmentSave) -> None:
        derived = self._derived
        assert derived is not None, "unsaved indexes are held in memory"
        if save.checksums is not None:
            derived.checksums = save.checksums
        self._is_saved = save.size == self.size and save.sealed == self._is_sealed
        if self._is_saved and self._is_sealed:
            self._is_held = False
            self._cache.used(self, derived.resident_bytes)

    # Reading: for any thread

    def batches(
        self, position: int, limit: int, *, is_sound: bool | None = None, wait: bool = True
    ) -> Iterator[tuple[int, BatchHeader] | DamagedRange]:
        """Yields the checked headers from `position`, where a batch begins, up to `limit`, and the damage
        between them.
        """
        window: Data = b""
        start = position
        if is_sound is None:
            is_sound = self.checks.are_sound(position, limit)  # nearly always: then single batches need no check
        while position < limit:
            if not is_sound:
                self._ensure(position, min(position + HEADER_SIZE, limit), wait)
                if (damage := self.checks.damage_at(position)) is not None:
                    yield damage
                    if damage.length:
                        position = damage.end
                        continue
            at = position - start
            if len(window) - at < HEADER_SIZE:
                start, at = position, 0
                window = self._read_headers(position, min(HEADERS_BYTES, limit - position), wait)
            header = BatchHeader._make(HEADER.unpack_from(window, at))
            if header.length < LENGTH_MIN:  # it was sound when checked; without this test the loop might not end
                raise OSError(EIO, f"a batch with an invalid length at {position}", self.log.path)
            if not is_sound:
                self._ensure(position, position + header.size, wait)
                if (damage := self.checks.damage_at(position)) is not None and damage.length:
                    continue
            yield position, header
            position += header.size

    def _ensure(self, start: int, end: int, wait: bool) -> None:
        if not self.checks.cover(start, end):
            if not wait:
                raise WouldWait
            self.check(start, end)

    def check(self, start: int, end: int) -> None:
        """Checks these bytes. On return, `checks.damage` has what is bad in them, and the index leads to batches."""
        derived = self.derived()
        if self.checks.ensure(start, end, self.size, derived):
            return
        if self.checks.limit is None:  # the last segment: its owner adds to its indexes
            assert derived.boundary is not None, "only checksums can be wrong"
            self.checks.condemn(derived.boundary)
        else:
            self._derive_anew(derived)
        self.checks.ensure(start, end, self.size, self.derived())

    def _derive_anew(self, wrong: Derived) -> None:
        with self._loading:
            self._is_shifted = True
            if self._derived is wrong or self._derived is None:
                self._derived = self._load()

    def _read_headers(self, position: int, size: int, wait: bool) -> Data:
        data = self.log.read_at(position, size) if wait else self.log.read_cached_at(position, size)
        if data is None:
            raise WouldWait
        return data

    def find(self, offset: int, limit: int, *, wait: bool = True) -> tuple[int, BatchHeader] | None:
        """Returns the position and header of the first batch before `limit` that ends at `offset` or later, or None.
        Raises Damaged.
        """
        entry = self.derived(wait=wait).index.at_or_before(offset)
        position = entry.position if entry else 0
        is_sound = self.checks.are_sound(position, limit)
        if not is_sound:
            position = self._checked_start(offset, limit, wait)
        for item in self.batches(position, limit, is_sound=is_sound, wait=wait):
            if isinstance(item, DamagedRange):
                if offset <= item.last_offset:
                    raise Damaged(item)
            elif item[1].last_offset >= offset:
                return item
        return None

    def _checked_start(self, offset: int, limit: int, wait: bool) -> int:
        """Returns where to begin the search for `offset`: at an index entry whose bytes were checked."""
        while True:
            was_shifted = self._is_shifted
            entry = self.derived(wait=wait).index.at_or_before(offset)
            position = entry.position if entry else 0
            self._ensure(position, min(position + HEADER_SIZE, limit), wait)
            if self._is_shifted == was_shifted:
                return position

    def end_of_batches(self, start: int, max_bytes: int, limit: int, *, wait: bool = True) -> tuple[int, int]:
        """Finds the end of whole batches from the one at `start`: `max_bytes` at most, but at least that one, and never
        behind `limit`. Returns the position where they end, and the next offset. Raises Damaged.
        """
        wanted = min(start + max(max_bytes, 1), limit)
        if self.checks.are_sound(start, min(wanted + HEADER_SIZE, limit)):  # nearly always
            end, next_offset = self._end_of_sound_batches(start, wanted, limit, wait)
            if end <= wanted or self.checks.are_sound(start, end):  # the first batch is returned whole, however large
                return end, next_offset
        return self._end_of_checked_batches(start, wanted, limit, wait)

    def _end_of_checked_batches(self, start: int, wanted: int, limit: int, wait: bool) -> tuple[int, int]:
        """`end_of_batches` where something may be damaged, or must be checked first."""
        self._ensure(start, wanted, wait)
        if (damage := self.checks.next_damage(start)) is not None:
            wanted = min(wanted, damage)
        entry = self.derived(wait=wait).index.at_or_before_position(wanted - 1)
        end, next_offset = start, -1
        for item in self.batches(max(start, entry.position if entry else 0), limit, wait=wait):
            if isinstance(item, DamagedRange):
                if end > start:
                    break
                if item.length:
                    raise Damaged(item)
                continue  # records missing just before the first batch do not matter here
            position, header = item
            if position > end:  # found by the index: the batches before it are whole
                end, next_offset = position, header.base_offset
            if end > start and position + header.size > wanted:
                break
            end, next_offset = position + header.size, header.next_offset
            if end >= wanted:
                break
        return end, next_offset

    def _end_of_sound_batches(self, start: int, wanted: int, limit: int, wait: bool) -> tuple[int, int]:
        """`end_of_batches` where everything was checked. Called for every large Fetch."""

        def read(position: int, size: int) -> Data:
            return self._read_headers(position, min(size, limit - position), wait)

        entry = self.derived(wait=wait).index.at_or_before_position(wanted - 1)
        return end_of_whole_batches(read, start, max(start, entry.position if entry else 0), wanted, limit)

    # Closing and removing

    def hold(self) -> None:
        """Keeps this segment readable as it is now, whatever happens to the files of its name: its descriptor stays
        open, and its indexes stay in memory. May be called from any thread. If it raises, nothing is held.
        """
        self.log.pin()
        try:
            self._is_held = True
            self._cache.forget(self)  # waits for a thread that may just be dropping it from memory
            self.derived()
            self.transactions()
        except BaseException:
            self.let_go()
            raise

    def let_go(self) -> None:
        """Reverts `hold`."""
        self._is_held = False
        self.log.unpin()

    def truncate_file(self, position: int) -> None:
        """Truncates the file at `position`, durably, along with its indexes and checksums."""
        # First: checksums of the truncated bytes would make their replacements look damaged.
        self.derived_files.remove_all_but_transactions()
        self._files.sync_directory(parent(self.log.path))
        self.log.truncate(position)
        self.log.sync()
        self._blocks.give_back(position)
        self.forget_behind(position)

    def forget_behind(self, position: int) -> None:
        """Ends the segment at `position`, in memory only."""
        self.size = position
        self.checks.truncate(position)
        if self._chunks is not None and self._chunks.size > position:
            self._chunks = None
        if self._derived is not None:
            self._derived.checksums = None
        self._largest_timestamp = None
        self._is_held, self._is_sealed, self._is_saved = True, False, False

    def truncate(self, position: int) -> None:
        """Truncates a segment in use, with its indexes. The log corrects the aborted transactions."""
        gaps = self.derived().gaps
        self._derived, self._chunks = None, None
        self.truncate_file(position)
        self._derived = self.derived_files.rebuild(position, gaps)
        if not self.checks.damage:
            self._chunks = ChunkChecksums()
            self._chunks.read_up_to(self.log, position)

    def remove(self) -> None:
        """Removes the files. A slice that pins this segment can still be read."""
        remove_if_there(self._files, self.log.path)
        self.derived_files.remove()
        self.close()

    def close(self) -> None:
        self._cache.forget(self)
        self.log.close()


def number_of_segment_at(segments: Sequence[Segment], offset: int) -> int:
    """Returns the index of the segment that would hold `offset`; -1 if it lies before the first one."""
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
