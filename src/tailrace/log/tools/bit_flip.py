"""Repairs a flipped bit, where the checksum file of a segment proves which one it was.

A CRC is linear: what a flipped bit does to it depends on the place of the bit alone. So the difference between the sum
of a chunk as it is and as it was sealed names the bit, if it was one. If it was more, chance may name some bit, once in
five hundred times at most; so it has to lie where batches are damaged, and they have to be whole once it is put right.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.log.disk.interface import File
from tailrace.log.files.checksums import CHUNK_BYTES, Sums
from tailrace.log.layout.damage import DamagedRange
from tailrace.records.batch import split
from tailrace.records.checksum import crc32c
from tailrace.records.errors import CorruptBatch

_POLYNOMIAL = 0x82F63B78  # CRC-32C's, its bits reversed


class Flip(NamedTuple):
    """A bit of a file that is the wrong way round."""

    position: int
    mask: int


def chunks_of(damage: DamagedRange) -> range:
    """The numbers of the chunks that have some of these bytes."""
    return range(damage.position // CHUNK_BYTES, (damage.end - 1) // CHUNK_BYTES + 1)


def find_flips(log: File, sums: Sums, damage: DamagedRange) -> tuple[Flip, ...]:
    """The bits to put right for all of these bytes to be what was sealed; none where that is not enough."""
    flips = []
    for number in chunks_of(damage):
        if number >= len(sums.chunks):
            return ()
        low, high = sums.chunk_bounds(number)
        data = log.read_at(low, high - low)
        difference = crc32c(data) ^ sums.chunks[number]
        if difference == 0:
            continue
        flip = flipped_bit(len(data), difference)
        if flip is None or not damage.position <= low + flip.position < damage.end:
            return ()
        flips.append(Flip(low + flip.position, flip.mask))
    return tuple(flips) if _are_batches(log, damage, flips) else ()


def put_right(data: bytearray, position: int, flips: Iterable[Flip]) -> None:
    """Turns the bits in these bytes, which stand at `position` of the file, the other way round."""
    for flip in flips:
        if position <= flip.position < position + len(data):
            data[flip.position - position] ^= flip.mask


def _are_batches(log: File, damage: DamagedRange, flips: Iterable[Flip]) -> bool:
    data = bytearray(log.read_at(damage.position, damage.length))
    put_right(data, damage.position, flips)
    try:
        headers = [header for _, header in split(data)]
    except CorruptBatch:
        return False
    return (headers[0].base_offset, headers[-1].last_offset) == (damage.first_offset, damage.last_offset)


def flipped_bit(size: int, difference: int) -> Flip | None:
    """The bit of so many bytes which, flipped, makes this difference to their CRC-32C; None if there is none."""
    effect = _POLYNOMIAL  # of the last bit
    for distance in range(8 * size):
        if effect == difference:
            return Flip(size - 1 - distance // 8, 0x80 >> distance % 8)
        effect = effect >> 1 ^ _POLYNOMIAL if effect & 1 else effect >> 1
    return None
