"""A share partition does what a dictionary of its records would, whatever comes in which order."""

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tailrace.broker.core.errors import Refused
from tailrace.broker.queues.partition.pages import PAGE_OFFSETS
from tailrace.broker.queues.partition.settings import PartitionSettings, retry_delay_ms
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import (
    OFFSET_MAX,
    AckBatch,
    AckType,
    Acquired,
    Decision,
    EndReason,
    OffsetRange,
    RecordState,
    StateUpdate,
)
from tailrace.protocol.errors import ErrorCode

AVAILABLE, ACKNOWLEDGED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED
ARCHIVING, ARCHIVED = RecordState.ARCHIVING, RecordState.ARCHIVED
TERMINAL = (ACKNOWLEDGED, ARCHIVED)
MEMBERS = ("a", "b", "c")
LOCK_MS = 1_000
NEW = (AVAILABLE, 0)

SETTINGS = st.builds(
    lambda attempts, locks, dead_letters, total_ms, parked, delay_ms: PartitionSettings(
        attempts_max=attempts,
        locks_max=locks,
        has_dead_letters=dead_letters,
        lock_total_max_ms=total_ms,
        parked_max=parked,
        retry_delay_ms=delay_ms,
    ),
    st.integers(2, 6),
    st.sampled_from([5, 40, 100_000]),
    st.booleans(),
    st.sampled_from([2_500, 1_000_000]),
    st.sampled_from([0, 3, 100_000]),
    st.sampled_from([0, 300]),
)
ACK_TYPES = st.sampled_from([*AckType, AckType.RELEASE, AckType.RELEASE, AckType.RENEW])  # most records live on
STARTS = st.sampled_from([0, 4_090, 12_287, 1 << 40])
LENGTHS = st.one_of(st.integers(1, 12), st.integers(1, 60))


class Hold:
    def __init__(self, member: str, acquired_ms: int) -> None:
        self.member = member
        self.acquired_ms = acquired_ms
        self.deadline = acquired_ms + LOCK_MS


