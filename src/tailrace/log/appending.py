"""What is asked of a batch before it is written. No files here, and no state."""

from typing import NamedTuple

from tailrace.log.config import LogConfig
from tailrace.log.errors import InvalidAppend
from tailrace.log.producer_state import ProducedBatch
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.compression import DECOMPRESSED_BYTES_MAX
from tailrace.records.record_decoder import RECORD_SIZE_MIN


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time: int
    is_duplicate: bool = False


def check_batch(data: bytearray | memoryview, config: LogConfig) -> BatchHeader:
    """The header of the one batch in `data`. Raises CorruptBatch where it is not intact, InvalidAppend where it cannot
    be appended as it is.
    """
    if not data:
        raise InvalidAppend("there is no batch to append")
    header = batch.check(data)
    length, count = header.length, header.record_count
    size = length + batch.LENGTH_END
    if size != len(data):
        raise InvalidAppend(f"{len(data)} bytes, of which a batch takes {size}: one is appended at a time")
    if size > config.segment_bytes:
        raise InvalidAppend(f"{size} bytes do not fit into a segment of {config.segment_bytes}")
    # Whoever may claim any number of records uses up offsets, or has us decode what is not there.
    if count != header.last_offset_delta + 1:
        raise InvalidAppend(f"{count} records take {header.last_offset_delta + 1} offsets")
    room = DECOMPRESSED_BYTES_MAX if header.attributes & batch.CODEC_MASK else length - batch.LENGTH_MIN
    if count * RECORD_SIZE_MIN > room:
        raise InvalidAppend(f"{count} records do not fit into {room} bytes")
    return header


def repetition_of(original: ProducedBatch, config: LogConfig) -> Appended:
    """What is said of a batch that was appended before."""
    append_time = original.timestamp if config.log_append_time else batch.NO_TIMESTAMP
    return Appended(original.base_offset, original.last_offset, append_time, is_duplicate=True)
