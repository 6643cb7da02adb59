"""The compression libraries, behind `compression`.

gzip, lz4 and zstd go one way: they are decompressed into a buffer of our own, which is made larger and
filled again from the start as long as it proves too small, up to the limit. The first guess fits what clients
send, so a second pass is rare. Lengths that such streams declare are not used: a hostile one lies about them.

Snappy has two forms. Java's clients frame it in their own way ("xerial"): a header of 16 bytes, then blocks,
each a length and a raw snappy block. librdkafka writes one raw block and no header. A raw block begins with
its decompressed length, which is checked before any memory is taken.

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
# What cramjam says when the output is full, and how we tell that from damage. A test fails should it change.
_OUTPUT_FULL = "failed to write whole buffer"

# The defaults of the codecs' own libraries; of lz4, its fast compressor.
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
            raise CorruptRecords(f"codec {codec} is not known")


def _decompress_growing(decompress_into: _DecompressInto, data: Buffer, limit: int) -> bytearray:
    """The whole output of `decompress_into`, in the smallest of a few buffers that holds it."""
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
        del output  # before the next one is made, so that there are never two; and no traceback keeps it
        if size >= limit:
            raise TooLarge(f"{len(data)} compressed bytes hold more than {limit}")
        size = min(limit, _GROWTH * size)


def _compress_lz4(data: Buffer, level: int) -> bytes:
    # Kafka's Java reader refuses frames whose blocks refer to each other, which cramjam writes by default.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_PIECE_SIZE):  # no other thread runs meanwhile: at the highest level, for long
        compressor.compress(bytes(view[start : start + _LZ4_PIECE_SIZE]))  # it takes nothing else
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
    """Each raw block after the header. The versions are not looked at, as no reader does."""
    position, end = len(_XERIAL_HEADER), len(view)
    if end < position:
        raise CorruptRecords("the header of framed snappy is cut short")
    while position < end:
        if end - position < _XERIAL_LENGTH.size:
            raise CorruptRecords(f"{end - position} bytes where the length of a snappy block is expected")
        (length,) = _XERIAL_LENGTH.unpack_from(view, position)
        position += _XERIAL_LENGTH.size
        if not 0 < length <= end - position:
            raise CorruptRecords(f"a snappy block of {length} bytes where {end - position} are left")
        yield view[position : position + length]
        position += length


def _decompress_snappy_block(block: memoryview, limit: int) -> bytearray:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise TooLarge(f"a snappy block of {size} bytes where {limit} are allowed")
        if size > _SNAPPY_RATIO_MAX * len(block):  # it lies: no memory is taken for that
            raise CorruptRecords(f"a snappy block of {len(block)} bytes claims to hold {size}")
        output = bytearray(size)
        cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"compressed records are damaged: {error}") from None
    return output
