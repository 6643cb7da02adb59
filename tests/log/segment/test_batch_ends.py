"""Where whole batches end: found by headers alone, also where those make no sense any more."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.segment.slices import end_of_whole_batches
from tailrace.records.record import Record, encode_batch


def batches(sizes: list[int]) -> tuple[bytes, list[tuple[int, int]]]:
    """And where each ends, with the offset that follows."""
    data, ends, offset = b"", [], 100
    for size in sizes:
        batch = bytearray(encode_batch([Record(number, 1, None, bytes(size)) for number in range(3)]))
        struct.pack_into(">q", batch, 0, offset)
        data += batch
        offset += 3
        ends.append((len(data), offset))
    return data, ends


@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, 3000, 9000]), min_size=1, max_size=12),
    first=st.integers(0, 11),
    most=st.integers(1, 60_000),
    less=st.integers(0, 40_000),
)
def test_as_many_as_fit_and_one_at_least_if_it_may_be_served(
    sizes: list[int], first: int, most: int, less: int
) -> None:
    data, ends = batches(sizes)
    starts = [0, *(end for end, _ in ends[:-1])]
    first %= len(sizes)
    limit = max(starts[first] + 1, len(data) - less)
    wanted = min(starts[first] + most, limit)

    def read(position: int, size: int) -> bytes:
        return data[position : position + size]

    fitting = [end for end in ends[first:] if end[0] <= wanted] or [
        end for end in ends[first : first + 1] if end[0] <= limit
    ]
    expected = fitting[-1] if fitting else (starts[first], -1)
    for position in [start for start in starts[first:] if start < wanted]:
        assert end_of_whole_batches(read, starts[first], position, wanted, limit) == expected


@pytest.mark.parametrize("length", [-12, 0, -100_000, 48])
def test_a_length_that_no_batch_has_is_an_error_and_holds_nobody_up(length: int) -> None:
    data, ends = batches([10, 10, 10])
    rotten = bytearray(data)
    struct.pack_into(">i", rotten, ends[0][0] + 8, length)
    with pytest.raises(OSError, match="invalid length"):
        end_of_whole_batches(lambda position, size: bytes(rotten[position : position + size]), 0, 0, 10_000, 10_000)


def test_a_file_that_ends_too_soon_is_an_error() -> None:
    data, _ = batches([10, 10])
    with pytest.raises(OSError, match="ends inside"):
        end_of_whole_batches(lambda position, size: data[position : position + 50], 0, 0, len(data), len(data))
