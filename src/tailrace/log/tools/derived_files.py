"""Checks the files beside a log (indexes, checksums, snapshots) against the log they were derived from.

A wrong file does no harm: it is rebuilt when the log is opened or read. So nothing here is damage; it is reported
because a rebuild costs a scan, and because it may be a sign of a failing disk.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from tailrace.log.disk.interface import Files, join, read_whole
from tailrace.log.files.checksums import Prefix, SegmentChecksums
from tailrace.log.files.index import OffsetIndex, TimeIndex, TransactionIndex
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.layout.names import CHECKSUMS, INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, numbered
from tailrace.log.state.producer_state import CorruptSnapshot, decode_snapshot
from tailrace.log.state.replay import snapshot_offsets
from tailrace.log.tools.survey import Survey, SurveyedSegment
from tailrace.records.batch import BatchHeader

UNREADABLE = "it cannot be read"


@dataclass(frozen=True, slots=True)
class DerivedFault:
    """A derived file that will be rebuilt, and why."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file} will be rebuilt: {self.reason}"

    def as_json(self) -> dict[str, str]:
        return asdict(self)


class SegmentAudit:
    """Checks the files beside one segment during a walk of it."""

    def __init__(self, files: Files, directory: str, current: SurveyedSegment) -> None:
        self.current = current
        self._base_offset = current.segment.base_offset
        self._size = current.segment.size
        suffixes = (INDEX, TIME_INDEX, TRANSACTION_INDEX, CHECKSUMS)
        self._data = {suffix: _read(files, join(directory, numbered(self._base_offset, suffix))) for suffix in suffixes}
        index = OffsetIndex(self._base_offset, self._data[INDEX] or b"")
        times = TimeIndex(self._base_offset, self._data[TIME_INDEX] or b"")
        transactions = TransactionIndex(self._data[TRANSACTION_INDEX] or b"")
        self._is_sound = {
            INDEX: index.is_sound(self._size),
            TIME_INDEX: times.is_sound(),
            TRANSACTION_INDEX: transactions.is_sound(),
        }
        self._positions = Entries((entry.position, entry.last_offset) for entry in map(index.entry, range(len(index))))
        self._times = Entries((entry.last_offset, entry.timestamp) for entry in map(times.entry, range(len(times))))

    def found(self, position: int, header: BatchHeader) -> None:
        self._positions.compare(position, position + 1, header.last_offset)
        self._times.compare(header.base_offset, header.next_offset, header.max_timestamp)

    def skipped(self, end: int, next_offset: int) -> None:
        """Skips damaged bytes: index entries that lead there cannot be checked."""
        self._positions.skip(end)
        self._times.skip(next_offset)

    def faults(self) -> Iterator[DerivedFault]:
        """Returns the faults, after the whole segment was walked."""
        checksums = SegmentChecksums.decode(self._data[CHECKSUMS] or b"")
        if self._data[CHECKSUMS] is not None and (reason := self._fault_of_checksums(checksums)):
            yield DerivedFault(numbered(self._base_offset, CHECKSUMS), reason)
        known = {} if checksums is None or checksums.log_size > self._size else _prefixes(checksums)
        for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
            if reason := self._fault_of(suffix, known.get(suffix, Prefix())):
                yield DerivedFault(numbered(self._base_offset, suffix), reason)

    def _fault_of_checksums(self, checksums: SegmentChecksums | None) -> str | None:
        if checksums is None:
            return UNREADABLE
        if checksums.log_size > self._size:
            return f"it covers {checksums.log_size} bytes, but the log has {self._size}"
        return None

    def _fault_of(self, suffix: str, known: Prefix) -> str | None:
        data = self._data[suffix]
        if data is None:
            return "it is missing" if known.size else None
        if len(data) < known.size:
            return f"it has {len(data)} bytes, but should have {known.size}"
        if not known.matches(data):
            return "its checksum does not match"
        if not self._is_sound[suffix]:
            return "its entries are invalid"
        entries = {INDEX: self._positions, TIME_INDEX: self._times}.get(suffix)
        return "an entry leads to no batch" if entries and entries.is_wrong() else None


class Entries:
    """The entries of an index, each a position and a claim about it, compared with a walk in order."""

    def __init__(self, entries: Iterator[tuple[int, int]]) -> None:
        self._entries = entries
        self._next = next(entries, None)
        self._wrong = False

    def compare(self, start: int, end: int, actual: int) -> None:
        """Compares the entries from `start` to before `end` with the `actual` value. Any entry before `start` is wrong,
        as no batch is there.
        """
        while self._next is not None and self._next[0] < end:
            if self._next[0] < start or self._next[1] != actual:
                self._wrong = True
            self._next = next(self._entries, None)

    def skip(self, end: int) -> None:
        while self._next is not None and self._next[0] < end:
            self._next = next(self._entries, None)

    def is_wrong(self) -> bool:
        """Returns whether an entry was wrong, or is left over, after the walk."""
        return self._wrong or self._next is not None


def audit_partition(files: Files, survey: Survey) -> Iterator[DerivedFault]:
    """Checks the files that are not of one segment, after the survey."""
    if survey.epochs_are_damaged:
        yield DerivedFault(EPOCHS_FILE, UNREADABLE)
    elif survey.epochs_are_wrong:
        yield DerivedFault(EPOCHS_FILE, "batches of the log have other epochs")
    else:
        late = [start for start in survey.epochs if start.start_offset > survey.end_offset]
        if late:
            reason = f"epoch {late[0].epoch} begins at {late[0].start_offset}, but the log ends at {survey.end_offset}"
            yield DerivedFault(EPOCHS_FILE, reason)
    directory = survey.place.directory
    for offset in sorted(snapshot_offsets(files, directory)):
        name = numbered(offset, SNAPSHOT)
        try:
            if (data := read_whole(files, join(directory, name))) is not None:
                decode_snapshot(data)
        except (CorruptSnapshot, OSError):
            yield DerivedFault(name, UNREADABLE)
        else:
            if offset > survey.end_offset:
                yield DerivedFault(name, f"it is of offset {offset}, but the log ends at {survey.end_offset}")


def _read(files: Files, path: str) -> bytes | None:
    """Returns the bytes of a file; none if it cannot be read."""
    try:
        return read_whole(files, path)
    except OSError:
        return b""


def _prefixes(checksums: SegmentChecksums) -> dict[str, Prefix]:
    return {
        INDEX: checksums.offset_index,
        TIME_INDEX: checksums.time_index,
        TRANSACTION_INDEX: checksums.transaction_index,
    }
