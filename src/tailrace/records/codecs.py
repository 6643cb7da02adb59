"""The compression libraries, behind `compression`.

gzip, lz4 and zstd data is decompressed into a buffer of our own. While the buffer proves too small, a larger one is
filled from the start, up to the limit. The first size fits what clients send, so a second pass is rare. The lengths
that such streams declare are not used: hostile ones are false.

Snappy has two formats. Java's clients use a framing of their own ("xerial"): a header of 16 bytes, then blocks, each a
length and a raw snappy block. librdkafka writes one raw block and no header. A raw block begins with its decompressed
length, which is checked before any memory is allocated.

What is written here is what Java's clients read: xerial snappy, and lz4 in independent blocks.
"""

import struct
from collections.abc import Callable, Iterator

import cramjam

from tailrace.records.batch import Buffer
from tailrace.records.compression import Codec
from tailrace.records.errors import CorruptRecords, TooLarge

_FIRST_GUESS_RATIO = 8
_FIRST_GUESS_MIN = 64 * 1024
_GROWTH = 4
# cramjam's message for a full output buffer, as opposed to damage. A test fails if it changes.
_OUTPUT_FULL = "failed to write whole buffer"

# The default levels of the codecs' own libraries; for lz4, its fast compressor.
GZIP_LEVEL = 6
ZSTD_LEVEL = 3
LZ4_LEVEL = 1

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS = struct.Struct(">ii")  # version, and the oldest version that can read it
_XERIAL_HEADER = _XERIAL_MAGIC + _XERIAL_VERSIONS.pack(1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024
_XERIAL_LENGTH = struct.Struct(">i")

_SNAPPY_RATIO_MAX = 22  # an element of three bytes copies 64 at most

_LZ4_PIECE_SIZE = 64 * 1024  # a block of the frame

_DecompressInto = Callable[[Buffer, bytearray], int]


def compress(codec: Codec, data: Buffer, level: int | None) -> Buffer:
    match codec:
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL if level is None else level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, LZ4_LEVEL if level is None else level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL if level is None else level))
        case Codec.NONE:
            return data


def decompress(codec: int, data: Buffer, limit: int) -> Buffer:
    match codec:
        case Codec.GZIP:
            return _decompress_growing(cramjam.gzip.decompress_into, data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        case Codec.LZ4:
            return _decompress_growing(cramjam.lz4.decompress_into, data, limit)
        case Codec.ZSTD:
            return _decompress_growing(cramjam.zstd.decompress_into, data, limit)
        case _:
            raise CorruptRecords(f"unknown codec {codec}")


def _decompress_growing(decompress_into: _DecompressInto, data: Buffer, limit: int) -> bytearray:
    """Returns the whole output of `decompress_into`, in the smallest of a few buffer sizes that holds it."""
    size = min(limit, max(_FIRST_GUESS_MIN, _FIRST_GUESS_RATIO * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise CorruptRecords(f"compressed records are damaged: {error}") from None
        else:
            del output[written:]
            return output
        del output  # before the next one is allocated, so that there are never two
        if size >= limit:
            raise TooLarge(f"{len(data)} compressed bytes decompress to more than {limit}")
        size = min(limit, _GROWTH * size)


def _compress_lz4(data: Buffer, level: int) -> bytes:
    # Kafka's Java reader refuses frames whose blocks refer to each other, which cramjam writes by default.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_PIECE_SIZE):  # small blocks: no other thread runs during one
        compressor.compress(bytes(view[start : start + _LZ4_PIECE_SIZE]))  # cramjam accepts nothing else
    return bytes(compressor.finish())


def _compress_xerial(data: Buffer) -> bytearray:
    output = bytearray(_XERIAL_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        output += _XERIAL_LENGTH.pack(len(block))
        output += block
    return output


def _decompress_snappy(data: Buffer, limit: int) -> bytearray:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit)
    output = bytearray()
    for block in _xerial_blocks(view):
        output += _decompress_snappy_block(block, limit - len(output))
    return output


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yields each raw block after the header. Ignores the versions, as all readers do."""
    position, end = len(_XERIAL_HEADER), len(view)
    if end < position:
        raise CorruptRecords("the header of framed snappy is truncated")
    while position < end:
        if end - position < _XERIAL_LENGTH.size:
            raise CorruptRecords(f"{end - position} bytes, too few for the length of a snappy block")
        (length,) = _XERIAL_LENGTH.unpack_from(view, position)
        position += _XERIAL_LENGTH.size
        if not 0 < length <= end - position:
            raise CorruptRecords(f"a snappy block of {length} bytes, but {end - position} are left")
        yield view[position : position + length]
        position += length


def _decompress_snappy_block(block: memoryview, limit: int) -> bytearray:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise TooLarge(f"a snappy block of {size} bytes, but {limit} are allowed")
        if size > _SNAPPY_RATIO_MAX * len(block):  # a false size: no memory is allocated for it
            raise CorruptRecords(f"a snappy block of {len(block)} bytes claims to hold {size}")
        output = bytearray(size)
        cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"compressed records are damaged: {error}") from None
    return output
