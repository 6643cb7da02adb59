"""Ends the logs of a backup where their transactions allow it: a transaction is in a backup with all of it, or not.

Logs are copied at different times, so one could have the marker that commits a transaction, and another one lack it, or
lack its batches. Three steps prevent that:

    1  the end of each log is noted. What a marker before that end decides, all logs have: it was decided before
    2  the transaction log is copied, with its decisions. All batches of a decided transaction were written before it
    3  the other logs are copied, each up to the first marker, behind its noted end, of a decision that is not among
       these

So a log may lack markers of decisions that the backup has, which the broker writes again at its start; and it may have
batches of transactions that the backup does not decide, which the broker aborts then, as `restore` tells it.

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
from tailrace.records.control import marker_of
from tailrace.records.record import decode_records

TRANSACTION_TOPIC = "__transaction_state"


class Decision(NamedTuple):
    producer_id: int
    epoch: int
    decided_ms: int


def marked_by(header: BatchHeader) -> Decision:
    """Returns the decision that a marker carries out."""
    return Decision(header.producer_id, header.producer_epoch, header.base_timestamp)


def end_of(source: Source, name: TopicPartition, look: Look) -> int:
    """Returns the end offset of a log at the moment of the look."""
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
    """Returns the look without the first marker behind the noted end that is not decided, and what follows it."""
    for number, segment in enumerate(look.segments):
        following = look.segments[number + 1].base_offset if number + 1 < len(look.segments) else None
        if following is not None and following <= noted_end:
            continue
        for found in _batches(source, name, segment, noted_end):
            header = found.header
            is_marker = header.is_control and marker_of(found.window, found.at)[0] is not None
            if is_marker and header.base_offset >= noted_end and marked_by(header) not in decided:
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
