"""Rebuilds producer state from the log: the newest intact snapshot, and every batch behind it.

The same function applies a batch here and in recovery; like an append, it calls `ProducerState.replay`. Aborted
transactions go into the segment's transaction index.
"""

from collections.abc import Callable, Sequence

from tailrace.log.disk.interface import Files, join, read_whole
from tailrace.log.files.index import TransactionIndex
from tailrace.log.layout.names import SNAPSHOT, numbered, parse_numbered
from tailrace.log.scan.scan import FoundBatch, ScanRange
from tailrace.log.scan.walk import walk
from tailrace.log.segment.segment import Segment
from tailrace.log.state.producer_state import CorruptSnapshot, ProducerState, decode_snapshot
from tailrace.records.batch import NO_PRODUCER
from tailrace.records.control import marker_of
from tailrace.records.errors import CorruptRecords


def snapshot_offsets(files: Files, directory: str) -> list[int]:
    """Returns the offsets of the snapshots, the newest first."""
    parsed = (parse_numbered(name) for name in files.files_in(directory))
    return sorted((found[0] for found in parsed if found and found[1] == SNAPSHOT), reverse=True)


def remove_snapshots(files: Files, directory: str, is_unwanted: Callable[[int], bool]) -> None:
    """Removes the unwanted snapshots. Durable with the next sync of the directory."""
    for offset in filter(is_unwanted, snapshot_offsets(files, directory)):
        files.remove(join(directory, numbered(offset, SNAPSHOT)))


def load_snapshot(files: Files, directory: str, at_most: float, otherwise: int) -> tuple[int, ProducerState]:
    """Loads the newest intact snapshot at `at_most` or before. Returns its offset and the producers; without one,
    `otherwise` and no producers.
    """
    for offset in snapshot_offsets(files, directory):
        if otherwise <= offset <= at_most:
            try:
                data = read_whole(files, join(directory, numbered(offset, SNAPSHOT)))
                return offset, decode_snapshot(data or b"")
            except (CorruptSnapshot, OSError):
                continue  # an older snapshot will do: then more of the log is replayed
    return otherwise, ProducerState()


def replay_batch(found: FoundBatch, producers: ProducerState, transactions: TransactionIndex | None) -> None:
    """Applies one batch; an aborted transaction is added to `transactions`, if given."""
    header = found.header
    if header.producer_id == NO_PRODUCER:
        return
    try:
        marker, epoch = marker_of(found.window, found.at) if header.is_control else (None, -1)
    except CorruptRecords:  # its CRC is right, so it was written like that: it decides nothing
        marker, epoch = None, -1
    aborted = producers.replay(header, marker, epoch)
    if aborted is not None and transactions is not None:
        transactions.append(aborted)


def replay_segments(
    files: Files, directory: str, segments: Sequence[Segment], end: int, wanted: Segment | None = None
) -> tuple[ProducerState, TransactionIndex]:
    """Returns the producers as of offset `end`, and the transactions that were aborted in the segment `wanted`."""
    at_most = wanted.base_offset if wanted else end
    start, producers = load_snapshot(files, directory, at_most, segments[0].base_offset)
    transactions = TransactionIndex()
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
            continue
        index = transactions if segment is wanted else None
        for item in walk(ScanRange(segment.log, 0, segment.size, segment.base_offset, segment.derived().may_have_gaps)):
            if isinstance(item, FoundBatch) and start <= item.header.base_offset < end:
                replay_batch(item, producers, index)
        if segment is wanted:
            break
    return producers, transactions
