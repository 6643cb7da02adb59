"""All groups of a broker: what was answered is on disk, what is on disk comes back, and nobody else waits for it."""

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, from_offset, resolved
from group_requests import (
    BILLING,
    Asked,
    Consumer,
    broker_for_groups,
    commit,
    commit_request,
    fetch_request,
    offsets,
    offsets_in,
    share,
    share_out,
)
from logs import DATA, memory_files

from tailrace.broker.core import delayed as waiting
from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.groups import coordinator, table
from tailrace.broker.groups.classic.group import ClassicGroup
from tailrace.broker.groups.classic.state import State
from tailrace.broker.groups.records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    decode,
    encode_group,
    encode_offset,
    partition_of,
)
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.errors import LogOffline
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tailrace.protocol.messages.list_groups import ListGroupsRequest
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.records.record import Record, decode_records, encode_batch
from tailrace.testing.faulty_files import FaultyFiles

FORGET_MS = coordinator.FORGET_MS
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def broker() -> Iterable[LocalBroker]:
    with broker_for_groups(DATA, files=memory_files()) as made:
        made.create_topic()
        yield made


def groups_of(broker: LocalBroker) -> list[str]:
    return [one.group_id for one in broker.ask(ListGroupsRequest(), 5).groups]


def beat(broker: LocalBroker, *members: Consumer, ms: int) -> None:
    """Time passes in which these are heard of."""
    for _ in range(ms // 5_000):
        broker.tick(5_000)
        assert [one.heartbeat() for one in members] == [0] * len(members)


def said(broker: LocalBroker, index: int = 0) -> list[Any]:
    """What a partition of the log of groups says, in its order."""
    partition = broker.partition(OFFSETS_TOPIC, index)
    if partition.log is None or (piece := partition.log.read(0, 1 << 24)) is None:
        return []
    with piece:
        data = piece.read()
    found, position = [], 0
    while position < len(data):
        batch = decode_records(data, position)
        found += [decode(record) for record in batch]
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


# Answers wait for the disk


def test_a_commit_is_answered_when_it_is_on_disk(broker: LocalBroker) -> None:
    broker.hold_jobs = True
    committed = resolved(broker.begin(commit_request({("orders", 0): 7}), 9))
    assert committed == []
    broker.run_flushes()
    assert committed[0].topics[0].partitions[0].error_code == 0


def test_nobody_sees_a_commit_that_is_not_on_disk(broker: LocalBroker) -> None:
    commit(broker, 5)
    broker.hold_jobs = True
    broker.begin(commit_request({("orders", 0): 7}), 9)
    fetched = Asked(broker, fetch_request(("orders", 0)), 9)
    assert not fetched.answer
    broker.run_flushes()
    assert offsets_in(fetched.answer.groups[0]) == {("orders", 0): 7}


@pytest.mark.parametrize("request_made", [DescribeGroupsRequest(groups=[BILLING]), fetch_request(("orders", 0))])
def test_nobody_sees_a_deletion_that_is_not_on_disk(broker: LocalBroker, request_made: Any) -> None:
    commit(broker, 5)
    broker.hold_jobs = True
    deleted = resolved(broker.begin(DeleteGroupsRequest(groups_names=[BILLING]), 2))
    seen = resolved(broker.begin(request_made, 6 if isinstance(request_made, DescribeGroupsRequest) else 9))
    assert (deleted, seen) == ([], [])
    broker.run_flushes()
    assert deleted[0].results[0].error_code == 0
    assert len(seen) == 1


def test_nobody_learns_of_its_work_before_it_is_on_disk(broker: LocalBroker) -> None:
    a, b = share(Consumer(broker, "a"), Consumer(broker, "b"))
    waiting = a.join()
    b.join()
    assert waiting.code == 0
    broker.hold_jobs = True
    follower, leader = b.sync(), a.sync({b.member_id: b"all"})
    late = b.sync()
    assert (follower.answer, leader.answer, late.answer) == (None, None, None)
    broker.run_flushes()
    assert [one.code for one in (follower, leader, late)] == [0, 0, 0]
    assert b.assignment == b"all"


def test_a_static_member_that_is_back_is_told_when_that_is_on_disk(broker: LocalBroker) -> None:
    share(Consumer(broker, "a"), Consumer(broker, "b", instance_id="till"))
    broker.hold_jobs = True
    back = Consumer(broker, "b", instance_id="till")
    joined = back.join()
    assert joined.answer is None
    broker.run_flushes()
    assert (joined.code, back.generation) == (0, 2)


def test_a_group_in_another_partition_waits_for_nobody() -> None:
    with broker_for_groups(DATA, {"offsets.topic.num.partitions": "4"}, files=memory_files()) as several:
        several.create_topic()
        names = ["a", "b", "c"]
        assert len({partition_of(name, 4) for name in names}) == 3
        for name in names:
            assert commit(several, 1, group=name) == 0
        several.hold_jobs = True
        several.begin(commit_request({("orders", 0): 2}, group="a"), 9)
        assert offsets(several, "b") == {("orders", 0): 1}
        waiting = resolved(several.begin(fetch_request(("orders", 0), group="a"), 9))
        assert waiting == []


def test_what_was_told_to_nobody_may_be_lost_and_what_was_told_may_not() -> None:
    files = memory_files()
    broker = broker_for_groups(DATA, files=files)
    broker.create_topic()
    commit(broker, 5)
    broker.hold_jobs = True
    broker.begin(commit_request({("orders", 0): 7}), 9)
    broker.hold_jobs = False
    broker.kill()
    assert offsets(broker) in ({("orders", 0): 5}, {("orders", 0): 7})
    broker.close()


# Restarts


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_members_go_on_after_a_restart_without_a_rebalance(broker: LocalBroker, end: str) -> None:
    a, b, static = share(Consumer(broker, "a"), Consumer(broker, "b"), Consumer(broker, "s", instance_id="till"))
    assert a.commit(7) == 0
    getattr(broker, end)()
    beat(broker, a, b, static, ms=60_000)
    assert {one.generation for one in (a, b, static)} == {3}
    assert (a.commit(8), offsets(broker)) == (0, {("orders", 0): 8})
    assert [one.sync().code for one in (a, b, static)] == [0, 0, 0]
    assert [one.assignment for one in (a, b, static)] == [b"work of a", b"work of b", b"work of s"]


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_whoever_does_not_come_back_after_a_restart_has_a_whole_session(broker: LocalBroker, end: str) -> None:
    """Also where the broker's clock has run for long: sessions begin when it is first told the time."""
    a, _ = share(Consumer(broker, "a"), Consumer(broker, "b"))
    broker.tick(9_000)
    getattr(broker, end)()
    broker.tick(0)
    broker.tick(9_999)
    assert a.heartbeat() == 0
    broker.tick(1)
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_that_a_restart_interrupts_begins_anew(broker: LocalBroker) -> None:
    a, b = share(Consumer(broker, "a"), Consumer(broker, "b"))
    c = Consumer(broker, "c")
    c.enter()
    a.join()
    broker.kill()
    assert [a.heartbeat(), b.heartbeat(), c.heartbeat()] == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    waiting = a.join()
    b.join()
    assert (waiting.code, a.generation) == (0, 3)
    share_out(a, b)


def test_what_was_deleted_stays_deleted(broker: LocalBroker) -> None:
    commit(broker, 5)
    commit(broker, 6, group="other")
    broker.ask(DeleteGroupsRequest(groups_names=[BILLING]), 2)
    broker.kill()
    assert (groups_of(broker), offsets(broker)) == (["other"], {})


def test_an_empty_group_comes_back_empty_with_its_offsets(broker: LocalBroker) -> None:
    (a,) = share(Consumer(broker, "a"))
    a.commit(7)
    a.leave()
    broker.restart()
    group = broker.broker.groups.groups[BILLING]
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation, group.protocol_type) == (State.EMPTY, 2, "consumer")
    assert offsets(broker) == {("orders", 0): 7}


