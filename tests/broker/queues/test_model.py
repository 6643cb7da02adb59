"""Members of a share group fetch, acknowledge, fall silent and disconnect, in any order; records are produced and
deleted; the broker is killed, restarted, and loses its power; states are written anew, and their log is cut. Whatever
the order:

    one member at most holds a record
    a record that was finished, and the member was told so, is never delivered again
    each delivery has its number, and none comes after the last that the group allows
    the start of the partition never goes back
    a replay of the state log gives the states in memory
    in the end every record is finished, or has been deleted

`make crash` tries more orders (EXAMPLES=…).
"""

import os
from typing import Any

from brokers import LocalBroker
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from logs import DATA, memory_files
from queue_states import check_replay, in_memory
from share_fetches import Worker, begin_group
from transactions import run_a_job

from tailrace.log.retention import Reason
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_acknowledge import ACCEPT, GAP, REJECT, RELEASE

EXAMPLES = int(os.environ.get("EXAMPLES", "60"))

LOCK_MS = 30_000
ATTEMPTS_MAX = 5
PARTITIONS = 2
SPARE_BYTES = 2_000  # so small that states are written anew
UPDATES_MIN = 5

members = st.sampled_from("abc")
partitions = st.integers(0, PARTITIONS - 1)
kinds = st.sampled_from([ACCEPT, RELEASE, REJECT, GAP, None])
Place = tuple[int, int]


class Record:
    def __init__(self) -> None:
        self.holder: str | None = None
        self.deadline = 0
        self.count = 0  # deliveries that have ended
        self.is_finished = False
        self.is_uncertain = False  # the broker ended before it told what became of an acknowledgement


