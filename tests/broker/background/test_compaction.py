"""Which log is compacted, and when: each config that decides it, and what happens where it fails."""

import logging
from collections.abc import Iterator
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from backlogs import commit as commit_of_a_client
from backlogs import configured
from brokers import LocalBroker
from compactions import records_of
from group_requests import Consumer, broker_for_groups, commit, offsets, share

from tailrace.broker.background.checkpoints import SAVE_OFFSETS_MS
from tailrace.broker.background.compaction import LEFT_ALONE_MAX_MS, LEFT_ALONE_MIN_MS, LOOKED_AT_ONCE
from tailrace.broker.core.topics import METADATA_TOPIC, OFFSETS_TOPIC
from tailrace.broker.core.wall_clock import PATIENCE_MS
from tailrace.log.compaction.child_process import LocalPass
from tailrace.log.compaction.messages import PassSpec
from tailrace.log.disk.interface import Space
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.errors import Damaged
from tailrace.log.layout.names import TopicPartition
from tailrace.log.scrub import ScrubChunk, ScrubJob
from tailrace.records.batch import HEADER_SIZE
from tailrace.records.record import Record, encode_batch
from tailrace.testing.faulty_files import FaultyFiles

BACKOFF_MS = 15_000
DAY_MS = 86_400_000


class Passes:
    """Every pass that was begun. They run in this process: the child has tests of its own."""

    def __init__(self, broker: LocalBroker) -> None:
        self.specs: list[PassSpec] = []
        self._broker = broker
        broker.broker.compactor.begin_pass = self._begin

    def _begin(self, spec: PassSpec) -> LocalPass:
        self.specs.append(spec)
        return LocalPass(self._broker.directory.files, spec)

    def __len__(self) -> int:
        return len(self.specs)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        yield broker


def put(broker: LocalBroker, *pairs: tuple[bytes, bytes | None], topic: str = "orders", partition: int = 0) -> None:
    """Appended behind the broker's back: what a Produce checks is not of interest here."""
    records = [Record(n, broker.now_ms, key, value) for n, (key, value) in enumerate(pairs)]
    found = broker.partition(topic, partition)
    log = broker.broker.log_for_append(found)
    log.append(encode_batch(records), broker.now_ms)
    broker.broker.appended(found, log, broker.now_ms)


def seal(broker: LocalBroker, topic: str = "orders", partition: int = 0) -> None:
    """Puts all messages so far into sealed segments, on disk, while nothing is compacted."""
    log = broker.log(topic, partition)
    log.roll()
    broker.broker.flushes.request_checkpoint(log)
    broker.run_jobs()
    broker.broker.checkpointer.when_offsets_saved()
    broker.run_jobs()
    assert log.recovery_point_on_disk == log.end_offset


def values(broker: LocalBroker, topic: str = "orders", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in records_of(broker.log(topic, partition))]


def filled(broker: LocalBroker, **configs: Any) -> Passes:
    passes = Passes(broker)
    broker.create_topic(**({"cleanup_policy": "compact"} | configs))
    put(broker, (b"a", b"old"))
    put(broker, (b"a", b"new"))
    seal(broker)
    return passes


def test_a_topic_that_says_so_is_compacted_and_others_are_not(broker: LocalBroker) -> None:
    passes = filled(broker)
    broker.create_topic("plain")
    put(broker, (b"a", b"old"), topic="plain")
    put(broker, (b"a", b"new"), topic="plain")
    seal(broker, "plain")
    broker.tick()
    broker.tick(BACKOFF_MS)
    assert values(broker) == [b"new"]
    assert values(broker, "plain") == [b"old", b"new"]
    assert [Path(spec.directory).name for spec in passes.specs] == ["orders-0"]


def test_a_topic_that_is_compacted_and_deleted_is_compacted(broker: LocalBroker) -> None:
    filled(broker, cleanup_policy="compact,delete")
    broker.tick()
    assert values(broker) == [b"new"]


def test_what_a_topic_holds_for_a_group_is_compacted(broker: LocalBroker) -> None:
    passes = filled(broker, **configured("hold", groups="billing"))
    commit_of_a_client(broker, "billing", 0)
    broker.tick()
    assert len(passes) == 1
    assert values(broker) == [b"new"]


