"""The lag of groups from one snapshot after the other, on a virtual clock."""

import math
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor.simulation import RECORD_BYTES, World

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.facts import lag as lag_facts
from tailrace.facts.lag import Beat, GroupLag, LagRow
from tailrace.facts.segments import SegmentFact
from tailrace.monitor.figures.forecast import Hold, Limits
from tailrace.monitor.figures.lag import LagTracker, estimated_segments, lag_bytes
from tailrace.monitor.figures.snapshot import KAFKA, TAILRACE, GroupState, LogState, Snapshot, Unread

ORDERS = TopicPartition("orders", 0)
ALERT_S = 3600
ROUND_S = 15


def snapshot(
    at_s: float, committed: Mapping[str, int], log: LogState, *, members: bool = True, unread_at_s: float | None = None
) -> Snapshot:
    """`unread_at_s` is the time of the first unread record of all groups; without, there is none left."""
    unread: dict[tuple[TopicPartition, int], Unread | None] = {}
    for offset in committed.values():
        position = max(offset, log.start)
        if position < log.end:
            stamp = None if unread_at_s is None else Unread(position, round(unread_at_s * 1000))
            unread[ORDERS, position] = stamp
    groups = {group: GroupState(members, {ORDERS: offset}) for group, offset in committed.items()}
    return Snapshot(round(at_s * 1000), TAILRACE, groups, {ORDERS: log}, unread)


def one_row(groups: list[GroupLag]) -> LagRow:
    ((row,),) = [group.rows for group in groups]
    return row


def states(committed: Callable[[int], int], end: Callable[[int], int], rounds: int, **more: bool) -> list[str]:
    """The state in each round of 60 s, of a group whose first unread record came when the log had reached it."""
    tracker, found = LagTracker(), []
    for number in range(rounds):
        log = LogState(0, end(number), None)
        unread = next(n for n in range(number + 1) if end(n) > committed(number) or n == number)
        seen = snapshot(number * 60, {"group": committed(number)}, log, unread_at_s=unread * 60, **more)
        found.append(one_row(tracker.observe(seen)).state)
    return found


# States


def test_a_group_that_stands_still_is_stalled_with_members_and_stopped_without() -> None:
    for members, state in ((True, "stalled"), (False, "stopped")):
        found = states(lambda n: min(n, 3) * 100, lambda n: n * 100 + 100, 30, members=members)
        assert {"stalled", "stopped"}.isdisjoint(found[:12])
        assert found[14:] == [state] * 16


def test_a_group_that_waits_for_records_is_not_stopped_by_the_first_that_comes() -> None:
    found = states(lambda n: 100, lambda n: 100 if n < 30 else 101, 35, members=False)
    assert set(found) == {"ok"}


def test_a_lag_that_grows_for_ten_minutes_is_slow() -> None:
    found = states(lambda n: n * 80, lambda n: n * 100 + 100, 30)
    assert found[:10] == ["ok"] * 10
    assert found[10:] == ["slow"] * 20
    assert set(states(lambda n: n * 100, lambda n: n * 100 + 50, 30)) == {"ok"}


def test_a_group_that_was_moved_back_is_rewound_until_it_is_where_it_was() -> None:
    positions = [1000, 1000, 200, 400, 600, 800, 1000, 1100]
    found = states(lambda n: positions[n], lambda n: 2000, len(positions))
    assert found == ["ok", "ok", "rewound", "rewound", "rewound", "rewound", "ok", "ok"]


def test_two_samples_infer_a_stalled_group_from_the_age_of_its_first_unread_record() -> None:
    tracker = LagTracker(samples_only=True)
    for at in (1000, 1002):
        row = one_row(tracker.observe(snapshot(at, {"group": 5}, LogState(0, 9, None), members=False, unread_at_s=300)))
    assert row.state == "stopped"
    moved = one_row(tracker.observe(snapshot(1004, {"group": 6}, LogState(0, 9, None), members=False, unread_at_s=301)))
    assert moved.state == "ok"


# Figures


