"""SyncGroup: the leader says who works on what; everyone learns its own part."""

from pathlib import Path
from typing import Any

import pytest
from group_requests import BILLING, Consumer, broker_for_groups, share

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.sync_group import SyncGroupRequest

VERSIONS = range(6)


@pytest.mark.parametrize("version", VERSIONS)
def test_everyone_learns_its_part_when_the_leader_has_said_it(tmp_path: Path, version: int) -> None:
    """Pitfall 28: an empty part is sent, too."""
    with broker_for_groups(tmp_path) as broker:
        a, b = Consumer(broker, "a"), Consumer(broker, "b")
        a.enter()
        b.enter()
        a.join()
        follower = b.sync(version=version)
        assert not follower.answer
        leader = a.sync({b.member_id: b"all of it"}, version)
        assert (follower.code, follower.answer.assignment) == (0, b"all of it")
        assert (leader.code, leader.answer.assignment) == (0, b"")
        named = follower.answer.protocol_type, follower.answer.protocol_name
        assert named == (("consumer", "range") if version >= 5 else (None, None))
        assert b.sync(version=version).answer.assignment == b"all of it"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_has_become_of_its_group_is_told(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        stranger = Consumer(broker, "nobody")
        assert stranger.sync(version=version).code == ErrorCode.UNKNOWN_MEMBER_ID
        (a,) = share(Consumer(broker, "a"))
        assert stranger.sync(version=version).code == ErrorCode.UNKNOWN_MEMBER_ID
        a.generation += 1
        assert a.sync(version=version).code == ErrorCode.ILLEGAL_GENERATION
        a.generation -= 1
        Consumer(broker, "b").enter()
        assert a.sync(version=version).code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rebalance_in_between_is_told_to_those_who_wait(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        a, b = Consumer(broker, "a"), Consumer(broker, "b")
        a.enter()
        b.enter()
        a.join()
        follower = b.sync(version=version)
        a.leave()
        assert follower.code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", range(3, 6))
def test_a_static_member_whose_place_was_taken_is_fenced(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        old, _ = share(Consumer(broker, "a", instance_id="till"), Consumer(broker, "b"))
        new = Consumer(broker, "a", instance_id="till")
        new.join()
        assert old.sync(version=version).code == ErrorCode.FENCED_INSTANCE_ID
        assert new.sync(version=version).answer.assignment == b"work of a"


@pytest.mark.parametrize("named", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
def test_a_protocol_that_was_not_chosen_is_refused(tmp_path: Path, named: dict[str, Any]) -> None:
    with broker_for_groups(tmp_path) as broker:
        (a,) = share(Consumer(broker, "a"))
        request = SyncGroupRequest(group_id=BILLING, generation_id=1, member_id=a.member_id, **named)
        assert broker.ask(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert broker.ask(request, 4).error_code == 0, "before, it is not on the wire"
