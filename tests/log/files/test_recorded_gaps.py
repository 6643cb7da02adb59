"""The file that says what repairs have given up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.files.recorded_gaps import (
    FILE_NAME,
    CorruptGaps,
    RecordedGap,
    add_gaps,
    decode_gaps,
    encode_gaps,
    has_gap,
    read_gaps,
)
from tailrace.testing.recording_files import Disk, RecordingFiles

GAP = RecordedGap(10, 19, "its CRC-32C does not match", "2026-11-16T10:00:00+00:00", "00000000000000000000.log.812.cut")
gaps = st.builds(
    RecordedGap, st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.text(), st.text(), st.none() | st.text()
)


@given(st.lists(gaps))
def test_what_is_written_is_read_again_in_the_order_of_offsets(some: list[RecordedGap]) -> None:
    read = decode_gaps(encode_gaps(some))
    assert sorted(read, key=str) == sorted(some, key=str)
    assert [gap.first_offset for gap in read] == sorted(gap.first_offset for gap in some)


def test_a_file_that_is_cut_or_rotten_is_noticed() -> None:
    data = encode_gaps([GAP])
    for size in range(len(data)):
        with pytest.raises(CorruptGaps):
            decode_gaps(data[:size])
    for bit in range(0, 8 * len(data), 3):
        rotten = bytearray(data)
        rotten[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptGaps):
            decode_gaps(bytes(rotten))


def test_a_gap_that_is_recorded_again_stays_as_it_was_and_others_come() -> None:
    files = RecordingFiles(Disk(directories={"disk"}))
    assert read_gaps(files, "disk") == ()
    add_gaps(files, "disk", [GAP])
    other = RecordedGap(5, 5, "lost", "later", None)
    again = RecordedGap(10, 19, "still", "later", None)
    add_gaps(files, "disk", [again, other])
    assert read_gaps(files, "disk") == (other, GAP)
    assert bytes(files.disk.file(f"disk/{FILE_NAME}")).startswith(b"1 ")


def test_a_gap_is_in_the_segment_that_has_one_of_its_offsets() -> None:
    assert [has_gap([GAP], first, following) for first, following in ((0, 10), (0, 11), (19, 30), (20, None))] == [
        False,
        True,
        True,
        False,
    ]


def test_it_says_what_is_lost_and_where_the_bytes_are() -> None:
    assert str(GAP).startswith("offsets 10 to 19 are lost, and given up by a repair at 2026-11-16")
    assert str(GAP).endswith("the damaged bytes are kept in 00000000000000000000.log.812.cut")