def test_nothing_but_control_batches_is_no_lag() -> None:
    row = one_row(LagTracker().observe(snapshot(0, {"group": 5}, LogState(0, 6, 100))))
    assert (row.lag_records, row.lag_bytes, row.lag_seconds(10_000), row.loss_at) == (0, 0, 0.0, None)


def test_rows_tell_the_time_that_has_passed_since_they_were_written() -> None:
    row = one_row(LagTracker().observe(snapshot(100, {"group": 5}, LogState(0, 9, 900), unread_at_s=40)))
    assert row.lag_seconds(100_000) == 60
    assert row.lag_seconds(110_000) == 70
    lost = one_row(LagTracker().observe(snapshot(100, {"group": 5}, LogState(7, 9, 900), unread_at_s=40)))
    assert (lost.unread_lost, lost.lag_records, lost.loss_seconds(200_000)) == (2, 2, 0.0)


def test_groups_and_partitions_that_are_gone_are_forgotten() -> None:
    tracker = LagTracker()
    log = LogState(0, 10, None)
    assert [one.group for one in tracker.observe(snapshot(0, {"a": 1, "b": 2}, log, unread_at_s=0))] == ["a", "b"]
    assert [one.group for one in tracker.observe(snapshot(15, {"b": 2}, log, unread_at_s=0))] == ["b"]
    gone = Snapshot(30_000, KAFKA, {"b": GroupState(True, {ORDERS: 2})}, {}, {})
    assert tracker.observe(gone) == []


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 10_000)), min_size=1), st.data())
def test_bytes_are_exact_to_one_segment(shapes: list[tuple[int, int]], data: st.DataObject) -> None:
    segments, offset = [], 0
    for count, size in shapes:
        segments.append(SegmentFact(offset, offset + count, size, None))
        offset += count
    log = LogState(0, offset, sum(one.size for one in segments), tuple(segments))
    position = data.draw(st.integers(0, offset))
    behind = [one.size for one in segments if one.base >= position]
    found = lag_bytes(log, position)
    own = [one.size for one in segments if one.base < position < one.next]
    assert found is not None
    assert sum(behind) <= found <= sum(behind) + sum(own)


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(0, 10**9))
def test_estimated_segments_have_all_that_is_unread_and_are_never_newer_than_now(
    position: int, count: int, age: int
) -> None:
    now = 10**12
    log = LogState(0, position + count, (position + count) * 100)
    found = estimated_segments(log, position, now - age, now)
    assert [one.base for one in found[1:]] == [one.next for one in found[:-1]]
    assert (found[0].base, found[-1].next) == (position, log.end)
    assert all(one.next > one.base for one in found)
    assert all(now - age <= (one.newest or 0) <= now for one in found)


def test_what_is_published_is_read_again() -> None:
    tracker = LagTracker()
    (group,) = tracker.observe(snapshot(100, {"gruppe ü": 5}, LogState(0, 9, 900), unread_at_s=40))
    assert lag_facts.decode_group(group.encode()) == group
    beat = Beat(1000, 15_000, KAFKA)
    assert lag_facts.decode_beat(beat.encode()) == beat
    assert (beat.is_fresh(46_000), beat.is_fresh(46_001)) == (True, False)


class Moment(NamedTuple):
    """What happens to a partition and its group before the monitor looks again."""

    passed_s: int
    appended: int = 0
    read: int = 0
    deleted: int = 0
    has_members: bool = False
    retention_ms: int = 3_600_000


MOMENTS = st.builds(
    Moment,
    passed_s=st.sampled_from([15, 15, 15, 60, 400, 700, 8000]),
    appended=st.sampled_from([0, 0, 0, 0, 50]),
    read=st.sampled_from([0, 0, 0, 0, 10, -5]),
    deleted=st.sampled_from([0, 0, 0, 0, 40]),
    has_members=st.booleans(),
    retention_ms=st.sampled_from([3_600_000, 3_600_000, 40_000_000]),
)


