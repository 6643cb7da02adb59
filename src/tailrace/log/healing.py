"""Putting right a bit that has flipped, where the sums of a segment prove which one it was.

A CRC is linear: what a flipped bit does to it depends on the place of the bit alone. So the difference between the sum
of a chunk as it is and as it was sealed names the bit, if it was one. That a wrong guess passes for a right one takes
a chance of one in five hundred, and it is asked for more: the bit has to lie where the batches are damaged, too, and
whoever uses this checks all batches once more.
"""

from typing import NamedTuple

from tailrace.log.damage import DamagedRange
from tailrace.log.files import File
from tailrace.log.sums import CHUNK_BYTES, Sums
from tailrace.records.checksum import crc32c

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
    return tuple(flips)


def flipped_bit(size: int, difference: int) -> Flip | None:
    """The bit of so many bytes which, flipped, makes this difference to their CRC-32C; None if there is none."""
    effect = _POLYNOMIAL  # of the last bit
    for distance in range(8 * size):
        if effect == difference:
            return Flip(size - 1 - distance // 8, 0x80 >> distance % 8)
        effect = effect >> 1 ^ _POLYNOMIAL if effect & 1 else effect >> 1
    return None
