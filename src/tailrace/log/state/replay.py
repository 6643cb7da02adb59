"""Rebuilds producer state from the log: the newest snapshot that is whole, and every batch behind it.

One function applies a batch to the state, here and in recovery; `ProducerState.replay` is what it calls in the end,
as the append does. What it finds aborted goes into the segment's transaction index.
"""

from collections.abc import Callable, Sequence

from tailrace.log.disk.interface import Files, join, read_whole
from tailrace.log.files.index import TransactionIndex
from tailrace.log.layout.names import SNAPSHOT, numbered, parse_numbered
from tailrace.log.scan.scan import FoundBatch
from tailrace.log.scan.walk import walk
from tailrace.log.segment.segment import Segment
from tailrace.log.state.producer_state import CorruptSnapshot, ProducerState, decode_snapshot
from tailrace.records.batch import NO_PRODUCER
from tailrace.records.control import marker_of
from tailrace.records.errors import CorruptRecords


def snapshot_offsets(files: Files, directory: str) -> list[int]:
    """The offsets at which there is a snapshot, the newest first."""
    parsed = (parse_numbered(name) for name in files.files_in(directory))
    return sorted((found[0] for found in parsed if found and found[1] == SNAPSHOT), reverse=True)


def remove_snapshots(files: Files, directory: str, is_unwanted: Callable[[int], bool]) -> None:
    """Afterwards there is none at an offset that is unwanted. Their names are gone from disk with the next sync."""
    for offset in filter(is_unwanted, snapshot_offsets(files, directory)):
        files.remove(join(directory, numbered(offset, SNAPSHOT)))


def load_snapshot(files: Files, directory: str, at_most: float, otherwise: int) -> tuple[int, ProducerState]:
    """The producers as they stood at the last offset, `at_most` or before, that is known; none at all at
    `otherwise`.
    """
    for offset in snapshot_offsets(files, directory):
        if otherwise <= offset <= at_most:
            try:
                data = read_whole(files, join(directory, numbered(offset, SNAPSHOT)))
                return offset, decode_snapshot(data or b"")
            except (CorruptSnapshot, OSError):
                continue  # an older one, and more of the log, will do
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
    """The producers as they stood at `end`, and the transactions that were aborted in `wanted`."""
    at_most = wanted.base_offset if wanted else end
    start, producers = load_snapshot(files, directory, at_most, segments[0].base_offset)
    transactions = TransactionIndex()
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
            continue
        index = transactions if segment is wanted else None
        for item in walk(segment.log, 0, segment.size, segment.base_offset, gaps=segment.derived().may_have_gaps):
            if isinstance(item, FoundBatch) and start <= item.header.base_offset < end:
                replay_batch(item, producers, index)
        if segment is wanted:
            break
    return producers, transactions
