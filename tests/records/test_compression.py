"""The codecs: round trips, other people's framing, damage, and bombs that must not go off."""

import contextlib
import gzip
import random
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib

import aiokafka.codec
import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    USUAL_RATIO_MAX,
    Codec,
    DecompressionBudget,
    compress,
    decompress,
)
from tailrace.records.errors import CorruptRecords, TooLarge

MIB = 1024 * 1024
COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]

# Which bytes to replace, by what.
edits = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=5)

BOMB_BYTES = 128 * MIB
BOMB_LIMIT = 4 * MIB
# Twice the limit: the output, and what a codec needs besides (zstd keeps a window).
BOMB_MEMORY = 2 * BOMB_LIMIT + 4 * MIB
# Run in a process of its own, which the kernel refuses any memory beyond what it has and what we grant.
DETONATE = """
import resource, sys
from pathlib import Path
from tailrace.records.compression import compress, decompress, Codec
from tailrace.records.errors import TooLarge
codec, limit, memory = Codec(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
bomb = sys.stdin.buffer.read()
decompress(codec, compress(codec, b"warm up"), limit)
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))
try:
    decompress(codec, bomb, limit)
except TooLarge:
    print("refused")
"""


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def xerial(*blocks: bytes) -> bytes:
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=2000), repeats=st.integers(1, 100))
def test_what_is_compressed_comes_back(codec: Codec, data: bytes, repeats: int) -> None:
    original = data * repeats
    assert decompress(codec, compress(codec, original), len(original)) == original


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken(codec: Codec, kind: type) -> None:
    original = b"some records " * 10_000
    compressed = compress(codec, kind(original))
    assert decompress(codec, kind(compressed)) == original


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("original", [b"x", b"abc" * 100_000, noise(300_000)], ids=["one", "text", "noise"])
def test_other_clients_read_what_we_write_and_we_read_what_they_write(codec: Codec, original: bytes) -> None:
    name = codec.name.lower()
    assert getattr(aiokafka.codec, f"{name}_decode")(compress(codec, original)) == original
    assert decompress(codec, getattr(aiokafka.codec, f"{name}_encode")(original)) == original


@pytest.mark.parametrize("codec", COMPRESSING)
def test_output_of_exactly_the_limit_is_allowed_and_one_byte_more_is_not(codec: Codec) -> None:
    for original in (b"z" * 1_000_000, noise(1_000_000)):
        compressed = compress(codec, original)
        assert decompress(codec, compressed, 1_000_000) == original
        with pytest.raises(TooLarge):
            decompress(codec, compressed, 999_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_output_far_beyond_the_first_guess_is_found_within_the_limit(codec: Codec) -> None:
    compressed = compress(codec, bytes(20 * MIB))
    assert decompress(codec, compressed) == bytes(20 * MIB)


def bomb(codec: Codec) -> bytes:
    if codec == Codec.GZIP:
        return zlib.compress(bytes(BOMB_BYTES), level=9, wbits=31)
    return bytes(compress(codec, bytes(BOMB_BYTES)))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to know what memory the process has")
@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_refused_without_taking_its_memory(codec: Codec) -> None:
    command = [sys.executable, "-c", DETONATE, str(int(codec)), str(BOMB_LIMIT), str(BOMB_MEMORY)]
    result = subprocess.run(command, input=bomb(codec), capture_output=True)
    assert (result.stdout, result.stderr) == (b"refused\n", b"")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_in_many_frames_is_refused_too(codec: Codec) -> None:
    with pytest.raises(TooLarge):
        decompress(codec, bytes(compress(codec, bytes(MIB))) * 5, 4 * MIB)


def test_a_snappy_block_that_declares_more_than_the_limit_is_refused_unread() -> None:
    four_gigabytes = b"\xff\xff\xff\xff\x0f"
    for data in (four_gigabytes, xerial(four_gigabytes), xerial(raw_snappy(b"a"), four_gigabytes)):
        with pytest.raises(TooLarge):
            decompress(Codec.SNAPPY, data, DECOMPRESSED_BYTES_MAX)


def test_a_snappy_block_that_declares_more_than_its_bytes_can_hold_takes_no_memory() -> None:
    eight_megabytes = b"\x80\x80\x80\x04" + raw_snappy(bytes(1000))[2:]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecords, match="claims to hold 8388608"):
            decompress(Codec.SNAPPY, eight_megabytes)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@given(pattern=st.binary(min_size=1, max_size=70), size=st.integers(1, 300_000))
