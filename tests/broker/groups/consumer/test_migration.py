"""A group with members changes its protocol: classic to consumer with the first member of the consumer protocol, and
back when the last one leaves.
"""

from collections.abc import Iterator

import pytest
from brokers import LocalBroker
from consumer_requests import Member, all_of, describe, settle
from group_requests import BILLING, Consumer, broker_for_groups, offsets
from logs import DATA, memory_files

from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.groups.classic.consumer_protocol import read_assignment, write_assignment
from tailrace.broker.groups.classic.group import ClassicGroup
from tailrace.broker.groups.consumer.group import ConsumerGroup
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_describe import CLASSIC_MEMBER, CONSUMER_MEMBER

REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


def new_broker(policy: str = "bidirectional") -> LocalBroker:
    configs = {"group.consumer.assignment.interval.ms": "0", "group.consumer.migration.policy": policy}
    broker = broker_for_groups(DATA, configs, files=memory_files())
    broker.create_topic("orders", 4)
    return broker


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with new_broker() as made:
        yield made


def classic_pair(broker: LocalBroker) -> tuple[Consumer, Consumer]:
    """Two members of the classic protocol, with two partitions each."""
    a, b = Consumer(broker, "a"), Consumer(broker, "b")
    a.enter()
    b.enter()
    a.join()
    return sync_both(a, b)


def sync_both(a: Consumer, b: Consumer) -> tuple[Consumer, Consumer]:
    """The leader assigns two partitions to each. Returns it, and the other one."""
    leader, other = (a, b) if a.is_leader else (b, a)
    other.sync()
    assert leader.sync({leader.member_id: assignment(0, 1), other.member_id: assignment(2, 3)}).code == 0
    assert other.sync().code == 0
    return leader, other


def assignment(*indexes: int) -> bytes:
    return write_assignment({"orders": indexes}, b"\0\0")


def partitions_of(member: Consumer) -> set[tuple[str, int]]:
    found = read_assignment(member.assignment or b"").assigned_partitions
    return {(one.topic, index) for one in found for index in one.partitions}


def join_and_sync(member: Consumer) -> None:
    assert member.join().code == 0
    assert member.sync().code == 0


def catch_up(*members: Consumer) -> None:
    """Each does what its heartbeats tell it to."""
    for _ in range(4):
        for member in members:
            if member.heartbeat() == REBALANCING:
                join_and_sync(member)


def test_members_keep_what_they_have_until_they_are_told_otherwise(broker: LocalBroker) -> None:
    a, b = classic_pair(broker)
    generation = a.generation
    assert a.commit(5, partition=0) == 0
    new = Member(broker, "new", "orders").join()
    assert new.partitions == set()
    described = describe(broker)
    assert (described.group_epoch, described.group_state) == (generation + 1, "Reconciling")
    assert {one.member_id: one.member_type for one in described.members} == {
        a.member_id: CLASSIC_MEMBER,
        b.member_id: CLASSIC_MEMBER,
        "new": CONSUMER_MEMBER,
    }
    assert a.commit(6, partition=0) == 0, "in the generation that it knows"
    assert (a.heartbeat(), b.heartbeat()) == (REBALANCING, REBALANCING)
    catch_up(a, b)
    settle(new)
    catch_up(a, b)
    found = [partitions_of(a), partitions_of(b), new.partitions]
    assert sorted(map(len, found)) == [1, 1, 2]
    assert set().union(*found) == all_of("orders", 0, 1, 2, 3)
    assert offsets(broker) == {("orders", 0): 6}


def test_the_upgrade_is_one_batch_with_the_join(broker: LocalBroker) -> None:
    classic_pair(broker)
    log = broker.log(OFFSETS_TOPIC)
    before = log.end_offset
    Member(broker, "new", "orders").join()
    piece = log.read(before, 1 << 20)
    assert piece is not None
    with piece:
        data = piece.read()
    assert len(data) == 12 + int.from_bytes(data[8:12], "big")


def test_members_that_wait_for_a_rebalance_are_told_to_join_again(broker: LocalBroker) -> None:
    a, b = classic_pair(broker)
    waiting = a.join() if a.is_leader else b.join()
    assert waiting.code is None
    Member(broker, "new", "orders").join()
    assert waiting.code == REBALANCING
    catch_up(a, b)
    assert len(describe(broker).members) == 3


