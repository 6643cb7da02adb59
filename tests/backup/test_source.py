"""Looking at a log from outside: where it is cut, and when two looks agree."""

from dataclasses import replace

import pytest
from backups import DATA, a_source, write_more

from tailrace.backup.source import Look, SeenSegment, Source, agree, find_cut
from tailrace.log.files.checksums import Gaps, SegmentChecksums
from tailrace.log.layout.names import TopicPartition
from tailrace.records.batch import split

ORDERS = TopicPartition("orders", 0)


def seen(base: int, size: int = 100, *, next_offset: int | None = None, gaps: Gaps = Gaps.NONE) -> SeenSegment:
    if next_offset is None:
        return SeenSegment(base, size, None, "")
    return SeenSegment(base, size, SegmentChecksums(size, next_offset, 0, 0, (), gaps), f"{size} {next_offset} {gaps}")


FIRST, SECOND, LAST = seen(0, next_offset=10), seen(10, next_offset=20), seen(20)
BEFORE = Look("id", 0, 0, (FIRST, SECOND, LAST))


def after(*segments: SeenSegment, topic_id: str = "id", start: int = 0) -> Look:
    return Look(topic_id, start, 0, segments)


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        (after(FIRST, SECOND, LAST), 0),
        (after(FIRST, SECOND, seen(20, 150)), 0),  # the last one grew
        (after(FIRST, SECOND, seen(20, 150, next_offset=30), seen(30)), 0),  # and was sealed
        (after(SECOND, LAST, start=10), 1),  # the first was deleted
        (after(SECOND, LAST, start=15), 1),
        (after(LAST, start=20), 2),
        (after(SECOND, LAST, start=5), None),  # it is gone, and nobody has deleted it
        (after(FIRST, LAST), None),
        (after(FIRST, SECOND), None),
        (after(seen(30), start=30), None),  # all of it
        (after(seen(0, 50, next_offset=10, gaps=Gaps.COMPACTED), SECOND, LAST), None),
        (after(seen(0, next_offset=10, gaps=Gaps.COMPACTED), SECOND, LAST), None),  # of the same size, by chance
        (after(FIRST, SECOND, seen(20, next_offset=30, gaps=Gaps.COMPACTED), seen(30)), None),
        (after(FIRST, seen(5), SECOND, LAST), None),
        (after(FIRST, SECOND, LAST, topic_id="another"), None),
    ],
)
def test_two_looks_agree_if_the_log_has_only_gone_on_or_lost_its_front(now: Look, lost: int | None) -> None:
    assert agree(BEFORE, now) == lost


def test_sums_that_came_meanwhile_are_of_the_same_bytes() -> None:
    before = Look("id", 0, 0, (seen(0), seen(10)))
    assert agree(before, after(seen(0, next_offset=10), seen(10))) == 0
    assert agree(before, after(seen(0, next_offset=10, gaps=Gaps.COMPACTED), seen(10))) is None


def test_segments_that_do_not_follow_on_each_other_may_be_just_being_replaced() -> None:
    assert BEFORE.is_contiguous
    assert not Look("id", 0, 0, (FIRST, LAST)).is_contiguous
    assert not Look("id", 0, 0, (seen(0, next_offset=15), SECOND)).is_contiguous
    assert Look("id", 0, 0, (seen(0, next_offset=5, gaps=Gaps.COMPACTED), SECOND)).is_contiguous


def test_wherever_a_write_is_cut_off_the_cut_is_behind_the_last_whole_batch() -> None:
    files, broker = a_source(batches=1)
    broker.log().roll()
    write_more(broker.log(), 4)
    active = broker.log().active
    data = active.log.read_at(0, active.size)
    ends = {0: active.base_offset}
    ends |= {position + header.size: header.next_offset for position, header in split(data)}
    file = files.open(active.log.path)
    for size in range(len(data) + 1):
        whole = max(end for end in ends if end <= size)
        cut = find_cut(file, SeenSegment(active.base_offset, size, None, ""), 0)
        assert cut == (whole, ends[whole], True)


def test_bytes_that_were_flushed_are_not_cut_off_however_bad() -> None:
    files, broker = a_source(batches=1)
    broker.log().roll()
    write_more(broker.log(), 4)
    active = broker.log().active
    look = SeenSegment(active.base_offset, active.size, None, "")
    file = files.open(active.log.path)
    file.write_at(active.size - 5, b"spoilt")
    torn = find_cut(file, look, 0)
    assert torn.position < active.size
    assert torn.is_sound
    assert find_cut(file, look, broker.log().end_offset) == (active.size, broker.log().end_offset, False)


def test_a_segment_that_a_look_finds_has_the_sums_that_speak_of_it() -> None:
    files, broker = a_source()
    broker.directory.checkpoint(2000)
    write_more(broker.log(), 1)
    look = Source(files, DATA).look(ORDERS)
    assert look is not None
    assert [segment.is_summed for segment in look.segments] == [True] * (len(look.segments) - 1) + [False]
    assert look.is_contiguous
    assert look.segments == tuple(
        replace(segment, size=real.size) for segment, real in zip(look.segments, broker.log().segments, strict=True)
    )
    assert Source(files, DATA).look(TopicPartition("nobody", 0)) is None
