"""LeaveGroup: members go, one or several, by their ids or their names."""

from pathlib import Path

import pytest
from group_requests import BILLING, Consumer, broker_for_groups, share

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

VERSIONS = range(6)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_that_leaves_is_gone_at_once(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        a, b = share(Consumer(broker, "a"), Consumer(broker, "b"))
        assert b.leave(version) == 0
        assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert b.leave(version) == ErrorCode.UNKNOWN_MEMBER_ID
        assert a.join().answer.generation_id == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_from_a_group_that_is_not_there_nobody_can_leave(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        stranger = Consumer(broker, "nobody")
        stranger.member_id = "nobody"
        assert stranger.leave(version) == ErrorCode.UNKNOWN_MEMBER_ID
        assert broker.broker.groups.groups == {}


@pytest.mark.parametrize("version", range(3, 6))
def test_several_leave_at_once_and_each_is_answered(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        a, b, c = share(Consumer(broker, "a"), Consumer(broker, "b", instance_id="till"), Consumer(broker, "c"))
        gone = [
            MemberIdentity(member_id=a.member_id),
            MemberIdentity(member_id="", group_instance_id="till"),
            MemberIdentity(member_id="nobody"),
            MemberIdentity(member_id="", group_instance_id="nobody"),
            MemberIdentity(member_id=""),
        ]
        answer = broker.ask(LeaveGroupRequest(group_id=BILLING, members=gone), version)
        assert answer.error_code == 0
        assert [(one.member_id, one.group_instance_id, one.error_code) for one in answer.members] == [
            (a.member_id, None, 0),
            ("", "till", 0),
            ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
            ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ]
        assert set(broker.broker.groups.groups[BILLING].members) == {c.member_id}
        assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
def test_who_goes_by_the_name_of_another_is_fenced(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        a, b = share(Consumer(broker, "a", instance_id="till"), Consumer(broker, "b"))
        gone = [MemberIdentity(member_id=b.member_id, group_instance_id="till")]
        (answer,) = broker.ask(LeaveGroupRequest(group_id=BILLING, members=gone), version).members
        assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID
        assert (a.heartbeat(), b.heartbeat()) == (0, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_that_was_told_its_id_and_has_not_joined_can_leave(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        a = Consumer(broker, "a")
        a.join()
        assert a.leave(version) == 0
        assert a.join().code == ErrorCode.UNKNOWN_MEMBER_ID
