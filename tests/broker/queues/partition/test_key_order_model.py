"""With the order of keys, members get the records of each key one after the other, whatever happens to them."""

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tailrace.broker.queues.partition.settings import PartitionSettings
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import (
    AckBatch,
    AckType,
    Acquired,
    Decision,
    EndReason,
    OffsetRange,
    RecordState,
    StateUpdate,
)

LOCK_MS = 1_000
UNFINISHED = (RecordState.AVAILABLE, RecordState.ACQUIRED)
START = 4_090


class KeyOrderModel(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 700]), dead_letters=st.booleans(), data=st.data())
    def begin(self, delay_ms: int, dead_letters: bool, data: st.DataObject) -> None:
        self.settings = PartitionSettings(
            attempts_max=3, retry_delay_ms=delay_ms, has_dead_letters=dead_letters, orders_by_key=True
        )
        self.partition = SharePartition(self.settings, START)
        self.keys: dict[int, int] = {}  # of all records, by offset; none without a key
        self.end = START  # of the log
        self.log_start = START
        self.log: list[StateUpdate] = []
        self.held: dict[int, str] = {}
        self.now = 0

    def carry_out(self, decision: Decision) -> None:
        if decision.update is not None:
            self.partition.replay(decision.update, self.now)
            self.log.append(decision.update)
            self.held = {
                offset: member
                for offset, member in self.held.items()
                if self.partition.state_of(offset)[0] is RecordState.ACQUIRED
            }

    def add_keys(self) -> None:
        """As the broker does before it acquires."""
        first = self.partition.keys_known_to
        assert first is not None
        last = min(first + 5, self.end)
        if last > first:
            known = [(offset, self.keys[offset]) for offset in range(first, last) if offset in self.keys]
            self.partition.add_keys(known, last)

    @rule(keys=st.lists(st.integers(-1, 3), min_size=1, max_size=8))
    def records_come(self, keys: list[int]) -> None:
        for key in keys:
            if key >= 0:
                self.keys[self.end] = key
            self.end += 1

    @rule(member=st.sampled_from("ab"), records_max=st.integers(1, 9), is_strict=st.booleans())
    def acquire(self, member: str, records_max: int, is_strict: bool) -> None:
        self.add_keys()
        for offset in self.acquired_by(member, records_max, is_strict):
            self.check_is_next(offset)
            self.held[offset] = member

    def acquired_by(self, member: str, records_max: int, is_strict: bool) -> list[int]:
        found = self.partition.next_available(self.now)
        if found is None or found.first >= self.end:
            return []
        acquired = self.partition.acquire(
            member,
            found.first,
            [OffsetRange(found.first, self.end - 1)],
            records_max=records_max,
            now_ms=self.now,
            lock_ms=LOCK_MS,
            is_strict=is_strict,
        )
        return [offset for one in acquired for offset in range(one.first, one.last + 1)]

    def check_is_next(self, offset: int) -> None:
        key = self.keys.get(offset)
        for before in range(self.partition.start_offset, offset):
            if key is not None and self.keys.get(before) == key:
                assert self.partition.state_of(before)[0] not in UNFINISHED, (before, offset)

    @rule(data=st.data(), kind=st.sampled_from(AckType))
    def acknowledge(self, data: st.DataObject, kind: AckType) -> None:
        if self.held:
            offset = data.draw(st.sampled_from(sorted(self.held)), "offset")
            said = [AckBatch(offset, offset, [kind])]
            self.carry_out(self.partition.acknowledge(self.held[offset], said, self.now, LOCK_MS))

    @rule(member=st.sampled_from("ab"))
    def a_member_goes(self, member: str) -> None:
        self.carry_out(self.partition.release_member(member))

    @rule(after_ms=st.sampled_from([100, 800, 1_000]))
    def time_passes(self, after_ms: int) -> None:
        self.now += after_ms
        self.carry_out(self.partition.expire_locks(self.now))

    @rule(data=st.data())
    def a_read_fails(self, data: st.DataObject) -> None:
        if self.held:
            offset = data.draw(st.sampled_from(sorted(self.held)), "offset")
            member = self.held.pop(offset)
            self.partition.undo_acquire(member, [Acquired(offset, offset, 1)])

    @rule(skip=st.integers(0, 8), length=st.integers(1, 3))
    def records_expire(self, skip: int, length: int) -> None:
        first = min(self.partition.start_offset + skip, self.partition.end_offset)
        last = min(first + length, self.end) - 1
        if first <= last:
            self.carry_out(self.partition.archive([OffsetRange(first, last)], EndReason.EXPIRED))

    @rule(length=st.integers(1, 4))
    def the_log_is_truncated(self, length: int) -> None:
        self.log_start = min(self.log_start + length, self.end)
        self.carry_out(self.partition.archive_before(self.log_start))

    @rule(skip=st.integers(0, 8), delay_ms=st.integers(1, 2_000))
    def a_record_is_for_later(self, skip: int, delay_ms: int) -> None:
        offset = self.partition.start_offset + skip
        if offset < self.partition.end_offset:
            self.partition.park(offset, offset, self.now + delay_ms, self.now)

    @rule(records_max=st.integers(0, 5))
    def the_order_is_switched(self, records_max: int) -> None:
        """Off and on again; what is held meanwhile stays so."""
        self.partition.settings = self.settings._replace(orders_by_key=False)
        assert self.partition.keys_known_to is None
        self.held |= dict.fromkeys(self.acquired_by("b", records_max, True), "b")
        self.partition.settings = self.settings

    @rule()
    def the_broker_restarts(self) -> None:
        self.partition = SharePartition(self.settings, START)
        for update in self.log:
            self.partition.replay(update, self.now, LOCK_MS // 2)
        self.held.clear()

    def teardown(self) -> None:
        """All of it can be finished, in order."""
        if not hasattr(self, "partition"):
            return
        for _ in range(4 * (self.end - START) + 20):
            self.now += 10_000
            self.carry_out(self.partition.expire_locks(self.now))
            self.carry_out(self.partition.archive_before(self.log_start))
            archiving = [OffsetRange(first, last) for first, last, _ in self.partition.archiving_in()]
            self.carry_out(self.partition.dead_letters_written(archiving))
            self.partition.unpark(self.now)
            self.acquire("a", 9, True)
            for offset in sorted(self.held):
                said = [AckBatch(offset, offset, [AckType.ACCEPT])]
                self.carry_out(self.partition.acknowledge(self.held[offset], said, self.now, LOCK_MS))
        assert self.partition.start_offset == max(self.end, START)
        assert self.partition.parked == 0


TestKeyOrder = KeyOrderModel.TestCase
TestKeyOrder.settings = hypothesis_settings(max_examples=100, stateful_step_count=40, deadline=None)
