from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.queues.names import ShareKey
from tailrace.broker.queues.state_log.needed_records import SPARE_BYTES, UPDATES_MIN, NeededLog
from tailrace.broker.queues.state_log.records import (
    ShareSnapshotted,
    ShareSnapshotValue,
    ShareUpdated,
    ShareUpdateValue,
)


def key(number: int) -> ShareKey:
    return ShareKey("workers", bytes(16), number)


class Log:
    """Notes records, and gives them offsets."""

    def __init__(self) -> None:
        self.needed = NeededLog()
        self.end = 0

    def snapshot(self, number: int = 0, epoch: int = 0, size: int = 100, **fields: Any) -> int:
        return self.note(ShareSnapshotted(key(number), ShareSnapshotValue(snapshot_epoch=epoch, **fields)), size)

    def update(self, number: int = 0, epoch: int = 0, size: int = 50) -> int:
        return self.note(ShareUpdated(key(number), ShareUpdateValue(snapshot_epoch=epoch)), size)

    def delete(self, number: int = 0) -> int:
        return self.note(ShareSnapshotted(key(number), None), 30)

    def note(self, change: Any, size: int) -> int:
        offset, self.end = self.end, self.end + 1
        self.needed.note(change, offset, size)
        return offset

    def cut(self) -> int:
        return self.needed.cut(self.end)


def test_a_state_is_due_when_its_updates_outweigh_it_twice() -> None:
    log = Log()
    log.snapshot(size=100)
    for _ in range(UPDATES_MIN - 1):
        log.update(size=50)
    assert not log.needed.due, "a few updates cost nothing"
    log.update(size=50)
    assert list(log.needed.due) == [key(0)]
    del log.needed.due[key(0)]
    log.snapshot(epoch=1, size=50 * UPDATES_MIN)
    for _ in range(2 * UPDATES_MIN):
        log.update(epoch=1)
    assert not log.needed.due
    log.update(epoch=1)
    assert list(log.needed.due) == [key(0)]


def test_the_log_may_be_cut_before_the_last_snapshots_that_are_on_disk() -> None:
    log = Log()
    log.snapshot(0)
    log.snapshot(1)
    log.update(0)
    later = log.snapshot(0, epoch=1)
    assert log.needed.cut(log.end) == 1, "the other one's"
    latest = log.snapshot(1, epoch=1)
    assert log.needed.cut(latest) == 1, "it is not on disk"
    assert log.needed.cut(log.end) == later


def test_a_partial_snapshot_counts_when_an_update_of_its_epoch_completes_it() -> None:
    log = Log()
    first = log.snapshot(epoch=3)
    begun = log.snapshot(epoch=4, is_partial=True)
    assert log.needed.epoch(key(0)) == 3
    log.update(epoch=3)
    assert log.cut() == first
    log.update(epoch=4)
    assert log.needed.epoch(key(0)) == 4
    assert log.cut() == begun


def test_a_whole_snapshot_takes_the_place_of_a_partial_one() -> None:
    log = Log()
    log.snapshot(epoch=3)
    log.snapshot(epoch=4, is_partial=True)
    whole = log.snapshot(epoch=5)
    assert log.needed.epoch(key(0)) == 5
    assert log.cut() == whole


def test_a_deleted_state_needs_nothing() -> None:
    log = Log()
    for _ in range(UPDATES_MIN + 10):
        log.update()
    assert log.needed.epoch(key(0)) == -1
    log.snapshot()
    for _ in range(UPDATES_MIN + 10):
        log.update()
    assert log.needed.due
    log.delete()
    assert not log.needed.due
    assert log.cut() == log.end
    assert not log.needed.needed_bytes


def test_states_that_hold_back_a_log_of_needless_records_are_due() -> None:
    log = Log()
    for number in range(3):
        log.snapshot(number, size=1000)
    while log.needed.bytes <= SPARE_BYTES:
        log.snapshot(3, epoch=log.end, size=1000)
        log.needed.find_stale()
        assert not log.needed.due or log.needed.bytes > SPARE_BYTES
    for _ in range(200):
        log.snapshot(3, epoch=log.end, size=1000)
    log.needed.find_stale()
    assert list(log.needed.due) == [key(number) for number in range(3)]
    for number in range(3):
        log.snapshot(number, epoch=1, size=1000)
    before = log.needed.bytes
    assert log.cut() > log.end - 10
    assert log.needed.bytes < before / 4
    log.needed.due.clear()
    log.needed.find_stale()
    assert not log.needed.due


records = st.lists(
    st.one_of(
        st.tuples(st.just("snapshot"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("update"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("delete"), st.integers(0, 3), st.booleans()),
    ),
    max_size=60,
)


@given(records, st.data())
def test_a_cut_keeps_a_whole_snapshot_of_each_state(steps: list[tuple[str, int, bool]], data: st.DataObject) -> None:
    """What is on disk after the cut begins, for each state, with a snapshot that is completed there."""
    log, noted = Log(), []
    flushed = cut = 0
    for kind, number, flag in steps:
        epoch = log.needed.epoch(key(number))
        if kind == "snapshot":
            log.snapshot(number, epoch=epoch + 1, is_partial=flag)
        elif kind == "delete":
            log.delete(number)
        elif epoch >= 0:
            completes = flag and log.needed._needed[key(number)].is_being_written
            log.update(number, epoch=epoch + completes)
        else:
            continue
        noted.append((kind, number, flag, log.needed.epoch(key(number))))
        flushed = data.draw(st.integers(flushed, log.end))
        now = log.needed.cut(flushed)
        assert now >= cut
        cut = now
        check_whole(noted, cut, flushed)


def check_whole(noted: list[tuple[str, int, bool, int]], cut: int, flushed: int) -> None:
    for number in range(4):
        mine = [one for one in noted[:flushed] if one[1] == number]
        left = [one for one in noted[cut:flushed] if one[1] == number]
        last_deleted = max((n for n, one in enumerate(mine) if one[0] == "delete"), default=-1)
        had_whole = any(one[0] == "snapshot" and (not one[2]) for one in mine[last_deleted + 1 :])
        is_deleted_later = any(one[1] == number and one[0] == "delete" for one in noted[flushed:])
        if had_whole and not is_deleted_later:
            assert any(one[0] == "snapshot" for one in left), f"state {number} has lost its snapshot"
