"""Compiled loops over the bytes that are written (see `columns/compiler`): partitions, sizes, records, fingerprints.

A column of keys or values comes as the bytes of an Arrow array and as `fields`: where each begins in them, and how long
it is, or NULL. Headers come as `lists`, each the first of its headers and how many there are, and as the columns of
their keys and values. The same columns go to each of these kernels:

    assign_slots    which slot, that is, partition of a topic, each row goes to: as Java's producer would have it
    plan_batches    which batch of its slot, and how large records and batches become
    fill_batches    the records, each where it was planned
    fingerprint     a number for all rows, whatever their order

Compiled code does not check its indexes. So no byte is read before its field was compared with the bytes there are, and
none is written before it was compared with the end of its batch. That columns have as many rows as they should is
asked by the caller (`encoder`). Who fails returns a number below zero: the caller has mixed up columns, as nothing
here comes from the wire.
"""

from typing import Any

import numpy as np
from numba import types

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

SLOT, SIZE, COUNT = range(3)  # the columns of a table of batches
PLAN_WIDTH = 3
NOT_GIVEN = -1  # in the place of a partition
RECORD_SIZE_MAX = 0x7FFFFFFF - 128  # with the header of its batch, in a length of 32 bits

_FAILED = -1
_UINT32 = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_FACTOR = 0x5BD1E995
# Odd numbers without a pattern, as signed ones: multiplying by them mixes the bits of 64.
_FACTOR_1 = -0x61C8864680B583EB
_FACTOR_2 = -0x40A7B892E31B1A47


# Columns


@inlined
def _fits(data: Array, field: Array) -> Any:
    """Whether the field lies in the data, or is null."""
    return field[1] == NULL or (field[0] >= 0 and field[1] >= 0 and field[1] <= len(data) - field[0])


@inlined
def _lists_fit(listed: Array, keys: Array, values: Array) -> Any:
    first, count = listed[0], listed[1]
    return first >= 0 and count >= 0 and count <= len(keys) - first and count <= len(values) - first


# Partitions


@inlined
def _murmur2(data: Array, start: int, length: int) -> int:
    """The hash by which Java's producer finds the partition of a key, as a number of 32 bits without sign."""
    found = (_MURMUR2_SEED ^ length) & _UINT32
    words = length >> 2
    position = start
    for _ in range(words):
        word = data[position] | data[position + 1] << 8 | data[position + 2] << 16 | data[position + 3] << 24
        word = (word * _MURMUR2_FACTOR) & _UINT32
        word = ((word ^ word >> 24) * _MURMUR2_FACTOR) & _UINT32
        found = ((found * _MURMUR2_FACTOR) & _UINT32) ^ word
        position += 4
    rest = length & 3
    if rest == 3:
        found ^= data[position + 2] << 16
    if rest >= 2:
        found ^= data[position + 1] << 8
    if rest >= 1:
        found = ((found ^ data[position]) * _MURMUR2_FACTOR) & _UINT32
    found = ((found ^ found >> 13) * _MURMUR2_FACTOR) & _UINT32
    return found ^ found >> 15


@compiled(INT64(BYTES, FIELDS))
def murmur2_of(data: Array, fields: Array) -> int:
    """The hash of the first field, for tests."""
    if len(fields) == 0 or fields[0, 1] < 0 or not _fits(data, fields[0]):
        return _FAILED
    return _murmur2(data, fields[0, 0], fields[0, 1])