class SharePartitionModel(RuleBasedStateMachine):
    @initialize(settings=SETTINGS, start=STARTS)
    def begin(self, settings: PartitionSettings, start: int) -> None:
        self.settings = settings
        self.real = SharePartition(settings, start)
        self.first = self.start = self.end = start
        self.records: dict[int, tuple[RecordState, int]] = {}  # that differ from new ones
        self.held: dict[int, Hold] = {}
        self.parked: dict[int, int] = {}
        self.log_start = 0
        self.now = 10_000
        self.log: list[tuple[int, StateUpdate]] = []

    # The model

    def state(self, offset: int) -> tuple[RecordState, int]:
        return self.records.get(offset, NEW)

    def is_free(self, offset: int) -> bool:
        return self.state(offset)[0] is AVAILABLE and offset not in self.held and offset not in self.parked

    def apply(self, decision: Decision, expected: dict[int, tuple[RecordState, int]]) -> None:
        """The decision has to say what is expected; then it counts, on both sides."""
        update = decision.update
        assert (update is None) == (not expected)
        if update is None:
            return
        before = self.start
        for offset, (state, count) in expected.items():
            assert self.state(offset)[0] not in TERMINAL, "finished is finished"
            self.records[offset] = state, count
            self.held.pop(offset, None)
            self.end = max(self.end, offset + 1)
        while self.start < self.end and self.state(self.start)[0] in TERMINAL:
            self.start += 1
        assert update.start_offset == (self.start if self.start > before else -1)
        said = {
            offset: (one.state, one.delivery_count)
            for one in update.ranges
            for offset in range(one.first, one.last + 1)
        }
        assert said == {offset: value for offset, value in expected.items() if offset >= self.start}
        for one in update.ranges:
            if one.state is AVAILABLE and one.delivery_count and self.settings.retry_delay_ms:
                due = self.now + retry_delay_ms(self.settings, one.first, one.delivery_count)
                self.parked |= dict.fromkeys(range(one.first, one.last + 1), -(-due // 50) * 50)
        for offset in expected:
            if expected[offset][0] is not AVAILABLE or offset < self.start:
                self.parked.pop(offset, None)
        self.real.replay(update, self.now)
        self.log.append((self.now, update))
        assert self.real.complete_count == update.complete_count

    def given_up(self) -> RecordState:
        return ARCHIVING if self.settings.has_dead_letters else ARCHIVED

    def released(self, offset: int) -> tuple[RecordState, int]:
        count = self.state(offset)[1] + 1
        if offset < self.log_start:
            return ARCHIVED, count
        return (self.given_up() if count >= self.settings.attempts_max else AVAILABLE), count

    def outcome(self, offset: int, kind: AckType) -> tuple[RecordState, int]:
        count = self.state(offset)[1] + 1
        if kind is AckType.ACCEPT:
            return ACKNOWLEDGED, count
        if kind is AckType.GAP:
            return ARCHIVED, count
        if kind is AckType.REJECT:
            return self.given_up(), count
        return self.released(offset)

    def unpark(self) -> None:
        self.parked = {offset: due for offset, due in self.parked.items() if due > self.now}

    def taken(
        self, first: int, batches: list[OffsetRange], records_max: int, is_strict: bool, batch_size: int
    ) -> list[Acquired]:
        """What an acquisition takes, one record after the other."""
        left = min(records_max, self.settings.locks_max - len(self.held))
        suspect_from = max(2, -(-self.settings.attempts_max // 2))
        is_growing = not self.parked or len(self.parked) < self.settings.parked_max
        taken: list[Acquired] = []
        for batch in batches:
            if left <= 0:
                break
            is_apart = not taken or (batch_size > 0 and taken[-1].last - taken[-1].first + 1 >= batch_size)
            for offset in range(first, batch.last + 1):
                if offset >= self.end:
                    if not is_growing or (is_strict and left <= 0):
                        break
                    self.end = offset + 1
                if not self.is_free(offset) or (is_strict and left <= 0):
                    continue
                count = self.state(offset)[1]
                if count >= suspect_from:
                    return taken or [Acquired(offset, offset, count + 1)]
                if taken and not is_apart and taken[-1].last + 1 == offset and taken[-1].delivery_count == count + 1:
                    taken[-1] = taken[-1]._replace(last=offset)
                else:
                    taken.append(Acquired(offset, offset, count + 1))
                is_apart = False
                left -= 1
            first = max(first, batch.last + 1)
        return taken

    # What happens

    @rule(
        member=st.sampled_from(MEMBERS),
        lengths=st.lists(st.tuples(st.integers(0, 2), LENGTHS), min_size=1, max_size=4),
        records_max=st.sampled_from([1, 7, 50, 10_000]),
        is_strict=st.booleans(),
        batch_size=st.sampled_from([0, 1, 10]),
    )
    def acquire(
        self, member: str, lengths: list[tuple[int, int]], records_max: int, is_strict: bool, batch_size: int
    ) -> None:
        found = self.real.next_available(self.now)
        self.unpark()
        free = min((offset for offset in range(self.start, self.end) if self.is_free(offset)), default=None)
        if len(self.held) >= self.settings.locks_max or (
            free is None and 0 < len(self.parked) >= self.settings.parked_max
        ):
            assert found is None
            return
        assert found is not None
        assert found.first == (self.end if free is None else free)
        self.check_end_of_free(found)
        batches, offset = [], found.first
        for gap, length in lengths:  # between batches, where compaction has left nothing
            batches.append(OffsetRange(offset + gap, offset + gap + length - 1))
            offset += gap + length
        expected = self.taken(found.first, batches, records_max, is_strict, batch_size)
        acquired = self.real.acquire(
            member,
            found.first,
            batches,
            records_max=records_max,
            now_ms=self.now,
            lock_ms=LOCK_MS,
            is_strict=is_strict,
            batch_size=batch_size,
        )
        assert acquired == expected
        assert acquired, "something was available"
        assert found.last == OFFSET_MAX or acquired[0].first <= found.last
        for one in acquired:
            for offset in range(one.first, one.last + 1):
                assert offset not in self.held, "one holder at most"
                self.held[offset] = Hold(member, self.now)

    def check_end_of_free(self, found: OffsetRange) -> None:
        first, last = found
        page = first // PAGE_OFFSETS
        is_growing = not self.parked or len(self.parked) < self.settings.parked_max
        free = [offset for offset in range(first, self.end) if self.is_free(offset)]
        assert max((offset for offset in free if offset // PAGE_OFFSETS == page), default=0) <= last
        if last == OFFSET_MAX:
            assert is_growing
        else:
            assert last == max(offset for offset in free if offset // PAGE_OFFSETS == last // PAGE_OFFSETS)
            assert not is_growing or last // PAGE_OFFSETS < (self.end - 1) // PAGE_OFFSETS

    @rule(data=st.data(), kind=ACK_TYPES)
    def acknowledge_a_range(self, data: st.DataObject, kind: AckType) -> None:
        if not self.held:
            return
        offsets = sorted(self.held)
        first = data.draw(st.sampled_from(offsets[:50]), "first")
        member = self.held[first].member
        last = first
        longest = data.draw(st.sampled_from([1, 5, 10_000]), "longest")
        while last - first + 1 < longest and self.is_held_by(member, last + 1):
            last += 1
        self.acknowledge(member, [AckBatch(first, last, [kind])])

    @rule(data=st.data())
    def acknowledge_one_by_one(self, data: st.DataObject) -> None:
        if not self.held:
            return
        member = data.draw(st.sampled_from(sorted({hold.member for hold in self.held.values()})), "member")
        batches: list[AckBatch] = []
        for offset in sorted(offset for offset, hold in self.held.items() if hold.member == member)[:12]:
            kind = data.draw(ACK_TYPES, "type")
            if batches and batches[-1].last + 1 == offset:
                batches[-1] = AckBatch(batches[-1].first, offset, [*batches[-1].types, kind])
            else:
                batches.append(AckBatch(offset, offset, [kind]))
        self.acknowledge(member, batches)

    @rule(
        data=st.data(),
        member=st.sampled_from(MEMBERS),
        lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=3),
    )
    def acknowledge_anything(self, data: st.DataObject, member: str, lengths: list[tuple[int, int]]) -> None:
        offset = max(0, self.start + data.draw(st.integers(-10, 20), "from"))
        batches = []
        for gap, length in lengths:
            batches.append(AckBatch(offset + gap, offset + gap + length - 1, [AckType.ACCEPT]))
            offset += gap + length
        offsets = [offset for batch in batches for offset in range(max(batch.first, self.start), batch.last + 1)]
        if all(self.is_held_by(member, offset) for offset in offsets):
            self.acknowledge(member, batches)
        else:
            with pytest.raises(Refused):
                self.real.acknowledge(member, batches, self.now, LOCK_MS)

    @rule(data=st.data())
    def acknowledge_between_two(self, data: st.DataObject) -> None:
        if not self.held:
            return
        offsets = st.sampled_from(sorted(self.held)[:80])
        first, last = sorted((data.draw(offsets, "one"), data.draw(offsets, "other")))
        member = self.held[first].member
        batch = AckBatch(first, last, [data.draw(ACK_TYPES, "type")])
        if all(self.is_held_by(member, offset) for offset in range(first, last + 1)):
            self.acknowledge(member, [batch])
        else:
            with pytest.raises(Refused) as refused:
                self.real.acknowledge(member, [batch], self.now, LOCK_MS)
            assert refused.value.code == ErrorCode.INVALID_RECORD_STATE

    @rule(after_ms=st.sampled_from([1, 500, 999]), length=st.sampled_from([1, 3, 10_000]))
    def a_member_renews(self, after_ms: int, length: int) -> None:
        self.time_passes(after_ms)
        if self.held:
            first = last = min(self.held)
            member = self.held[first].member
            while last - first + 1 < length and self.is_held_by(member, last + 1):
                last += 1
            self.acknowledge(member, [AckBatch(first, last, [AckType.RENEW])])

    def is_held_by(self, member: str, offset: int) -> bool:
        return offset in self.held and self.held[offset].member == member

    def acknowledge(self, member: str, batches: list[AckBatch]) -> None:
        decision = self.real.acknowledge(member, batches, self.now, LOCK_MS)
        expected = {}
        renewed = 0
        for batch in batches:
            for n, offset in enumerate(range(batch.first, batch.last + 1)):
                kind = AckType(batch.types[n if len(batch.types) > 1 else 0])
                if offset < self.start:
                    continue
                if kind is AckType.RENEW:
                    renewed += 1
                    hold = self.held[offset]
                    if self.now + LOCK_MS <= hold.acquired_ms + self.settings.lock_total_max_ms:
                        hold.deadline = self.now + LOCK_MS
                else:
                    expected[offset] = self.outcome(offset, kind)
        assert decision.renewed == renewed
        self.apply(decision, expected)

    @rule(member=st.sampled_from(MEMBERS), ranges_max=st.sampled_from([1, 1_000]))
    def a_member_goes(self, member: str, ranges_max: int) -> None:
        while (decision := self.real.release_member(member, ranges_max)).update is not None:
            assert len(decision.update.ranges) <= ranges_max * 2
            self.apply(decision, self.ended_by(decision))
        assert not any(hold.member == member for hold in self.held.values())

    def ended_by(self, decision: Decision) -> dict[int, tuple[RecordState, int]]:
        """Of records that are released in portions, in an order of the partition's: those of this portion."""
        assert decision.update is not None
        update = decision.update
        offsets = [offset for one in update.ranges for offset in range(one.first, one.last + 1)]
        offsets += [offset for offset in self.held if offset < update.start_offset]
        return {offset: self.released(offset) for offset in offsets}

    @rule(after_ms=st.sampled_from([10, 500, 1_000, 1_000, 5_000]))
    def time_passes(self, after_ms: int) -> None:
        self.now += after_ms
        overdue = {offset for offset, hold in self.held.items() if hold.deadline <= self.now}
        while (decision := self.real.expire_locks(self.now)).update is not None:
            ended = self.ended_by(decision)
            assert overdue.issuperset(ended)
            self.apply(decision, ended)
        assert not overdue.intersection(self.held)
        self.real.unpark(self.now)
        self.unpark()
        deadlines = [hold.deadline for hold in self.held.values()]
        due = self.real.next_deadline
        assert due is None or due > self.now
        assert min(deadlines, default=OFFSET_MAX) >= (due or OFFSET_MAX)

    @rule(data=st.data())
    def a_read_fails(self, data: st.DataObject) -> None:
        if not self.held:
            return
        offset = data.draw(st.sampled_from(sorted(self.held)[:50]), "offset")
        count = self.state(offset)[1]
        self.real.undo_acquire(self.held[offset].member, [Acquired(offset, offset, count + 1)])
        del self.held[offset]

    @rule(distance=st.sampled_from([0, 0, 0, 1, 3, 50]))
    def the_log_is_truncated(self, distance: int) -> None:
        log_start = self.start + distance
        self.log_start = max(self.log_start, log_start)
        decision = self.real.archive_before(log_start, 100_000)
        expected = {
            offset: (ARCHIVED, self.state(offset)[1])
            for offset in range(self.start, log_start)
            if self.state(offset)[0] is AVAILABLE and offset not in self.held
        }
        lost = [offset for one in decision.ended for offset in range(one.first, one.last + 1)]
        assert lost == list(expected)
        self.apply(decision, expected)

    @rule(
        start=st.integers(0, 30),
        length=st.sampled_from([1, 2, 3, 60]),
        reason=st.sampled_from([EndReason.EXPIRED, EndReason.ABORTED]),
    )
    def records_end(self, start: int, length: int, reason: EndReason) -> None:
        first = min(self.start + start, self.end)
        last = first + length - 1
        decision = self.real.archive([OffsetRange(first, last)], reason)
        state = self.given_up() if reason is EndReason.EXPIRED else ARCHIVED
        expected = {
            offset: (state, self.state(offset)[1])
            for offset in range(first, last + 1)
            if self.state(offset)[0] is AVAILABLE and offset not in self.held
        }
        self.apply(decision, expected)

    @rule(length=st.sampled_from([1, 10, 10_000]))
    def dead_letters_are_written(self, length: int) -> None:
        archiving = [offset for offset, (state, _) in sorted(self.records.items()) if state is ARCHIVING][:length]
        found = [offset for first, last, _ in self.real.archiving_in() for offset in range(first, last + 1)]
        assert found[:length] == archiving
        ranges = [OffsetRange(offset, offset) for offset in archiving]
        decision = self.real.dead_letters_written(ranges)
        self.apply(decision, {offset: (ARCHIVED, self.state(offset)[1]) for offset in archiving})

    # What always holds

    @invariant()
    def states_are_equal(self) -> None:
        real = self.real
        assert (real.start_offset, real.end_offset) == (self.start, self.end)
        unfinished = [offset for offset in range(self.start, self.end) if self.state(offset)[0] not in TERMINAL]
        assert real.unfinished == len(unfinished)
        assert real.complete_count == self.end - self.start - len(unfinished)
        assert real.in_flight == len(self.held)
        assert real.parked == len(self.parked)
        assert real.archiving == sum(1 for offset in unfinished if self.state(offset)[0] is ARCHIVING)
        attempts: dict[int, int] = {}
        for offset in unfinished:
            state, count = self.state(offset)
            if state is AVAILABLE:
                attempts[count] = attempts.get(count, 0) + 1
        assert real.attempts == dict(sorted(attempts.items()))
        for offset in (*unfinished[:40], *unfinished[-5:]):
            state, count = self.state(offset)
            shown = (RecordState.ACQUIRED, count + 1) if offset in self.held else (state, count)
            assert real.state_of(offset) == shown

    @invariant()
    def a_replay_gives_the_same_state(self) -> None:
        replayed = SharePartition(self.settings, self.first)
        for written_ms, update in self.log:
            for piece in update.pieces(2):
                replayed.replay(piece, self.now, self.now - written_ms)
        state = persisted(self.real)
        assert persisted(replayed) == state
        again = SharePartition(self.settings)
        for update in self.real.snapshot(ranges_max=3):
            again.replay(update, self.now)
        assert persisted(again) == state
        model = {offset: value for offset, value in self.records.items() if offset >= self.start and value != NEW}
        start, ranges = state
        assert start == self.start
        assert {offset: (s, n) for first, last, s, n in ranges for offset in range(first, last + 1)} == model


def persisted(partition: SharePartition) -> tuple[int, list[tuple[int, int, RecordState, int]]]:
    pieces = list(partition.snapshot(ranges_max=100_000))
    return pieces[0].start_offset, [tuple(one) for piece in pieces for one in piece.ranges]


TestSharePartition = SharePartitionModel.TestCase
TestSharePartition.settings = hypothesis_settings(max_examples=100, stateful_step_count=60, deadline=None)