@given(st.lists(MOMENTS, min_size=2, max_size=25))
def test_rows_that_are_kept_while_nothing_moves_are_those_that_would_be_computed(moments: list[Moment]) -> None:
    """The first tracker keeps them; the second one computes each."""
    keeps, computes = LagTracker(), LagTracker()
    computes._unchanged = lambda *_: None  # type: ignore[method-assign]
    now_s, start, end, committed, written_at = 1_000_000, 0, 100, 20, [1_000_000] * 100
    for moment in moments:
        now_s += moment.passed_s
        end += moment.appended
        written_at += [now_s] * moment.appended
        committed = min(end, max(0, committed + moment.read))
        start = min(end, start + moment.deleted)
        segments = (
            (SegmentFact(start, end, (end - start) * RECORD_BYTES, written_at[-1] * 1000),) if end > start else ()
        )
        limits = Limits(moment.retention_ms, tick_ms=300_000, tick_at=0, active_since=1_000_000_000)
        log = LogState(start, end, (end - start) * RECORD_BYTES, segments, limits)
        position = max(start, committed)
        unread_at = written_at[position] if position < end else None
        groups = {"group": committed}
        seen = snapshot(now_s, groups, log, unread_at_s=unread_at, members=moment.has_members)
        kept, computed = one_row(keeps.observe(seen)), one_row(computes.observe(seen))
        for name in ("loss_at", "loss_low_at"):
            one, other = (getattr(row, name) for row in (kept, computed))
            assert (one is None) == (other is None)
            assert one is None or abs(max(one, now_s * 1000) - max(other, now_s * 1000)) <= 1
        assert kept._replace(loss_at=None, loss_low_at=None) == computed._replace(loss_at=None, loss_low_at=None)


# Holds


@pytest.mark.parametrize("refuses", [False, True])
def test_a_hold_for_a_group_that_gives_no_sign_expires(refuses: bool) -> None:
    """An hour after its last commit or member: retention would have deleted all of it long ago."""
    hour, began = 3_600_000, 10_000_000
    segments = (SegmentFact(0, 10, 1000, 0), SegmentFact(10, 20, 1000, began))
    log = LogState(
        *(0, 20, 2000, segments, Limits(retention_ms=1000)),
        hold=Hold(-1, -1, refuses),
        hold_groups=frozenset(("group",)),
        hold_expiry_ms=hour,
        hold_signs={"group": began - 500_000},
    )

    def rows(tracker: LagTracker, *rounds: tuple[int, bool], log: LogState = log) -> LagRow:
        for at_s, members in rounds:
            seen = snapshot(began / 1000 + at_s, {"group": 5}, log, members=members, unread_at_s=1)
            row = one_row(tracker.observe(seen))
        return row

    alone, joined = LagTracker(), LagTracker()
    row = rows(alone, (0, False), (90, False))
    assert (row.loss_at, row.loss_low_at, row.rule) == (began + hour - 500_000, began + hour - 500_000, "hold_cap")
    assert rows(joined, (0, True), (90, True)).loss_at is None
    assert rows(joined, (105, False), (200, False)).loss_at == began + 105_000 + hour
    unknown = log._replace(hold_signs={})
    assert rows(LagTracker(), (0, False), (90, False), log=unknown).loss_at == began + hour
    expired = log._replace(hold_signs={"group": began - 2 * hour})
    assert rows(LagTracker(), (0, False), (90, False), log=expired).loss_seconds(began + 90_000) == 0


# A reader and its log, and whether the alert comes in time


class Observed:
    """A world as a monitor sees it, each 15 seconds."""

    def __init__(self, world: World, hold: Hold | None = None) -> None:
        self.world = world
        self.tracker = LagTracker()
        self._hold = hold
        self._written_at: list[int] = []  # by offset

    def step(self) -> LagRow | None:
        """One second of the world; the row where the monitor looks."""
        before = self.world.end
        self.world.step()
        self._written_at += [self.world.now - 1] * (self.world.end - before)
        if self.world.now % ROUND_S:
            return None
        world = self.world
        segments = tuple(one for one in world.segments if one.next > one.base)
        start = segments[0].base if segments else 0
        size = sum(one.size for one in segments)
        log = LogState(start, world.end, size, segments, world.limits())
        position = max(world.position, start)
        unread = self._written_at[position] if position < world.end else None
        return one_row(self.tracker.observe(snapshot(world.now, {"group": world.position}, log, unread_at_s=unread)))


