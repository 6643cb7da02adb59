"""DescribeGroups: who is in a group, and who works on what."""

from pathlib import Path

import pytest
from group_requests import BILLING, Consumer, broker_for_groups, commit, share, subscription

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest

VERSIONS = range(7)
NO_OPERATIONS = -(1 << 31)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stable_group_shows_its_members_and_their_work(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        a, b = share(Consumer(broker, "a"), Consumer(broker, "b", instance_id="till"))
        (group,) = broker.ask(DescribeGroupsRequest(groups=[BILLING]), version).groups
        assert (group.error_code, group.group_id, group.group_state) == (0, BILLING, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        assert [
            (one.member_id, one.group_instance_id, one.client_id, one.client_host, one.member_assignment)
            for one in group.members
        ] == [
            (a.member_id, None, "test", "/127.0.0.1", b"work of a"),
            (b.member_id, "till" if version >= 4 else None, "test", "/127.0.0.1", b"work of b"),
        ]
        assert [one.member_metadata for one in group.members] == [subscription("orders")] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_during_a_rebalance_members_are_shown_with_the_work_they_had(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        (a,) = share(Consumer(broker, "a"))
        b = Consumer(broker, "b")
        b.enter()
        for state in ("PreparingRebalance", "CompletingRebalance"):
            (group,) = broker.ask(DescribeGroupsRequest(groups=[BILLING]), version).groups
            assert (group.group_state, group.protocol_data) == (state, "")
            assert [(one.member_id, one.member_metadata, one.member_assignment) for one in group.members] == [
                (a.member_id, b"", b"work of a"),
                (b.member_id, b"", b""),
            ]
            a.join()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_without_members_is_empty_and_one_that_is_not_there_is_dead(tmp_path: Path, version: int) -> None:
    """Pitfall 32: from version 6 on that is an error."""
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        commit(broker, 5)
        empty, dead = broker.ask(DescribeGroupsRequest(groups=[BILLING, "nobody"]), version).groups
        assert (empty.error_code, empty.group_state, empty.members) == (0, "Empty", [])
        assert (empty.protocol_type, empty.protocol_data) == ("", "")
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
        assert (dead.error_code, dead.group_id, dead.group_state) == (expected, "nobody", "Dead")
        assert ("nobody" in (dead.error_message or "")) == (version >= 6)


@pytest.mark.parametrize("version", range(3, 7))
def test_what_one_may_do_is_told_to_those_who_ask(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        commit(broker, 5)
        for asked, expected in ((False, NO_OPERATIONS), (True, 1 << 3 | 1 << 6 | 1 << 8)):
            request = DescribeGroupsRequest(groups=[BILLING], include_authorized_operations=asked)
            (group,) = broker.ask(request, version).groups
            assert group.authorized_operations == expected
