"""A segment: one append-only file of batches, with its indexes and what is known of its damage.

The active segment, the last of its log, is written by one thread, the log's owner. Reading is safe from any thread:
bytes once written never change, indexes only grow, and what readers find out about a segment's health is kept
behind a mutex (`Checks`).

With `wait=False` a method answers from memory and the page cache alone and raises `WouldWait` where that is not
enough: so an event loop can try, and hand the question to a thread when it must.
"""

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from errno import EEXIST, EIO

from tailrace.log.disk.interface import Data, Files, join, name_of, parent, remove_if_there
from tailrace.log.files.checksums import ChunkSums, Gaps, Sums
from tailrace.log.files.index import AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.errors import Damaged
from tailrace.log.layout.names import LOG, numbered
from tailrace.log.segment.derived import Derived, DerivedFiles
from tailrace.log.segment.preallocation import Blocks
from tailrace.log.segment.slices import HEADERS_BYTES, end_of_whole_batches
from tailrace.log.segment.trust import Checks
from tailrace.records.batch import HEADER, HEADER_SIZE, LENGTH_END, LENGTH_MIN, BatchHeader


class WouldWait(Exception):
    """The answer is not in memory: ask again where waiting for a disk is allowed."""


class DerivedCache:
    """A bound on the indexes of sealed segments held in memory, over all logs that share it. The least used go
    first.
    """

    def __init__(self, limit_bytes: int = 64 << 20) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._mutex = threading.Lock()
        self._segments: OrderedDict[Segment, int] = OrderedDict()

    def used(self, segment: "Segment", size: int) -> None:
        with self._mutex:
            self._bytes += size - self._segments.pop(segment, 0)
            self._segments[segment] = size
            while self._bytes > self._limit_bytes and len(self._segments) > 1:
                victim, victim_bytes = self._segments.popitem(last=False)
                self._bytes -= victim_bytes
                victim.forget_derived()

    def forget(self, segment: "Segment") -> None:
        with self._mutex:
            self._bytes -= self._segments.pop(segment, 0)


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
        """A segment that is there already. Nothing is read before it is asked for."""
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
        self._chunks: ChunkSums | None = None
        self._largest_timestamp: tuple[int, int] | None = None  # of how many bytes, and which
        self._is_sealed = False
        self._is_saved = True  # what is derived is on disk as it is in memory
        self._is_shifted = False  # batches do not stand where its files say: these are not read any more
        self._is_held = False  # by the log's owner, who changes it: if not, the cache may take it from memory
        self._loading = threading.Lock()

    def create(self) -> None:
        """Afterwards the file is there, empty. Its name is on disk once the directory is synced."""
        file = self._files.open(self.log.path, create=True)
        size = file.size()
        file.close()
        if size:
            raise FileExistsError(EEXIST, "a new segment would overwrite a file that has bytes in it", self.log.path)
        self.adopt(Derived.empty(self.base_offset), TransactionIndex(), ChunkSums())

    def adopt(self, derived: Derived, transactions: TransactionIndex, chunks: ChunkSums | None) -> None:
        """Takes what was found by walking the file, or is known because the file is empty."""
        self._derived = derived
        self._transactions = transactions
        self._chunks = chunks
        self._is_held, self._is_saved = True, False

    @property
    def name(self) -> str:
        return name_of(self.log.path)

    # Appending: by the owner of the log only

    def write(self, data: Data) -> None:
        """Afterwards these batches stand at the end of the file, and are to be noted. On OSError nothing that counts
        has changed.
        """
        if self._derived is None:
            self.derived()  # first: what cannot be noted is not written
        start, size = self.size, len(data)
        if start + size > self._blocks.end:
            self._blocks.reserve(start, size)
        self.log.write_at(start, data)

    def note(self, data: Data, headers: Sequence[BatchHeader]) -> None:
        """The batches that were written last have these headers: afterwards they count."""
        derived, position = self._derived, self.size
        assert derived is not None, "who has written has seen to it"
        for header in headers:
            derived.add(position, header, self.interval_bytes)
            position += LENGTH_END + header.length
        if self._chunks is not None:
            self._chunks.update(data)
        self.size = position
        self._is_saved = False

    def has_full_index(self, limit: int) -> bool:
        """Whether one of the indexes has no room for another entry in `limit` bytes; that of times gets a last one
        when the segment is sealed.
        """
        derived = self.derived()
        return (
            len(derived.index.data) + OffsetIndex.ENTRY_SIZE > limit
            or len(derived.time_index.data) + 2 * TimeIndex.ENTRY_SIZE > limit
        )

    def open_for_append(self) -> None:
        """Afterwards the segment, the last of its log, can go on where it stopped."""
        derived = self.derived()
        self._is_held, self._is_sealed = True, False
        self._cache.forget(self)
        if derived.sums is not None and derived.sums.log_size == self.size and self._chunks is None:
            self._chunks = ChunkSums.resume(derived.sums)

    def undo_append(self) -> None:
        """After a failed append: cuts off what may have been written of it."""
        self.log.truncate(self.size)
        self._blocks.give_back(self.size)

    def seal(self) -> None:
        """Afterwards nothing is appended any more."""
        self.derived().seal()
        self._is_sealed, self._is_saved = True, False

    # What is derived

    def derived(self, *, wait: bool = True) -> Derived:
        derived = self._derived
        if derived is None:
            if not wait:
                raise WouldWait
            with self._loading:  # of the readers that want it, one does the work
                derived = self._derived
                if derived is None:
                    derived = self._derived = self._load()
        if not self._is_held:
            self._cache.used(self, derived.resident_bytes)
        return derived

    def _load(self) -> Derived:
        files = self.derived_files
        return files.derive_anew(self.size) if self._is_shifted else files.load(self.size)

    def rule_out_gaps(self) -> None:
        """No compaction and no repair has left a gap in this sealed segment: one is damage, whatever became of its
        checksum file.
        """
        self.derived_files.gaps_without_sums = Gaps.NONE
        if (derived := self._derived) is not None and derived.gaps is Gaps.UNKNOWN:
            derived.gaps = Gaps.NONE
            self.checks.distrust(0, self.size, self.size)

    @property
    def largest_timestamp(self) -> int | None:
        """Of its records, as far as that is in memory: None where it is not, or where no record has one."""
        if (derived := self._derived) is not None and derived.max_timestamp >= 0:
            return derived.max_timestamp
        known = self._largest_timestamp
        return known[1] if known is not None and known[0] == self.size else None

    def find_largest_timestamp(self) -> int:
        """The same from the disk, by any thread; then it is in memory. A segment whose records have none is as old as
        its file, as in Kafka.
        """
        size, sums = self.size, self.derived_files.read_sums()
        is_summed = sums is not None and sums.log_size == size  # most are known by that, without their indexes
        found = (sums if sums is not None and is_summed else self.derived()).max_timestamp
        if found < 0:
            found = self._files.modified_ms(self.log.path)
        self._largest_timestamp = size, found
        return found

    def transactions(self, *, wait: bool = True) -> TransactionIndex | None:
        """The aborted transactions; None where their index is lost and the log must find them anew."""
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

    def begin_save(self, *, sealed: bool) -> "SavedParts":
        """What there is to save, as it is now: a copy if the segment goes on."""
        derived, transactions = self.derived(), self.transactions()
        assert transactions is not None, "recovery knows what was aborted in what it scans"
        if not sealed:
            derived, transactions = derived.copy(), TransactionIndex(transactions.data)
        chunks = self._chunks.sums if self._chunks is not None else None
        return SavedParts(self, derived, transactions, chunks, self.size, sealed)

    def rested(self, size: int) -> None:
        """It had this size a while ago: if it has it still, blocks that it has ahead are others' to use."""
        if size == self.size:
            self._blocks.give_back(size)

    def finish_save(self, parts: "SavedParts") -> None:
        derived = self._derived
        assert derived is not None, "what is not saved is held"
        if parts.sums is not None:
            derived.sums = parts.sums
        self._is_saved = parts.size == self.size and parts.sealed == self._is_sealed
        if self._is_saved and self._is_sealed:
            self._is_held = False
            self._cache.used(self, derived.resident_bytes)

    # Reading: from any thread

    def batches(
        self, position: int, limit: int, *, is_sound: bool | None = None, wait: bool = True
    ) -> Iterator[tuple[int, BatchHeader] | DamagedRange]:
        """The headers from `position`, where a batch begins, up to `limit`, checked; and damage where there is
        some.
        """
        window: Data = b""
        start = position
        if is_sound is None:
            is_sound = self.checks.are_sound(position, limit)  # as nearly always: then nothing is asked of each batch
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
            if header.length < LENGTH_MIN:  # sound when it was looked at: it must not hold us up for ever
                raise OSError(EIO, f"a batch of an impossible length at {position}", self.log.path)
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
        """Checks these bytes; on return, what is bad in them is in `checks.damage` and the index leads to batches."""
        derived = self.derived()
        if self.checks.ensure(start, end, self.size, derived):
            return
        if self.checks.limit is None:  # the last segment: its owner adds to what is derived
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
        """The first batch before `limit` that ends at `offset` or later; None if there is none. Raises Damaged."""
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
        """Where to begin looking for `offset`: an index entry counts once the bytes that it leads to were checked."""
        while True:
            was_shifted = self._is_shifted
            entry = self.derived(wait=wait).index.at_or_before(offset)
            position = entry.position if entry else 0
            self._ensure(position, min(position + HEADER_SIZE, limit), wait)
            if self._is_shifted == was_shifted:
                return position

    def end_of_batches(self, start: int, max_bytes: int, limit: int, *, wait: bool = True) -> tuple[int, int]:
        """How far whole batches go from the one at `start`: `max_bytes` at most, but that one at least, and never
        behind `limit`. The position where they end, and the offset that follows. Raises Damaged.
        """
        wanted = min(start + max(max_bytes, 1), limit)
        if self.checks.are_sound(start, min(wanted + HEADER_SIZE, limit)):  # as nearly always
            end, next_offset = self._end_of_sound_batches(start, wanted, limit, wait)
            if end <= wanted or self.checks.are_sound(start, end):  # the first is given whole, however large
                return end, next_offset
        return self._end_of_checked_batches(start, wanted, limit, wait)

    def _end_of_checked_batches(self, start: int, wanted: int, limit: int, wait: bool) -> tuple[int, int]:
        """The same where something may be damaged, or has to be checked first."""
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
                continue  # what is missing just before the first one is not ours to say
            position, header = item
            if position > end:  # reached by the index: what lies before is whole
                end, next_offset = position, header.base_offset
            if end > start and position + header.size > wanted:
                break
            end, next_offset = position + header.size, header.next_offset
            if end >= wanted:
                break
        return end, next_offset

    def _end_of_sound_batches(self, start: int, wanted: int, limit: int, wait: bool) -> tuple[int, int]:
        """The same where nothing has to be checked. Every large Fetch asks."""

        def read(position: int, size: int) -> Data:
            return self._read_headers(position, min(size, limit - position), wait)

        entry = self.derived(wait=wait).index.at_or_before_position(wanted - 1)
        return end_of_whole_batches(read, start, max(start, entry.position if entry else 0), wanted, limit)

    # Going away

    def hold(self) -> None:
        """Afterwards this segment is read as it is now, whatever becomes of the files of its name: its descriptor
        stays open, and what is derived stays in memory. From any thread. If it raises, nothing is held.
        """
        self.log.pin()
        try:
            self._is_held = True
            self._cache.forget(self)  # which waits for who may just be taking it from memory
            self.derived()
            self.transactions()
        except BaseException:
            self.let_go()
            raise

    def let_go(self) -> None:
        """The opposite."""
        self._is_held = False
        self.log.unpin()

    def cut(self, position: int) -> None:
        """Afterwards the file ends at `position`, on disk. What is derived must not speak of more; sums of more are
        forgotten.
        """
        # First: sums of bytes that others take the place of would make those look damaged.
        self.derived_files.remove_all_but_transactions()
        self._files.sync_directory(parent(self.log.path))
        self.log.truncate(position)
        self.log.sync()
        self._blocks.give_back(position)
        self.forget_behind(position)

    def forget_behind(self, position: int) -> None:
        """In memory, ends the segment at `position`."""
        self.size = position
        self.checks.cut(position)
        if self._chunks is not None and self._chunks.size > position:
            self._chunks = None
        if self._derived is not None:
            self._derived.sums = None
        self._largest_timestamp = None
        self._is_held, self._is_sealed, self._is_saved = True, False, False

    def truncate(self, position: int) -> None:
        """The same for a segment in use: what is derived is cut, too; what was aborted is for the log to say."""
        gaps = self.derived().gaps
        self._derived, self._chunks = None, None
        self.cut(position)
        self._derived = self.derived_files.rebuild(position, gaps)
        if not self.checks.damage:
            self._chunks = ChunkSums()
            self._chunks.read_up_to(self.log, position)

    def remove(self) -> None:
        """Afterwards the files are gone; a slice that pins this segment can still be read."""
        remove_if_there(self._files, self.log.path)
        self.derived_files.remove()
        self.close()

    def close(self) -> None:
        self._cache.forget(self)
        self.log.close()


