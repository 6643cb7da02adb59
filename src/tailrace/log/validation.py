"""The checks that a batch must pass before it is appended. Stateless, and without files."""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import InvalidAppend
from tailrace.log.state.producer_state import SEQUENCE_MASK, ProducedBatch
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.checksum import crc32c
from tailrace.records.compression import DECOMPRESSED_BYTES_MAX
from tailrace.records.decoders import RECORD_SIZE_MIN


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time: int
    is_duplicate: bool = False


def check_batch(data: bytearray | memoryview, config: LogConfig, header: BatchHeader | None = None) -> BatchHeader:
    """Checks the one batch in `data`, and returns its header, which the caller may have read before. Raises
    CorruptBatch if the batch is not intact, InvalidAppend if it cannot be appended.
    """
    if not data:
        raise InvalidAppend("there is no batch to append")
    if header is None:
        header = batch.read_header(data)
    base_offset, length, _, magic, crc, attributes, delta, _, _, _, _, _, count = header
    room = DECOMPRESSED_BYTES_MAX if attributes & batch.CODEC_MASK else length - batch.LENGTH_MIN
    is_sound = (  # all rules in one expression: nearly every batch keeps them
        magic == batch.MAGIC
        and length >= batch.LENGTH_MIN
        and length + batch.LENGTH_END == len(data) <= config.segment_bytes
        and base_offset >= 0
        and 0 < count == delta + 1
        and count * RECORD_SIZE_MIN <= room
        and crc32c(memoryview(data)[batch.CRC_START :]) == crc
    )
    if not is_sound:
        _raise_first_fault(data, config, room)
    return header


def _raise_first_fault(data: bytearray | memoryview, config: LogConfig, room: int) -> NoReturn:
    header = batch.check(data)
    count = header.record_count
    if header.size != len(data):
        raise InvalidAppend(f"{len(data)} bytes, but the batch has {header.size}. Append one batch at a time")
    if header.size > config.segment_bytes:
        raise InvalidAppend(f"a batch of {header.size} bytes does not fit into a segment of {config.segment_bytes}")
    # A false number of records would use up offsets, or make decoding fail.
    if count != header.last_offset_delta + 1:
        raise InvalidAppend(f"{count} records, but {header.last_offset_delta + 1} offsets")
    raise InvalidAppend(f"{count} records do not fit into {room} bytes")


def follow_one_another(headers: Sequence[BatchHeader]) -> bool:
    """Returns whether these batches are in sequence if the first one is: all are of one producer, or of none, all or
    none are transactional, and no batch is missing in between.
    """
    first, due = headers[0], headers[0].base_sequence
    kind = first.attributes & batch.TRANSACTIONAL
    for header in headers:
        _, _, _, _, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = header
        if attributes & (batch.CONTROL | batch.TRANSACTIONAL) != kind or producer_id != first.producer_id:
            return False
        if producer_id != batch.NO_PRODUCER:
            if sequence != due or epoch != first.producer_epoch:
                return False
            due = (sequence + delta + 1) & SEQUENCE_MASK
    return True


def repetition_of(original: ProducedBatch, config: LogConfig) -> Appended:
    """Returns the result for a batch that was appended before."""
    append_time = original.timestamp if config.log_append_time else batch.NO_TIMESTAMP
    return Appended(original.base_offset, original.last_offset, append_time, is_duplicate=True)
