"""Appends to and reads from the internal topics' logs: records go in as a batch, and are read back whole or not."""

from collections.abc import Iterable, Iterator

from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.records import batch
from tailrace.records.decoders import Decoder
from tailrace.records.record import Record, decode_records, encode_batch

_PIECE_BYTES = 1 << 20


class NotRead(LogError):
    """A log of ours cannot be read to its end: what it says up to there is no state that ever was."""


def append_records(log: Log, records: Iterable[Record], now_ms: int) -> None:
    """Afterwards they are in the log, all of them or, after a crash, none."""
    log.append(encode_batch([record._replace(offset=n) for n, record in enumerate(records)]), now_ms)


def records_of(log: Log, decoder: Decoder | None = None) -> Iterator[Record]:
    """All that readers may see, but for the marks of transactions. Raises NotRead, and what reading a log raises."""
    offset: int = log.start_offset
    end = log.high_watermark
    while offset < end:
        piece = log.read(offset, _PIECE_BYTES)
        if piece is None:
            if any(gap.first_offset <= offset and end <= gap.last_offset + 1 for gap in log.recorded_gaps):
                return  # the log ends in what a repair has given up
            raise NotRead(f"{log.directory} ends at offset {offset}, and not at {end}")
        with piece:
            data, offset = piece.read(), piece.next_offset
        for position, header in batch.split(data):
            if not header.is_control:
                yield from decode_records(data, position, decoder=decoder)
