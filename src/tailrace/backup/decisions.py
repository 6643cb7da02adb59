"""Ends the logs of a backup where their transactions allow it: a transaction is in a backup with all of it, or not.

Logs are copied at different times, so one could have the marker that commits a transaction, and another one lack it, or
lack its batches. Three steps prevent that:

    1  the end of each log is noted. What a marker before that end decides, all logs have: it was decided before
    2  the transaction log is copied, with its decisions. All batches of a decided transaction were written before it
    3  the other logs are copied, each up to the first marker, behind its noted end, that commits what is not among
       these

So a log may lack markers of decisions that the backup has, which the broker writes again at its start; and it may have
batches of transactions that the backup does not decide, which the broker aborts then, as `restore` tells it. Markers of
aborts agree with that, and end no log: those of an operator or of a start are no decisions, and decided transactions
may lie behind them.

A log that ends at a marker must not have been compacted with what lies behind that: the backup would lack the older
records that these replace (`Noted.has_only_grown`).

A decision is named by its producer and its time, which its markers carry as their timestamp.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.backup.log_copy import SalvagedFile
from tailrace.backup.source import Look, SeenSegment, Source, agree
from tailrace.broker.transactions import records
from tailrace.log.disk.interface import join
from tailrace.log.files.checksums import Gaps
from tailrace.log.layout.names import LOG, TopicPartition, numbered
from tailrace.log.scan.scan import Boundary, FoundBatch, ScanRange
from tailrace.log.scan.walk import walk
from tailrace.records.batch import BatchHeader
from tailrace.records.control import Marker, marker_of
from tailrace.records.record import decode_records

TRANSACTION_TOPIC = "__transaction_state"


class Noted(NamedTuple):
    """A log before the transaction log was copied."""

    look: Look
    end: int

    def is_of(self, look: Look) -> bool:
        """Returns whether that is still the same log: its topic may have been created anew."""
        return self.look.topic_id == look.topic_id

    def has_only_grown(self, look: Look) -> bool:
        """Returns whether nothing but its oldest segments was removed from the log since."""
        return agree(self.look, look) is not None


class Decision(NamedTuple):
    producer_id: int
    epoch: int
    decided_ms: int


def marked_by(header: BatchHeader) -> Decision:
    """Returns the decision that a marker carries out."""
    return Decision(header.producer_id, header.producer_epoch, header.base_timestamp)


def note(source: Source, name: TopicPartition) -> Noted | None:
    """Notes a log as it is now; None if there is none."""
    look = source.look(name)
    return None if look is None else Noted(look, _end_of(source, name, look))


def _end_of(source: Source, name: TopicPartition, look: Look) -> int:
    if not look.segments:
        return look.start_offset or 0
    last = look.segments[-1]
    end = last.base_offset if last.checksums is None else last.checksums.next_offset
    for found in _batches(source, name, last, end):
        end = found.header.next_offset
    return end


def decisions_in(source: Source, name: TopicPartition, look: Look, end_offset: int) -> set[Decision]:
    """Returns the decisions that a partition of the transaction log has before an offset."""
    found: set[Decision] = set()
    for segment in look.segments:
        for one in _batches(source, name, segment, segment.base_offset):
            if one.header.base_offset < end_offset:
                found.update(_decisions(one))
    return found


def _decisions(batch: FoundBatch) -> Iterator[Decision]:
    for record in decode_records(batch.window, batch.at):
        saved = records.decode(record)
        if saved is not None and saved.transaction is not None and saved.transaction.state.is_prepared:
            transaction = saved.transaction
            yield Decision(transaction.producer_id, transaction.epoch, transaction.updated_ms)


def before_undecided(source: Source, name: TopicPartition, look: Look, noted_end: int, decided: set[Decision]) -> Look:
    """Returns the look without the first marker behind the noted end that commits what is not decided, and what follows
    it; the look itself if there is no such marker.
    """
    for number, segment in enumerate(look.segments):
        following = look.segments[number + 1].base_offset if number + 1 < len(look.segments) else None
        if following is not None and following <= noted_end:
            continue
        for found in _batches(source, name, segment, noted_end):
            header = found.header
            if not header.is_control or header.base_offset < noted_end or marked_by(header) in decided:
                continue
            if marker_of(found.window, found.at)[0] is Marker.COMMIT:
                return _shortened(look, number, found.position)
    return look


def _shortened(look: Look, number: int, size: int) -> Look:
    """Returns the look with this many bytes of the segment, and none of the segments behind it."""
    segment = look.segments[number]
    last = SeenSegment(segment.base_offset, size, None, segment.sums_sha256)
    point = look.recovery_point if look.recovery_point is None else min(look.recovery_point, segment.base_offset)
    return Look(look.topic_id, look.start_offset, point, (*look.segments[:number], last), look.is_being_swapped)


def has_only_grown(before: Look | None, after: Look | None) -> bool:
    """Returns whether no record of a log was removed between two looks."""
    if before is None or after is None:
        return before is after
    return agree(before, after) == 0


def _batches(source: Source, name: TopicPartition, segment: SeenSegment, wanted: int) -> Iterator[FoundBatch]:
    """Yields the sound batches of a segment; those before `wanted` are left out as far as its checksums end there."""
    sums = segment.checksums
    boundary = Boundary(sums.log_size, sums.next_offset) if sums is not None else None
    position, offset = 0, segment.base_offset
    if boundary is not None and boundary.offset <= wanted:
        position, offset = boundary
    gaps = sums is not None and sums.gaps is not Gaps.NONE
    path = join(join(source.path, str(name)), numbered(segment.base_offset, LOG))
    file = SalvagedFile(path, source.files.open(path))
    file.pin()
    try:
        for found in walk(ScanRange(file, position, segment.size, offset, gaps), boundary=boundary):
            if isinstance(found, FoundBatch):
                yield found
    finally:
        file.unpin()
        file.close()
