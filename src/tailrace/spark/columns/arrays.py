"""Arrow arrays from the positions and numbers that the kernels found.

Each array owns its memory, so that the bytes of a fetch may go while Spark still holds the rows.
"""

import numpy as np
import pyarrow as pa

from tailrace.spark.columns.compiler import Array
from tailrace.spark.columns.decode_kernel import NO_TIME, copy_fields, index_headers
from tailrace.spark.columns.schema import HEADER_FIELDS, HEADERS, TYPES


def numbers(column: str, found: Array, validity: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(TYPES[column], len(found), [validity, pa.py_buffer(found.copy())])


def timestamps(times: Array) -> pa.Array:
    """Null where 64 bits don't hold the microseconds."""
    is_valid = times != NO_TIME
    return numbers("timestamp", times, None if is_valid.all() else _bits(is_valid))


def binary(data: Array, fields: Array) -> pa.Array:
    """The fields of `data`, copied. Their sum is below 2^31 bytes, as that of a batch is."""
    size = int(np.maximum(fields[:, 1], 0).sum(dtype=np.int64))
    offsets = np.empty(len(fields) + 1, np.int32)
    validity = np.zeros(len(fields) // 8 + 1, np.uint8)
    output = np.empty(size, np.uint8)
    nulls = copy_fields(data, fields, offsets, validity, output)
    assert nulls >= 0, "fields are copied from the bytes that they were found in"
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(output)]
    return pa.Array.from_buffers(pa.binary(), len(fields), buffers, nulls)


def headers(data: Array, found: Array) -> pa.Array:
    """A list for each row that has headers; null for the others, as in Spark's format."""
    counts = found[:, 1]
    offsets = np.zeros(len(found) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    keys = np.empty((int(offsets[-1]), 2), np.int32)
    values = np.empty_like(keys)
    indexed = index_headers(data, found, keys, values)
    assert indexed == len(keys), "headers are where they were found"
    pairs = pa.StructArray.from_arrays([_text(binary(data, keys)), binary(data, values)], fields=HEADER_FIELDS)
    return pa.Array.from_buffers(
        TYPES[HEADERS], len(found), [_bits(counts > 0), pa.py_buffer(offsets)], children=[pairs]
    )


def _text(keys: pa.Array) -> pa.Array:
    """Header keys, with U+FFFD in place of what is not UTF-8: as Java's clients have it."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _bits(flags: Array) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