def test_what_is_saved_counts_for_the_disk_budget(broker: LocalBroker) -> None:
    filled(broker)
    before = broker.broker.sizes.total
    broker.tick()
    assert broker.broker.sizes.total == sum(log.size for log in broker.directory.logs.values())
    assert broker.broker.sizes.total < before


def test_the_scrubber_takes_no_other_files_for_those_of_a_segment_that_is_gone(broker: LocalBroker) -> None:
    filled(broker)
    log = broker.log()
    pieces = [ScrubChunk(TopicPartition("orders", 0), log, segment, 0) for segment in log.segments[:-1]]
    broker.tick()
    assert not {piece.segment for piece in pieces} & set(log.segments)
    job = ScrubJob(log.files, pieces)
    job.run()
    assert (job.damage, job.faults, job.scrubbed_bytes) == ([], [], 0)


def test_nothing_is_compacted_while_the_disk_has_only_its_reserve(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        passes = filled(broker)
        files.space_left = Space(1, 1 << 40)
        broker.tick()
        broker.tick(BACKOFF_MS)
        assert len(passes) <= 1, "one may have begun before it was known"
        put(broker, (b"a", b"newer"))
        seal(broker)
        begun = len(passes)
        broker.tick(BACKOFF_MS)
        assert len(passes) == begun
        files.space_left = None
        broker.tick(BACKOFF_MS)
        broker.tick(BACKOFF_MS)
        assert len(passes) > begun


def test_the_active_segment_is_never_compacted(broker: LocalBroker) -> None:
    filled(broker)
    put(broker, (b"a", b"active"))
    broker.tick()
    broker.tick(BACKOFF_MS)
    assert values(broker) == [b"new", b"active"]


def test_a_log_is_due_when_more_than_a_share_of_it_is_new(broker: LocalBroker) -> None:
    passes = filled(broker, min_cleanable_dirty_ratio="0.6")
    broker.tick()
    assert len(passes) == 1
    put(broker, (b"b", b"1"))
    seal(broker)
    broker.tick(BACKOFF_MS)
    assert len(passes) == 1, "half of it is new"
    assert broker.broker.compactor.counted.dirty_ratio_max == pytest.approx(0.5, abs=0.05)
    put(broker, (b"b", b"2"))
    seal(broker)
    broker.tick(BACKOFF_MS)
    assert len(passes) == 2
    assert values(broker) == [b"new", b"2"]


def test_the_log_with_the_largest_share_is_first(broker: LocalBroker) -> None:
    passes = filled(broker, min_cleanable_dirty_ratio="0")
    broker.tick()
    put(broker, (b"b", b"1"))
    seal(broker)
    broker.create_topic("second", cleanup_policy="compact")
    put(broker, (b"a", b"1"), topic="second")
    seal(broker, "second")
    broker.tick(BACKOFF_MS)
    broker.tick()
    assert [Path(spec.directory).name for spec in passes.specs] == ["orders-0", "second-0", "orders-0"]


def test_a_record_is_not_compacted_before_its_time(broker: LocalBroker) -> None:
    passes = filled(broker, min_compaction_lag_ms="60000")
    broker.tick()
    broker.tick(BACKOFF_MS)
    assert values(broker) == [b"old", b"new"]
    broker.tick(60_000)
    assert values(broker) == [b"new"]
    put(broker, (b"a", b"newer"), (b"b", b"much larger than all before"))
    seal(broker)
    broker.tick(BACKOFF_MS)
    broker.tick(BACKOFF_MS)
    assert len(passes) == 1, "what is old enough was compacted before"
    assert values(broker)[:2] == [b"new", b"newer"]


def test_a_record_is_compacted_in_time_though_nothing_else_comes(broker: LocalBroker) -> None:
    Passes(broker)
    broker.create_topic(cleanup_policy="compact", max_compaction_lag_ms="60000", min_cleanable_dirty_ratio="1")
    put(broker, (b"a", b"old"))
    put(broker, (b"a", b"new"))
    broker.tick(50_000)
    assert len(broker.log().segments) == 1
    broker.tick(BACKOFF_MS)
    assert len(broker.log().segments) == 2, "it was rolled for it"
    broker.tick(SAVE_OFFSETS_MS)
    broker.tick(BACKOFF_MS)
    assert values(broker) == [b"new"]


def test_tombstones_go_after_their_time_though_nothing_new_comes(broker: LocalBroker) -> None:
    filled(broker, delete_retention_ms="100000")
    put(broker, (b"a", None), (b"b", b"1"))
    seal(broker)
    broker.tick()
    assert values(broker) == [None, b"1"]
    broker.tick(90_000)
    assert values(broker) == [None, b"1"]
    broker.tick(BACKOFF_MS)
    assert values(broker) == [b"1"]


def test_tombstones_stay_where_the_clock_jumps_ahead_and_is_put_right_soon(broker: LocalBroker) -> None:
    passes = filled(broker, delete_retention_ms="86400000")
    put(broker, (b"a", None), (b"b", b"1"))
    seal(broker)
    broker.tick()
    assert (values(broker), len(passes)) == ([None, b"1"], 1)
    broker.jump(2 * DAY_MS)
    for _ in range(10):
        broker.tick(BACKOFF_MS)
    assert (values(broker), len(passes)) == ([None, b"1"], 1)
    broker.jump(-2 * DAY_MS)
    broker.tick(BACKOFF_MS)
    assert values(broker) == [None, b"1"]
    put(broker, (b"b", b"2" * 1000))
    seal(broker)
    broker.tick(BACKOFF_MS)
    assert (values(broker), len(passes)) == ([None, b"2" * 1000], 2), "passes go on"


def test_a_clock_that_stays_ahead_is_trusted_again_and_tombstones_go(broker: LocalBroker) -> None:
    filled(broker, delete_retention_ms="86400000")
    put(broker, (b"a", None), (b"b", b"1"))
    seal(broker)
    broker.tick()
    broker.jump(2 * DAY_MS)
    broker.tick()
    broker.tick(PATIENCE_MS)
    broker.tick(BACKOFF_MS)
    assert values(broker) == [b"1"]


def test_tombstones_that_need_not_be_kept_go_though_nothing_new_comes(broker: LocalBroker) -> None:
    Passes(broker)
    broker.create_topic(cleanup_policy="compact", delete_retention_ms="0")
    put(broker, (b"a", b"1"))
    put(broker, (b"a", None))
    seal(broker)
    for _ in range(4):
        broker.tick(BACKOFF_MS)
    assert values(broker) == []


def test_where_no_log_is_due_the_next_look_comes_after_the_backoff(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"log.cleaner.backoff.ms": "3000"}) as broker:
        broker.tick()
        passes = filled(broker)
        broker.tick(2900)
        assert len(passes) == 0
        broker.tick(200)
        assert len(passes) == 1