def number_of_segment_at(segments: Sequence[Segment], offset: int) -> int:
    """Which of the segments, in order, would hold `offset`; -1 where it lies before the first of them."""
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1


class SavedParts:
    """What is derived from a segment on its way to disk. `run` may be called in any thread."""

    def __init__(
        self,
        segment: Segment,
        derived: Derived,
        transactions: TransactionIndex,
        chunks: tuple[int, ...] | None,
        size: int,
        sealed: bool,
    ) -> None:
        self.segment = segment
        self.sealed = sealed
        self.sums: Sums | None = None
        self._derived = derived
        self._transactions = transactions
        self._chunks = chunks
        self.size = size

    def run(self) -> None:
        chunks = self._chunks
        if chunks is None and self.sealed:
            chunks = self._sum_anew()
        if chunks is not None and not self.segment.checks.damage:
            self.sums = self._derived.summarise(self.size, chunks, self._transactions)
        self.segment.derived_files.save(self._derived, self._transactions, self.sums, sync=self.sealed)

    def _sum_anew(self) -> tuple[int, ...]:
        """Sums a segment that was begun by an earlier process; all of it is checked first, so that no rot is sealed
        as sound.
        """
        self.segment.check(0, self.size)
        chunks = ChunkSums()
        chunks.read_up_to(self.segment.log, self.size)
        return chunks.sums
