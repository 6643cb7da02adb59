"""Changes the codec of a batch: the same records, under the same header except for length, codec and CRC.

Nothing looks at the records themselves: they are one piece of bytes, decompressed and compressed again. All of the work
is done by the codecs' libraries, which let other threads run meanwhile.
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
    """What batches are to be kept in. No level is the codec's own default."""

    codec: Codec
    level: int | None = None


def records_limit(message_bytes_max: int) -> int:
    """How many bytes the records of a batch may take, where a batch may have `message_bytes_max`: what may be sent as
    it is may be sent compressed.
    """
    return min(max(RECORDS_BYTES_MAX, message_bytes_max), DECOMPRESSED_BYTES_MAX)


def recompress(
    data: Buffer, target: Target, limit: int = RECORDS_BYTES_MAX, budget: DecompressionBudget | None = None
) -> bytearray:
    """The one batch in `data`, in the codec of `target`, sealed. Raises CorruptBatch where it is not whole and intact,
    TooLarge where its records take more than `limit` bytes, or than `budget` allows.
    """
    header = batch.check(data)  # first: a batch that is sealed anew would hide what was wrong with it
    view = memoryview(data)
    records = decompress(header.codec, view[HEADER_SIZE : header.size], limit, budget)
    if header.record_count * RECORD_SIZE_MIN > len(records):  # nobody could tell any more, once it is compressed
        raise CorruptRecords(f"{header.record_count} records do not fit into {len(records)} bytes")
    converted = bytearray(view[:HEADER_SIZE])
    converted += compress(target.codec, records, target.level)
    batch.set_codec(converted, target.codec)
    return converted