def test_nothing_is_compacted_where_that_is_turned_off(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"log.cleaner.enable": "false"}) as broker:
        passes = filled(broker)
        broker.tick(BACKOFF_MS)
        assert len(passes) == 0


def test_a_pass_has_the_settings_of_the_broker_and_of_the_topic(tmp_path: Path) -> None:
    configs = {
        "log.cleaner.dedupe.buffer.size": "2000000",
        "log.cleaner.io.buffer.load.factor": "0.5",
        "log.cleaner.io.max.bytes.per.second": "12345.5",
        "log.cleaner.delete.retention.ms": "77",
    }
    with LocalBroker(tmp_path, configs) as broker:
        passes = filled(broker)
        broker.tick()
        (spec,) = passes.specs
        settings = spec.settings
        assert (settings.dedupe_buffer_bytes, settings.load_factor, settings.io_bytes_per_second) == (
            2_000_000, 0.5, 12345.5,
        )  # fmt: skip
        assert spec.delete_retention_ms == 77


def test_a_change_of_policy_counts_at_once(broker: LocalBroker) -> None:
    passes = filled(broker, cleanup_policy="delete")
    broker.tick()
    assert len(passes) == 0
    broker.broker.metadata.topics["orders"].overrides["cleanup.policy"] = "compact"
    broker.broker.metadata.topics["orders"].configure(broker.broker.configs)
    broker.tick(BACKOFF_MS)
    assert len(passes) == 1


