import logging
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from backlogs import delete, noted
from brokers import LocalBroker
from logs import DATA, memory_files
from queue_states import check_replay, in_memory, persisted, state_log
from share_fetches import GROUP, Worker, begin_group, set_configs
from share_requests import ShareMember

from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import SHARE_STATE_TOPIC
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.starts import FindStartJob
from tailrace.log.directory.admission import BASE_VERSION, QUEUES_VERSION
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_acknowledge import ACCEPT, RELEASE
from tailrace.testing.faulty_files import FaultyFiles

LOCK_MS = 30_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        yield broker


@pytest.fixture
def topic_id(broker: LocalBroker) -> bytes:
    return queue_with(broker, 10)


def queue_with(broker: LocalBroker, records: int, **configs: str) -> bytes:
    """A topic with records in batches of one, and a group that begins with the first."""
    topic_id = broker.create_topic()
    for n in range(records):
        broker.produce(b"%d" % n)
    begin_group(broker, topic_id, **configs)
    return topic_id


def state_of(broker: LocalBroker, topic_id: bytes, group: str = GROUP) -> SharePartition:
    queue = broker.broker.queues.find(group, topic_id, 0)
    assert queue is not None
    assert queue.state is not None
    return queue.state


def format_of(broker: LocalBroker) -> int:
    return int((Path(broker.path) / "tailrace.format").read_text())


# The log


def test_a_directory_without_queues_stays_readable_for_older_releases(broker: LocalBroker) -> None:
    topic_id = broker.create_topic()
    broker.produce(b"a")
    assert format_of(broker) == BASE_VERSION
    assert broker.broker.used_queues is None
    begin_group(broker, topic_id)
    assert format_of(broker) == QUEUES_VERSION


def test_without_the_new_format_no_record_is_written(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        topic_id = broker.create_topic()
        files.fail("rename", ENOSPC)
        with pytest.raises(Refused):
            broker.broker.queues.initialize(GROUP, topic_id, [0], 1)
        assert format_of(broker) == BASE_VERSION
        assert broker.broker.topic(SHARE_STATE_TOPIC) is None
        assert broker.broker.queues.groups == {}
        broker.broker.queues.initialize(GROUP, topic_id, [0], 1)
        assert format_of(broker) == QUEUES_VERSION


def test_the_topic_of_the_state_log_is_the_brokers_own(broker: LocalBroker, topic_id: bytes) -> None:
    topic = broker.broker.topic(SHARE_STATE_TOPIC)
    assert topic is not None
    assert topic.is_internal
    assert topic.holds_state
    assert topic.partition_count == 1
    assert topic.overrides["cleanup.policy"] == "delete"
    broker.restart()
    broker.tick(1)
    topic = broker.broker.topic(SHARE_STATE_TOPIC)
    assert topic is not None
    assert topic.is_internal, "also after a restart"
    assert broker.produce(b"x", topic=SHARE_STATE_TOPIC).error_code != 0


def test_retention_leaves_the_state_log_alone(broker: LocalBroker, topic_id: bytes) -> None:
    for _ in range(20):
        broker.tick(86_400_000)
    log = state_log(broker)
    assert log is not None
    assert log.start_offset == 0


# A user's own topic of that name


def test_a_topic_of_a_users_stays_one_and_share_groups_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path) as broker:
        make_own_topic(broker)
        broker.restart()
        lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
        assert len(lines) == 1
        assert SHARE_STATE_TOPIC in lines[0]
        assert "Copy it to another topic, delete it" in lines[0]
        topic_id = broker.create_topic()
        worker = Worker(broker, topic_id)
        assert worker.fetch().error_code == ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(Refused, match="Copy it"):
            broker.broker.queues.initialize(GROUP, topic_id, [0], 1)
        assert broker.produce(b"mine too", topic=SHARE_STATE_TOPIC).error_code == 0
        assert broker.values(SHARE_STATE_TOPIC) == [b"mine", b"mine too"]
        broker.tick(86_400_000 * 8)
        broker.delete_topic(SHARE_STATE_TOPIC)
        begin_group(broker, topic_id)
        broker.produce(b"a")
        assert worker.fetch().values == [b"a"], "and then they are served, even without a restart"
        assert format_of(broker) == QUEUES_VERSION