WRITERS: dict[str, Callable[[int], int]] = {
    "steady": lambda _: 20,
    "bursty": lambda now: 40 if now // 60 % 2 else 0,
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("share", [0.0, 0.7, 0.95])
@pytest.mark.parametrize("by_size", [False, True], ids=["age", "size"])
def test_the_alert_comes_before_the_loss(writer: str, share: float, by_size: bool) -> None:
    keep_s = 5400
    limit = {"retention_bytes": keep_s * 20 * RECORD_BYTES} if by_size else {"retention_ms": keep_s * 1000}
    began, stands_s = 1_000_000, round(keep_s * 0.8) if share else 0

    def reads(now: int) -> int:
        """Keeps up for 20 minutes, stands still where that shortens the test, and reads its share."""
        since = now - began - 1200
        return 40 if since < 0 else 0 if since < stands_s else round(20 * share)

    observed = Observed(World(WRITERS[writer], reads, segment_bytes=200_000, **limit))  # type: ignore[arg-type]
    world, alerted_at, in_a_row = observed.world, None, 0
    told: list[tuple[int, float]] = []
    while world.lost_at is None:
        assert world.now < world.began + 400_000
        row = observed.step()
        if row is None:
            continue
        loss = row.loss_low_seconds(world.now * 1000)
        in_a_row = in_a_row + 1 if loss is not None and loss < ALERT_S else 0
        if in_a_row == 2 and alerted_at is None:
            alerted_at = world.now
        expected = row.loss_seconds(world.now * 1000)
        if expected is not None and world.now > began + 1200 + stands_s + 3600:
            told.append((world.now, expected))
    assert alerted_at is not None
    assert world.lost_at - alerted_at >= 0.8 * ALERT_S
    if writer == "steady":
        for at, expected in told:
            left = world.lost_at - at
            assert abs(expected - left) <= max(0.1 * left, world.tick_s), (at, expected, left)


def test_groups_that_keep_up_are_never_said_to_lose_messages_soon() -> None:
    """100 groups on a day of changing traffic, each with its own pace of commits and short breaks."""
    tracker, randomly, step = LagTracker(), random.Random(7), 60
    paces = [randomly.choice((1, 1, 1, 5)) for _ in range(100)]  # steps between commits
    keep_ms, end, lows = 3 * 3600 * 1000, 0, []
    ends = [0]  # by step
    segments: list[SegmentFact] = []
    at_step = dict.fromkeys(range(100), 0)
    limits = Limits(keep_ms, segment_bytes=1 << 22, tick_ms=300_000, tick_at=0)
    for number in range(1, 86_400 // step):
        now = number * step
        busy = 1 + math.sin(now / 86_400 * 2 * math.pi) + (3 if number // 10 % 6 == 0 else 0)
        before, end = end, end + int(step * 50 * busy) + 1
        ends.append(end)
        grown = (end - before) * RECORD_BYTES
        if segments and segments[-1].size < limits.segment_bytes:
            last = segments.pop()
            segments.append(SegmentFact(last.base, end, last.size + grown, now * 1000))
        else:
            segments.append(SegmentFact(before, end, grown, now * 1000))
        while len(segments) > 1 and now % 300 == 0 and (segments[0].newest or 0) + keep_ms < now * 1000:
            del segments[0]
        for group, pace in enumerate(paces):
            if number % pace == 0 and randomly.random() > 0.02:
                at_step[group] = number - 1
        size = sum(one.size for one in segments)
        log = LogState(segments[0].base, end, size, tuple(segments), limits)
        groups = {str(group): GroupState(True, {ORDERS: ends[at]}) for group, at in at_step.items()}
        unread = {(ORDERS, ends[at]): Unread(ends[at], (at + 1) * step * 1000) for at in at_step.values()}
        seen = Snapshot(now * 1000, TAILRACE, groups, {ORDERS: log}, unread)
        found = [group.rows[0].loss_low_seconds(now * 1000) for group in tracker.observe(seen)]
        lows += [low for low in found if low is not None]
    assert lows
    assert min(lows) >= ALERT_S