def test_many_logs_are_looked_at_some_at_a_time(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = filled(broker)
    compacting = broker.broker.compactor
    looked: list[int] = []
    many = [broker.log()] * (3 * LOOKED_AT_ONCE)
    original = compacting._look_at
    monkeypatch.setattr(broker.broker.directory, "logs", dict(enumerate(many)))
    monkeypatch.setattr(compacting, "_look_at", lambda log: (looked.append(1), original(log)))
    for number in range(1, 4):
        compacting.tick(broker.now_ms)
        assert len(looked) == number * LOOKED_AT_ONCE
    monkeypatch.undo()
    broker.run_jobs()
    assert len(passes) == 1


def test_the_metadata_log_is_not_compacted(broker: LocalBroker) -> None:
    passes = Passes(broker)
    broker.broker.metadata.topics[METADATA_TOPIC].overrides["cleanup.policy"] = "compact"
    broker.broker.metadata.topics[METADATA_TOPIC].configure(broker.broker.configs)
    seal(broker, METADATA_TOPIC)
    broker.tick()
    assert len(passes) == 0


def test_a_log_whose_pass_fails_is_left_alone_for_longer_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, {"log.cleaner.backoff.ms": "0"}, files=faulty) as broker:
        passes = filled(broker)
        faulty.fail("write_at", EIO, name=".cleaned", forever=True)
        broker.tick()
        assert "is not compacted for a while" in caplog.text
        for number in range(1, 12):
            assert len(passes) == broker.broker.compactor.counted.failures == number
            alone_ms = min(LEFT_ALONE_MAX_MS, LEFT_ALONE_MIN_MS << number)
            broker.tick(alone_ms - 1)
            assert len(passes) == number
            broker.tick(1)
        faulty.heal()
        assert values(broker) == [b"old", b"new"]
        broker.tick(LEFT_ALONE_MAX_MS)
        assert values(broker) == [b"new"]


def test_a_swap_that_fails_takes_the_log_offline_and_the_next_start_completes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=faulty) as broker:
        filled(broker)
        faulty.fail("rename", EIO, name="00000000000000000000.log")
        broker.tick()
        assert broker.log().offline is not None
        assert values(broker) == [b"old", b"new"], "what was there is read"
        broker.tick(BACKOFF_MS)
        errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert [str(broker.log().offline) in error for error in errors] == [True], "it is said once"
        faulty.heal()
        broker.kill()
        assert values(broker) == [b"new"]
        put(broker, (b"b", b"goes on"))


