"""JoinGroup: how each version is asked, and what it is told."""

from pathlib import Path

import pytest
from group_requests import BILLING, Consumer, broker_for_groups, share, share_out, subscription

from tailrace.protocol.errors import ErrorCode

VERSIONS = range(10)


@pytest.mark.parametrize("version", VERSIONS)
def test_members_join_and_learn_who_leads(tmp_path: Path, version: int) -> None:
    """Pitfall 25."""
    with broker_for_groups(tmp_path) as broker:
        a, b = Consumer(broker, "a"), Consumer(broker, "b", protocols=("range", "sticky"))
        first = a.join(version)
        if version >= 4:
            assert (first.code, first.answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
            assert first.answer.member_id == a.member_id != ""
            assert first.answer.protocol_name == (None if version >= 7 else "")
            first = a.join(version)
        assert (first.code, first.answer.generation_id, first.answer.leader) == (0, 1, a.member_id)
        second = b.enter(version)
        assert not second.answer
        led = a.join(version).answer
        assert [(one.member_id, one.group_instance_id, one.metadata) for one in led.members] == [
            (a.member_id, None, subscription("orders")),
            (b.member_id, None, subscription("orders")),
        ]
        followed = second.answer
        assert (followed.generation_id, followed.leader, followed.member_id) == (2, a.member_id, b.member_id)
        assert (followed.members, followed.protocol_name, followed.skip_assignment) == ([], "range", False)
        assert followed.protocol_type == ("consumer" if version >= 7 else None)
        assert a.member_id.startswith("test-"), "the client's own name is in front"


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_leader_that_is_back_is_told_what_its_version_can_say(tmp_path: Path, version: int) -> None:
    """Pitfalls 29 and 32."""
    with broker_for_groups(tmp_path) as broker:
        old, _ = share(Consumer(broker, "a", instance_id="till"), Consumer(broker, "b"))
        new = Consumer(broker, "a", instance_id="till")
        answer = new.join(version).answer
        assert (answer.error_code, answer.generation_id, answer.member_id) == (0, 2, new.member_id)
        assert new.member_id.startswith("till-")
        if version >= 9:
            assert (answer.leader, answer.skip_assignment) == (new.member_id, True)
            assert {one.group_instance_id for one in answer.members} == {"till", None}
        else:
            assert (answer.leader, answer.skip_assignment, answer.members) == (old.member_id, False, [])
        assert old.join(version).code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_wrong_with_a_join_is_told(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path, {"group.max.size": "1", "group.min.session.timeout.ms": "5000"}) as broker:
        assert Consumer(broker, group="").join(version).code == ErrorCode.INVALID_GROUP_ID
        assert Consumer(broker, session_ms=4_999).join(version).code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert Consumer(broker, session_ms=1_800_001).join(version).code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert Consumer(broker, protocols=()).join(version).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        unknown = Consumer(broker)
        unknown.member_id = "nobody"
        assert unknown.join(version).code == ErrorCode.UNKNOWN_MEMBER_ID
        assert unknown.join(version).answer.member_id == "nobody"
        share(Consumer(broker, "a"))
        assert unknown.join(version).code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert Consumer(broker, "b").join(version).code == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_that_is_not_there_knows_no_members(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        unknown = Consumer(broker)
        unknown.member_id = "nobody"
        assert unknown.join(version).code == ErrorCode.UNKNOWN_MEMBER_ID
        assert broker.broker.groups.groups == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_members_of_different_protocols_are_refused(tmp_path: Path, version: int) -> None:
    """Pitfall 30."""
    with broker_for_groups(tmp_path) as broker:
        share(Consumer(broker, "a"))
        refused = Consumer(broker, "b", protocols=("sticky",)).join(version)
        assert refused.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_client_of_version_0_has_one_timeout_for_both(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        Consumer(broker, "a", session_ms=7_000).enter(0)
        (member,) = broker.broker.groups.groups[BILLING].members.values()
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (7_000, 7_000)
        broker.tick(8_000)
        broker.tick(8_000)
        assert broker.broker.groups.groups[BILLING].members == {}


def test_the_first_rebalance_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    """Pitfall 26."""
    with broker_for_groups(tmp_path, {"group.initial.rebalance.delay.ms": "3000"}) as broker:
        a, b = Consumer(broker, "a"), Consumer(broker, "b")
        joins = [a.enter(), b.enter()]
        broker.tick(2_999)
        assert [join.answer for join in joins] == [None, None]
        broker.tick(1)
        broker.tick(3_000)
        assert [join.answer.generation_id for join in joins] == [1, 1]
        share_out(a, b)
        assert broker.broker.next_deadline is not None


def test_whose_connection_is_gone_is_out_after_its_session(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        a, b = share(Consumer(broker, "a"), Consumer(broker, "b"))
        b.topics = ("payments",)
        join = b.join()
        join.abandon()
        waiting = a.join()
        assert waiting.code == 0, "b has joined, whether it hears of it or not"
        a.sync({})
        for _ in range(3):
            broker.tick(5_000)
            a.heartbeat()
        assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert a.join().answer.members[0].member_id == a.member_id
