"""Compiled loops over the bytes of a fetch (see `compiler`): headers, records, and the copying of their fields.

Compiled code does not check its indexes, so these rules keep it inside its arrays:

- The bytes come from the wire and are not trusted. No byte is read before its position was compared with the end of
  its batch, and no length is added to a position before it was compared with the bytes that are left.
- A reader reports an error as a position below zero, one of the codes below. Every reader passes such a position on, so
  that a record is read straight through and checked once, at its end.
- The arrays that a kernel fills are sized before: rows by the record counts of the headers, which are compared with the
  number of bytes. Fields that one kernel found are compared with the array again by the one that copies them.

`records.decoders.decode_with_python` defines what is valid; a test compares the two on damaged bytes.
"""

import numpy as np
from numba import types

from tailrace.records.batch import HEADER_SIZE, LENGTH_END, LENGTH_MIN, LOG_APPEND_TIME, MAGIC
from tailrace.records.decoders import RECORD_SIZE_MIN
from tailrace.spark.columns.compiler import (
    BYTES,
    FIELDS,
    INT32S,
    INT64,
    INT64S,
    NULL,
    OUTPUT,
    TABLE,
    Array,
    compiled,
    inlined,
)

# The columns of a table of batches, one row each.
START, END, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, ATTRIBUTES, COUNT, CRC = range(10)
TABLE_WIDTH = 10

# What is wrong with a record: positions below zero.
CUT, LONG_VARINT, LONG_FIELD, HEADER_COUNT, NO_HEADER_KEY, LENGTH, TRAILING, OFFSET, RECORD_COUNT = range(-9, 0)
REASONS = {
    CUT: "the bytes end inside a record",
    LONG_VARINT: "a varint of more than ten bytes",
    LONG_FIELD: "a field is longer than what is left",
    HEADER_COUNT: "more headers than can be in what is left",
    NO_HEADER_KEY: "a header without a key",
    LENGTH: "a record does not end where its length says",
    TRAILING: "there are bytes after the last record",
    OFFSET: "offsets do not rise inside the batch",
    RECORD_COUNT: "fewer bytes than so many records take",
}

# A time in microseconds that 64 bits don't hold. No millisecond becomes it: it is no multiple of a thousand.
NO_TIME = -(2**63)

_INT64_MAX = 2**63 - 1
_SHIFT_MAX = 63
_MILLISECONDS_MAX = _INT64_MAX // 1000


@inlined
def _big_endian(data: Array, position: int, size: int) -> int:
    """A number without sign, unless it fills 64 bits."""
    value = 0
    for index in range(position, position + size):
        value = (value << 8) | data[index]
    return value


@inlined
def _signed32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


@compiled(types.UniTuple(INT64, 2)(BYTES, TABLE, INT64))
def index_batches(data: Array, table: Array, offset_end: int) -> tuple[int, int]:
    """Fills a row of `table` for each batch in `data`; returns how many there are, and where it stopped.

    It stops where the bytes end and before what is not a whole batch with a legal header, a batch that begins
    before the one in front of it ends, one whose offsets 64 bits don't hold, and one from `offset_end` on. The
    CRC is not looked at. `table` has a row for each 61 bytes.
    """
    position, count, offset_min = 0, 0, 0
    size, rows = len(data), len(table)
    while size - position >= HEADER_SIZE and count < rows:
        base_offset = _big_endian(data, position, 8)
        length = _signed32(_big_endian(data, position + 8, 4))
        last_delta = _signed32(_big_endian(data, position + 23, 4))
        record_count = _signed32(_big_endian(data, position + 57, 4))
        legal = (
            data[position + 16] == MAGIC
            and offset_min <= base_offset < offset_end
            and 0 <= last_delta < _INT64_MAX - base_offset
            and LENGTH_MIN <= length <= size - position - LENGTH_END
            and 0 <= record_count <= last_delta + 1
        )
        if not legal:
            break
        row = table[count]
        row[START] = position + HEADER_SIZE
        row[END] = position + LENGTH_END + length
        row[BASE_OFFSET] = base_offset
        row[LAST_DELTA] = last_delta
        row[BASE_TIMESTAMP] = _big_endian(data, position + 27, 8)
        row[MAX_TIMESTAMP] = _big_endian(data, position + 35, 8)
        row[PRODUCER_ID] = _big_endian(data, position + 43, 8)
        row[ATTRIBUTES] = _big_endian(data, position + 21, 2)
        row[COUNT] = record_count
        row[CRC] = _big_endian(data, position + 17, 4)
        offset_min = base_offset + last_delta + 1
        position += LENGTH_END + length
        count += 1
    return count, position


@inlined
def _read_varint(data: Array, position: int, end: int) -> tuple[int, int]:
    """A zigzag number of up to 64 bits, and the position after it."""
    if position < 0:
        return 0, position
    value = 0
    shift = 0
    while position < end:
        byte = data[np.uint64(position)]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((value >> 1) & _INT64_MAX) ^ -(value & 1), position
        shift += 7
        if shift > _SHIFT_MAX:
            return 0, LONG_VARINT
    return 0, CUT


@inlined
def _read_field(data: Array, position: int, end: int) -> tuple[int, int, int]:
    """Returns the position of a key or a value, its length or NULL, and the position after it."""
    length, start = _read_varint(data, position, end)
    if start < 0:
        return 0, NULL, start
    if length < 0:
        return start, NULL, start
    if length > end - start:
        return 0, NULL, LONG_FIELD
    return start, length, start + length


