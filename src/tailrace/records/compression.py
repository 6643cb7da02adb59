"""Which codecs record batches have, and their bytes back, with bounded output: no input makes `decompress` hold much
beyond its limit.

The libraries that do it (`codecs`) are imported with the first batch that is compressed: no start waits for them.
"""

from enum import IntEnum

from tailrace.records.batch import Buffer

# Kafka has no such limit. With this one, a full batch of the default size (max.message.bytes, 1 MB) may have
# been compressed 64 : 1, far beyond what real records yield, and a process can hold a few of these at once.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024


class Codec(IntEnum):
    """How the records of a batch are compressed: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """`data` in the form that Kafka's clients read under this codec; without one, it is `data` itself. Levels are the
    codec's own; snappy has none.
    """
    if codec == Codec.NONE:
        return data
    from tailrace.records import codecs

    return codecs.compress(codec, data, level)


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """What was compressed. Raises TooLarge where that is more than `limit` bytes, CorruptRecords if damaged.

    Without a codec it is `data` itself, whatever its size: it takes no memory that is not taken already.
    """
    if codec == Codec.NONE:
        return data
    from tailrace.records import codecs

    return codecs.decompress(codec, data, limit)