def test_a_damaged_log_is_said_once_and_never_compacted(broker: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    passes = filled(broker)
    path = Path(broker.log().directory) / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for _ in range(3):
        broker.tick(LEFT_ALONE_MAX_MS)
    assert len(passes) == 1
    assert caplog.text.count("until it is repaired") == 1
    assert path.read_bytes() == data


def test_readers_are_told_of_rot_that_a_pass_has_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalBroker(tmp_path, {"tailrace.scrub.bytes.per.second": "0"}) as broker:
        filled(broker)
        path = Path(broker.log().directory) / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[HEADER_SIZE + 3] ^= 1
        path.write_bytes(data)
        broker.tick()
        (damage,) = broker.log().segments[0].checks.damage
        assert damage.first_offset == 0
        assert "corruption found: orders-0/00000000000000000000.log" in caplog.text
        with pytest.raises(Damaged):
            values(broker)


def test_a_topic_that_is_deleted_during_its_pass_is_gone_and_the_pass_ends(broker: LocalBroker) -> None:
    filled(broker)
    broker.hold_jobs = True
    broker.tick()
    assert broker.broker.compactor.is_under_way
    broker.hold_jobs = False
    topic = broker.broker.metadata.topics["orders"]
    broker.broker.remove_logs([topic], broker.now_ms)
    broker.tick()
    broker.run_jobs()
    assert not broker.broker.compactor.is_under_way
    assert not (Path(broker.path) / "orders-0").exists()


def test_what_was_done_is_counted(broker: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    filled(broker)
    size = broker.log().size
    broker.tick()
    counted = broker.broker.compactor.counted
    assert (counted.passes, counted.keys, counted.bytes_read) == (1, 1, size)
    assert 0 < counted.bytes_written < size
    assert "compacted" in caplog.text


def test_up_to_where_it_is_compacted_a_log_remembers(broker: LocalBroker) -> None:
    filled(broker)
    broker.tick()
    broker.tick(SAVE_OFFSETS_MS)
    broker.kill()
    passes = Passes(broker)
    broker.tick()
    broker.tick(BACKOFF_MS)
    assert broker.log().compacted_to == 2
    assert len(passes) == 0


def test_groups_are_the_same_after_their_log_was_compacted(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        Passes(broker)
        broker.create_topic(partitions=3)
        for number in range(40):
            commit(broker, number, partition=number % 3)
            commit(broker, number, group="other")
        (member,) = share(Consumer(broker))
        before = [offsets(broker), offsets(broker, "other"), state(broker)]
        size = broker.log(OFFSETS_TOPIC).size
        seal(broker, OFFSETS_TOPIC)
        broker.tick()
        assert broker.log(OFFSETS_TOPIC).size < size / 3
        assert broker.log(OFFSETS_TOPIC).compacted_to > 0
        for again in (broker.restart, broker.kill):
            again()
            assert [offsets(broker), offsets(broker, "other"), state(broker)] == before
        assert member.heartbeat() == 0


def state(broker: LocalBroker) -> Any:
    return {
        name: (group.state, getattr(group, "generation", None), sorted(group.members))
        for name, group in broker.broker.groups.groups.items()
    }


YEAR_MS = 365 * 86_400_000


def test_a_clock_that_was_ahead_for_a_moment_does_not_keep_logs_from_being_compacted(tmp_path: Path) -> None:
    faulty = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=faulty) as broker:
        broker.tick(YEAR_MS)  # nothing to do: the next look is far in the future
        broker.now_ms -= YEAR_MS
        passes = filled(broker)
        broker.tick()
        broker.tick(BACKOFF_MS)
        assert values(broker) == [b"new"]
        put(broker, (b"a", b"newer"))
        seal(broker)
        faulty.fail("write_at", EIO, name=".cleaned")
        broker.tick(YEAR_MS)
        broker.now_ms -= YEAR_MS
        assert broker.broker.compactor.counted.failures == 1
        broker.tick()
        assert len(passes) == 2, "it is left alone, though not for a year"
        broker.tick(LEFT_ALONE_MAX_MS)
        assert values(broker) == [b"newer"]


RESERVE = 1_000_000


def test_a_pass_under_way_is_stopped_where_the_disk_has_only_its_reserve(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, {"tailrace.disk.reserve.bytes": str(RESERVE)}, files=files) as broker:
        passes = filled(broker)
        broker.hold_jobs = True
        broker.tick()
        assert broker.broker.compactor.is_under_way
        files.space_left = Space(RESERVE - 1, 1 << 40)
        while not broker.broker.disk_reserve.is_low:  # it is asked first
            job, finish = broker._jobs.popleft()
            job.run()
            finish()
        broker.tick(100)
        broker.hold_jobs = False
        broker.run_jobs()
        assert not broker.broker.compactor.is_under_way
        assert values(broker) == [b"old", b"new"]
        assert not list(Path(broker.log().directory).glob("*.cleaned"))
        files.space_left = Space(10 * RESERVE, 1 << 40)
        broker.tick(BACKOFF_MS)
        broker.tick(BACKOFF_MS)
        assert len(passes) <= 1, "it is left alone for a while"
        broker.tick(LEFT_ALONE_MAX_MS)
        assert values(broker) == [b"new"]


def test_a_pass_begins_only_where_there_is_room_for_what_it_writes(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, {"tailrace.disk.reserve.bytes": str(RESERVE)}, files=files) as broker:
        files.space_left = Space(RESERVE + 1, 1 << 40)
        broker.tick()
        passes = filled(broker)
        broker.tick(BACKOFF_MS)
        assert len(passes) == 0
        assert not broker.broker.disk_reserve.is_low
        files.space_left = Space(RESERVE + sum(segment.size for segment in broker.log().segments), 1 << 40)
        broker.tick(BACKOFF_MS)
        broker.tick(BACKOFF_MS)
        assert values(broker) == [b"new"]