@compiled(INT64(BYTES, FIELDS, FIELDS, INT32S, INT32S, TABLE, INT64, INT32S))
def assign_slots(
    key_data: Array,
    keys: Array,
    values: Array,
    topics: Array,
    given: Array,
    places: Array,
    run_bytes: int,
    slots: Array,
) -> int:
    """The slot of each row: the partition that is given, or that of its key. Rows without either go to one partition
    for `run_bytes`, and then to the next.

    `topics` has the index of each row's topic in `places`, which has of each topic its first slot, how many partitions
    there are, the one that rows without a key go to, and how many bytes went there. Returns the number of rows, or the
    first whose partition is not there.
    """
    for row in range(len(slots)):
        topic = topics[row]
        if topic < 0 or topic >= len(places):
            return row
        count = places[topic, 1]
        partition = given[row]
        if partition == NOT_GIVEN and keys[row, 1] >= 0:
            if not _fits(key_data, keys[row]):
                return row
            partition = (_murmur2(key_data, keys[row, 0], keys[row, 1]) & _POSITIVE) % count
        elif partition == NOT_GIVEN:
            if places[topic, 3] >= run_bytes:
                places[topic, 2] = (places[topic, 2] + 1) % count
                places[topic, 3] = 0
            partition = places[topic, 2]
            places[topic, 3] += max(0, values[row, 1])
        if partition < 0 or partition >= count:
            return row
        slots[row] = places[topic, 0] + partition
    return len(slots)


# Sizes


@inlined
def _varint_size(number: int) -> int:
    """Returns the size of a number in zigzag encoding, from -1 to below 2^31."""
    coded = (number << 1) ^ (number >> 31)
    size = 1
    while coded >= 0x80:
        coded >>= 7
        size += 1
    return size


@inlined
def _field_size(length: int) -> int:
    return _varint_size(length) + max(0, length)


@compiled(INT64(FIELDS, FIELDS, FIELDS, FIELDS, FIELDS, INT32S, INT64, INT64S, TABLE, INT32S, INT32S, INT32S))
def plan_batches(
    keys: Array,
    values: Array,
    lists: Array,
    header_keys: Array,
    header_values: Array,
    slots: Array,
    limit: int,
    open_batches: Array,
    table: Array,
    batches: Array,
    deltas: Array,
    bodies: Array,
) -> int:
    """Returns the number of batches. Finds for each row its batch, its position in it, and the size of its record
    without the length field; for each batch it fills a row of `table`, which has as many rows as there are records. A
    batch has at most `limit` bytes of records, unless it has only one record. `open_batches` has for each slot the
    batch that takes records: none at first.
    """
    count = 0
    for row in range(len(slots)):
        slot = slots[row]
        if slot < 0 or slot >= len(open_batches) or not _lists_fit(lists[row], header_keys, header_values):
            return _FAILED
        size = 2 + _field_size(keys[row, 1]) + _field_size(values[row, 1]) + _varint_size(lists[row, 1])
        for header in range(lists[row, 0], lists[row, 0] + lists[row, 1]):
            size += _field_size(header_keys[header, 1]) + _field_size(header_values[header, 1])
        if size > RECORD_SIZE_MAX:
            return _FAILED
        batch = open_batches[slot]
        delta = table[batch, COUNT] if batch >= 0 else 0
        body = size + _varint_size(delta)
        whole = body + _varint_size(body)
        if batch < 0 or table[batch, SIZE] + whole > limit:
            batch = count
            open_batches[slot] = batch
            table[batch, SLOT], table[batch, SIZE], table[batch, COUNT] = slot, 0, 0
            count += 1
            delta = 0
            body = size + 1
            whole = body + _varint_size(body)
        table[batch, SIZE] += whole
        table[batch, COUNT] += 1
        batches[row], deltas[row], bodies[row] = batch, delta, body
    return count


# Records


@inlined
def _put_varint(output: Array, position: int, end: int, number: int) -> int:
    if position < 0:
        return position
    coded = (number << 1) ^ (number >> 31)
    while coded >= 0x80:
        if position >= end:
            return _FAILED
        output[np.uint64(position)] = (coded & 0x7F) | 0x80
        coded >>= 7
        position += 1
    if position >= end:
        return _FAILED
    output[np.uint64(position)] = coded
    return position + 1


@inlined
def _put_field(output: Array, position: int, end: int, data: Array, field: Array) -> Any:
    """A key or a value, its length before it."""
    length = field[1]
    position = _put_varint(output, position, end, length)
    if position < 0 or length == NULL:
        return position
    if not _fits(data, field) or length > end - position:
        return _FAILED
    source, target = np.uint64(field[0]), np.uint64(position)
    for step in range(np.uint64(length)):
        output[target + step] = data[source + step]
    return position + length


