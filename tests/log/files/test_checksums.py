"""Checksums per MiB, however the bytes come, and a sums file that shows every damage to itself."""

import random

import pytest
from batches import flip
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.files.checksums import CHUNK_BYTES, ChunkChecksums, Gaps, Prefix, SegmentChecksums
from tailrace.records.checksum import crc32c

RANDOM_BYTES = random.Random(3).randbytes(3 * CHUNK_BYTES + 1000)
PREFIXES = st.builds(Prefix, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1))
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
CHECKSUMS = st.builds(
    SegmentChecksums,
    log_size=st.integers(0, (1 << 64) - 1),
    next_offset=NUMBERS,
    max_timestamp=NUMBERS,
    max_timestamp_offset=NUMBERS,
    chunks=st.lists(st.integers(0, (1 << 32) - 1), max_size=5).map(tuple),
    gaps=st.sampled_from(Gaps),
    offset_index=PREFIXES,
    time_index=PREFIXES,
    transaction_index=PREFIXES,
)


def checksums_of_chunks(data: bytes) -> tuple[int, ...]:
    return tuple(crc32c(data[start : start + CHUNK_BYTES]) for start in range(0, len(data), CHUNK_BYTES))


def checksums_of(data: bytes) -> SegmentChecksums:
    return SegmentChecksums(
        log_size=len(data), next_offset=0, max_timestamp=0, max_timestamp_offset=0, chunks=checksums_of_chunks(data)
    )


# Sizes of appends that end at, just before and just behind the edge of a chunk, and any others.
APPENDS = st.lists(
    st.sampled_from([1, 100, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 7])
    | st.integers(1, 2 * CHUNK_BYTES),
    max_size=6,
)


@given(APPENDS)
def test_sums_kept_up_while_appending_are_those_of_the_whole_file(sizes: list[int]) -> None:
    chunks, position = ChunkChecksums(), 0
    for size in sizes:
        piece = RANDOM_BYTES[position : position + size]
        if not piece:
            break
        chunks.update(piece)
        position += len(piece)
    assert chunks.size == position
    assert chunks.checksums == checksums_of_chunks(RANDOM_BYTES[:position])


@pytest.mark.parametrize("first", [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES])
@pytest.mark.parametrize("second", [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_sums_go_on_where_saved_ones_stopped(first: int, second: int) -> None:
    saved = checksums_of(RANDOM_BYTES[:first])
    chunks = ChunkChecksums.resume(saved)
    chunks.update(memoryview(RANDOM_BYTES)[first : first + second])
    assert chunks.size == first + second
    assert chunks.checksums == checksums_of_chunks(RANDOM_BYTES[: first + second])
    assert saved.chunks == checksums_of_chunks(RANDOM_BYTES[:first]), "what was saved stays as it is"


def test_an_empty_append_changes_nothing() -> None:
    chunks = ChunkChecksums()
    chunks.update(b"")
    assert (chunks.size, chunks.checksums) == (0, ())
    chunks.update(RANDOM_BYTES[:CHUNK_BYTES])
    chunks.update(b"")
    assert (chunks.size, chunks.checksums) == (CHUNK_BYTES, checksums_of_chunks(RANDOM_BYTES[:CHUNK_BYTES]))


@pytest.mark.parametrize("size", [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, len(RANDOM_BYTES)])
def test_the_chunks_of_a_file_lie_one_behind_the_other_and_are_intact(size: int) -> None:
    checksums = checksums_of(RANDOM_BYTES[:size])
    covered = 0
    for number in range(len(checksums.chunks)):
        start, end = checksums.chunk_bounds(number)
        assert start == covered
        assert checksums.chunk_is_intact(number, RANDOM_BYTES[start:end])
        assert not checksums.chunk_is_intact(number, flip(RANDOM_BYTES[start:end], 8 * (end - start) - 1))
        assert not checksums.chunk_is_intact(number, RANDOM_BYTES[start : end - 1])
        covered = end
    assert covered == size


@given(CHECKSUMS)
def test_a_sums_file_comes_back_as_it_was_encoded(checksums: SegmentChecksums) -> None:
    assert SegmentChecksums.decode(checksums.encode()) == checksums


SOME_CHECKSUMS = SegmentChecksums(
    log_size=2 * CHUNK_BYTES + 5,
    next_offset=1234,
    max_timestamp=1_700_000_000_000,
    max_timestamp_offset=1200,
    chunks=(1, 2, 0xFFFFFFFF),
    gaps=Gaps.COMPACTED,
    offset_index=Prefix(80, 7),
    time_index=Prefix(120, 8),
    transaction_index=Prefix(34, 9),
)


def test_a_sums_file_that_was_cut_is_not_believed() -> None:
    data = SOME_CHECKSUMS.encode()
    for size in range(len(data)):
        assert SegmentChecksums.decode(data[:size]) is None


def test_a_sums_file_with_a_flipped_bit_is_not_believed() -> None:
    data = SOME_CHECKSUMS.encode()
    for bit in range(8 * len(data)):
        assert SegmentChecksums.decode(flip(data, bit)) is None


def sealed(data: bytearray) -> bytes:
    """The same sums file with its last four bytes made right."""
    return bytes(data[:-4]) + crc32c(data[:-4]).to_bytes(4)


@pytest.mark.parametrize(
    ("position", "byte"), [(0, ord("X")), (5, 2), (6, 99), (10, 1)], ids=["magic", "version", "gaps", "chunk size"]
)
def test_an_intact_sums_file_of_another_kind_is_not_believed(position: int, byte: int) -> None:
    data = bytearray(SOME_CHECKSUMS.encode())
    data[position] = byte
    assert SegmentChecksums.decode(sealed(data)) is None


def test_an_intact_sums_file_with_bytes_behind_it_is_not_believed() -> None:
    assert SegmentChecksums.decode(sealed(bytearray(SOME_CHECKSUMS.encode() + bytes(4)))) is None


@given(st.binary(max_size=200))
def test_bytes_that_are_no_sums_file_are_not_believed(data: bytes) -> None:
    assert SegmentChecksums.decode(data) is None


@given(st.binary(max_size=40), st.binary(max_size=10))
def test_a_prefix_matches_the_bytes_it_was_made_of_and_whatever_follows(data: bytes, more: bytes) -> None:
    assert Prefix.of(data).matches(data + more)


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_prefix_does_not_match_bytes_that_are_fewer_or_others(data: bytes, draw: st.DataObject) -> None:
    prefix = Prefix.of(data)
    assert not prefix.matches(data[: draw.draw(st.integers(0, len(data) - 1))])
    assert not prefix.matches(flip(data, draw.draw(st.integers(0, 8 * len(data) - 1))))


def test_a_prefix_does_not_match_fewer_bytes_that_happen_to_have_its_checksum() -> None:
    assert not Prefix(1, crc32c(b"")).matches(b"")
