"""The compiled loops on hostile bytes: what they accept is what the plain decoder accepts, and they stay inside."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import parts
import pytest
from batches import batch_of, consecutive, varint
from hypothesis import given
from hypothesis import strategies as st

from tailrace.records.batch import HEADER_SIZE, LOG_APPEND_TIME, read_header, seal, split
from tailrace.records.decoders import decode_with_python
from tailrace.records.errors import CorruptBatch, TruncatedBatch
from tailrace.records.record import Record, decode_records, encode_batch

if not parts.missing("arrow"):
    import numba
    import numpy as np
    import pyarrow as pa
    from numba.core import caching

    from tailrace.spark.columns import compiler as compiling
    from tailrace.spark.columns import decode_kernel as kernel
    from tailrace.spark.columns.decoder import ColumnDecoder

pytestmark = pytest.mark.needs("arrow")

SAMPLE = [
    Record(
        index,
        1_700_000_000_000 + index,
        key=None if index % 3 == 0 else b"key %d" % index,
        value=None if index % 4 == 1 else b"value %d " % index * index,
        headers=(("trace", b"%d" % index), ("empty", None)) if index % 2 else (),
    )
    for index in range(8)
]
MINIMAL = b"\x0c\x00\x00\x00\x01\x01\x00"  # length 6, nothing, null key, null value, no headers


def by_kernel(data: bytes | bytearray) -> list[Any] | None:
    """Offset, timestamp, key, value and headers of each row; None for a refusal. Anything else is a failure."""
    columns = ["offset", "timestamp", "key", "value", "headers"]
    found: list[Any] = []
    try:
        for one in ColumnDecoder("orders", 0, columns, decompressed_bytes_max=1 << 20).decode(data):
            one.validate(full=True)
            times = one.column(1).cast(pa.int64()).to_pylist()
            found += zip(one.column(0).to_pylist(), times, *(c.to_pylist() for c in one.columns[2:]), strict=True)
    except CorruptBatch:
        return None
    return found


def by_python(data: bytes | bytearray) -> list[Any] | None:
    """The same, by the plain decoder."""
    found: list[Any] = []
    offset_min = 0
    try:
        for position, header in split(data):
            if not offset_min <= header.base_offset < 2**63 - 1 - header.last_offset_delta:
                return None
            offset_min = header.next_offset
            if not header.is_control:
                found += map(row_of, decode_records(data, position, limit=1 << 20, decoder=decode_with_python))
    except TruncatedBatch:
        return found if offset_min else None  # a fetch may end so
    except CorruptBatch:
        return None
    return found


def row_of(record: Record) -> Any:
    microseconds = record.timestamp * 1000
    headers = [{"key": mended(key), "value": value} for key, value in record.headers]
    timestamp = microseconds if abs(microseconds) < 2**63 else None
    return record.offset, timestamp, record.key, record.value, headers or None


def mended(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# --- hostile records ----------------------------------------------------------------------------------------


HOSTILE = {
    "nothing": b"",
    "a length beyond the end": b"\x0e" + MINIMAL[1:],
    "a length too short": b"\x0a" + MINIMAL[1:],
    "a negative length": b"\x0b" + MINIMAL[1:],
    "bytes after the last record": MINIMAL + b"\x00",
    "a varint cut short at the end": MINIMAL[:-1] + b"\x80",
    "a varint without end": b"\x0c\x00" + b"\xff" * 40,
    "a key of 2^63 - 1 bytes": b"\x40\x00\x00\x00" + varint(2**63 - 1) + bytes(20),
    "a value of 2^31 - 1 bytes": b"\x40\x00\x00\x00\x01" + varint(2**31 - 1) + bytes(20),
    "a value of a byte too many": b"\x10\x00\x00\x00\x01" + varint(3) + b"\0\0",
    "2^62 headers": b"\x1c\x00\x00\x00\x01\x01" + varint(2**62) + bytes(20),
    "a negative number of headers": MINIMAL[:-1] + b"\x01",
    "a header without a key": b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
    "a header whose value is cut off": b"\x10\x00\x00\x00\x01\x01\x02\x00\x80",
    "an offset before the batch": b"\x0c\x00\x00\x01\x01\x01\x00",
    "an offset after the batch": b"\x0c\x00\x00\x02\x01\x01\x00",
    "an offset of 2^63 - 1": varint(15) + b"\x00\x00" + varint(2**63 - 1) + b"\x01\x01\x00",
}


def test_the_smallest_record_is_decoded() -> None:
    assert by_kernel(batch_of(MINIMAL)) == [(0, -1000, None, None, None)]


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_records_are_refused(payload: bytes) -> None:
    data = batch_of(payload)
    assert by_kernel(data) is None
    assert by_python(data) is None


@given(payload=st.binary(max_size=60), record_count=st.integers(0, 5), attributes=st.integers(0, 15))
def test_the_kernel_and_the_plain_decoder_agree_on_arbitrary_bytes(
    payload: bytes, record_count: int, attributes: int
) -> None:
    data = batch_of(payload, record_count=record_count, attributes=attributes)
    assert by_kernel(data) == by_python(data)


@given(
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 3),
    attributes=st.sampled_from([0, LOG_APPEND_TIME]),
)
def test_the_kernel_and_the_plain_decoder_agree_on_damaged_records(
    edits: list[tuple[int, int]], cut: int, attributes: int
) -> None:
    payload = encode_batch(SAMPLE)[HEADER_SIZE:]
    for position, byte in edits:
        payload[position % len(payload)] = byte
    data = batch_of(payload[: len(payload) - cut], record_count=len(SAMPLE), attributes=attributes)
    assert by_kernel(data) == by_python(data)


def test_the_kernel_and_the_plain_decoder_agree_on_thousands_of_mutations() -> None:
    count = 2_000
    chance = random.Random(20261116)
    original = encode_batch(SAMPLE)[HEADER_SIZE:]
    refused = 0
    for _ in range(count):
        payload = bytearray(original)
        for _ in range(chance.randint(1, 3)):
            position = chance.randrange(len(payload))
            payload[position] = chance.choice([chance.randrange(256), payload[position] ^ 1, 0x80, 0xFF])
        data = batch_of(payload, record_count=len(SAMPLE))
        found = by_kernel(data)
        assert found == by_python(data)
        refused += found is None
    assert 0 < refused < count, "some mutations hit keys and values and are legal"


def test_the_kernel_and_the_plain_decoder_agree_on_fetches_damaged_anywhere() -> None:
    """Headers too, and often sealed again, so that the checksum does not find it first."""
    count = 1_000
    chance = random.Random(20261116)
    originals = consecutive(3, 1, 4, value_bytes=10)
    refused = 0
    for _ in range(count):
        pieces = [bytearray(original) for original in originals]
        piece = chance.choice(pieces)
        position = chance.randrange(len(piece)) if chance.random() < 0.5 else chance.randrange(HEADER_SIZE)
        piece[position] = chance.choice([chance.randrange(256), piece[position] ^ 1, 0x7F, 0x80, 0xFF])
        if read_header(piece).size == len(piece) and chance.random() < 0.8:
            seal(piece)
        data = b"".join(pieces)
        found = by_kernel(data)
        assert found == by_python(data)
        refused += found is None
    assert 0 < refused < count


def outside() -> None:
    """What the kernels are never asked: room for one offset too few."""
    fields = np.zeros((2, 2), np.int32)
    data = np.zeros(8, np.uint8)
    data.setflags(write=False)
    kernel.copy_fields(data, fields, np.empty(2, np.int32), np.zeros(1, np.uint8), np.empty(0, np.uint8))


@pytest.mark.slow
def test_no_index_is_outside_of_its_array(tmp_path: Path) -> None:
    """The mutations again, with kernels compiled so that they check each index."""
    program = """
import test_decode_kernel as tests
try:
    tests.outside()
except IndexError:
    print("indexes are checked")
tests.test_the_kernel_and_the_plain_decoder_agree_on_thousands_of_mutations()
tests.test_the_kernel_and_the_plain_decoder_agree_on_fetches_damaged_anywhere()
for payload in tests.HOSTILE.values():
    tests.test_hostile_records_are_refused(payload)
"""
    here = Path(__file__).parent
    paths = os.pathsep.join(
        [str(here), str(here.parents[1] / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "indexes are checked\n", "")


# --- the cache ----------------------------------------------------------------------------------------------


def doubled(number: int) -> int:
    return 2 * number


def test_without_a_place_for_the_cache_the_kernels_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert compiling.compiled(numba.int64(numba.int64))(doubled)(4) == 8


@pytest.mark.parametrize("damage", [b"", b"not a cache", b"cos\nother\n.", b"I1x\n."])
def test_a_damaged_cache_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for _ in range(2):
        assert compiling.compiled(numba.int64(numba.int64))(doubled)(4) == 8
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files, "it is cached, where numba is told to"
        for path in files:
            path.write_bytes(damage)
