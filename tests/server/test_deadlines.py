"""Deadlines of group members, by the clock of a real loop: in time, and not while the loop is held up."""

import time
from pathlib import Path

import pytest
from nodes import LOOPS, RunningNode
from raw_client import RawClient

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.heartbeat import HeartbeatRequest
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tailrace.protocol.messages.sync_group import SyncGroupRequest

CONFIGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
SESSION_MS = 1000


def joined(client: RawClient, group: str) -> HeartbeatRequest:
    """Makes the client the one member of a group, and says how its heart beats."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=SESSION_MS, protocol_type="consumer", protocols=protocols
    )
    answer = client.ask(request, 3)
    member, generation = answer.member_id, answer.generation_id
    assert client.ask(SyncGroupRequest(group_id=group, generation_id=generation, member_id=member), 2).error_code == 0
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)


@pytest.mark.parametrize("loop", LOOPS)
def test_nobody_is_put_out_for_a_loop_that_was_held_up(tmp_path: Path, loop: str) -> None:
    with (
        RunningNode(tmp_path, CONFIGS, loop=LOOPS[loop]) as node,
        RawClient(node.address) as hasty,
        RawClient(node.address) as other,
    ):
        beats = joined(hasty, "a"), joined(other, "b")
        node.loop.call_soon_threadsafe(time.sleep, 3 * SESSION_MS / 1000)
        hasty.send(beats[0], 3)  # is the first thing that the loop sees, before any clock
        assert hasty.receive().error_code == 0
        assert other.ask(beats[1], 3).error_code == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_who_falls_silent_is_put_out_in_time(tmp_path: Path, loop: str) -> None:
    with RunningNode(tmp_path, CONFIGS, loop=LOOPS[loop]) as node, RawClient(node.address) as client:
        began = time.monotonic()  # before the session does: whoever is held up behind it measures too little
        beat = joined(client, "a")
        node.until(lambda: not node.node.broker.groups.groups["a"].members)
        assert time.monotonic() - began >= SESSION_MS / 1000
        assert client.ask(beat, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