def test_groups_of_several_partitions_all_come_back() -> None:
    with broker_for_groups(DATA, {"offsets.topic.num.partitions": "7"}, files=memory_files()) as broker:
        broker.create_topic()
        names = [f"group-{n}" for n in range(20)]
        members = [share(Consumer(broker, name, group=name))[0] for name in names]
        for n, name in enumerate(names):
            members[n].commit(n)
            assert any(getattr(one, "group", "") == name for one in said(broker, partition_of(name, 7)))
        broker.kill()
        assert sorted(groups_of(broker)) == sorted(names)
        assert [offsets(broker, name) for name in names] == [{("orders", 0): n} for n in range(20)]
        assert [one.heartbeat() for one in members] == [0] * 20


# Loading


def held(broker: LocalBroker) -> None:
    """Another process; its jobs wait."""
    broker.close()
    run, broker.run_jobs = broker.run_jobs, lambda: None  # type: ignore[method-assign]
    broker.open()
    broker.run_jobs = run  # type: ignore[method-assign]
    broker.hold_jobs = True


def codes_of_all(broker: LocalBroker, member: Consumer) -> list[int]:
    """What every request about groups is answered with, at once."""
    stranger = Consumer(broker, "stranger")
    leaving = Consumer(broker, "stranger")
    return [
        broker.ask(commit_request({("orders", 0): 7}), 9).topics[0].partitions[0].error_code,
        broker.ask(fetch_request(("orders", 0)), 9).groups[0].error_code,
        broker.ask(fetch_request(("orders", 0), version=2), 2).error_code,
        broker.ask(fetch_request(("orders", 0), version=1), 1).topics[0].partitions[0].error_code,
        stranger.join().code or 0,
        member.sync().code or 0,
        leaving.leave(version=2),
        broker.ask(DescribeGroupsRequest(groups=[BILLING]), 5).groups[0].error_code,
        broker.ask(ListGroupsRequest(), 5).error_code,
        broker.ask(DeleteGroupsRequest(groups_names=[BILLING]), 2).results[0].error_code,
    ]


