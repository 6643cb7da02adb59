"""Consumer groups (KIP-848) through the requests of a broker: joins, sessions, static members, offsets, patterns."""

from collections.abc import Iterator

import pytest
from brokers import LocalBroker, resolved
from consumer_requests import (
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    Member,
    all_of,
    describe,
    pass_time,
    settle,
    union,
)
from group_requests import BILLING, Consumer, broker_for_groups, commit, offsets
from logs import DATA, memory_files

from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.groups.consumer import group, patterns
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_describe import CONSUMER_MEMBER
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest
from tailrace.protocol.messages.list_groups import ListGroupsRequest
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

PARTITIONS = 4


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    configs = {"group.consumer.assignment.interval.ms": "0"}
    with broker_for_groups(DATA, configs, files=memory_files()) as made:
        made.create_topic("orders", PARTITIONS)
        yield made


def log_end(broker: LocalBroker) -> int:
    return broker.partition(OFFSETS_TOPIC, 0).end_offset


# Joining and sharing


def test_the_first_member_gets_everything_at_once(broker: LocalBroker) -> None:
    member = Member(broker, "a", "orders").join()
    assert (member.epoch, member.answer.heartbeat_interval_ms) == (1, INTERVAL_MS)
    assert member.partitions == all_of("orders", 0, 1, 2, 3)
    assert member.answer.member_id == "a"