def test_the_last_member_of_the_consumer_protocol_takes_it_along(broker: LocalBroker) -> None:
    a, b = classic_pair(broker)
    new = Member(broker, "new", "orders").join()
    catch_up(a, b)
    settle(new)
    catch_up(a, b)
    assert new.leave() == 0
    assert isinstance(broker.broker.groups.groups[BILLING], ClassicGroup)
    assert describe(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (a.heartbeat(), b.heartbeat()) == (REBALANCING, REBALANCING)
    joined = [a.join(), b.join()]
    assert [one.code for one in joined] == [0, 0]
    assert [a.is_leader, b.is_leader].count(True) == 1
    broker.kill()
    assert isinstance(broker.broker.groups.groups[BILLING], ClassicGroup)


@pytest.mark.parametrize("is_up", [True, False])
def test_a_group_that_has_changed_is_the_same_after_a_kill(broker: LocalBroker, is_up: bool) -> None:
    a, b = classic_pair(broker)
    new = Member(broker, "new", "orders").join()
    catch_up(a, b)
    if not is_up:
        new.leave()
    broker.kill()
    assert isinstance(broker.broker.groups.groups[BILLING], ConsumerGroup if is_up else ClassicGroup)
    if is_up:
        settle(new)
        catch_up(a, b)
        assert set().union(partitions_of(a), partitions_of(b), new.partitions) == all_of("orders", 0, 1, 2, 3)


def test_a_silent_member_of_the_consumer_protocol_ends_it_too(broker: LocalBroker) -> None:
    a, b = classic_pair(broker)
    Member(broker, "new", "orders").join()
    for _ in range(10):
        broker.tick(5_000)
        if isinstance(broker.broker.groups.groups[BILLING], ClassicGroup):
            return
        catch_up(a, b)
    raise AssertionError("its session does not end")


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_may_forbid_the_upgrade(policy: str) -> None:
    with new_broker(policy) as broker:
        a, b = classic_pair(broker)
        new = Member(broker, "new", "orders")
        assert new.beat() == ErrorCode.GROUP_ID_NOT_FOUND
        assert "migration.policy" in new.answer.error_message
        assert (a.heartbeat(), b.heartbeat()) == (0, 0)


def test_a_policy_may_forbid_the_downgrade() -> None:
    with new_broker("upgrade") as broker:
        a, b = classic_pair(broker)
        new = Member(broker, "new", "orders").join()
        catch_up(a, b)
        new.leave()
        catch_up(a, b)
        assert isinstance(broker.broker.groups.groups[BILLING], ConsumerGroup)
        assert partitions_of(a) | partitions_of(b) == all_of("orders", 0, 1, 2, 3)


def test_a_group_of_another_type_or_with_an_assignor_of_its_own_stays_classic(broker: LocalBroker) -> None:
    connect = Consumer(broker, "c", protocol_type="connect")
    connect.enter()
    connect.sync({connect.member_id: b"work"})
    assert Member(broker, "new", "orders").beat() == ErrorCode.GROUP_ID_NOT_FOUND
    opaque = Consumer(broker, "d", group="opaque")
    opaque.enter()
    opaque.sync({opaque.member_id: b"\0\1work"})
    assert Member(broker, "new", "orders", group="opaque").beat() == ErrorCode.GROUP_ID_NOT_FOUND
    assert (connect.heartbeat(), opaque.heartbeat()) == (0, 0)


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions(broker: LocalBroker) -> None:
    a = Consumer(broker, "a", instance_id="desk")
    a.enter()
    a.sync({a.member_id: assignment(0, 1, 2, 3)})
    new = Member(broker, "new", "orders", instance_id="desk").join()
    assert new.partitions == all_of("orders", 0, 1, 2, 3)
    assert a.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert len(describe(broker).members) == 1


def test_a_static_member_that_returns_with_the_classic_protocol_takes_it_along(broker: LocalBroker) -> None:
    """The deadlines of a group are not those of its members: one that is left behind would end a rebalance early."""
    a = Consumer(broker, "a")
    before = Member(broker, "before", "orders", instance_id="desk").join()
    a.enter()
    a.sync()
    settle(before)
    catch_up(a)
    before.leave(-2)
    desk = Consumer(broker, "b", instance_id="desk")
    assert desk.join().code == 0
    assert isinstance(broker.broker.groups.groups[BILLING], ClassicGroup)
    waiting = [a.join(), desk.join()]
    leader, other = sync_both(a, desk)
    for _ in range(11):  # until the time that a member has to ask for its assignment is all but over
        broker.tick(5_000)
        assert (a.heartbeat(), desk.heartbeat()) == (0, 0)
    waiting += [leader.join(), other.join()]
    assert [one.code for one in waiting] == [0, 0, 0, 0]
    broker.tick(6_000)
    sync_both(a, desk)  # neither was removed


def test_a_classic_member_that_stays_silent_or_does_not_join_again_is_removed(broker: LocalBroker) -> None:
    a, b = classic_pair(broker)
    new = Member(broker, "new", "orders").join()
    catch_up(a, b)
    for _ in range(3):
        broker.tick(5_000)
        catch_up(a)
        assert new.acknowledge() == 0
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    broker.create_topic("payments")
    assert new.beat(subscribed_topic_names=["orders", "payments"]) == 0
    for _ in range(14):  # it is heard of, but does not join again
        broker.tick(5_000)
        a.heartbeat()
        assert new.acknowledge() == 0
    assert a.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert new.partitions == all_of("orders", 0, 1, 2, 3) | all_of("payments", 0)


def test_what_classic_members_may_not_do(broker: LocalBroker) -> None:
    a, b = classic_pair(broker)
    Member(broker, "new", "orders").join()
    catch_up(a, b)
    other = Consumer(broker, "other", protocols=("sticky",))
    assert other.enter().code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    a.generation += 5
    assert (a.heartbeat(), a.commit(1)) == (ErrorCode.ILLEGAL_GENERATION,) * 2
    assert a.sync().code == ErrorCode.ILLEGAL_GENERATION
    b.member_id = "new"
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