def others_are_served(broker: LocalBroker) -> None:
    assert broker.ask(MetadataRequest(topics=None), 12).topics[0].error_code == 0
    assert broker.ask(FindCoordinatorRequest(key=BILLING), 3).error_code == 0
    assert broker.produce(b"more", acks=1).error_code == 0
    assert broker.fetch(from_offset(0)).responses[0].partitions[0].error_code == 0


def test_while_the_log_is_read_groups_are_told_to_wait_and_others_are_served(broker: LocalBroker) -> None:
    """Pitfall 42."""
    (a,) = share(Consumer(broker, "a"))
    a.commit(7)
    held(broker)
    assert set(codes_of_all(broker, a)) == {LOADING}
    others_are_served(broker)
    broker.tick(60_000)
    assert a.heartbeat() == 0, "as in Kafka: some clients end on any other answer"
    broker.hold_jobs = False
    broker.run_jobs()
    assert (a.heartbeat(), offsets(broker)) == (0, {("orders", 0): 7})


def test_much_is_replayed_some_at_a_time(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "STEPS_AT_ONCE", 10)
    for n in range(35):
        commit(broker, n, group=f"group-{n}")
    held(broker)
    replayed = []
    while broker._jobs:
        assert broker.ask(DescribeGroupsRequest(groups=["group-0"]), 5).groups[0].error_code == LOADING
        job, finish = broker._jobs.popleft()
        job.run()
        finish()
        replayed.append(len(broker.broker.groups.groups))
    assert replayed == [10, 20, 30, 35]
    broker.hold_jobs = False
    assert len(groups_of(broker)) == 35


def test_of_a_long_log_only_the_last_record_of_each_key_counts(broker: LocalBroker) -> None:
    for n in range(300):
        commit(broker, n, group=f"group-{n % 3}")
    replayed: list[Any] = []
    held(broker)
    groups = broker.broker.groups
    replay = groups.replay
    groups.replay = lambda *record: (replayed.append(record), replay(*record))[1]  # type: ignore[method-assign]
    broker.run_jobs()
    assert len(replayed) == 3
    assert [offsets(broker, f"group-{n}")[("orders", 0)] for n in range(3)] == [297, 298, 299]


def test_records_that_kafka_wrote_are_taken_over(broker: LocalBroker) -> None:
    """Among them kinds that are not known here, and a log that was never compacted."""
    commit(broker, 1, group="first")
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=41,
        protocol="range",
        leader="m-1",
        members=[
            MemberMetadata(
                member_id="m-1", client_id="c", client_host="/h", session_timeout=10_000, assignment=b"all of it"
            )
        ],
    )
    made = [
        encode_offset("imported", "orders", 0, OffsetCommitValue(offset=3, metadata="a"), 1),
        encode_offset("imported", "orders", 0, OffsetCommitValue(offset=9, metadata="b"), 2),
        encode_offset("imported", "payments", 0, OffsetCommitValue(offset=9), 2),  # which there is not
        encode_offset("gone", "orders", 0, OffsetCommitValue(offset=9), 2),
        encode_offset("gone", "orders", 0, None, 3),
        encode_group("imported", value, 3),
        Record(0, 3, b"\x00\x03\x00\x06modern", b"\x00\x00\x00\x00\x00\x07\x00"),
        Record(0, 3, b"\x00\x0b\x00\x06shared", b"\x00\x00\x00\x00\x00\x07" + bytes(8) + b"\x00"),
        Record(0, 3, b"\x00\x11\x00\x07streams", b"\x00\x00whatever"),
    ]
    log = broker.log(OFFSETS_TOPIC)
    log.append(encode_batch([one._replace(offset=n) for n, one in enumerate(made)]), broker.now_ms)
    broker.restart()
    member = Consumer(broker, "c", group="imported")
    member.member_id, member.generation = "m-1", 41
    assert (member.heartbeat(), member.sync().code, member.assignment) == (0, 0, b"all of it")
    assert offsets(broker, "imported") == {("orders", 0): 9}
    assert sorted(groups_of(broker)) == ["first", "imported", "modern", "shared"]
    assert member.commit(10) == 0