@inlined
def _read_header(data: Array, position: int, end: int) -> tuple[int, int, int, int, int]:
    """Start and length of a header's key and of its value, and the position after it."""
    key_start, key_length, position = _read_field(data, position, end)
    if position >= 0 and key_length == NULL:
        position = NO_HEADER_KEY
    value_start, value_length, position = _read_field(data, position, end)
    return key_start, key_length, value_start, value_length, position


@inlined
def _read_header_count(data: Array, position: int, end: int) -> tuple[int, int]:
    """Returns the number of headers that follow, at most half of the remaining bytes: each header takes two."""
    count, position = _read_varint(data, position, end)
    if position >= 0 and not 0 <= count <= (end - position) >> 1:
        return 0, HEADER_COUNT
    return count, position


@inlined
def _microseconds(milliseconds: int) -> int:
    return milliseconds * 1000 if -_MILLISECONDS_MAX <= milliseconds <= _MILLISECONDS_MAX else NO_TIME


@inlined
def _skip_headers(data: Array, position: int, end: int, count: int) -> int:
    for _ in range(count):
        position = _read_header(data, position, end)[4]
        if position < 0:
            break
    return position


@compiled(
    types.UniTuple(INT64, 3)(
        *(BYTES, TABLE, INT64, INT64, INT64, INT64, INT64S, INT64S, INT32S, FIELDS, FIELDS, FIELDS)
    )
)
def scan_records(
    data: Array,
    table: Array,
    start: int,
    end: int,
    time_first: int,
    time_last: int,
    offsets: Array,
    times: Array,
    time_types: Array,
    keys: Array,
    values: Array,
    headers: Array,
) -> tuple[int, int, int]:
    """Checks every record of the batches in `table`, and says of those with an offset in [start, end) and a time from
    the first to the last where they lie. Returns the number of rows written, the batch that is damaged, and the reason:
    a code, or 0 if none is.

    Each output has as many rows as `table` counts records, or is not written where `data` has not the bytes for
    them. `headers` gets where the first header begins, and how many there are.
    """
    row = 0
    for index in range(len(table)):
        position, batch_end, count = table[index, START], table[index, END], table[index, COUNT]
        base_offset, last_delta = table[index, BASE_OFFSET], table[index, LAST_DELTA]
        base_time, time_type = table[index, BASE_TIMESTAMP], 0
        is_stamped = table[index, ATTRIBUTES] & LOG_APPEND_TIME
        if is_stamped:
            base_time, time_type = table[index, MAX_TIMESTAMP], 1
        if count * RECORD_SIZE_MIN > batch_end - position or count > len(offsets) - row:
            return row, index, RECORD_COUNT
        delta_min = 0
        for _ in range(count):
            length, record_start = _read_varint(data, position, batch_end)
            _, position = _read_varint(data, record_start, batch_end)  # attributes, of which there are none
            time_delta, position = _read_varint(data, position, batch_end)
            delta, position = _read_varint(data, position, batch_end)
            key_start, key_length, position = _read_field(data, position, batch_end)
            value_start, value_length, position = _read_field(data, position, batch_end)
            header_count, headers_start = _read_header_count(data, position, batch_end)
            position = _skip_headers(data, headers_start, batch_end, header_count)
            if position < 0:
                return row, index, position
            if position - record_start != length:
                return row, index, LENGTH
            if not delta_min <= delta <= last_delta:
                return row, index, OFFSET
            delta_min = delta + 1
            time = base_time if is_stamped else base_time + time_delta
            if start <= base_offset + delta < end and time_first <= time <= time_last:
                place = np.uint64(row)
                offsets[place] = base_offset + delta
                times[place] = _microseconds(time)
                time_types[place] = time_type
                keys[place, 0], keys[place, 1] = key_start, key_length
                values[place, 0], values[place, 1] = value_start, value_length
                headers[place, 0], headers[place, 1] = headers_start, header_count
                row += 1
        if position != batch_end:
            return row, index, TRAILING
    return row, 0, 0


@compiled(INT64(BYTES, FIELDS, FIELDS, FIELDS))
def index_headers(data: Array, headers: Array, keys: Array, values: Array) -> int:
    """Writes the positions of the keys and the values of all headers that `scan_records` found. Returns their number,
    or a code if this is not the same data.
    """
    count = 0
    for index in range(len(headers)):
        position = headers[index, 0]
        for _ in range(headers[index, 1]):
            key_start, key_length, value_start, value_length, position = _read_header(data, position, len(data))
            if position < 0 or count >= len(keys):
                return LONG_FIELD
            keys[count, 0], keys[count, 1] = key_start, key_length
            values[count, 0], values[count, 1] = value_start, value_length
            count += 1
    return count


@compiled(INT64(BYTES, FIELDS, INT32S, OUTPUT, OUTPUT))
def copy_fields(data: Array, fields: Array, offsets: Array, validity: Array, output: Array) -> int:
    """The fields one after the other in `output`, as Arrow has them: where each begins and the last ends in
    `offsets`, and a bit for each that is not null in `validity`, which comes zeroed. Returns the number of nulls, or
    a code if this is not the data that the fields were found in.
    """
    written, nulls = 0, 0
    for index in range(len(fields)):
        offsets[index] = written
        start, length = fields[index, 0], fields[index, 1]
        if length < 0:
            nulls += 1
            continue
        if start < 0 or length > len(data) - start or length > len(output) - written:
            return LONG_FIELD
        validity[index >> 3] |= 1 << (index & 7)
        source, target = np.uint64(start), np.uint64(written)
        for step in range(np.uint64(length)):
            output[target + step] = data[source + step]
        written += length
    offsets[len(fields)] = written
    return nulls