def make_own_topic(broker: LocalBroker) -> None:
    """As an older release would, for which the name is like any other."""
    from tailrace.broker.metadata.topic_changes import new_topic

    made = new_topic(broker.broker.metadata, SHARE_STATE_TOPIC, 1, {}, broker.broker.random_bytes)
    broker.broker.metadata_log.write(made, broker.now_ms)
    assert broker.produce(b"mine", topic=SHARE_STATE_TOPIC).error_code == 0


def test_users_create_no_topic_of_that_name(broker: LocalBroker) -> None:
    with pytest.raises(Refused):
        broker.create_topic(SHARE_STATE_TOPIC)


# A log that cannot be read


def test_share_groups_are_unavailable_with_a_damaged_state_log_and_all_else_works(
    broker: LocalBroker, topic_id: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(broker.path) / f"{SHARE_STATE_TOPIC}-0" / f"{0:020d}.log"
    broker.close()
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    broker.open()
    broker.tick(1)
    assert Worker(broker, topic_id).fetch().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "cannot read the state of queues" in caplog.text
    assert broker.values()[0] == b"0"
    assert broker.produce(b"more").error_code == 0


def test_share_groups_are_unavailable_with_records_that_are_not_known(
    broker: LocalBroker, topic_id: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    from tailrace.records.record import Record

    broker.broker.queues.log._topic.append([Record(0, 0, b"\x00\x00nonsense", b"nonsense")], broker.now_ms)
    broker.run_jobs()
    broker.restart()
    broker.tick(1)
    assert Worker(broker, topic_id).fetch().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "cannot read record" in caplog.text


def test_share_groups_are_unavailable_without_their_state_log(
    broker: LocalBroker, topic_id: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    import shutil

    broker.close()
    shutil.rmtree(Path(broker.path) / f"{SHARE_STATE_TOPIC}-0")
    broker.open()
    broker.tick(1)
    assert Worker(broker, topic_id).fetch().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.values()[0] == b"0"


def test_nothing_is_deleted_until_it_is_known_what_queues_have_left(broker: LocalBroker, topic_id: bytes) -> None:
    broker.restart()
    assert broker.broker.queues.loading.is_under_way
    assert not broker.broker.ledger.is_ready
    broker.tick(1)
    assert broker.broker.ledger.is_ready


# Replay


def test_a_replay_gives_the_states_in_memory(broker: LocalBroker, topic_id: bytes) -> None:
    begin_group(broker, topic_id, group="others")
    check_replay(broker)
    worker = Worker(broker, topic_id)
    worker.fetch()
    worker.acknowledge((0, 3, [ACCEPT, RELEASE, ACCEPT, RELEASE]), (6, 6, [ACCEPT]))
    check_replay(broker)
    assert len(in_memory(broker)) == 2
    worker.leave()
    check_replay(broker)
    broker.broker.queues.deleted("others")
    check_replay(broker)
    assert len(in_memory(broker)) == 1


def test_all_that_one_request_says_is_one_batch(broker: LocalBroker) -> None:
    topic_id = broker.create_topic(partitions=3)
    begin_group(broker, topic_id, (0, 1, 2))
    for index in range(3):
        broker.produce(b"a", partition=index)
    worker = Worker(broker, topic_id, partitions=(0, 1, 2))
    worker.fetch()
    log = state_log(broker)
    assert log is not None
    before = log.end_offset
    worker.acknowledge_all({(topic_id, index): [(0, 0, [ACCEPT])] for index in range(3)})
    records = log.read(before, 1)
    assert records is not None
    with records:
        assert records.next_offset == before + 3


def test_a_record_of_a_partition_that_is_gone_is_removed_at_the_start(broker: LocalBroker, topic_id: bytes) -> None:
    broker.hold_jobs = True
    broker.delete_topic()
    broker.hold_jobs = False
    broker.kill()
    broker.tick(1)
    assert in_memory(broker) == {}
    check_replay(broker)


def test_a_state_behind_the_end_of_its_log_is_pulled_back(broker: LocalBroker, topic_id: bytes) -> None:
    """A backup may have it: what is appended there next are other records."""
    worker = Worker(broker, topic_id)
    worker.fetch()
    worker.acknowledge((0, 2, [ACCEPT]), (4, 9, [ACCEPT]))
    before = persisted(state_of(broker, topic_id))
    assert before is not None
    broker.restart()
    broker.log().truncate(6)
    broker.tick(1)
    after = persisted(state_of(broker, topic_id))
    assert after is not None
    assert after.start == 3
    assert [(one.first, one.last) for one in after.ranges] == [(4, 5)]
    check_replay(broker)
    broker.produce(b"new")
    assert Worker(broker, topic_id).fetch().values == [b"3", b"new"]


def test_a_state_that_a_group_had_and_that_is_lost_begins_anew(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a power cut that took it, and not the record of the group that says so."""
    set_configs(broker, share_auto_offset_reset="earliest")
    topic_id = broker.create_topic()
    broker.produce(b"a")
    ShareMember(broker, "a", "orders").join()
    broker.broker.queues.deleted(GROUP)
    worker = Worker(broker, topic_id)
    assert worker.fetch().values == [b"a"]
    assert "is lost: it begins anew" in caplog.text
    assert Worker(broker, topic_id, group="unknown").fetch().only.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    check_replay(broker)


def test_a_deleted_group_is_not_brought_back_by_a_fetch_that_waits(broker: LocalBroker) -> None:
    from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest

    topic_id = broker.create_topic()
    member = ShareMember(broker, "a", "orders").join()
    waiting = Worker(broker, topic_id).begin_fetch()
    member.leave()
    (result,) = broker.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results
    assert result.error_code == ErrorCode.NONE
    assert waiting.delivery.only.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert in_memory(broker) == {}
    check_replay(broker)


# Snapshots, and the start of the log


def write_snapshots(broker: LocalBroker) -> None:
    queues = broker.broker.queues
    queues.needed.due.update(dict.fromkeys(queue.key for queue in queues.all()))
    broker.tick(0)


def test_a_state_whose_updates_outweigh_it_is_written_anew(broker: LocalBroker) -> None:
    topic_id = queue_with(broker, 1)
    worker = Worker(broker, topic_id)
    log = state_log(broker)
    assert log is not None
    for n in range(600):
        worker.fetch()
        worker.accept(n)
        broker.produce(b"x")
    broker.tick(0)
    check_replay(broker)
    broker.tick(301_000)
    assert log.start_offset > 400
    check_replay(broker)
    broker.kill()
    broker.tick(1)
    check_replay(broker)
    assert state_of(broker, topic_id).start_offset == 600


def scatter(broker: LocalBroker, topic_id: bytes, records: int) -> Worker:
    """Every second record is accepted: the state has as many ranges."""
    worker = Worker(broker, topic_id)
    for _ in range(records // 500):
        broker.produce(*(b"x" for _ in range(500)))
    while offsets := worker.fetch().offsets:
        first = offsets[0]
        worker.acknowledge((first, offsets[-1], [ACCEPT if offset % 2 else RELEASE for offset in offsets]))
        if len(offsets) < 500:
            break
        worker.acknowledge()
        if state_of(broker, topic_id).end_offset >= records:
            break
    return worker


def test_a_large_state_is_written_in_turns_while_it_changes(broker: LocalBroker) -> None:
    topic_id = queue_with(broker, 0, share_partition_max_record_locks="10000")
    worker = scatter(broker, topic_id, 12_000)
    log = state_log(broker)
    assert log is not None
    broker.hold_jobs = True
    before = log.end_offset
    write_snapshots(broker)
    turns = 0
    while broker.broker.queues.snapshots._work is not None:
        job, finish = broker._jobs.popleft()
        job.run()
        finish()
        turns += 1
        offset = 20 * turns
        held = worker.begin_fetch(max_records=1, share_acquire_mode=1, max_wait_ms=0)
        broker.run_flushes()
        if held.is_answered and held.delivery.offsets:
            worker.begin_fetch({worker.places[0]: [(n, n, [ACCEPT]) for n in held.delivery.offsets]}, max_wait_ms=0)
        del offset
    broker.hold_jobs = False
    broker.run_jobs()
    assert turns >= 3
    sizes = batch_sizes(log, before)
    assert max(sizes) <= 64 << 10
    check_replay(broker)
    broker.tick(301_000)
    assert log.start_offset == before, "it is complete"
    check_replay(broker)
    broker.kill()
    broker.tick(1)
    check_replay(broker)


def batch_sizes(log: Any, offset: int) -> list[int]:
    from compactions import batches_of

    return [len(one) for one in batches_of(log, offset)]


def test_a_snapshot_that_is_not_complete_does_not_count(broker: LocalBroker) -> None:
    topic_id = queue_with(broker, 0, share_partition_max_record_locks="10000")
    scatter(broker, topic_id, 6_000)
    before = in_memory(broker)
    log = state_log(broker)
    assert log is not None
    begun = log.end_offset
    broker.hold_jobs = True
    write_snapshots(broker)
    assert log.end_offset > begun
    broker.run_flushes()
    broker.kill()
    broker.hold_jobs = False
    broker.tick(1)
    assert in_memory(broker) == before
    broker.tick(301_000)
    log = state_log(broker)
    assert log is not None
    assert log.start_offset <= begun
    write_snapshots(broker)
    check_replay(broker)
    broker.tick(301_000)
    assert log.start_offset > begun


def test_cold_states_do_not_hold_back_a_log_of_needless_records(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.broker.queues.state_log.needed_records.SPARE_BYTES", 10_000)
    monkeypatch.setattr("tailrace.broker.queues.state_log.needed_records.SAMPLE_BYTES", 1_000)
    topic_id = queue_with(broker, 1)
    for number in range(20):
        begin_group(broker, topic_id, group=f"cold {number}")
    worker = Worker(broker, topic_id)
    for n in range(600):
        worker.fetch()
        worker.accept(n)
        broker.produce(b"x")
    log = state_log(broker)
    assert log is not None
    for _ in range(3):
        broker.tick(301_000)
    assert log.start_offset > 500
    assert len(in_memory(broker)) == 21
    check_replay(broker)


# Deadlines


def test_locks_of_a_group_run_out_on_time(broker: LocalBroker, topic_id: bytes) -> None:
    worker, other = Worker(broker, topic_id), Worker(broker, topic_id, "b")
    worker.fetch(max_records=1)
    broker.tick(10_000)
    other.fetch(max_records=1)
    assert broker.broker.next_deadline == broker.steady_ms + LOCK_MS - 10_000
    broker.tick(20_000)
    assert state_of(broker, topic_id).in_flight == 1
    broker.tick(10_000)
    assert state_of(broker, topic_id).in_flight == 0
    assert broker.broker.queues.timers.next_deadline is None
    check_replay(broker)


def test_a_released_record_waits_for_its_retry_delay_also_through_a_restart(broker: LocalBroker) -> None:
    topic_id = queue_with(broker, 2, tailrace_share_retry_delay_ms="10000", tailrace_share_retry_jitter="0")
    worker = Worker(broker, topic_id)
    worker.fetch()
    worker.release(0)
    waiting = Worker(broker, topic_id, "b").begin_fetch()
    broker.tick(9_000)
    assert not waiting.is_answered
    broker.tick(1_100)
    assert waiting.delivery.acquired == [(0, 0, 2)]
    worker.release(1)
    broker.tick(4_000)
    broker.kill()
    broker.tick(1)
    late = Worker(broker, topic_id, "c")
    assert late.fetch().acquired == [(0, 0, 2)]
    broker.tick(5_000)
    assert late.fetch().offsets == []
    broker.tick(1_100)
    assert late.fetch().acquired == [(1, 1, 2)]


# Losses


def test_deleted_records_that_a_queue_had_not_finished_are_in_the_loss_ledger(
    broker: LocalBroker, topic_id: bytes
) -> None:
    worker = Worker(broker, topic_id)
    worker.fetch(max_records=4)
    worker.accept(0, 2)
    delete(broker, 6)
    broker.run_jobs()
    cut, loss = sorted(noted(broker), key=lambda one: one.kind)
    assert (cut.kind, cut.first, cut.last, cut.group) == ("cut", 0, 5, "")
    assert (loss.kind, loss.group, loss.first, loss.last, loss.records) == ("skipped", GROUP, 1, 5, 4)
    assert loss.reason == "age"
    worker.accept(1, 3)
    delete(broker, 7)
    assert [one.records for one in noted(broker) if one.group] == [4, 1]
    check_replay(broker)


def test_a_queue_that_has_finished_what_is_deleted_loses_nothing(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    worker.fetch()
    worker.acknowledge((0, 5, [ACCEPT]))
    delete(broker, 6)
    assert [one for one in noted(broker) if one.group] == []


def test_a_topic_may_hold_what_a_queue_has_not_finished(broker: LocalBroker) -> None:
    topic_id = broker.create_topic(
        tailrace_backlog_policy="hold", tailrace_backlog_groups=GROUP, retention_ms="1000", segment_ms="1"
    )
    begin_group(broker, topic_id)
    for n in range(10):
        broker.produce(b"%d" % n)
        broker.tick(1000)
    worker = Worker(broker, topic_id)
    for _ in range(10):
        worker.fetch()  # what lies in one segment
    assert worker.acknowledge((0, 3, [ACCEPT]), (5, 6, [ACCEPT])) == ErrorCode.NONE
    for _ in range(3):
        broker.tick(301_000)
    assert broker.log().start_offset == 4
    assert worker.fetch().offsets == [4]
    worker.accept(4)
    for _ in range(3):
        broker.tick(301_000)
    assert broker.log().start_offset == 7


def test_a_start_of_a_log_that_moved_while_the_state_was_not_written_is_found(
    broker: LocalBroker, topic_id: bytes
) -> None:
    broker.broker.queues.log_start_moved = lambda _: None  # type: ignore[method-assign]  # as in a crash behind it
    delete(broker, 4)
    broker.run_jobs()
    broker.restart()
    broker.tick(1)
    assert state_of(broker, topic_id).start_offset == 4
    check_replay(broker)


# A disk that refuses


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        topic_id = queue_with(broker, 4)
        worker = Worker(broker, topic_id)
        worker.fetch()
        files.fail("write_at", ENOSPC, forever=True)
        assert worker.accept(0) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        delivery = worker.fetch({(topic_id, 0): [(1, 1, [RELEASE])]})
        assert delivery.only.acknowledge_error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        worker.disconnect()
        broker.tick(LOCK_MS + 1)
        assert state_of(broker, topic_id).in_flight == 4, "the locks are released once that can be written"
        assert state_of(broker, topic_id).start_offset == 0
        files.heal()
        broker.tick(1_001)
        assert Worker(broker, topic_id, "b").fetch().acquired == [(0, 3, 2)]
        check_replay(broker)


def test_states_that_do_not_agree_with_their_logs_wait_for_room_on_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until that is written, a state could tell that a record is finished which is appended next."""
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        topic_id = queue_with(broker, 4)
        worker = Worker(broker, topic_id)
        worker.fetch()
        worker.acknowledge((0, 3, [ACCEPT]))
        broker.restart()
        broker.log().truncate(2)
        files.fail("write_at", ENOSPC, forever=True)
        broker.tick(1)
        assert worker.accept(0, epoch=1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert "It is tried again" in caplog.text
        files.heal()
        broker.tick(1_001)
        broker.produce(b"new")
        assert Worker(broker, topic_id).fetch().values == [b"new"]
        check_replay(broker)


def test_a_deletion_that_a_queue_could_not_note_is_noted_with_the_next_fetch(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        topic_id = queue_with(broker, 4)
        files.fail("write_at", ENOSPC, forever=True)
        delete(broker, 2)
        assert state_of(broker, topic_id).start_offset == 0
        files.heal()
        assert Worker(broker, topic_id).fetch().offsets == [2, 3]
        check_replay(broker)


def test_a_start_that_could_not_be_written_is_sought_again_with_the_next_fetch(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        topic_id = broker.create_topic()
        broker.produce(b"a")
        held = broker.hold(FindStartJob)
        begin_group(broker, topic_id, share_auto_offset_reset="by_duration:PT1H")
        files.fail("write_at", ENOSPC, forever=True)
        broker._held.clear()
        for job, finish in held:
            job.run()
            finish()
        files.heal()
        waiting = Worker(broker, topic_id).begin_fetch()
        broker.run_jobs()
        assert waiting.delivery.values == [b"a"]
        check_replay(broker)


def test_queues_go_on_when_the_disk_is_nearly_full(broker: LocalBroker, topic_id: bytes) -> None:
    worker = Worker(broker, topic_id)
    worker.fetch()
    broker.broker.disk_reserve.is_low = True
    assert worker.accept(0) == ErrorCode.NONE
    assert worker.leave().error_code == ErrorCode.NONE
    assert in_memory(broker)


def test_memory_files_are_read_alike() -> None:
    broker = LocalBroker(DATA, files=memory_files())
    topic_id = queue_with(broker, 3)
    worker = Worker(broker, topic_id)
    worker.fetch()
    worker.accept(1)
    broker.restart()
    broker.tick(1)
    check_replay(broker)
