"""Share groups (KIP-932) through the requests of a broker: joins, sessions, epochs, topics, states, other requests."""

from collections.abc import Collection, Iterator
from typing import Any

import pytest
from brokers import LocalBroker, resolved
from consumer_requests import Member, all_of
from group_requests import Asked, Consumer, broker_for_groups, commit, commit_request, fetch_request, share
from logs import DATA, memory_files
from share_requests import INTERVAL_MS, SESSION_MS, WORKERS, ShareMember, describe, pass_time
from transactions import TransactionalProducer

from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.groups.consumer import group as consumer_group
from tailrace.broker.groups.share.share_state import NoShareState
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest
from tailrace.protocol.messages.list_groups import ListGroupsRequest
from tailrace.protocol.messages.offset_delete import OffsetDeleteRequest

PARTITIONS = 4
NO_INTERVAL = {"group.share.assignment.interval.ms": "0"}


class States(NoShareState):
    """Says what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.refusal: ErrorCode | None = None

    def initialize(self, group_id: str, topic_id: bytes, partitions: Collection[int], epoch: int) -> None:
        if self.refusal is not None:
            raise Refused(self.refusal, "no states today")
        self.told.append((group_id, topic_id, list(partitions), epoch))

    def deleted(self, group_id: str) -> None:
        if self.refusal is not None:
            raise Refused(self.refusal, "no states today")
        self.told.append(group_id)


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with broker_for_groups(DATA, NO_INTERVAL, files=memory_files()) as made:
        made.create_topic("orders", PARTITIONS)
        yield made


@pytest.fixture
def states(broker: LocalBroker) -> States:
    broker.broker.groups.share_state = found = States()
    return found


def log_end(broker: LocalBroker) -> int:
    return broker.partition(OFFSETS_TOPIC, 0).end_offset


def groups_of(broker: LocalBroker) -> dict[str, tuple[str, str, str]]:
    groups = broker.ask(ListGroupsRequest(), 5).groups
    return {one.group_id: (one.group_type, one.protocol_type, one.group_state) for one in groups}


def delete_group(broker: LocalBroker, group: str = WORKERS) -> int:
    return int(broker.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code)


# Joining and sharing


def test_the_first_response_of_a_new_group_has_partitions(broker: LocalBroker) -> None:
    worker = ShareMember(broker, "a", "orders").join()
    assert (worker.epoch, worker.answer.member_id, worker.answer.heartbeat_interval_ms) == (1, "a", INTERVAL_MS)
    assert worker.partitions == all_of("orders", 0, 1, 2, 3)


def test_each_new_member_gets_partitions_with_its_first_response(broker: LocalBroker) -> None:
    workers = [ShareMember(broker, f"m{number}", "orders").join() for number in range(10)]
    assert all(worker.partitions for worker in workers)
    for worker in workers:
        assert worker.beat() == 0
    counts = [sum((("orders", index) in worker.partitions) for worker in workers) for index in range(PARTITIONS)]
    assert counts == [3] * PARTITIONS
    assert {len(worker.partitions) for worker in workers} == {1, 2}


def test_200_members_share_a_partition_and_one_more_is_refused(broker: LocalBroker) -> None:
    broker.create_topic("images")
    workers = [ShareMember(broker, f"m{number}", "images").join() for number in range(200)]
    assert all(worker.partitions == all_of("images", 0) for worker in workers)
    assert ShareMember(broker, "one more", "images").beat() == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert workers[0].beat() == 0
    again = ShareMember(broker, "m7", "images")
    assert again.beat() == 0, "a member that joins again is none more"
    assert len(describe(broker).members) == 200
    broker.kill()
    assert len(describe(broker).members) == 200
    assert all(worker.beat() == 0 for worker in workers if worker.member_id != "m7")


def test_the_size_of_groups_can_be_changed() -> None:
    with LocalBroker(DATA, {"group.share.max.size": "1"}, files=memory_files()) as broker:
        broker.create_topic()
        ShareMember(broker, "a", "orders").join()
        assert ShareMember(broker, "b", "orders").beat() == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_members_that_join_together_share_an_assignment_and_are_called_back_for_it() -> None:
    with LocalBroker(DATA, files=memory_files()) as broker:
        broker.create_topic("orders", PARTITIONS)
        a = ShareMember(broker, "a", "orders").join()
        broker.tick(400)
        others = [ShareMember(broker, name, "orders").join() for name in "bcd"]
        assert [worker.partitions for worker in others] == [set()] * 3
        assert {worker.answer.heartbeat_interval_ms for worker in others} == {600}
        assert a.beat() == 0
        assert a.answer.heartbeat_interval_ms == 600
        broker.tick(600)
        assert describe(broker).assignment_epoch == 4, "one more for three members"
        for worker in (a, *others):
            assert worker.beat() == 0
            assert worker.answer.heartbeat_interval_ms == INTERVAL_MS
            assert len(worker.partitions) == 1


def test_a_heartbeat_that_changes_nothing_writes_nothing(broker: LocalBroker) -> None:
    a = ShareMember(broker, "a", "orders").join()
    end = log_end(broker)
    assert a.beat() == 0
    assert a.answer.assignment is None
    assert log_end(broker) == end


def test_a_full_heartbeat_is_answered_with_the_assignment(broker: LocalBroker) -> None:
    a = ShareMember(broker, "a", "orders").join()
    end = log_end(broker)
    assert a.beat(subscribed_topic_names=["orders"]) == 0
    assert a.answer.assignment is not None
    assert log_end(broker) == end


def test_a_join_is_one_batch_and_is_answered_when_that_is_on_disk(broker: LocalBroker) -> None:
    commit(broker, 1, group="other")  # so that the log is there
    broker.hold_jobs = True
    log = broker.log(OFFSETS_TOPIC)
    before = log.end_offset
    answers = resolved(broker.begin(ShareMember(broker, "a", "orders").request(), 1))
    assert not answers
    broker.run_flushes()
    assert answers[0].error_code == 0
    piece = log.read(before, 1 << 20)
    assert piece is not None
    with piece:
        data = piece.read()
    assert len(data) == 12 + int.from_bytes(data[8:12], "big"), "one batch"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": []}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_leaves_nothing(
    broker: LocalBroker, changed: dict[str, object], code: ErrorCode
) -> None:
    request = ShareMember(broker, "a", "orders").request()
    for name, value in changed.items():
        setattr(request, name, value)
    answer = broker.ask(request, 1)
    assert answer.error_code == code
    assert answer.error_message
    assert groups_of(broker) == {}


def test_members_may_hold_so_much_memory_and_no_more(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_group, "HELD_BYTES_MAX", 100)
    a = ShareMember(broker, "a", "x" * 200).join()
    assert ShareMember(broker, "b", "orders").beat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.beat() == 0
    assert a.subscribe("x" * 200, "orders") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.subscribe("orders") == 0
    assert ShareMember(broker, "a", "orders").beat() == 0, "it is known"
    a.leave()
    ShareMember(broker, "b", "orders").join()


def test_the_memory_that_members_hold_is_counted(broker: LocalBroker) -> None:
    held = broker.broker.groups._table._share_ports.held
    assert held.bytes == 0
    a = ShareMember(broker, "a", "orders").join()
    one = held.bytes
    assert one > 300
    b = ShareMember(broker, "b", "orders").join()
    assert one < held.bytes < 2 * one, "the topic counts once"
    assert a.leave() == b.leave() == 0
    assert held.bytes == 0


# Epochs


def test_members_with_a_wrong_epoch_are_fenced(broker: LocalBroker) -> None:
    a = ShareMember(broker, "a", "orders").join()
    a.epoch = 7
    assert a.beat() == ErrorCode.FENCED_MEMBER_EPOCH
    stranger = ShareMember(broker, "b", "orders")
    stranger.epoch = 1
    assert stranger.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_lost_a_response_goes_on_from_its_previous_epoch(broker: LocalBroker) -> None:
    a = ShareMember(broker, "a", "orders").join()
    b = ShareMember(broker, "b", "orders").join()
    assert a.beat() == 0
    assert a.epoch == 2
    a.epoch = 1  # it never saw the response
    assert a.beat() == 0
    assert a.epoch == 2
    b.leave()
    assert a.beat() == 0
    a.epoch = 1
    assert a.beat() == ErrorCode.FENCED_MEMBER_EPOCH, "two behind"


def test_a_known_member_that_joins_again_keeps_its_assignment(broker: LocalBroker) -> None:
    a, b = ShareMember(broker, "a", "orders").join(), ShareMember(broker, "b", "orders").join()
    assert a.beat() == 0
    end = log_end(broker)
    again = ShareMember(broker, "a", "orders").join()
    assert (again.partitions, again.epoch) == (a.partitions, b.epoch)
    assert log_end(broker) == end


def test_a_member_changes_what_it_subscribes_to(broker: LocalBroker) -> None:
    broker.create_topic("payments", 2)
    a = ShareMember(broker, "a", "orders").join()
    assert a.subscribe("orders", "payments") == 0
    assert a.partitions == all_of("orders", 0, 1, 2, 3) | all_of("payments", 0, 1)
    assert a.subscribe("payments") == 0
    assert a.partitions == all_of("payments", 0, 1)
    assert a.subscribe() == 0
    assert a.partitions == set()


def test_a_topic_that_a_member_gives_up_is_taken_at_once_within_the_interval(broker: LocalBroker) -> None:
    broker.create_topic("payments", 2)
    broker.broker.configs.set_at_run_time("", "group.share.assignment.interval.ms", "1000")
    broker.broker.metadata.revision += 1
    a = ShareMember(broker, "a", "orders", "payments").join()
    assert a.subscribe("payments") == 0
    assert a.partitions == all_of("payments", 0, 1)


# Ends


def test_partitions_of_a_member_that_leaves_go_to_the_others(broker: LocalBroker) -> None:
    a, b = ShareMember(broker, "a", "orders").join(), ShareMember(broker, "b", "orders").join()
    assert b.leave() == 0
    assert (b.answer.member_epoch, b.answer.heartbeat_interval_ms, b.answer.assignment) == (-1, 0, None)
    assert a.beat() == 0
    assert a.partitions == all_of("orders", 0, 1, 2, 3)


def test_a_member_that_falls_silent_is_removed_when_its_session_is_over(broker: LocalBroker) -> None:
    a, b = ShareMember(broker, "a", "orders").join(), ShareMember(broker, "b", "orders").join()
    pass_time(broker, SESSION_MS - INTERVAL_MS, a)
    assert len(describe(broker).members) == 2
    pass_time(broker, 2 * INTERVAL_MS, a)
    assert a.partitions == all_of("orders", 0, 1, 2, 3)
    assert b.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_sessions_and_heartbeats_are_as_long_as_the_configs_say() -> None:
    given = {
        "group.share.session.timeout.ms": "50000",
        "group.share.heartbeat.interval.ms": "7000",
        "group.share.assignment.interval.ms": "0",
    }
    with LocalBroker(DATA, given, files=memory_files()) as broker:
        broker.create_topic()
        a = ShareMember(broker, "a", "orders").join()
        assert a.answer.heartbeat_interval_ms == 7_000
        broker.tick(49_000)
        assert len(describe(broker).members) == 1
        broker.tick(2_000)
        assert describe(broker).members == []


def test_a_restart_changes_nothing_and_sessions_begin_anew(broker: LocalBroker) -> None:
    a, b = ShareMember(broker, "a", "orders").join(), ShareMember(broker, "b", "orders").join()
    assert a.beat() == 0
    before = describe(broker)
    broker.kill()
    assert describe(broker) == before
    end = log_end(broker)
    assert (a.beat(), b.beat()) == (0, 0)
    assert log_end(broker) == end
    pass_time(broker, 2 * SESSION_MS, a)
    assert b.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.partitions == all_of("orders", 0, 1, 2, 3)


def test_an_empty_group_stays_until_it_is_deleted(broker: LocalBroker) -> None:
    a = ShareMember(broker, "a", "orders").join()
    assert delete_group(broker) == ErrorCode.NON_EMPTY_GROUP
    a.leave()
    broker.tick(600_001)
    assert groups_of(broker) == {WORKERS: ("share", "share", "Empty")}
    broker.restart()
    broker.tick(600_001)
    assert describe(broker).group_state == "Empty"
    assert delete_group(broker) == 0
    assert describe(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    broker.restart()
    assert groups_of(broker) == {}


def test_a_group_of_topics_that_never_were_is_forgotten(broker: LocalBroker) -> None:
    ShareMember(broker, "a", "nowhere").join().leave()
    broker.tick(600_001)
    assert groups_of(broker) == {}


# Topics


def test_new_partitions_and_topics_are_assigned_without_a_heartbeat_in_between(broker: LocalBroker) -> None:
    a = ShareMember(broker, "a", "orders", "later").join()
    other = ShareMember(broker, "x", "other", group="elsewhere").join()
    broker.create_topic("later", 2)
    broker.tick(0)
    assert describe(broker).assignment_epoch == 2, "the broker did not wait for a member"
    assert a.beat() == 0
    assert a.partitions == all_of("orders", 0, 1, 2, 3) | all_of("later", 0, 1)
    assert other.beat() == 0
    assert other.epoch == 1, "no topic of it has changed"


def test_partitions_of_a_deleted_topic_are_taken_and_a_new_one_is_another(broker: LocalBroker, states: States) -> None:
    first_id = broker.create_topic("gone", 2)
    a = ShareMember(broker, "a", "orders", "gone").join()
    broker.delete_topic("gone")
    broker.tick(0)
    assert a.beat() == 0
    assert a.partitions == all_of("orders", 0, 1, 2, 3)
    assert first_id not in broker.broker.groups.share_group(WORKERS).initialized
    second_id = broker.create_topic("gone", 1)
    broker.tick(0)
    assert a.beat() == 0
    assert a.partitions == all_of("orders", 0, 1, 2, 3) | all_of("gone", 0)
    assert [topic_id for _, topic_id, _, _ in states.told if topic_id in (first_id, second_id)] == [first_id, second_id]


def test_a_group_without_members_forgets_a_topic_that_is_deleted(broker: LocalBroker) -> None:
    ShareMember(broker, "a", "orders").join().leave()
    broker.delete_topic()
    broker.tick(0)
    assert broker.broker.groups.share_group(WORKERS).initialized == {}
    broker.tick(600_001)
    assert groups_of(broker) == {}, "and is forgotten itself"


def test_what_happened_to_topics_is_noticed_after_a_restart(broker: LocalBroker) -> None:
    a = ShareMember(broker, "a", "orders", "later").join()
    broker.create_topic("later")  # and the broker ends before the group is told
    broker.kill()
    broker.tick(0)  # the state of queues is read first
    broker.tick(0)
    assert a.beat() == 0
    assert ("later", 0) in a.partitions


# The states of partitions


def test_partitions_get_a_state_once_before_they_are_assigned(broker: LocalBroker, states: States) -> None:
    orders = broker.broker.metadata.topics["orders"].topic_id
    a = ShareMember(broker, "a", "orders").join()
    ShareMember(broker, "b", "orders").join()
    assert states.told == [(WORKERS, orders, [0, 1, 2, 3], 1)]
    a.leave()
    ShareMember(broker, "c", "orders").join()
    assert len(states.told) == 1
    later = broker.create_topic("later")
    ShareMember(broker, "d", "later").join()
    assert states.told[1:] == [(WORKERS, later, [0], 5)]


def test_without_a_state_nothing_is_assigned_and_nothing_written(broker: LocalBroker, states: States) -> None:
    commit(broker, 1, group="other")
    end = log_end(broker)
    states.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ShareMember(broker, "a", "orders").beat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert log_end(broker) == end
    assert WORKERS not in groups_of(broker)
    states.refusal = None
    ShareMember(broker, "a", "orders").join()


def test_new_partitions_get_their_state_later_if_they_cannot_have_one_now(broker: LocalBroker, states: States) -> None:
    a = ShareMember(broker, "a", "orders", "later").join()
    states.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.create_topic("later")
    broker.tick(0)
    states.refusal = None
    broker.tick(1_000)
    assert len(states.told) == 2
    assert a.beat() == 0
    assert ("later", 0) in a.partitions


def test_a_group_loses_its_states_before_it_is_deleted(broker: LocalBroker, states: States) -> None:
    ShareMember(broker, "a", "orders").join().leave()
    states.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert delete_group(broker) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert WORKERS in groups_of(broker)
    states.refusal = None
    assert delete_group(broker) == 0
    assert states.told[-1] == WORKERS
    ShareMember(broker, "a", "orders").join()
    assert len(states.told) == 3, "a new group begins anew"


def test_an_operator_changes_which_partitions_have_a_state(broker: LocalBroker, states: States) -> None:
    orders = broker.broker.metadata.topics["orders"].topic_id
    groups = broker.broker.groups
    with pytest.raises(Refused, match="no share group"):
        groups.empty_share_group(WORKERS)
    group = groups.empty_share_group(WORKERS, make=True)
    group.add_initialized(orders, "orders", [0, 2])
    broker.kill()
    broker.broker.groups.share_state = states
    broker.tick(600_001)
    assert groups_of(broker) == {WORKERS: ("share", "share", "Empty")}
    a = ShareMember(broker, "a", "orders").join()
    assert states.told == [(WORKERS, orders, [1, 3], 1)]
    groups = broker.broker.groups
    with pytest.raises(Refused, match="has members"):
        groups.empty_share_group(WORKERS)
    a.leave()
    groups.empty_share_group(WORKERS).remove_initialized([orders])
    broker.run_jobs()
    ShareMember(broker, "a", "orders").join()
    assert [partitions for _, _, partitions, _ in states.told] == [[1, 3], [0, 1, 2, 3]]


# Other requests


def test_a_name_belongs_to_one_kind_of_group(broker: LocalBroker) -> None:
    ShareMember(broker, "a", "orders").join()
    assert Member(broker, "b", "orders", group=WORKERS).beat() == ErrorCode.GROUP_ID_NOT_FOUND
    classic = Consumer(broker, "c", group=WORKERS)
    assert classic.join().code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    classic.member_id, classic.generation = "a", 1
    assert classic.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert classic.sync().code == ErrorCode.UNKNOWN_MEMBER_ID
    Member(broker, "b", "orders", group="consumers").join()
    share(Consumer(broker, "c", group="classics"))
    commit(broker, 1, group="offsets")
    for group in ("consumers", "classics", "offsets"):
        assert ShareMember(broker, "a", "orders", group=group).beat() == ErrorCode.GROUP_ID_NOT_FOUND
        assert describe(broker, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    broker.kill()
    assert groups_of(broker) == {
        WORKERS: ("share", "share", "Stable"),
        "consumers": ("consumer", "consumer", "Stable"),
        "classics": ("classic", "consumer", "Stable"),
        "offsets": ("classic", "", "Empty"),
    }


def test_groups_are_listed_by_type_and_state(broker: LocalBroker) -> None:
    ShareMember(broker, "a", "orders").join()
    ShareMember(broker, "b", "orders", group="idle").join().leave()
    Member(broker, "c", "orders", group="consumers").join()

    def listed(**filters: list[str]) -> list[str]:
        return sorted(one.group_id for one in broker.ask(ListGroupsRequest(**filters), 5).groups)

    assert listed(types_filter=["Share"]) == ["idle", WORKERS]
    assert listed(types_filter=["share"], states_filter=["empty"]) == ["idle"]


def test_a_share_group_has_no_offsets_that_clients_commit(broker: LocalBroker) -> None:
    a = ShareMember(broker, "a", "orders").join()
    producer = TransactionalProducer(broker)
    for _ in range(2):
        assert producer.commit_offset(1, WORKERS) == ErrorCode.GROUP_ID_NOT_FOUND
        assert commit(broker, 1, group=WORKERS) == ErrorCode.GROUP_ID_NOT_FOUND
        as_member = commit_request(
            {("orders", 0): 1}, group=WORKERS, member_id="a", generation_id_or_member_epoch=a.epoch
        )
        answer = broker.ask(as_member, 9)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        fetched = Asked(broker, fetch_request(("orders", 0), group=WORKERS), 9).answer.groups[0]
        assert (fetched.error_code, fetched.topics[0].partitions[0].committed_offset) == (0, -1)
        deleted = broker.ask(OffsetDeleteRequest(group_id=WORKERS), 0)
        assert deleted.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        a.leave()


def test_describe_groups_does_not_know_a_share_group(broker: LocalBroker) -> None:
    ShareMember(broker, "a", "orders").join()
    (dead,) = broker.ask(DescribeGroupsRequest(groups=[WORKERS]), 5).groups
    assert (dead.error_code, dead.group_state) == (0, "Dead")
    (unknown,) = broker.ask(DescribeGroupsRequest(groups=[WORKERS]), 6).groups
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_described_with_its_members(broker: LocalBroker) -> None:
    ShareMember(broker, "a", "orders").join()
    b = ShareMember(broker, "b", "orders")
    assert b.beat(rack_id="r1") == 0
    described = describe(broker, include_authorized_operations=True)
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    assert described.authorized_operations > 0
    first, second = described.members
    assert (first.member_id, first.rack_id, first.member_epoch, first.subscribed_topic_names) == (
        "a",
        None,
        1,
        ["orders"],
    )
    assert (second.rack_id, second.client_host) == ("r1", "/127.0.0.1")
    (topic,) = second.assignment.topic_partitions
    assert (topic.topic_name, len(topic.partitions)) == ("orders", 2)
    assert describe(broker, "nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND
