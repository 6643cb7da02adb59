"""The codecs of record batches, by name. Output is bounded: `decompress` never holds much more than its limit.

The libraries (`codecs`) are imported with the first compressed batch, so that they do not slow down a start.
"""

from enum import IntEnum

from tailrace.records.batch import Buffer
from tailrace.records.errors import TooLarge

# Kafka has no such limit. With this one, a full batch of the default size (max.message.bytes, 1 MB) may have
# been compressed 64 : 1, far beyond what real records yield, and a process can hold a few of these at once.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
USUAL_RATIO_MAX = 16  # real records are rarely compressed further


class Codec(IntEnum):
    """The codec of a batch's records: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionBudget:
    """The limit for what the compressed batches of one request decompress to in total: `USUAL_RATIO_MAX` times their
    size, plus `DECOMPRESSED_BYTES_MAX`. A batch that fails uses up everything that it was allowed.

    Several threads may share one budget: batches that are decompressed at the same time are each allowed all that is
    left.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = DECOMPRESSED_BYTES_MAX

    def allows(self, size: int) -> int:
        """Returns how many bytes `size` compressed bytes may decompress to."""
        return USUAL_RATIO_MAX * size + self._left

    def spend(self, size: int, decompressed: int) -> None:
        self._left = max(0, self._left - max(0, decompressed - USUAL_RATIO_MAX * size))


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """Compresses `data` in the format that Kafka's clients read; without a codec, returns `data` itself. Levels are the
    codec's own; snappy has none.
    """
    if codec == Codec.NONE:
        return data
    from tailrace.records import codecs

    return codecs.compress(codec, data, level)


def decompress(
    codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX, budget: DecompressionBudget | None = None
) -> Buffer:
    """Decompresses `data`. Raises TooLarge if the result has more than `limit` bytes, or more than `budget` allows;
    CorruptRecords if `data` is damaged.

    Without a codec, returns `data` itself, whatever its size: it takes no additional memory.
    """
    if codec == Codec.NONE:
        return data
    from tailrace.records import codecs

    if budget is None:
        return codecs.decompress(codec, data, limit)
    allowed = spent = min(limit, budget.allows(len(data)))
    try:
        output = codecs.decompress(codec, data, allowed)
        spent = len(output)
        return output
    except TooLarge:
        if allowed == limit:
            raise
        raise TooLarge(
            f"the batches of this request decompress to more than {USUAL_RATIO_MAX} times their size and "
            f"{DECOMPRESSED_BYTES_MAX} bytes. Send fewer of them in one request"
        ) from None
    finally:
        budget.spend(len(data), spent)
