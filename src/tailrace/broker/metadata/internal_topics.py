"""Appends records to the logs of internal topics as one batch, and reads them back."""

from collections.abc import Iterable, Iterator

from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.records import batch
from tailrace.records.decoders import Decoder
from tailrace.records.record import Record, decode_records, encode_batch

_PIECE_BYTES = 1 << 20


class NotRead(LogError):
    """The log of an internal topic cannot be read to its end: the part that can be read is not a state that ever
    existed.
    """


def append_records(log: Log, records: Iterable[Record], now_ms: int) -> None:
    """Appends the records as one batch: after a crash the log has all of them, or none."""
    log.append(encode_batch([record._replace(offset=n) for n, record in enumerate(records)]), now_ms)


def records_of(log: Log, decoder: Decoder | None = None) -> Iterator[Record]:
    """Yields all records up to the high watermark, without control batches. Raises NotRead, and what reading a log
    raises.
    """
    offset: int = log.start_offset
    end = log.high_watermark
    while offset < end:
        piece = log.read(offset, _PIECE_BYTES)
        if piece is None:
            if any(gap.first_offset <= offset and end <= gap.last_offset + 1 for gap in log.recorded_gaps):
                return  # the log ends in a range that a repair has given up
            raise NotRead(f"{log.directory} ends at offset {offset} instead of {end}")
        with piece:
            data, offset = piece.read(), piece.next_offset
        for position, header in batch.split(data):
            if not header.is_control:
                yield from decode_records(data, position, decoder=decoder)
