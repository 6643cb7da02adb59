"""Repairs a flipped bit, if the checksum file of a segment proves which one it was.

A CRC is linear: the effect of a flipped bit on it depends only on the bit's position. So the difference between a
chunk's CRC now and when it was sealed identifies the bit, if only one was flipped. If more were, the difference may
match some bit by chance, in at most one of five hundred cases. Therefore the bit must lie in a damaged batch, and the
batch must be intact with the bit corrected.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.log.disk.interface import File
from tailrace.log.files.checksums import CHUNK_BYTES, SegmentChecksums
from tailrace.log.layout.damage import DamagedRange
from tailrace.records.batch import split
from tailrace.records.checksum import crc32c
from tailrace.records.errors import CorruptBatch

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, with its bits reversed


class Flip(NamedTuple):
    """A flipped bit of a file."""

    position: int
    mask: int


def chunks_of(damage: DamagedRange) -> range:
    """Returns the numbers of the chunks that have some of these bytes."""
    return range(damage.position // CHUNK_BYTES, (damage.end - 1) // CHUNK_BYTES + 1)


def find_flips(log: File, checksums: SegmentChecksums, damage: DamagedRange) -> tuple[Flip, ...]:
    """Returns the bits whose correction restores all of these bytes, or none if no correction does."""
    flips = []
    for number in chunks_of(damage):
        if number >= len(checksums.chunks):
            return ()
        low, high = checksums.chunk_bounds(number)
        data = log.read_at(low, high - low)
        difference = crc32c(data) ^ checksums.chunks[number]
        if difference == 0:
            continue
        flip = flipped_bit(len(data), difference)
        if flip is None or not damage.position <= low + flip.position < damage.end:
            return ()
        flips.append(Flip(low + flip.position, flip.mask))
    return tuple(flips) if _are_batches(log, damage, flips) else ()


def correct(data: bytearray, position: int, flips: Iterable[Flip]) -> None:
    """Corrects the bits in these bytes, which are at `position` of the file."""
    for flip in flips:
        if position <= flip.position < position + len(data):
            data[flip.position - position] ^= flip.mask


def _are_batches(log: File, damage: DamagedRange, flips: Iterable[Flip]) -> bool:
    data = bytearray(log.read_at(damage.position, damage.length))
    correct(data, damage.position, flips)
    try:
        headers = [header for _, header in split(data)]
    except CorruptBatch:
        return False
    return (headers[0].base_offset, headers[-1].last_offset) == (damage.first_offset, damage.last_offset)


def flipped_bit(size: int, difference: int) -> Flip | None:
    """Returns the bit which, if flipped in this many bytes, changes their CRC-32C by `difference`; None if there is
    none.
    """
    effect = _POLYNOMIAL  # the effect of the last bit
    for distance in range(8 * size):
        if effect == difference:
            return Flip(size - 1 - distance // 8, 0x80 >> distance % 8)
        effect = effect >> 1 ^ _POLYNOMIAL if effect & 1 else effect >> 1
    return None