def test_a_log_with_something_else_in_it_stops_groups_and_nothing_else(broker: LocalBroker) -> None:
    (a,) = share(Consumer(broker, "a"))
    broker.log(OFFSETS_TOPIC).append(encode_batch([Record(0, 1, b"\xff\xffkey", b"value")]), broker.now_ms)
    broker.restart()
    broker.hold_jobs = True
    assert set(codes_of_all(broker, a)) == {UNAVAILABLE}
    others_are_served(broker)
    broker.hold_jobs = False
    broker.tick()
    broker.delete_topic()


def test_a_damaged_log_stops_groups_and_nothing_else(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        (a,) = share(Consumer(broker, "a"))
        for n in range(20):
            a.commit(n)
        broker.close()
        (file,) = (tmp_path / f"{OFFSETS_TOPIC}-0").glob("*.log")
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        broker.open()
        assert set(codes_of_all(broker, a)) == {UNAVAILABLE}
        others_are_served(broker)


# Topics that are deleted


def test_with_a_topic_go_the_offsets_into_it(broker: LocalBroker) -> None:
    """Pitfall 32."""
    broker.create_topic("payments")
    for group in (BILLING, "other"):
        commit(broker, 5, group=group)
        commit(broker, 6, "payments", group=group)
    broker.delete_topic("orders")
    for _ in range(2):
        assert [offsets(broker, group) for group in (BILLING, "other")] == [{("payments", 0): 6}] * 2
        broker.kill()


def test_offsets_into_a_topic_go_also_if_a_crash_comes_in_between(broker: LocalBroker) -> None:
    broker.create_topic("payments")
    commit(broker, 5)
    commit(broker, 6, "payments")
    broker.broker.groups.topics_deleted = lambda topics: None  # type: ignore[method-assign]
    broker.delete_topic("orders")
    broker.kill()
    assert offsets(broker) == {("payments", 0): 6}
    broker.create_topic("orders")
    assert offsets(broker) == {("payments", 0): 6}


def test_a_recreated_topic_begins_without_offsets_also_after_a_crash(broker: LocalBroker) -> None:
    commit(broker, 5)
    broker.broker.groups.topics_deleted = lambda topics: None  # type: ignore[method-assign]
    broker.delete_topic("orders")
    broker.create_topic("orders")
    commit(broker, 1, group="other")
    broker.kill()
    assert (offsets(broker), offsets(broker, "other")) == ({}, {("orders", 0): 1})


def test_an_offset_of_a_recreated_topic_survives_the_removal_of_the_old_topic(broker: LocalBroker) -> None:
    """It was committed between the deletion and the removal of the logs."""
    topic = broker.broker.metadata.topics["orders"]
    commit(broker, 5)
    broker.delete_topic("orders")
    broker.create_topic("orders")
    commit(broker, 1)
    broker.broker.groups.topics_deleted([topic])
    assert offsets(broker) == {("orders", 0): 1}


def test_a_topic_that_is_deleted_while_the_log_is_read_takes_its_offsets_along(broker: LocalBroker) -> None:
    broker.create_topic("payments")
    commit(broker, 5)
    commit(broker, 6, "payments")
    held(broker)
    broker.delete_topic("orders")
    broker.hold_jobs = False
    broker.run_jobs()
    assert offsets(broker) == {("payments", 0): 6}


# Groups with nothing


def test_a_group_that_nobody_is_in_and_that_has_no_offsets_is_forgotten(broker: LocalBroker) -> None:
    (a,) = share(Consumer(broker, "a"))
    beat(broker, a, ms=2 * FORGET_MS)
    a.leave()
    broker.tick(FORGET_MS - 1)
    assert groups_of(broker) == [BILLING]
    broker.tick(1)
    assert groups_of(broker) == []
    assert type(said(broker)[-1]).__name__ == "GroupRemoved"
    broker.kill()
    assert groups_of(broker) == []


def test_a_group_whose_members_fell_silent_is_forgotten(broker: LocalBroker) -> None:
    share(Consumer(broker, "a"))
    for _ in range(3):
        broker.tick(60_000)
    assert groups_of(broker) == [BILLING]
    broker.tick(FORGET_MS)
    assert groups_of(broker) == []


def test_an_empty_group_that_a_restart_finds_is_forgotten_later(broker: LocalBroker) -> None:
    (a,) = share(Consumer(broker, "a"))
    a.leave()
    broker.restart()
    broker.tick(0)
    broker.tick(FORGET_MS - 1)
    assert groups_of(broker) == [BILLING]
    broker.tick(1)
    assert groups_of(broker) == []


def test_a_group_with_offsets_is_never_forgotten(broker: LocalBroker) -> None:
    commit(broker, 5)
    (a,) = share(Consumer(broker, "a", group="other"))
    a.commit(6)
    a.leave()
    for _ in range(100):
        broker.tick(FORGET_MS)
    assert sorted(groups_of(broker)) == [BILLING, "other"]


def test_a_group_that_lost_its_offsets_is_forgotten(broker: LocalBroker) -> None:
    commit(broker, 5)
    broker.tick(FORGET_MS)
    broker.delete_topic("orders")
    assert groups_of(broker) == [BILLING]
    broker.tick(FORGET_MS)
    assert groups_of(broker) == []


def test_who_asks_about_a_group_and_goes_leaves_nothing_behind(broker: LocalBroker) -> None:
    Consumer(broker, "a").join()
    assert groups_of(broker) == [BILLING]
    broker.tick(10_000)
    broker.tick(FORGET_MS)
    assert groups_of(broker) == []
    assert OFFSETS_TOPIC not in broker.broker.metadata.topics, "nothing was ever written"
    assert len(broker.broker.groups.timers) == 0


def test_there_are_no_more_groups_than_there_may_be(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "GROUPS_MAX", 1)
    assert commit(broker, 5) == 0
    assert commit(broker, 5, group="other") == UNAVAILABLE
    assert Consumer(broker, "a", group="other").join().code == UNAVAILABLE
    assert commit(broker, 6) == 0


# Disks that fail


def test_a_flush_of_the_log_that_fails_stops_the_process(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    broker = broker_for_groups(tmp_path, files=files)
    broker.create_topic()
    commit(broker, 5)
    broker.hold_jobs = True
    committed = resolved(broker.begin(commit_request({("orders", 0): 7}), 9))
    fetched = resolved(broker.begin(fetch_request(("orders", 0)), 9))
    files.fail("sync", errno.EIO, name=".log")
    with pytest.raises(LogOffline):
        broker.run_flushes()
    assert broker.broker.failure is not None
    assert (committed, fetched) == ([], []), "nobody is told"
    broker.directory.abandon()


def test_a_commit_that_cannot_be_written_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with broker_for_groups(tmp_path, files=files) as broker:
        broker.create_topic()
        (a,) = share(Consumer(broker, "a"))
        assert a.commit(5) == 0
        files.fail("write_at", errno.ENOSPC, name=".log", forever=True)
        assert a.commit(7) == UNAVAILABLE
        files.heal()
        assert a.heartbeat() == 0
        assert offsets(broker) == {("orders", 0): 5}


def test_a_group_that_cannot_be_saved_joins_again_when_the_disk_has_room(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with broker_for_groups(tmp_path, files=files) as broker:
        broker.create_topic()
        commit(broker, 5, group="other")
        a = Consumer(broker, "a")
        a.enter()
        files.fail("write_at", errno.ENOSPC, name=".log", forever=True)
        assert a.sync({}).code == UNAVAILABLE
        assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        files.heal()
        a.join()
        share_out(a)
        assert a.generation == 2


def test_the_log_that_cannot_be_created_is_created_by_the_next_commit(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with broker_for_groups(tmp_path, files=files) as broker:
        broker.create_topic()
        files.fail("make_directory", errno.ENOSPC, name=OFFSETS_TOPIC)
        assert commit(broker, 5) == UNAVAILABLE
        assert offsets(broker) == {}
        assert commit(broker, 5) == 0
        assert offsets(broker) == {("orders", 0): 5}
