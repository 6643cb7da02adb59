"""Batches of a wanted size, full of random bytes. What lies inside is of no interest: the log never looks."""

import os
from collections.abc import Iterator
from itertools import islice

from tailrace.records.record import Record, encode_batch

NOW_MS = 1_800_000_000_000
_OVERHEAD_GUESS = 70  # header, varints


def batch_of(size: int, *, sequence: int | None = None, producer_id: int = 1, now_ms: int = NOW_MS) -> bytearray:
    """One record that makes the batch `size` bytes long; with `sequence`, by an idempotent producer."""
    value_size = size - _OVERHEAD_GUESS
    while True:
        batch = _batch(value_size, sequence, producer_id, now_ms)
        if len(batch) == size:
            return batch
        value_size += size - len(batch)


def _batch(value_size: int, sequence: int | None, producer_id: int, now_ms: int) -> bytearray:
    record = Record(0, now_ms, None, os.urandom(value_size))
    if sequence is None:
        return encode_batch([record])
    return encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def some_batches(size: int, number: int) -> list[bytearray]:
    """A few that are sent again and again: appending stamps them anew each time, and their CRC stays right."""
    return [batch_of(size) for _ in range(number)]


def idempotent_batches(size: int, producers: int = 1) -> Iterator[bytearray]:
    """Never one twice: `producers` take turns, and the sequence of each goes up by one."""
    sequence = 0
    while True:
        for producer_id in range(1, producers + 1):
            yield batch_of(size, sequence=sequence, producer_id=producer_id)
        sequence += 1


def take(batches: Iterator[bytearray], number: int) -> list[bytearray]:
    return list(islice(batches, number))
