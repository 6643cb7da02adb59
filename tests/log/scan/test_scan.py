"""Walking a file of batches, whole and spoilt: what is found is what was written, and where it was written."""

from itertools import accumulate
from typing import Any

import pytest
from batches import batch, consecutive, flip
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.files.leader_epochs import EpochStart, LeaderEpochs
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.scan.resync import find_next
from tailrace.log.scan.scan import FoundBatch, Scan, ScanRange, header_at
from tailrace.log.scan.walk import walk
from tailrace.records.batch import HEADER, HEADER_SIZE, read_header, stamp
from tailrace.records.record import Record, encode_batch

NAME = "00000000000000000000.log"
COUNTS = st.lists(st.integers(1, 4), max_size=8)


class BytesFile:
    """As much of a file as a scan needs."""

    path = f"some/where/{NAME}"

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = bytes(data)

    def read_at(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]


def in_memory(data: bytes | bytearray) -> Any:
    return BytesFile(data)


def joined(batches: list[bytearray]) -> bytes:
    return b"".join(batches)


def positions(batches: list[bytearray]) -> list[int]:
    """Where each begins, and where the last one ends."""
    return list(accumulate(map(len, batches), initial=0))


def walked(data: bytes | bytearray, *, end_offset: int | None = None, **known: Any) -> list[FoundBatch | DamagedRange]:
    return list(walk(ScanRange(in_memory(data), 0, len(data), 0, **known), end_offset=end_offset))


def raw(found: FoundBatch) -> bytes:
    return bytes(found.window[found.at : found.at + found.header.size])


def found_in(items: list[FoundBatch | DamagedRange]) -> dict[int, bytes]:
    """The batches found, by position."""
    return {item.position: raw(item) for item in items if isinstance(item, FoundBatch)}


def damage_in(items: list[FoundBatch | DamagedRange]) -> list[tuple[int, int, int, int]]:
    """Position, length, and first and last offset of each damaged range."""
    bad = [item for item in items if isinstance(item, DamagedRange)]
    assert all(item.file == NAME and item.reason for item in bad)
    return [(item.position, item.length, item.first_offset, item.last_offset) for item in bad]


def whole(batches: list[bytearray], but: int | None = None) -> dict[int, bytes]:
    """All batches by position, but one."""
    places = zip(positions(batches), batches, strict=False)
    return {position: bytes(data) for number, (position, data) in enumerate(places) if number != but}


# A scan


@given(COUNTS, st.integers(0, 1 << 50))
def test_every_batch_is_found_where_it_was_written(counts: list[int], base_offset: int) -> None:
    batches = consecutive(*counts, base_offset=base_offset)
    data = joined(batches)
    scan = Scan(ScanRange(in_memory(data), 0, len(data), base_offset))
    found = list(scan)
    assert [item.position for item in found] == positions(batches)[:-1]
    assert [raw(item) for item in found] == batches
    assert [item.header for item in found] == [read_header(one) for one in batches]
    assert (scan.position, scan.expected, scan.trouble) == (len(data), base_offset + sum(counts), None)


def test_a_scan_may_begin_and_end_at_any_batch() -> None:
    batches = consecutive(2, 3, 1, 4)
    _, first, _, third, _ = positions(batches)
    scan = Scan(ScanRange(in_memory(joined(batches)), first, third, 2))
    assert [raw(item) for item in scan] == batches[1:3]
    assert (scan.position, scan.expected, scan.trouble) == (third, 6, None)


def test_a_file_cut_at_any_byte_holds_the_batches_before_the_cut() -> None:
    batches = consecutive(2, 1, 3)
    data, edges = joined(batches), positions(batches)
    for size in range(len(data) + 1):
        scan = Scan(ScanRange(in_memory(data[:size]), 0, size, 0))
        number = sum(edge <= size for edge in edges) - 1
        assert [raw(item) for item in scan] == batches[:number]
        assert scan.position == edges[number]
        assert (scan.trouble is None) == (size in edges)