def test_a_new_member_gets_partitions_once_the_others_have_given_them_up(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders").join()
    b = Member(broker, "b", "orders").join()
    assert (b.epoch, b.partitions) == (2, set())
    assert a.beat() == 0
    assert (a.epoch, len(a.partitions)) == (1, 2), "told to give up two, at its epoch"
    assert b.beat() == 0
    assert b.answer.assignment is None, "nothing is free yet"
    assert a.acknowledge() == 0
    assert a.epoch == 2
    assert b.beat() == 0
    assert union((a, b)) == sorted(all_of("orders", 0, 1, 2, 3))
    assert describe(broker).group_state == "Stable"


def test_a_heartbeat_that_changes_nothing_writes_nothing(broker: LocalBroker) -> None:
    a, b = Member(broker, "a", "orders").join(), Member(broker, "b", "orders").join()
    settle(a, b)
    end = log_end(broker)
    for member in (a, b):
        assert member.beat() == 0
        assert member.answer.assignment is None
        assert member.acknowledge() == 0
    assert log_end(broker) == end


def test_a_full_heartbeat_is_answered_with_the_assignment(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders").join()
    assert a.beat(rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=["orders"], topic_partitions=a.owned) == 0
    assert a.answer.assignment is not None


def test_a_join_is_one_batch_and_is_answered_when_that_is_on_disk(broker: LocalBroker) -> None:
    commit(broker, 1, group="other")  # so that the log is there
    broker.hold_jobs = True
    member = Member(broker, "a", "orders")
    log = broker.log(OFFSETS_TOPIC)
    before = log.end_offset
    answers = resolved(broker.begin(member.request(), 1))
    assert not answers
    piece = log.read(before, 1 << 20)
    assert piece is None, "not flushed, so not read"
    broker.run_flushes()
    assert answers[0].error_code == 0
    piece = log.read(before, 1 << 20)
    assert piece is not None
    with piece:
        data = piece.read()
    assert len(data) == 12 + int.from_bytes(data[8:12], "big"), "one batch"


def test_a_version_0_member_gets_its_id_from_the_broker(broker: LocalBroker) -> None:
    member = Member(broker, "", "orders")
    assert member.beat(0) == 0
    assert len(member.member_id) == 32
    assert member.beat(0) == 0
    assert Member(broker, "", "orders").beat(1) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "a(?=b)", "subscribed_topic_names": []}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_leaves_nothing(
    broker: LocalBroker, changed: dict[str, object], code: ErrorCode
) -> None:
    request = Member(broker, "a", "orders").request()
    for name, value in changed.items():
        setattr(request, name, value)
    answer = broker.ask(request, 1)
    assert answer.error_code == code
    assert answer.error_message
    assert broker.ask(ListGroupsRequest(), 5).groups == []


def test_a_full_group_takes_no_more_members(broker: LocalBroker) -> None:
    broker.broker.configs.set_at_run_time("", "group.consumer.max.size", "1")
    a = Member(broker, "a", "orders").join()
    assert Member(broker, "b", "orders").beat() == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert Member(broker, "a", "orders").beat() == 0
    assert a.beat() == 0


def test_members_may_hold_so_much_memory_and_no_more(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "HELD_BYTES_MAX", 100)
    a = Member(broker, "a", "x" * 200).join()
    assert Member(broker, "b", "orders").beat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.beat() == 0
    assert a.beat(subscribed_topic_names=["x" * 200, "orders"]) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.beat(subscribed_topic_names=["orders"]) == 0
    assert Member(broker, "a", "orders").beat() == 0, "it is known"
    a.epoch = describe(broker).group_epoch
    a.leave()
    Member(broker, "b", "orders").join()


def test_the_memory_that_members_hold_is_counted(broker: LocalBroker) -> None:
    held = broker.broker.groups._table._consumer_ports.held
    members = [
        Member(broker, "i" * 30_000).join(),
        Member(broker, "b", rack_id="r" * 30_000).join(),
        Member(broker, "c", instance_id="n" * 30_000).join(),
        Member(broker, "d", *(str(number) for number in range(5_000))).join(),
    ]
    assert held.bytes > 3 * 30_000 + 5_000 * 400
    broker.kill()
    assert broker.broker.groups._table._consumer_ports.held.bytes == held.bytes
    for member in members:
        member.epoch = 1
        member.leave()
    assert broker.broker.groups._table._consumer_ports.held.bytes == 0


def test_the_assignor_that_most_members_prefer_is_used(broker: LocalBroker) -> None:
    members = [Member(broker, name, "orders", server_assignor="range").join() for name in "abc"]
    settle(*members)
    assert [sorted(index for _, index in member.partitions) for member in members] == [[0, 1], [2], [3]]
    assert describe(broker).assignor_name == "range"


# Epochs


def test_members_with_a_wrong_epoch_are_fenced(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders").join()
    a.epoch = 7
    assert a.beat() == ErrorCode.FENCED_MEMBER_EPOCH
    assert Member(broker, "nobody", "orders").leave() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_lost_a_response_goes_on_from_its_previous_epoch(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders").join()
    b = Member(broker, "b", "orders").join()
    settle(a, b)
    epoch, owned = a.epoch, a.owned
    b.leave()
    assert a.beat() == 0, "it never sees the response"
    a.epoch = epoch
    assert a.beat() == ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it owns"
    assert a.beat(topic_partitions=owned) == 0
    assert a.epoch > epoch


def test_a_known_member_that_joins_again_keeps_its_assignment(broker: LocalBroker) -> None:
    a, b = Member(broker, "a", "orders").join(), Member(broker, "b", "orders").join()
    settle(a, b)
    before = set(a.partitions)
    again = Member(broker, "a", "orders").join()
    assert again.partitions == before
    assert again.epoch == b.epoch


# Ends


def test_partitions_of_a_member_that_leaves_go_to_the_others(broker: LocalBroker) -> None:
    a, b = Member(broker, "a", "orders").join(), Member(broker, "b", "orders").join()
    settle(a, b)
    assert b.leave() == 0
    assert b.answer.member_epoch == -1
    assert a.beat() == 0
    assert a.partitions == all_of("orders", 0, 1, 2, 3)


def test_a_member_that_falls_silent_is_removed_when_its_session_is_over(broker: LocalBroker) -> None:
    a, b = Member(broker, "a", "orders").join(), Member(broker, "b", "orders").join()
    settle(a, b)
    pass_time(broker, SESSION_MS - INTERVAL_MS, a)
    assert len(describe(broker).members) == 2
    pass_time(broker, 2 * INTERVAL_MS, a)
    assert a.partitions == all_of("orders", 0, 1, 2, 3)
    assert b.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_partitions_in_time_is_removed(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders").join()
    b = Member(broker, "b", "orders").join()
    assert a.beat() == 0
    revoking = describe(broker)
    assert revoking.group_state == "Reconciling"
    (described,) = [one for one in revoking.members if one.member_id == "a"]
    held = {index for topic in described.assignment.topic_partitions for index in topic.partitions}
    shall = {index for topic in described.target_assignment.topic_partitions for index in topic.partitions}
    assert (len(held), len(shall)) == (4, 2), "who has yet to revoke what is seen"
    pass_time(broker, REBALANCE_MS - INTERVAL_MS, a, b)
    assert len(b.partitions) == 0
    broker.tick(2 * INTERVAL_MS)
    assert a.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert b.beat() == 0
    assert b.partitions == all_of("orders", 0, 1, 2, 3)


def test_an_empty_group_keeps_its_offsets_until_it_is_deleted(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders").join()
    assert a.commit(7) == 0
    assert broker.ask(DeleteGroupsRequest(groups_names=[BILLING]), 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    a.leave()
    assert describe(broker).group_state == "Empty"
    assert offsets(broker) == {("orders", 0): 7}
    assert commit(broker, 3) == 0, "as an operator does"
    assert broker.ask(DeleteGroupsRequest(groups_names=[BILLING]), 2).results[0].error_code == 0
    assert describe(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    broker.restart()
    assert broker.ask(ListGroupsRequest(), 5).groups == []


def test_a_group_without_members_and_offsets_is_forgotten(broker: LocalBroker) -> None:
    Member(broker, "a", "orders").join().leave()
    broker.tick(600_001)
    broker.restart()
    assert broker.ask(ListGroupsRequest(), 5).groups == []


def test_a_restart_changes_nothing_and_sessions_begin_anew(broker: LocalBroker) -> None:
    a, b = Member(broker, "a", "orders").join(), Member(broker, "b", "orders", instance_id="desk").join()
    settle(a, b)
    before = describe(broker)
    broker.kill()
    assert describe(broker) == before
    end = log_end(broker)
    assert (a.beat(), b.beat()) == (0, 0)
    assert log_end(broker) == end
    pass_time(broker, 2 * SESSION_MS, a)
    assert b.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.partitions == all_of("orders", 0, 1, 2, 3)


def test_a_revocation_has_its_whole_time_again_after_a_restart(broker: LocalBroker) -> None:
    a, b = Member(broker, "a", "orders").join(), Member(broker, "b", "orders").join()
    assert a.beat() == 0
    broker.kill()
    pass_time(broker, REBALANCE_MS - INTERVAL_MS, a, b)
    assert a.acknowledge() == 0
    pass_time(broker, 2 * REBALANCE_MS, a, b)
    assert union((a, b)) == sorted(all_of("orders", 0, 1, 2, 3))


# Static members


def test_a_static_member_comes_back_under_another_id_to_what_it_had(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders", instance_id="desk").join()
    b = Member(broker, "b", "orders", instance_id="till").join()
    settle(a, b)
    had, epoch = set(a.partitions), b.epoch
    assert Member(broker, "thief", "orders", instance_id="desk").beat() == ErrorCode.UNRELEASED_INSTANCE_ID
    assert a.leave(-2) == 0
    assert a.answer.member_epoch == -2
    pass_time(broker, SESSION_MS - INTERVAL_MS, b)
    assert len(b.partitions) == 2
    again = Member(broker, "a2", "orders", instance_id="desk").join()
    assert (again.partitions, again.epoch) == (had, epoch)
    assert b.beat() == 0
    assert (b.epoch, b.answer.assignment) == (epoch, None)
    assert a.leave() == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_removed(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders", instance_id="desk").join()
    b = Member(broker, "b", "orders").join()
    settle(a, b)
    a.leave(-2)
    pass_time(broker, SESSION_MS + INTERVAL_MS, b)
    assert b.partitions == all_of("orders", 0, 1, 2, 3)


# Offsets


def test_members_commit_in_their_epoch(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders").join()
    assert a.commit(5) == 0
    assert a.commit(5, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(broker, 9) == ErrorCode.UNKNOWN_MEMBER_ID, "while there are members"
    assert a.fetch() == 0
    stranger = Member(broker, "x", "orders")
    stranger.epoch = 1
    assert (stranger.commit(9), stranger.fetch()) == (ErrorCode.UNKNOWN_MEMBER_ID,) * 2
    a.epoch = 2
    assert (a.commit(9), a.fetch()) == (ErrorCode.STALE_MEMBER_EPOCH,) * 2
    assert offsets(broker) == {("orders", 0): 5}


def test_a_member_commits_in_an_epoch_that_is_over_what_it_still_has(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders").join()
    b = Member(broker, "b", "orders").join()
    settle(a, b)
    kept = sorted(index for _, index in a.partitions)[0]
    (lost, *_) = sorted(index for _, index in b.partitions)
    old = a.epoch - 1
    a.epoch = old
    assert a.commit(5, kept) == 0, "assigned in an epoch that is not later"
    assert a.commit(5, lost) == ErrorCode.STALE_MEMBER_EPOCH
    b.epoch -= 1
    assert b.commit(5, lost) == ErrorCode.STALE_MEMBER_EPOCH, "assigned later"
    assert a.fetch() == ErrorCode.STALE_MEMBER_EPOCH


def test_offsets_of_topics_that_are_read_are_not_deleted(broker: LocalBroker) -> None:
    broker.create_topic("payments")
    a = Member(broker, "a", subscribed_topic_regex="ord.*", subscribed_topic_names=[]).join()
    assert a.commit(5) == 0
    assert a.commit(5, topic="payments") == 0

    def delete(topic: str) -> int:
        wanted = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        answer = broker.ask(OffsetDeleteRequest(group_id=BILLING, topics=[wanted]), 0)
        return int(answer.topics[0].partitions[0].error_code)

    assert delete("orders") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete("payments") == 0
    assert offsets(broker) == {("orders", 0): 5}


# Topics


def test_new_partitions_and_topics_are_assigned_without_a_heartbeat_in_between(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders", "later").join()
    other = Member(broker, "x", "other", group="elsewhere").join()
    broker.create_topic("later", 2)
    broker.tick(0)
    assert describe(broker).assignment_epoch == 2, "the broker did not wait for a member"
    assert a.beat() == 0
    assert a.partitions == all_of("orders", 0, 1, 2, 3) | all_of("later", 0, 1)
    assert other.beat() == 0
    assert other.epoch == 1, "no topic of it has changed"


def test_partitions_of_a_deleted_topic_are_taken_and_a_new_one_is_another(broker: LocalBroker) -> None:
    broker.create_topic("gone", 2)
    a = Member(broker, "a", "orders", "gone").join()
    first_id = broker.broker.metadata.topics["gone"].topic_id
    broker.delete_topic("gone")
    broker.tick(0)
    settle(a)
    assert a.partitions == all_of("orders", 0, 1, 2, 3)
    second_id = broker.create_topic("gone", 1)
    assert first_id != second_id
    broker.tick(0)
    settle(a)
    assert a.partitions == all_of("orders", 0, 1, 2, 3) | all_of("gone", 0)


def test_what_happened_to_topics_is_noticed_after_a_restart(broker: LocalBroker) -> None:
    a = Member(broker, "a", "orders", "later").join()
    broker.create_topic("later")  # and the broker ends before the group is told
    broker.kill()
    broker.tick(0)
    settle(a)
    assert ("later", 0) in a.partitions


def test_a_pattern_matches_whole_names_and_no_internal_topic(broker: LocalBroker) -> None:
    broker.create_topic("orders-eu")
    a = Member(broker, "a", subscribed_topic_regex="orders", subscribed_topic_names=[]).join()
    b = Member(broker, "b", subscribed_topic_regex=".*", subscribed_topic_names=[], group="all").join()
    assert a.partitions == all_of("orders", 0, 1, 2, 3)
    assert b.partitions == all_of("orders", 0, 1, 2, 3) | all_of("orders-eu", 0)
    (member,) = describe(broker, "all").members
    assert (member.subscribed_topic_regex, member.member_type) == (".*", CONSUMER_MEMBER)
    broker.create_topic("orders-us")
    broker.tick(0)
    assert b.beat() == 0
    assert ("orders-us", 0) in b.partitions
    assert a.beat() == 0
    assert a.epoch == 1


def test_a_member_changes_from_a_pattern_to_names(broker: LocalBroker) -> None:
    broker.create_topic("payments")
    a = Member(broker, "a", subscribed_topic_regex=".*", subscribed_topic_names=[]).join()
    assert len(a.partitions) == 5
    assert a.beat(subscribed_topic_regex="", subscribed_topic_names=["payments"]) == 0
    settle(a)
    assert a.partitions == all_of("payments", 0)
    state = broker.broker.groups.groups[BILLING].replayed  # type: ignore[attr-defined]
    assert state.patterns == {}


def test_many_topics_are_matched_in_increments(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "NAMES_A_STEP", 1)
    for number in range(300):
        broker.create_topic(f"many-{number:03}")
    broker.hold_jobs = True
    member = Member(broker, "a", subscribed_topic_regex="many-.*", subscribed_topic_names=[])
    answers = resolved(broker.begin(member.request(), 1))
    broker.run_flushes()
    assert answers[0].assignment.topic_partitions == [], "other requests have their turn"
    broker.hold_jobs = False
    broker.run_jobs()
    broker.tick(0)
    member.epoch = answers[0].member_epoch
    assert member.beat() == 0
    assert len(member.partitions) == 300


# Other requests


def test_a_consumer_group_is_no_classic_group(broker: LocalBroker) -> None:
    Member(broker, "a", "orders").join()
    (dead,) = broker.ask(DescribeGroupsRequest(groups=[BILLING]), 5).groups
    assert (dead.error_code, dead.group_state) == (0, "Dead")
    (unknown,) = broker.ask(DescribeGroupsRequest(groups=[BILLING]), 6).groups
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    Consumer(broker, "c", group="old").enter()
    assert describe(broker, "old").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    listed = {one.group_id: (one.group_type, one.group_state) for one in broker.ask(ListGroupsRequest(), 5).groups}
    assert listed[BILLING] == ("consumer", "Stable")
    (one,) = broker.ask(ListGroupsRequest(types_filter=["Consumer"]), 5).groups
    assert one.group_id == BILLING


def test_an_empty_group_changes_its_kind_with_the_next_member(broker: LocalBroker) -> None:
    commit(broker, 7)
    a = Member(broker, "a", "orders").join()
    assert describe(broker).error_code == 0
    a.leave()
    classic = Consumer(broker, "c")
    classic.enter()
    assert describe(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    classic.leave()
    Member(broker, "b", "orders").join()
    broker.restart()
    assert describe(broker).error_code == 0
    assert offsets(broker) == {("orders", 0): 7}


def test_the_assignment_interval_collects_members_that_join_together(broker: LocalBroker) -> None:
    broker.broker.configs.set_at_run_time("", "group.consumer.assignment.interval.ms", "1000")
    broker.broker.metadata.revision += 1
    members = [Member(broker, name, "orders").join() for name in "abc"]
    assert describe(broker).assignment_epoch == 1
    broker.tick(1000)
    assert describe(broker).assignment_epoch == 3, "one more for two members"
    settle(*members)
    assert union(members) == sorted(all_of("orders", 0, 1, 2, 3))