@compiled(
    INT64(
        *(BYTES, FIELDS, BYTES, FIELDS, FIELDS, BYTES, FIELDS, BYTES, FIELDS),
        *(INT32S, INT32S, INT32S, INT64S, INT64S, OUTPUT),
    )
)
def fill_batches(
    key_data: Array,
    keys: Array,
    value_data: Array,
    values: Array,
    lists: Array,
    header_key_data: Array,
    header_keys: Array,
    header_value_data: Array,
    header_values: Array,
    batches: Array,
    deltas: Array,
    bodies: Array,
    positions: Array,
    ends: Array,
    output: Array,
) -> int:
    """Writes the records to where `positions` says that each batch has its next one; no batch beyond its end. All of
    them have the time of their batch. Returns the number of rows.
    """
    for row in range(len(batches)):
        batch = batches[row]
        if batch < 0 or batch >= len(positions) or not _lists_fit(lists[row], header_keys, header_values):
            return _FAILED
        end = min(ends[batch], len(output))
        position = _put_varint(output, positions[batch], end, bodies[row])
        position = _put_varint(output, position, end, 0)  # attributes, of which there are none
        position = _put_varint(output, position, end, 0)  # milliseconds since the time of the batch
        position = _put_varint(output, position, end, deltas[row])
        position = _put_field(output, position, end, key_data, keys[row])
        position = _put_field(output, position, end, value_data, values[row])
        position = _put_varint(output, position, end, lists[row, 1])
        for header in range(lists[row, 0], lists[row, 0] + lists[row, 1]):
            position = _put_field(output, position, end, header_key_data, header_keys[header])
            position = _put_field(output, position, end, header_value_data, header_values[header])
        if position < 0:
            return _FAILED
        positions[batch] = position
    return len(batches)


# Fingerprints


@inlined
def _mixed(found: int, word: int) -> int:
    found = (found ^ word) * _FACTOR_1
    return found ^ ((found >> 29) & 0x7FFFFFFFF)


@inlined
def _field_mixed(found: int, data: Array, field: Array) -> int:
    """The field and its length; the caller has compared it with the data."""
    length = field[1]
    found = _mixed(found, length)
    position = np.uint64(field[0])
    for _ in range(max(0, length) >> 3):
        word = 0
        for step in range(8):
            word |= types.int64(data[position + np.uint64(step)]) << (8 * step)
        found = _mixed(found, word)
        position += np.uint64(8)
    word = 0
    for step in range(max(0, length) & 7):
        word |= types.int64(data[position + np.uint64(step)]) << (8 * step)
    return _mixed(found, word)


@compiled(
    types.UniTuple(INT64, 2)(
        *(BYTES, FIELDS, BYTES, FIELDS, FIELDS, BYTES, FIELDS, BYTES, FIELDS), *(INT32S, INT64S, INT32S)
    )
)
def fingerprint(
    key_data: Array,
    keys: Array,
    value_data: Array,
    values: Array,
    lists: Array,
    header_key_data: Array,
    header_keys: Array,
    header_value_data: Array,
    header_values: Array,
    topics: Array,
    topic_hashes: Array,
    given: Array,
) -> tuple[int, int]:
    """The sum over all rows of a hash of each, so that their order does not count; and the number of rows."""
    total = 0
    for row in range(len(keys)):
        topic = topics[row]
        fit = _fits(key_data, keys[row]) and _fits(value_data, values[row])
        if not fit or topic < 0 or topic >= len(topic_hashes):
            return 0, _FAILED
        found = _mixed(topic_hashes[topic], given[row])
        found = _field_mixed(found, key_data, keys[row])
        found = _field_mixed(found, value_data, values[row])
        if not _lists_fit(lists[row], header_keys, header_values):
            return 0, _FAILED
        for header in range(lists[row, 0], lists[row, 0] + lists[row, 1]):
            if not (_fits(header_key_data, header_keys[header]) and _fits(header_value_data, header_values[header])):
                return 0, _FAILED
            found = _field_mixed(found, header_key_data, header_keys[header])
            found = _field_mixed(found, header_value_data, header_values[header])
        total += (found * _FACTOR_2) ^ ((found >> 32) & _UINT32)
    return total, len(keys)
