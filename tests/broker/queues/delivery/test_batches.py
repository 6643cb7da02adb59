from pathlib import Path

import pytest
from batches import batch, consecutive
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.queues.delivery.batches import batches_of
from tailrace.log.disk.interface import Data
from tailrace.log.segment.segment import WouldWait
from tailrace.records.batch import HEADER_SIZE, read_header
from tailrace.records.control import Marker, encode_marker
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import encode_batch


class BytesSlice:
    """A slice that lies in memory, but for the bytes from `cold_from` on."""

    def __init__(self, data: bytes, cold_from: int | None = None) -> None:
        self.data = data
        self.length = len(data)
        self.next_offset = 0
        self.reads: list[tuple[int, int]] = []
        self.cold_from = len(data) if cold_from is None else cold_from

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        self.reads.append((start, self.length - start if size is None else size))
        return self.data[start:][:size]

    def read_cached(self, start: int = 0, size: int | None = None) -> Data | None:
        data = self.read(start, size)
        return None if start + len(data) > self.cold_from else data

    def send_to(self, descriptor: int, start: int, size: int) -> int:
        raise NotImplementedError

    def send_cached_to(self, descriptor: int, start: int, size: int) -> int | None:
        raise NotImplementedError

    def read_ahead(self, start: int, size: int) -> bool:
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(20, 3000)), max_size=20), st.integers(0, 1000))
def test_the_batches_of_a_slice_are_found_by_their_headers(shapes: list[tuple[int, int]], base: int) -> None:
    expected, data, offset = [], b"", base
    for count, size in shapes:
        made = batch(count, base_offset=offset, value_bytes=size // count)
        header = read_header(made)
        expected.append((offset, offset + count - 1, len(data), len(data) + len(made), header.max_timestamp))
        data += made
        offset += count
    found = list(batches_of(BytesSlice(data), wait=False))
    assert [(one.first, one.last, one.begin, one.end, one.header.max_timestamp) for one in found] == expected
    assert all(one.has_records for one in found)


def test_little_is_read_of_large_batches() -> None:
    data = b"".join(batch(1, base_offset=n, value_bytes=100_000) for n in range(5))
    records = BytesSlice(data)
    assert len(list(batches_of(records, wait=False))) == 5
    assert sum(size for _, size in records.reads) < 50_000


def test_markers_and_batches_without_records_have_nothing_for_members() -> None:
    inside = batch(2, producer_id=7, producer_epoch=0, transactional=True)
    marker = encode_marker(Marker.ABORT, 7, 0, 0, 0, base_offset=2)
    emptied = encode_batch([], base_offset=3, last_offset_delta=4)
    found = list(batches_of(BytesSlice(bytes(inside + marker + emptied)), wait=False))
    assert [(one.first, one.last, one.has_records) for one in found] == [(0, 1, True), (2, 2, False), (3, 7, False)]


def test_bytes_that_are_not_in_memory_are_not_waited_for_unless_asked_for() -> None:
    one, other = consecutive(1, 1, value_bytes=20_000)
    records = BytesSlice(bytes(one + other), cold_from=len(one))
    walk = batches_of(records, wait=False)
    assert next(walk).last == 0
    with pytest.raises(WouldWait):
        next(walk)
    assert len(list(batches_of(records, wait=True))) == 2


@pytest.mark.parametrize("cut", [1, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 5])
def test_bytes_that_are_no_batch_are_refused(cut: int) -> None:
    with pytest.raises(CorruptBatch):
        list(batches_of(BytesSlice(bytes(batch(3))[:cut]), wait=False))


def test_a_slice_on_a_disk_is_walked_as_one_in_memory(tmp_path: Path) -> None:
    from brokers import LocalBroker

    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for _ in range(3):
            broker.produce(b"a", b"b")
        records = broker.log().read(0, 1 << 20)
        assert records is not None
        with records:
            found = [(one.first, one.last) for one in batches_of(records, wait=True)]
        assert found == [(0, 1), (2, 3), (4, 5)]
