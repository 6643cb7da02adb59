"""How far groups are behind: records, bytes and time, rates, states, and when they will lose messages. Pure.

A `LagTracker` is given one snapshot after the other, and keeps what a single one cannot tell: rates, and since when a
group stands still. `p` is the first offset that a group may still read, `max(committed, start)`.

    slow     the lag has grown over ten minutes
    stalled  the group has members, and no commit has moved for `stopped_ms` though there is something to read
    stopped  the same without members
    rewound  the last commit went back, and the group has not come again to where it was
    ok       all else
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.facts.lag import GroupLag, LagRow
from tailrace.facts.segments import SegmentFact
from tailrace.monitor.figures.buffers import WriteRates
from tailrace.monitor.figures.forecast import NEVER, NO_LOSS, Forecast, Walk, low
from tailrace.monitor.figures.rates import TEN_MINUTES_S, Rate
from tailrace.monitor.figures.snapshot import TAILRACE, GroupState, LogState, Snapshot, Unread

STOPPED_MS = 600_000
OK, SLOW, STALLED, STOPPED, REWOUND = "ok", "slow", "stalled", "stopped", "rewound"
STANDING_MS = 60_000  # a group without members that has not moved for so long will not move by itself
BEHIND_SHARE = 0.98  # reading less than this share of what is written is falling behind
PIECES = 16  # in which a log of unknown segments is cut
STILL = 1e-3  # records per second that are as good as none


class _Reader:
    """The state of a group in one partition. A mark is a moment and the lag that it had. `row` holds until
    `holds_until` if nothing moves.
    """

    __slots__ = (
        *("committed", "had_members", "holds_until", "mark", "mark_before", "moved_at", "peak", "rate", "row"),
        *("seen_at", "signed_at"),
    )

    def __init__(self, committed: int, at: int) -> None:
        self.committed = committed
        self.seen_at = self.moved_at = at
        self.peak: int | None = None  # where the group was before its last commit went back
        self.rate = Rate(committed, at / 1000)
        self.mark: tuple[int, int] | None = None
        self.mark_before: tuple[int, int] | None = None
        self.row: LagRow | None = None
        self.holds_until = 0.0
        self.had_members = False
        self.signed_at: int | None = None  # the last member or commit that was seen

    def see(self, committed: int, at: int, at_before: int) -> None:
        """`at_before` is the time of the snapshot before, until which nothing has moved if it was not seen then."""
        self.rate.add(self.committed, at_before / 1000)
        if committed != self.committed:
            if committed < self.committed:
                self.peak = max(self.committed, self.peak or 0)
            elif self.peak is not None and committed >= self.peak:
                self.peak = None
            self.committed, self.moved_at = committed, at
            self.signed_at = at
        self.rate.add(committed, at / 1000)

    def has_grown(self, lag: int, at: int) -> bool:
        """Whether the lag is larger than it was ten minutes ago, or a little longer."""
        if not lag:
            self.mark = self.mark_before = None
            return False
        if self.mark is None or at - self.mark[0] >= TEN_MINUTES_S * 1000:
            self.mark_before, self.mark = self.mark, (at, lag)
        return self.mark_before is not None and lag > self.mark_before[1]


class _Known(NamedTuple):
    """The inputs for the row of one group in one partition."""

    group: str
    partition: TopicPartition
    state: GroupState
    log: LogState
    position: int
    records: int
    unread: Unread | None
    writes: Rate


class LagTracker:
    """`samples_only` is for two snapshots seconds apart: since when a group stands still is then inferred from the age
    of its first unread record.
    """

    def __init__(self, stopped_ms: int = STOPPED_MS, *, samples_only: bool = False) -> None:
        self._stopped_ms = stopped_ms
        self._samples_only = samples_only
        self._writes: dict[TopicPartition, Rate] = {}
        self._readers: dict[str, dict[TopicPartition, _Reader]] = {}
        self._walks: dict[tuple[TopicPartition, float], Walk] = {}  # of one snapshot
        self._at = self._at_before = 0  # of the last snapshot, and the one before
        self._logs: Mapping[TopicPartition, LogState] = {}  # of the snapshot before
        self._still: set[TopicPartition] = set()  # logs that are as they were then

    def observe(self, snapshot: Snapshot) -> list[GroupLag]:
        """Returns the lag of each group that has committed offsets of partitions that exist."""
        at_s = snapshot.at / 1000
        self._at_before, self._at = self._at, snapshot.at
        for partition, log in snapshot.logs.items():
            writes = self._writes.get(partition)
            if writes is None:
                self._writes[partition] = Rate(log.end, at_s)
            else:
                writes.add(log.end, at_s)
        self._forget(snapshot)
        self._walks = {}
        before, self._logs = self._logs, snapshot.logs
        # Under a budget, every log decides when records of this one go.
        self._still = {one for one, log in snapshot.logs.items() if snapshot.budget is None and before.get(one) == log}
        if snapshot.budget is not None:
            total = sum(rates.today for rates in self.write_rates(snapshot.logs).values())
            snapshot = snapshot._replace(budget=snapshot.budget._replace(bytes_per_second=total))
        return [
            GroupLag(name, snapshot.at, state.has_members, rows)
            for name, state in sorted(snapshot.groups.items())
            if (rows := tuple(self._rows(name, state, snapshot)))
        ]

    def write_rates(self, logs: Mapping[TopicPartition, LogState]) -> dict[TopicPartition, WriteRates]:
        """Bytes per second of each partition, now and at its fastest, for `buffers`."""
        return {
            partition: WriteRates(writes.ten_minutes * log.record_bytes, writes.most * log.record_bytes)
            for partition, log in logs.items()
            if (writes := self._writes.get(partition)) is not None
        }

    def _forget(self, snapshot: Snapshot) -> None:
        for partition in self._writes.keys() - snapshot.logs.keys():
            del self._writes[partition]
        for group in self._readers.keys() - snapshot.groups.keys():
            del self._readers[group]

    def _rows(self, group: str, state: GroupState, snapshot: Snapshot) -> Iterator[LagRow]:
        readers = self._readers.setdefault(group, {})
        if len(readers) > len(state.committed):
            for partition in readers.keys() - state.committed.keys():
                del readers[partition]
        for partition, committed in sorted(state.committed.items()):
            log = snapshot.logs.get(partition)
            if log is None:
                continue
            reader = readers.get(partition)
            if reader is None:
                reader = readers[partition] = _Reader(committed, snapshot.at)
            row = self._unchanged(reader, committed, log, partition)
            if row is None or (row.lag_records and not self._holds(reader, row, partition, state, snapshot.at)):
                reader.see(committed, snapshot.at, self._at_before)
                row = reader.row = self._row(group, state, partition, log, reader, snapshot)
            yield row

    def _unchanged(self, reader: _Reader, committed: int, log: LogState, partition: TopicPartition) -> LagRow | None:
        """The last row of a group, where nothing has moved for long: most rows are such."""
        row = reader.row
        if row is None or (row.committed, row.start, row.end) != (committed, log.start, log.end):
            return None
        is_still = row.produce_rate < STILL and row.consume_rate < STILL
        return row if is_still and self._writes[partition].ten_minutes < STILL else None

    def _holds(self, reader: _Reader, row: LagRow, partition: TopicPartition, state: GroupState, at: int) -> bool:
        """Whether the unchanged row of a group that is behind would come out the same now."""
        is_as_before = partition in self._still and state.has_members == reader.had_members
        return is_as_before and row.unread_at is not None and at < reader.holds_until

    def _row(
        self,
        group: str,
        state: GroupState,
        partition: TopicPartition,
        log: LogState,
        reader: _Reader,
        snapshot: Snapshot,
    ) -> LagRow:
        committed, writes = reader.committed, self._writes[partition]
        position = max(committed, log.start)
        unread = snapshot.unread.get((partition, position))
        records = max(0, log.end - position)
        if unread is None and (partition, position) in snapshot.unread:
            records = 0  # nothing but control batches is left
        if reader.had_members or state.has_members:
            reader.signed_at = snapshot.at
        known = _Known(group, partition, state, log, position, records, unread, writes)
        lag_state = self._state(known, reader, snapshot.at)
        lost = max(0, log.start - committed)
        expected, least = self._forecasts(known, reader, lag_state, snapshot)
        if lost:
            expected = least = Forecast(0.0, None)
        due_at = NEVER if lost else snapshot.at + 1000 * expected.seconds
        reader.holds_until = min(due_at, self._holds_until(known, reader, snapshot.at))
        reader.had_members = state.has_members
        return LagRow(
            topic=partition.topic,
            partition=partition.partition,
            committed=committed,
            start=log.start,
            end=log.end,
            lag_records=records,
            lag_bytes=lag_bytes(log, position) if records else 0,
            bytes_exact=bool(log.segments),
            unread_at=unread.timestamp if unread is not None else None,
            produce_rate=round(writes.ten_minutes, 3),
            consume_rate=round(reader.rate.ten_minutes, 3),
            loss_at=_moment(expected, snapshot.at),
            loss_low_at=_moment(least, snapshot.at),
            rule=(expected.rule or least.rule),
            state=lag_state,
            unread_lost=lost,
            estimate=snapshot.source != TAILRACE,
        )

    # States

    def _state(self, known: _Known, reader: _Reader, at: int) -> str:
        has_grown = reader.has_grown(known.records, at)
        if not known.records:
            reader.peak = None
            return OK
        if self._standing_ms(known, reader, at) >= self._stopped_ms:
            return STALLED if known.state.has_members else STOPPED
        if reader.peak is not None:
            return REWOUND
        if self._samples_only and reader.rate.minute < known.writes.minute and self._age_ms(known, at) >= STANDING_MS:
            return SLOW
        return SLOW if has_grown else OK

    def _standing_ms(self, known: _Known, reader: _Reader, at: int) -> int:
        """Returns how long the group has had something to read without a commit that moved."""
        if self._samples_only:
            return self._age_ms(known, at) if reader.moved_at == reader.seen_at else 0
        if known.unread is None or known.unread.timestamp is None:
            return at - reader.moved_at
        return min(at - reader.moved_at, self._age_ms(known, at))

    def _holds_until(self, known: _Known, reader: _Reader, at: int) -> float:
        """When the state or the forecast of a group changes even if nothing moves."""
        standing_ms = self._standing_ms(known, reader, at)
        if standing_ms >= max(STANDING_MS, self._stopped_ms):
            return NEVER
        steps = [at + limit - standing_ms for limit in (STANDING_MS, self._stopped_ms) if standing_ms < limit]
        if reader.mark is not None:
            steps.append(reader.mark[0] + round(TEN_MINUTES_S * 1000))
        return min(steps)

    @staticmethod
    def _age_ms(known: _Known, at: int) -> int:
        unread = known.unread
        return 0 if unread is None or unread.timestamp is None else max(0, at - unread.timestamp)

    # Time to loss

    def _forecasts(self, known: _Known, reader: _Reader, state: str, snapshot: Snapshot) -> tuple[Forecast, Forecast]:
        """Expected, and with the worst rates."""
        log, writes, reads = known.log, known.writes, reader.rate
        if not known.records or not log.deletes:
            return NO_LOSS, NO_LOSS
        stands = state in (STALLED, STOPPED)
        if not known.state.has_members:
            stands = stands or self._standing_ms(known, reader, snapshot.at) >= STANDING_MS
        long, short = reads.ten_minutes, reads.minute
        if known.group in log.hold_groups and log.hold is not None:
            ends_s = self._hold_ends_s(known, reader, snapshot.at) if stands else NEVER
            known = known._replace(log=log._replace(hold=log.hold._replace(ends_s=ends_s)))
        pairs = [(writes.ten_minutes, 0.0 if stands else long), (writes.minute, short)]
        is_late = self._age_ms(known, snapshot.at) >= TEN_MINUTES_S * 1000 and short < writes.minute
        if stands or is_late or long < BEHIND_SHARE * writes.ten_minutes:
            pairs.append((writes.most, reads.least))
        expected = self._forecast(known, snapshot, *pairs[0], rounded=True)
        return expected, low([self._forecast(known, snapshot, *pair, rounded=False) for pair in pairs])

    @staticmethod
    def _hold_ends_s(known: _Known, reader: _Reader, at: int) -> float:
        """When the hold for a group that stands expires. What is not known of it is as when it was first seen."""
        if known.state.has_members or known.log.hold_expiry_ms < 0:
            return NEVER
        signs = known.log.hold_signs.get(known.group, reader.seen_at), reader.signed_at or 0
        return (max(signs) + known.log.hold_expiry_ms - at) / 1000

    def _forecast(self, known: _Known, snapshot: Snapshot, write: float, read: float, *, rounded: bool) -> Forecast:
        walk = self._walk(known, snapshot, write)
        return walk.forecast(known.position, read, rounded=rounded)

    def _walk(self, known: _Known, snapshot: Snapshot, write: float) -> Walk:
        """The same for all groups in a partition, unless segments are held for this one or are not known."""
        log = known.log
        unread_at = known.unread.timestamp if known.unread is not None else None
        if known.group in log.hold_groups or not log.segments or log.segments[-1].newest is None:
            segments = log.segments or estimated_segments(log, known.position, unread_at, snapshot.at)
            segments = (*segments[:-1], segments[-1]._replace(newest=segments[-1].newest or unread_at))
            hold = log.hold if known.group in log.hold_groups else None
            limits = log.limits._replace(hold=hold, budget=snapshot.budget)
            return Walk(segments, limits, write, write * log.record_bytes, snapshot.at, unread_at)
        key = known.partition, write
        if (walk := self._walks.get(key)) is None:
            limits = log.limits._replace(budget=snapshot.budget)
            walk = self._walks[key] = Walk(log.segments, limits, write, write * log.record_bytes, snapshot.at)
        return walk


def lag_bytes(log: LogState, position: int) -> int | None:
    """Bytes from `position` on. In the segment that has it, a share by offsets: exact to that segment. Where segments
    are not known, a share of the log. None if the size is not known.
    """
    if not log.segments:
        return None if log.size is None else round(log.record_bytes * (log.end - position))
    total = 0.0
    for segment in reversed(log.segments):
        if segment.next <= position:
            break
        share = (segment.next - max(segment.base, position)) / (segment.next - segment.base)
        total += segment.size * share
    return round(total)


def estimated_segments(log: LogState, position: int, unread_at: int | None, now_ms: int) -> tuple[SegmentFact, ...]:
    """Stands for segments that are not known: the first unread record by itself, and pieces up to the end whose records
    came at a steady rate since then. So it is never later than the log allows.
    """
    if unread_at is None or position >= log.end:
        return (SegmentFact(position, log.end, round(log.record_bytes * (log.end - position)), None),)
    count = min(PIECES, log.end - position - 1)
    bounds = [position, *(position + 1 + (log.end - position - 1) * n // max(1, count) for n in range(count + 1))]
    per_record = (now_ms - unread_at) / (log.end - position)
    return tuple(
        SegmentFact(
            base, end, round(log.record_bytes * (end - base)), round(unread_at + per_record * (base - position))
        )
        for base, end in pairwise(bounds)
    )


def _moment(forecast: Forecast, at: int) -> int | None:
    return None if forecast.seconds == NEVER else at + round(forecast.seconds * 1000)