def test_snappy_never_holds_more_than_is_believed(pattern: bytes, size: int) -> None:
    data = (pattern * (size // len(pattern) + 1))[:size]
    assert decompress(Codec.SNAPPY, raw_snappy(data)) == data


# Budgets


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_budget_is_for_what_exceeds_the_usual_ratio_and_bombs_use_it_up(codec: Codec) -> None:
    budget = DecompressionBudget()
    usual = compress(codec, noise(MIB))
    for _ in range(80):
        decompress(codec, usual, budget=budget)
    rich, limit = bomb(codec), 16 * MIB
    refused = 0
    while budget.allows(len(rich)) >= limit:
        with pytest.raises(TooLarge, match=str(limit)):
            decompress(codec, rich, limit, budget)
        refused += 1
        assert refused < 100
    assert refused >= 4
    while budget.allows(0):
        with pytest.raises(TooLarge, match="Send fewer of them in one request"):
            decompress(codec, rich, limit, budget)
    assert budget.allows(100) == 100 * USUAL_RATIO_MAX
    assert decompress(codec, usual, budget=budget) == noise(MIB)


def test_a_budget_is_charged_for_decompressed_bytes_and_fully_for_a_failed_batch() -> None:
    budget = DecompressionBudget()
    zeros = compress(Codec.ZSTD, bytes(MIB))
    assert decompress(Codec.ZSTD, zeros, budget=budget) == bytes(MIB)
    assert budget.allows(0) == DECOMPRESSED_BYTES_MAX - MIB + USUAL_RATIO_MAX * len(zeros)
    before = budget.allows(0)
    with pytest.raises(CorruptRecords, match="damaged"):
        decompress(Codec.ZSTD, b"damaged", MIB, budget)
    assert budget.allows(0) == before - MIB + USUAL_RATIO_MAX * len(b"damaged")
    assert decompress(Codec.NONE, bytes(1000), budget=budget) == bytes(1000)


def test_snappy_blocks_are_limited_together() -> None:
    data = xerial(*[raw_snappy(bytes(1000))] * 5)
    assert decompress(Codec.SNAPPY, data, 5000) == bytes(5000)
    with pytest.raises(TooLarge):
        decompress(Codec.SNAPPY, data, 4999)


def test_snappy_is_read_raw_as_well_as_framed() -> None:
    original = noise(1000) + bytes(100_000)
    assert decompress(Codec.SNAPPY, raw_snappy(original)) == original
    assert decompress(Codec.SNAPPY, xerial(raw_snappy(original[:7]), raw_snappy(original[7:]))) == original


def test_snappy_is_written_framed_in_blocks_as_java_writes_it() -> None:
    compressed = compress(Codec.SNAPPY, bytes(32 * 1024) + b"tail")
    assert compressed == xerial(raw_snappy(bytes(32 * 1024)), raw_snappy(b"tail"))


def test_lz4_is_written_in_independent_blocks_as_java_demands() -> None:
    flags = compress(Codec.LZ4, noise(1000))[4]
    assert flags & 0b1100_0000 == 0b0100_0000, "frame format 1"
    assert flags & 0b0010_0000, "blocks are independent"


def test_other_threads_run_while_lz4_is_written() -> None:
    words = [b"%08x" % n for n in random.Random(1).sample(range(1 << 32), 3000)]
    data = b" ".join(random.Random(2).choices(words, k=300_000))
    is_over = threading.Event()
    gaps = [0.0]

    def watch() -> None:
        last = time.perf_counter()
        while not is_over.wait(0.001):
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    compressed = compress(Codec.LZ4, data, 12)
    took = time.perf_counter() - begin
    is_over.set()
    watcher.join()
    assert max(gaps) < took / 2
    assert decompress(Codec.LZ4, compressed) == data


def test_several_gzip_members_are_read_as_one() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one, ") + gzip.compress(b"two")) == b"one, two"


def test_zstd_is_read_where_the_frame_does_not_say_how_long_it_is() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(b"streamed " * 1000)
    frame = bytes(compressor.finish())
    assert not frame[4] & 0b1110_0000, "no content size, not a single segment"
    assert decompress(Codec.ZSTD, frame) == b"streamed " * 1000


@pytest.mark.parametrize("codec", COMPRESSING)
def test_compressed_bytes_cut_anywhere_are_refused(codec: Codec) -> None:
    compressed = compress(codec, noise(100) * 3)
    # Framed snappy knows no end: cut between the header and the block, it is whole and empty.
    sizes = set(range(len(compressed))) - ({16} if codec == Codec.SNAPPY else set())
    for size in sizes:
        with pytest.raises(CorruptRecords):
            decompress(codec, compressed[:size])


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_after_the_end_are_refused(codec: Codec) -> None:
    for tail in (b"\x00", b"junk", bytes(100)):
        with pytest.raises(CorruptRecords):
            decompress(codec, bytes(compress(codec, b"records")) + tail)


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.binary(max_size=200), edits=edits)
def test_damage_raises_only_corrupt_records(codec: Codec, data: bytes, edits: list[tuple[int, int]]) -> None:
    compressed = bytearray(compress(codec, data))
    for position, byte in edits:
        compressed[position % len(compressed)] = byte
    with contextlib.suppress(CorruptRecords):
        decompress(codec, compressed, MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.binary(max_size=100))
def test_arbitrary_bytes_raise_only_corrupt_records(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(CorruptRecords):
        decompress(codec, data, MIB)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist_are_refused(codec: int) -> None:
    with pytest.raises(CorruptRecords, match="codec"):
        decompress(codec, b"data")


def test_bytes_without_a_codec_are_not_copied() -> None:
    data = b"plain" * 10
    assert decompress(Codec.NONE, data, 1) is data
