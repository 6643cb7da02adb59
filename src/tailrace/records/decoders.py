"""Two decoders of the records in a batch, compiled and plain Python, which agree on every input.

`decode_with_cython` uses the compiled parser that comes with aiokafka; `decode_with_python` is its plain
twin, several times slower, and the specification of both. `best_decoder` is the compiled one where it is
installed. They take a valid header and the decompressed records. The rows they return are true to the bytes;
their offsets are not checked yet.

One record, where every number is a zigzag varint and a length below zero means null:

    length of all that follows, attributes (none are defined), timestamp delta, offset delta,
    length of the key, key, length of the value, value, number of headers,
    and for each header: length of its key, key (UTF-8, never null), length of its value, value
"""

from collections.abc import Callable
from functools import cache

from tailrace.records.batch import CODEC_MASK, HEADER, HEADER_SIZE, BatchHeader, Buffer
from tailrace.records.errors import CorruptRecords

Headers = tuple[tuple[str, bytes | None], ...]
Row = tuple[int, int, bytes | None, bytes | None, Headers]  # offset, timestamp, key, value, headers
Decoder = Callable[[BatchHeader, Buffer], list[Row]]

# Header keys should be UTF-8, but nothing enforces it. Other bytes become lone surrogates, which the same handler turns
# back into bytes.
HEADER_KEY_ERRORS = "surrogateescape"

RECORD_SIZE_MIN = 7  # seven numbers of one byte each
_RECORD_HEADER_SIZE_MIN = 2

_VARINT_SHIFT_MAX = 63
_INT64_MASK = (1 << 64) - 1
_INT64_SIGN = 1 << 63

# The compiled parser (0.14, read in its source) looks for the end of its input only where a field begins, if
# at all: a varint that is cut short makes it read on for some bytes. Zeros behind its input end every varint,
# and then it finds itself past the end and refuses.
_PADDING = bytes(32)


@cache
def best_decoder() -> Decoder:
    """Returns the compiled decoder, or the plain one if aiokafka or its compiled part is not installed."""
    try:
        import aiokafka.record._crecords.default_records  # noqa: F401
    except ImportError:
        return decode_with_python
    return decode_with_cython


def decode_with_cython(header: BatchHeader, payload: Buffer) -> list[Row]:
    """Returns the rows of a batch, by aiokafka's parser.

    It gets a padded copy that claims no codec: the parser would decompress without a bound.
    """
    from aiokafka.errors import CorruptRecordException
    from aiokafka.record._crecords.default_records import DefaultRecordBatch

    plain_header = header._replace(attributes=header.attributes & ~CODEC_MASK)
    padded = b"".join((HEADER.pack(*plain_header), payload, _PADDING))
    batch = memoryview(padded)[: HEADER_SIZE + len(payload)]
    try:
        return [
            (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for record in DefaultRecordBatch(batch)
        ]
    except CorruptRecordException as error:
        raise CorruptRecords(str(error)) from None
    except (UnicodeDecodeError, OverflowError, MemoryError):
        # A header key that is not UTF-8, or a length so large that the parser's own check overflows: let the
        # twin decide.
        return decode_with_python(header, payload)


def decode_with_python(header: BatchHeader, payload: Buffer) -> list[Row]:
    """Returns the rows of a batch, in plain Python. Compares every length with what is left before using it."""
    data = bytes(payload)
    rows: list[Row] = []
    position = 0
    try:
        for _ in range(header.record_count):
            row, position = _read_record(data, position, header)
            rows.append(row)
    except IndexError:
        raise CorruptRecords(f"the bytes end inside record {len(rows)} of {header.record_count}") from None
    if position != len(data):
        raise CorruptRecords(f"{len(data) - position} bytes after the last record")
    return rows


def _read_record(data: bytes, position: int, header: BatchHeader) -> tuple[Row, int]:
    length, position = read_varint(data, position)
    end = position + length
    # Attributes are one byte. The compiled parser reads a varint: the same, as long as no bit is used.
    _, position = read_varint(data, position)
    timestamp_delta, position = read_varint(data, position)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    headers, position = _read_headers(data, position)
    if position != end:
        raise CorruptRecords(f"a record ends at byte {position}, but its length says {end}")
    if header.has_log_append_time:
        timestamp = header.max_timestamp
    else:
        timestamp = wrap_int64(header.base_timestamp + timestamp_delta)
    return (header.base_offset + offset_delta, timestamp, key, value, headers), position


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if not 0 <= count * _RECORD_HEADER_SIZE_MIN <= len(data) - position:
        raise CorruptRecords(f"{count} headers, but {len(data) - position} bytes are left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _read_bytes(data, position)
        if key is None:
            raise CorruptRecords("a header without a key")
        value, position = _read_bytes(data, position)
        headers.append((key.decode("utf-8", HEADER_KEY_ERRORS), value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise CorruptRecords(f"a length of {length} bytes, but {len(data) - position} are left")
    return data[position:end], end


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a zigzag number of up to 64 bits, and the position after it. Raises IndexError if the bytes end inside
    it.
    """
    byte = data[position]
    position += 1
    value = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift > _VARINT_SHIFT_MAX:
            raise CorruptRecords("a varint of more than ten bytes")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    value &= _INT64_MASK
    return (value >> 1) ^ -(value & 1), position


def wrap_int64(value: int) -> int:
    """Wraps `value` like 64-bit arithmetic: clients overflow in the same way on timestamps at the ends of the range."""
    return ((value + _INT64_SIGN) & _INT64_MASK) - _INT64_SIGN
