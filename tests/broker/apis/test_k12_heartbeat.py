"""Heartbeat: a member stays one, and learns what has become of its group."""

from pathlib import Path

import pytest
from group_requests import Consumer, broker_for_groups, share

from tailrace.protocol.errors import ErrorCode

VERSIONS = range(5)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_that_is_heard_of_stays_one(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        (a,) = share(Consumer(broker, "a"))
        for _ in range(10):
            broker.tick(9_999)
            assert a.heartbeat(version) == 0
        broker.tick(10_000)
        assert a.heartbeat(version) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", VERSIONS)
def test_what_has_become_of_its_group_is_told(tmp_path: Path, version: int) -> None:
    """Pitfall 28."""
    with broker_for_groups(tmp_path) as broker:
        stranger = Consumer(broker, "nobody")
        assert stranger.heartbeat(version) == ErrorCode.UNKNOWN_MEMBER_ID, "there is no group"
        stranger.group = ""
        assert stranger.heartbeat(version) == ErrorCode.INVALID_GROUP_ID
        (a,) = share(Consumer(broker, "a"))
        a.generation += 1
        assert a.heartbeat(version) == ErrorCode.ILLEGAL_GENERATION
        a.generation -= 1
        Consumer(broker, "b").enter()
        assert a.heartbeat(version) == ErrorCode.REBALANCE_IN_PROGRESS
        a.join()
        assert a.heartbeat(version) == 0, "it is not told yet who works on what"
        a.leave()
        assert a.heartbeat(version) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [3, 4])
def test_a_static_member_whose_place_was_taken_is_fenced(tmp_path: Path, version: int) -> None:
    """Pitfall 29."""
    with broker_for_groups(tmp_path) as broker:
        old, b = share(Consumer(broker, "a", instance_id="till"), Consumer(broker, "b"))
        new = Consumer(broker, "a", instance_id="till")
        new.join()
        codes = [one.heartbeat(version) for one in (old, new, b)]
        assert codes == [ErrorCode.FENCED_INSTANCE_ID, 0, 0]
