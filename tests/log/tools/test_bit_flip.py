"""Which bit has flipped, told from a checksum."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.tools.bit_flip import flipped_bit
from tailrace.records.checksum import crc32c


@given(st.binary(min_size=1, max_size=300), st.data())
def test_one_flipped_bit_is_named(before: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * len(before) - 1))
    after = bytearray(before)
    after[bit // 8] ^= 1 << bit % 8
    assert flipped_bit(len(before), crc32c(before) ^ crc32c(bytes(after))) == (bit // 8, 1 << bit % 8)


@given(st.binary(min_size=1, max_size=100), st.data())
def test_two_flipped_bits_are_not_taken_for_one(before: bytes, data: st.DataObject) -> None:
    one, other = data.draw(st.lists(st.integers(0, 8 * len(before) - 1), min_size=2, max_size=2, unique=True))
    after = bytearray(before)
    for bit in (one, other):
        after[bit // 8] ^= 1 << bit % 8
    assert flipped_bit(len(before), crc32c(before) ^ crc32c(bytes(after))) is None