FAULTS = {
    "magic": ({"magic": 1}, "magic byte is 1"),
    "length": ({"length": 48}, "length is 48"),
    "length below zero": ({"length": -1}, "length is -1"),
    "length too large": ({"length": 1 << 30}, "are left, but the batch needs"),
    "delta": ({"last_offset_delta": -1}, "3 records in 0 offsets"),
    "count below zero": ({"record_count": -1}, "-1 records"),
    "count too large": ({"record_count": 4}, "4 records in 3 offsets"),
    "offset too low": ({"base_offset": 1}, "base offset is 1, but 2 is due"),
    "offset too high": ({"base_offset": 3}, "base offset is 3, but 2 is due"),
    "offset below zero": ({"base_offset": -1}, "base offset is -1"),
    "epoch": ({"leader_epoch": 1}, "leader epoch is 1, not 0"),
    "crc": ({"crc": 12345}, "CRC-32C does not match"),
    "attributes": ({"attributes": 0x10}, "CRC-32C does not match"),
    "timestamp": ({"base_timestamp": 0}, "CRC-32C does not match"),
    "producer": ({"producer_id": 7}, "CRC-32C does not match"),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_scan_stops_at_a_bad_field_and_says_which(name: str) -> None:
    changes, trouble = FAULTS[name]
    batches = consecutive(2, 3, 1)
    batches[1][:HEADER_SIZE] = HEADER.pack(*read_header(batches[1])._replace(**changes))
    data = joined(batches)
    scan = Scan(ScanRange(in_memory(data), 0, len(data), 0, epochs=LeaderEpochs([EpochStart(0, 0)])))
    assert [raw(item) for item in scan] == batches[:1]
    assert (scan.position, scan.expected) == (len(batches[0]), 2)
    assert scan.trouble is not None
    assert trouble in scan.trouble


def test_a_batch_without_records_is_a_batch() -> None:
    batches = [batch(2), encode_batch([], base_offset=2, last_offset_delta=4), batch(1, base_offset=7)]
    assert found_in(walked(joined(batches))) == whole(batches)


def test_offsets_may_be_missing_where_gaps_are_allowed_but_never_come_again() -> None:
    batches = [batch(2, base_offset=3), batch(2, base_offset=9), batch(1, base_offset=4)]
    data = joined(batches)
    scan = Scan(ScanRange(in_memory(data), 0, len(data), 0, gaps=True))
    assert [raw(item) for item in scan] == batches[:2]
    assert scan.trouble == "its base offset is 4, but 11 is due"


def test_each_batch_must_have_the_epoch_of_its_offset() -> None:
    batches = [*consecutive(2, 2), *consecutive(2, 2, base_offset=4, leader_epoch=7)]
    data = joined(batches)
    epochs = LeaderEpochs([EpochStart(0, 0), EpochStart(7, 4)])
    assert found_in(walked(data, epochs=epochs)) == whole(batches)
    scan = Scan(ScanRange(in_memory(data), 0, len(data), 0, epochs=LeaderEpochs([EpochStart(0, 0), EpochStart(7, 6)])))
    assert len(list(scan)) == 2
    assert scan.trouble == "its leader epoch is 7, not 0"


def test_before_the_first_known_epoch_any_is_right() -> None:
    batches = [*consecutive(2, leader_epoch=5), *consecutive(2, base_offset=2, leader_epoch=7)]
    assert found_in(walked(joined(batches), epochs=LeaderEpochs([EpochStart(7, 2)]))) == whole(batches)


@pytest.mark.parametrize("window", [1, HEADER_SIZE, 100, 333, 1000])
def test_batches_larger_than_a_window_and_across_its_edge_are_found(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.log.scan.scan.WINDOW_BYTES", window)
    batches = []
    for number in range(40):
        batches.append(batch(1, base_offset=number, value_bytes=(number * 37) % 400))
    data = joined(batches)
    assert found_in(walked(data)) == whole(batches)
    for number in (0, 17, 38):
        spoilt = flip(data, 8 * (positions(batches)[number + 1] - 1))
        assert found_in(walked(spoilt)) == whole(batches, but=number)
    assert found_in(walked(data[:-1])) == whole(batches, but=39)


@pytest.mark.parametrize("search", [HEADER_SIZE, HEADER_SIZE + 1, 100, 333])
def test_the_next_batch_is_found_across_the_edge_of_what_is_searched(
    search: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.log.scan.resync._SEARCH_BYTES", search)
    follower = joined(consecutive(1, 1, base_offset=5))
    for size in range(1, 200):
        data = b"\xff" * size + follower
        assert find_next(ScanRange(in_memory(data), 0, len(data), 4)) == (size, 5)


def test_the_header_that_stands_somewhere_is_read_as_it_is() -> None:
    data = batch(3, base_offset=9)
    assert header_at(in_memory(b"xyz" + data), 3) == read_header(data)
    assert header_at(in_memory(data[:60]), 0) is None


# A walk over damage


def test_any_flipped_bit_costs_the_batch_it_is_in_and_no_other() -> None:
    batches = consecutive(2, 1, 3, 1, 2)
    data, edges = joined(batches), positions(batches)
    epochs = LeaderEpochs([EpochStart(0, 0)])
    offsets = list(accumulate((2, 1, 3, 1, 2), initial=0))
    for bit in range(8 * len(data)):
        number = sum(edge <= bit // 8 for edge in edges) - 1
        items = walked(flip(data, bit), epochs=epochs, end_offset=offsets[-1])
        assert found_in(items) == whole(batches, but=number), f"bit {bit}"
        size = edges[number + 1] - edges[number]
        assert damage_in(items) == [(edges[number], size, offsets[number], offsets[number + 1] - 1)], f"bit {bit}"


def test_a_flipped_length_of_a_small_batch_costs_only_that_batch() -> None:
    batches = consecutive(1, 1, 1, 1, value_bytes=0)
    data, start = joined(batches), len(batches[0])
    for bit in range(8 * (start + 8), 8 * (start + 12)):
        items = walked(flip(data, bit))
        assert found_in(items) == whole(batches, but=1)
        assert damage_in(items) == [(start, len(batches[1]), 1, 1)]


@given(COUNTS.filter(bool), st.data())
def test_bytes_overwritten_cost_the_batches_that_are_not_what_they_were(counts: list[int], draw: st.DataObject) -> None:
    batches = consecutive(*counts)
    data, edges = bytearray(joined(batches)), positions(batches)
    start = draw.draw(st.integers(0, len(data) - 1))
    end = draw.draw(st.integers(start + 1, len(data)))
    data[start:end] = draw.draw(st.sampled_from([b"\0", b"\xff"])) * (end - start)
    left = {edge: bytes(one) for edge, one in zip(edges, batches, strict=False) if data.startswith(one, edge)}
    assert found_in(walked(data, epochs=LeaderEpochs([EpochStart(0, 0)]))) == left


def test_damage_that_lasts_to_the_end_is_named_up_to_the_offset_where_the_file_ends() -> None:
    batches = consecutive(2, 3, 4)
    data, bad = joined(batches), len(batches[0])
    items = walked(data[:bad] + bytes(len(data) - bad), end_offset=9)
    assert damage_in(items) == [(bad, len(data) - bad, 2, 8)]
    items = walked(data[:bad] + bytes(len(data) - bad))
    assert damage_in(items) == [(bad, len(data) - bad, 2, 2)], "nobody knows how much is gone: one record at least"


def test_damaged_ranges_are_named_one_by_one_and_those_that_touch_as_one() -> None:
    batches = consecutive(*[2] * 9)
    data, edges = joined(batches), positions(batches)
    for number in (1, 4, 5, 8):
        data = flip(data, 8 * (edges[number] + 70))
    items = walked(data, end_offset=18)
    ranges = [(1, 2), (4, 6), (8, 9)]  # first batch, and the one behind the last
    assert damage_in(items) == [(edges[a], edges[b] - edges[a], 2 * a, 2 * b - 1) for a, b in ranges]
    assert list(found_in(items)) == [edges[n] for n in (0, 2, 3, 6, 7)]


def test_garbage_behind_the_last_batch_is_damage_to_the_end() -> None:
    batches = consecutive(2, 2)
    data = joined(batches)
    for garbage in (b"\0", bytes(5000), b"\xff" * 100, b"\0" * 12 + b"\xff\xff\xff\xff\x02" * 40, data[:-1]):
        items = walked(data + garbage)
        assert found_in(items) == whole(batches)
        assert damage_in(items) == [(len(data), len(garbage), 4, 4)]


def test_a_batch_from_elsewhere_is_not_believed_for_its_right_crc() -> None:
    batches = consecutive(2, 2)
    data = joined(batches)
    for stray in (batch(1), batch(1, base_offset=3), batch(1, base_offset=5), batch(1, base_offset=1 << 40)):
        items = walked(data + stray)
        assert found_in(items) == whole(batches)
        assert damage_in(items) == [(len(data), len(stray), 4, 4)]


def test_records_that_are_missing_between_batches_are_a_range_without_bytes() -> None:
    batches = consecutive(2, 3, 1, 1, 1)
    del batches[1]
    items = walked(joined(batches))
    assert found_in(items) == whole(batches)
    assert damage_in(items) == [(len(batches[0]), 0, 2, 4)]


def test_a_single_batch_behind_bad_bytes_is_believed_where_one_is_known_to_begin() -> None:
    lost, kept, after = batch(2, base_offset=1), batch(2, base_offset=3), batch(1, base_offset=5)
    data = batch(1) + b"\xff" * len(lost) + kept + b"\xff" * len(after)
    anchor = data.index(kept)
    searched = ScanRange(in_memory(data), anchor - len(lost), len(data), 1)
    assert find_next(searched) is None
    assert find_next(searched._replace(anchors=[anchor])) == (anchor, 3)
    assert find_next(searched._replace(anchors=[anchor + len(kept)])) == (anchor, 3)


def test_behind_bad_bytes_only_later_offsets_count() -> None:
    later = joined(consecutive(1, 1, base_offset=4))
    data = b"\xff" * 100 + later
    assert find_next(ScanRange(in_memory(data), 0, len(data), 3)) == (100, 4)
    assert find_next(ScanRange(in_memory(data), 0, len(data), 5)) is None
    assert find_next(ScanRange(in_memory(data), 0, len(data), 1, epochs=LeaderEpochs([EpochStart(1, 0)]))) is None


@pytest.mark.parametrize(
    "garbled",
    [
        pytest.param({1: 0, 2: 0, 4: 12}, id="behind a sound batch that follows bad ones"),
        pytest.param({1: HEADER_SIZE, 2: 12, 4: 0}, id="between a bad batch and a sound one"),
        pytest.param({1: 12, 2: HEADER_SIZE, 4: HEADER_SIZE}, id="before a bad batch"),
        pytest.param({1: 8, 2: 12, 4: 0}, id="before a sound batch, between bad ones"),
    ],
)
def test_a_wrong_epoch_costs_only_the_batch_that_has_it(garbled: dict[int, int]) -> None:
    batches = consecutive(1, 2, 3, 1, 4, 1)[:5]
    edges, data = positions(batches), bytearray(joined(batches))
    for number, at in garbled.items():
        data[edges[number] + at] ^= 0x5A
    items = walked(data, epochs=LeaderEpochs([EpochStart(0, 0)]))
    assert found_in(items) == {edges[number]: bytes(batches[number]) for number in (0, 3)}


def test_a_batch_does_not_take_the_offset_of_the_bad_one_before_it() -> None:
    """Zeros over the end of one batch and the base offset of the next, which is intact for its CRC."""
    batches = consecutive(3, 2)
    data, edge = bytearray(joined(batches)), len(batches[0])
    data[edge - 12 : edge + 8] = bytes(20)
    items = walked(data)
    assert found_in(items) == {}
    assert [item.first_offset for item in items if isinstance(item, DamagedRange)] == [0]


# Batches inside of batches: a record holds any bytes, and who writes it can foresee its offset


def nested(*batches: bytearray, base_offset: int, last: bool = False, more: int = 0) -> bytearray:
    """A batch with a record that holds whole batches: as its value, or, as the last bytes, in a header."""
    inner = bytes(joined(list(batches)))
    record = Record(base_offset, 0, None, b"", (("h", inner),)) if last else Record(base_offset, 0, b"k", inner)
    others = [Record(base_offset + n, 0, None, b"x" * 10) for n in range(1, more + 1)]
    return encode_batch([record, *others], base_offset=base_offset, leader_epoch=0)


def hostile_batches(base_offset: int) -> dict[str, bytearray]:
    """Batches that hold others with all offsets that could be due behind a bad batch at `base_offset`."""
    one = batch(1, base_offset=base_offset + 1)
    two = consecutive(1, 1, base_offset=base_offset + 1)
    same = consecutive(2, 2, base_offset=base_offset)
    large = consecutive(1, 1, base_offset=base_offset + 1, value_bytes=200)
    return {
        "one": nested(one, base_offset=base_offset),
        "one at the end": nested(one, base_offset=base_offset, last=True),
        "one of several": nested(batch(1, base_offset=base_offset + 4), base_offset=base_offset, more=3),
        "two": nested(*two, base_offset=base_offset),
        "two at the end": nested(*two, base_offset=base_offset, last=True),
        "two with the same offset": nested(*same, base_offset=base_offset),
        "two large ones at the end": nested(*large, base_offset=base_offset, last=True),
        "three deep": nested(nested(one, base_offset=base_offset + 1), base_offset=base_offset, last=True),
    }


HOSTILE = sorted(hostile_batches(0))


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_batch_inside_of_a_torn_one_is_never_believed(kind: str) -> None:
    before = consecutive(2, 1)
    outer = hostile_batches(3)[kind]
    for size in range(1, len(outer)):
        items = walked(joined(before) + outer[:size])
        assert found_in(items) == whole(before), f"cut at {size}"


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_batch_inside_of_a_damaged_one_is_never_believed_and_those_behind_it_are(kind: str) -> None:
    outer = hostile_batches(3)[kind]
    batches = [*consecutive(2, 1), outer, *consecutive(2, 1, base_offset=read_header(outer).next_offset)]
    data, start = joined(batches), positions(batches)[2]
    epochs = LeaderEpochs([EpochStart(0, 0)])
    for bit in range(8 * start, 8 * (start + len(outer))):
        assert found_in(walked(flip(data, bit), epochs=epochs)) == whole(batches, but=2), f"bit {bit - 8 * start}"


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_batch_inside_of_the_last_one_is_never_believed_when_that_is_damaged(kind: str) -> None:
    before = consecutive(2, 1)
    outer = hostile_batches(3)[kind]
    data = joined([*before, outer])
    start, epochs = len(data) - len(outer), LeaderEpochs([EpochStart(0, 0)])
    for bit in range(8 * start, 8 * len(data)):
        assert found_in(walked(flip(data, bit), epochs=epochs)) == whole(before), f"bit {bit - 8 * start}"


# Gaps


def test_a_flipped_offset_costs_one_batch_though_gaps_are_allowed() -> None:
    """Compacted segments, and those of Kafka's: the offset lies outside of the CRC and nothing else fixes it."""
    batches = consecutive(*[2] * 6)
    stamp(batches[2], read_header(batches[2]), 4 + (1 << 20), 0)
    assert found_in(walked(joined(batches), gaps=True)) == whole(batches, but=2)
