"""What is asked of batches before they are written, and what is written into them. No files here, and no state."""

from typing import NamedTuple

from tailrace.log.config import LogConfig
from tailrace.log.errors import InvalidAppend
from tailrace.log.index import RELATIVE_OFFSET_MAX
from tailrace.log.producer_state import ProducerState
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.compression import DECOMPRESSED_BYTES_MAX
from tailrace.records.record_decoder import RECORD_SIZE_MIN

Found = list[tuple[int, BatchHeader]]  # batches by their position in a buffer


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time: int
    is_duplicate: bool = False


def check_batches(found: Found, size: int, config: LogConfig, producers: ProducerState) -> Appended | None:
    """Raises InvalidAppend where the batches, `size` bytes in all, cannot be appended as they are; returns the original
    where they were appended before.
    """
    if not found:
        raise InvalidAppend("there is no batch to append")
    if size > config.segment_bytes:
        raise InvalidAppend(f"{size} bytes do not fit into a segment of {config.segment_bytes}")
    if sum(header.last_offset_delta + 1 for _, header in found) > RELATIVE_OFFSET_MAX:
        raise InvalidAppend("the batches span more offsets than a segment can count")
    for _, header in found:
        _refuse_false_counts(header)
        if header.producer_id == batch.NO_PRODUCER:
            continue
        if len(found) > 1 and not header.is_control:
            raise InvalidAppend("an idempotent producer sends one batch at a time")
        if (original := producers.check(header)) is not None:
            append_time = original.timestamp if config.log_append_time else batch.NO_TIMESTAMP
            return Appended(original.base_offset, original.last_offset, append_time, is_duplicate=True)
    return None


def _refuse_false_counts(header: BatchHeader) -> None:
    """Whoever may claim any number of records uses up offsets, or has us decode what is not there."""
    if not batch.is_dense(header):
        raise InvalidAppend(f"{header.record_count} records take {header.last_offset_delta + 1} offsets")
    is_plain = not header.attributes & batch.CODEC_MASK
    room = header.length - batch.LENGTH_MIN if is_plain else DECOMPRESSED_BYTES_MAX
    if header.record_count * RECORD_SIZE_MIN > room:
        raise InvalidAppend(f"{header.record_count} records do not fit into {room} bytes")


def stamp_batches(
    batches: bytearray | memoryview, found: Found, offset: int, epoch: int, log_append_time: int
) -> Found:
    """Gives the batches their offsets, from `offset` on, and the epoch, and the time where the log sets it; returns the
    headers as they are now.
    """
    stamped = []
    for position, header in found:
        batch.stamp(batches, position, offset, epoch)
        if log_append_time == batch.NO_TIMESTAMP:
            header = BatchHeader._make((offset, header.length, epoch, *header[3:]))
        else:
            batch.set_log_append_time(batches, position, log_append_time)
            header = batch.read_header(batches, position)
        stamped.append((position, header))
        offset += header.last_offset_delta + 1
    return stamped
