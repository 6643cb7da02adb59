"""Changes the codec of a batch: the same records, under the same header except for length, codec and CRC.

The records are not parsed, only decompressed and compressed again. All of the work is done by the codecs' libraries,
which let other threads run meanwhile.
"""

from typing import NamedTuple

from tailrace.records import batch
from tailrace.records.batch import HEADER_SIZE, Buffer
from tailrace.records.compression import DECOMPRESSED_BYTES_MAX, Codec, DecompressionBudget, compress, decompress
from tailrace.records.decoders import RECORD_SIZE_MIN
from tailrace.records.errors import CorruptRecords

# Copies of this size are made while no other thread runs: a few milliseconds. It is 16 : 1 for a full batch of the
# default size (max.message.bytes, 1 MB).
RECORDS_BYTES_MAX = 16 << 20


class Target(NamedTuple):
    """The codec to convert batches to. A level of None is the codec's own default."""

    codec: Codec
    level: int | None = None


def records_limit(message_bytes_max: int) -> int:
    """Returns how many bytes the records of a batch may take where a batch may have `message_bytes_max`: whatever may
    be sent uncompressed may be sent compressed.
    """
    return min(max(RECORDS_BYTES_MAX, message_bytes_max), DECOMPRESSED_BYTES_MAX)


def recompress(
    data: Buffer, target: Target, limit: int = RECORDS_BYTES_MAX, budget: DecompressionBudget | None = None
) -> bytearray:
    """Returns the one batch in `data`, in the codec of `target`, with its CRC updated. Raises CorruptBatch if it is not
    whole and intact, TooLarge if its records take more than `limit` bytes, or than `budget` allows.
    """
    header = batch.check(data)  # first: a new CRC would hide what was wrong with the batch
    view = memoryview(data)
    records = decompress(header.codec, view[HEADER_SIZE : header.size], limit, budget)
    if header.record_count * RECORD_SIZE_MIN > len(records):  # later, compression would hide it
        raise CorruptRecords(f"{header.record_count} records do not fit into {len(records)} bytes")
    converted = bytearray(view[:HEADER_SIZE])
    converted += compress(target.codec, records, target.level)
    batch.set_codec(converted, target.codec)
    return converted