class Queues(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = memory_files()
        self.broker = LocalBroker(DATA, files=self.files)
        self.topic_id = self.broker.create_topic(partitions=PARTITIONS)
        begin_group(self.broker, self.topic_id, range(PARTITIONS))
        self.workers = {name: self._worker(name) for name in "abc"}
        self.records: dict[Place, Record] = {}
        self.starts = dict.fromkeys(range(PARTITIONS), 0)
        for index in range(PARTITIONS):
            self.produce(index, 4)
            self.produce(index, 2)
        self._shrink_limits()

    def _shrink_limits(self) -> None:
        from tailrace.broker.queues.state_log import needed_records, snapshots

        self._limits = {
            (needed_records, "SPARE_BYTES"): SPARE_BYTES,
            (needed_records, "SAMPLE_BYTES"): 100,
            (needed_records, "UPDATES_MIN"): UPDATES_MIN,
            (snapshots, "RANGES_OF_A_SNAPSHOT"): 0,
            (snapshots, "RANGES_OF_A_RECORD"): 1,
        }
        self._before = {at: getattr(*at) for at in self._limits}
        for (module, name), value in self._limits.items():
            setattr(module, name, value)

    def teardown(self) -> None:
        try:
            self._finish_everything()
        finally:
            self._restore_limits()

    def _finish_everything(self) -> None:
        for _ in range(3 * len(self.records) + 10):
            for name in "abc":
                self.fetch(name, 100, is_strict=False)
                self.acknowledge(name, [ACCEPT] * 1000)
        left = [place for place, one in self.records.items() if not (one.is_finished or one.is_uncertain)]
        assert not left
        for key, found in in_memory(self.broker).items():
            assert found is not None
            assert found.start == self.broker.partition(index=key.partition).end_offset

    def _restore_limits(self) -> None:
        for (module, name), value in self._before.items():
            setattr(module, name, value)

    def _worker(self, name: str) -> Worker:
        return Worker(self.broker, self.topic_id, name, partitions=range(PARTITIONS))

    def _held(self, name: str) -> list[Place]:
        return sorted(place for place, record in self.records.items() if record.holder == name)

    # Records

    @rule(partition=partitions, count=st.integers(1, 4))
    def produce(self, partition: int, count: int) -> None:
        offset = self.broker.produce(*(b"x" for _ in range(count)), partition=partition).base_offset
        for n in range(count):
            self.records[partition, offset + n] = Record()

    @rule(partition=partitions, share=st.floats(0, 1))
    def delete(self, partition: int, share: float) -> None:
        core = self.broker.partition(index=partition)
        if core.log is None:
            return
        before = int(core.start_offset + share * (core.high_watermark - core.start_offset))
        if before > core.start_offset:
            self.broker.broker.retention.delete(core, before, Reason.DELETE_RECORDS, self.broker.now_ms)
            self.broker.broker.checkpointer.when_offsets_saved()
            self.broker.run_jobs()
        for (index, offset), record in self.records.items():
            if index == partition and offset < before and record.holder is None:
                record.is_finished = True

    # Members

    @rule(name=members, records_max=st.integers(1, 6), is_strict=st.booleans())
    def fetch(self, name: str, records_max: int, is_strict: bool) -> None:
        worker = self.workers[name]
        delivery = worker.fetch(max_records=records_max, share_acquire_mode=int(is_strict))
        if delivery.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND:
            worker.epoch = 0
            return
        assert delivery.error_code == ErrorCode.NONE
        for (_, index), one in delivery.partitions.items():
            assert one.error_code == ErrorCode.NONE
            for batch in one.acquired_records:
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    self._delivered(name, (index, offset), batch.delivery_count)
        if is_strict:
            assert len(delivery.offsets) <= records_max

    def _delivered(self, name: str, place: Place, count: int) -> None:
        record = self.records[place]
        assert record.holder is None, f"{place} is held by {record.holder}"
        assert not record.is_finished, f"{place} was finished"
        if record.is_uncertain:
            assert count <= record.count + 2
            record.count, record.is_uncertain = count - 1, False
        assert count == record.count + 1 <= ATTEMPTS_MAX
        record.holder, record.deadline = name, self.broker.steady_ms + LOCK_MS

    @rule(name=members, types=st.lists(kinds, max_size=8), records_max=st.integers(1, 6))
    def work(self, name: str, types: list[int | None], records_max: int) -> None:
        self.fetch(name, records_max, is_strict=True)
        self.acknowledge(name, types)

    @rule(name=members, types=st.lists(kinds, max_size=8))
    def acknowledge(self, name: str, types: list[int | None]) -> None:
        said = {place: kind for place, kind in zip(self._held(name), types, strict=False) if kind is not None}
        if self.workers[name].epoch == 0 or not said:
            return
        response = self.workers[name].acknowledge_all(self._acks(said))
        assert response.error_code == ErrorCode.NONE
        assert {one.error_code for topic in response.responses for one in topic.partitions} == {ErrorCode.NONE}
        for place, kind in said.items():
            self._ended(self.records[place], kind)

    def _acks(self, said: dict[Place, int]) -> dict[tuple[bytes, int], Any]:
        acks: dict[tuple[bytes, int], Any] = {}
        for (index, offset), kind in sorted(said.items()):
            acks.setdefault((self.topic_id, index), []).append((offset, offset, [kind]))
        return acks

    def _ended(self, record: Record, kind: int) -> None:
        record.holder = None
        record.count += 1
        index, offset = next(place for place, one in self.records.items() if one is record)
        is_deleted = offset < self.broker.partition(index=index).start_offset
        if kind != RELEASE or record.count >= ATTEMPTS_MAX or is_deleted:
            record.is_finished = True

    @rule(name=members, how=st.sampled_from(["disconnect", "leave"]))
    def leave(self, name: str, how: str) -> None:
        worker = self.workers[name]
        if worker.epoch == 0:
            return
        getattr(worker, how)()
        for place in self._held(name):
            self._ended(self.records[place], RELEASE)
        self.workers[name] = self._worker(name)

    @rule(ms=st.sampled_from([1, 10_000, 29_999, 301_000]))
    def pass_time(self, ms: int) -> None:
        self.broker.tick(ms)
        for record in self.records.values():
            if record.holder is not None and record.deadline <= self.broker.steady_ms:
                self._ended(record, RELEASE)

    # The broker

    @rule(how=st.sampled_from(["kill", "restart", "power cut"]), seed=st.integers(0, 1_000_000))
    def end(self, how: str, seed: int) -> None:
        """All that was told is on disk."""
        if how == "power cut":
            self._lose_power(seed)
        else:
            getattr(self.broker, how)()
        self._begun_anew()

    def _lose_power(self, seed: int) -> None:
        self.broker.run_jobs()
        self.files = self.files.power_cut(seed, tears=False)
        now_ms, jumped = self.broker.now_ms, self.broker._jumped_ms
        self.broker = LocalBroker(DATA, files=self.files)
        self.broker.now_ms, self.broker._jumped_ms = now_ms, jumped

    def _begun_anew(self) -> None:
        self.broker.tick(1)
        self.workers = {name: self._worker(name) for name in "abc"}
        for (index, offset), record in self.records.items():
            record.holder = None
            if offset < self.broker.partition(index=index).start_offset:
                record.is_finished = True

    @rule(name=members, types=st.lists(st.sampled_from([ACCEPT, RELEASE, REJECT]), min_size=1, max_size=6))
    def end_during_an_acknowledgement(self, name: str, types: list[int]) -> None:
        said = dict(zip(self._held(name), types, strict=False))
        if self.workers[name].epoch == 0 or not said:
            return
        request = self.workers[name].acknowledge_request(self._acks(said))
        self.broker.hold_jobs = True
        self.broker.begin(request, 2, connection=self.workers[name].connection)
        self.broker.hold_jobs = False
        self.broker.kill()
        for place in said:
            self.records[place].is_uncertain = True
        self._begun_anew()

    @rule(jobs=st.none() | st.integers(0, 3))
    def write_states_anew(self, jobs: int | None) -> None:
        """And cut the log; or the broker is killed after some jobs of that."""
        queues = self.broker.broker.queues
        queues.needed.due.update(dict.fromkeys(queue.key for queue in queues.all()))
        self.broker.hold_jobs = jobs is not None
        self.broker.tick(0)
        self.broker.hold_jobs = False
        if jobs is None:
            queues.snapshots._cut()
            self.broker.run_jobs()
            return
        for _ in range(jobs):
            run_a_job(self.broker)
        self.broker.kill()
        self._begun_anew()

    # What always holds

    @invariant()
    def a_replay_gives_the_states_in_memory(self) -> None:
        check_replay(self.broker)

    @invariant()
    def the_start_never_goes_back(self) -> None:
        for key, found in in_memory(self.broker).items():
            assert found is not None
            assert found.start >= self.starts[key.partition]
            self.starts[key.partition] = found.start


Queues.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
TestQueues = Queues.TestCase
