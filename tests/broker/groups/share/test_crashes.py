"""Killed, or without power, at every append to the log of groups: what was answered holds, each step is there as a
whole or not at all, and members go on from there.
"""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from brokers import LocalBroker, resolved
from group_requests import commit
from logs import DATA, memory_files
from power_cuts import cuts_during
from share_requests import WORKERS, ShareMember

from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.groups.share.group import ShareGroup
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest

CONFIGS = {"group.share.assignment.interval.ms": "0"}


class Steps:
    """Each is one batch of records, and one response."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        broker.create_topic("orders", 3)
        broker.create_topic("images", 2)
        commit(broker, 1, group="other")  # so that the log is there
        self.a = ShareMember(broker, "a", "orders")
        self.b = ShareMember(broker, "b", "orders")

    @property
    def requests(self) -> list[Callable[[], Any]]:
        return [
            self.a.request,
            self.b.request,
            self.a.request,
            lambda: self.b.request(subscribed_topic_names=["images", "orders"]),
            self.a.request,
            lambda: self._leaving(self.a),
            self.b.request,
            lambda: self._leaving(self.b),
            lambda: DeleteGroupsRequest(groups_names=[WORKERS]),
        ]

    def _leaving(self, member: ShareMember) -> Any:
        member.epoch = -1
        return member.request()

    def told(self, answer: Any, request: Any) -> None:
        if isinstance(request, DeleteGroupsRequest):
            assert answer.results[0].error_code == 0
        else:
            assert answer.error_code == 0, answer
            (self.a if request.member_id == "a" else self.b).told(answer)


def version_of(request: Any) -> int:
    return 2 if isinstance(request, DeleteGroupsRequest) else 1


def known(broker: LocalBroker) -> dict[str, Any] | None:
    """What the broker knows of the group."""
    group = broker.broker.groups.groups.get(WORKERS)
    assert group is None or isinstance(group, ShareGroup)
    return None if group is None else deepcopy(vars(group.replayed))


def check_goes_on(broker: LocalBroker) -> None:
    """Both members get all partitions of their topics, whatever the group knows of them."""
    broker.tick(1)
    members = [ShareMember(broker, "a", "orders"), ShareMember(broker, "b", "images", "orders")]
    for _ in range(2):
        for member in members:
            assert member.beat() == 0, member.answer
    everything = {("orders", 0), ("orders", 1), ("orders", 2), ("images", 0), ("images", 1)}
    assert members[0].partitions | members[1].partitions == everything
    end = broker.partition(OFFSETS_TOPIC).end_offset
    assert [member.beat() for member in members] == [0, 0]
    assert broker.partition(OFFSETS_TOPIC).end_offset == end
    members[0].epoch = 99
    assert members[0].beat() == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_kill_at_any_append_keeps_what_was_appended(tmp_path: Path) -> None:
    steps = 0
    while True:
        broker = LocalBroker(tmp_path / str(steps), CONFIGS)
        world = Steps(broker)
        *before, last = world.requests[: steps + 1]
        for make in before:
            request = make()
            world.told(broker.ask(request, version_of(request)), request)
        end = broker.partition(OFFSETS_TOPIC).end_offset
        broker.hold_jobs = True
        request = last()
        assert resolved(broker.begin(request, version_of(request))) == [], "its answer waits for the disk"
        assert broker.partition(OFFSETS_TOPIC).end_offset > end
        expected = known(broker)
        broker.hold_jobs = False
        broker.kill()
        assert known(broker) == expected
        check_goes_on(broker)
        broker.close()
        steps += 1
        if steps == len(world.requests):
            break


def test_a_power_cut_keeps_what_was_answered_and_tears_no_step() -> None:
    files = memory_files()
    broker = LocalBroker(DATA, CONFIGS, files=files)
    world = Steps(broker)
    first = len(files.calls)
    states, answered_at = [known(broker)], [first]
    for make in world.requests:
        request = make()
        world.told(broker.ask(request, version_of(request)), request)
        states.append(known(broker))
        answered_at.append(len(files.calls))
    seen = set()
    for after, cut in cuts_during(files, first):
        restarted = LocalBroker(DATA, CONFIGS, files=cut)
        answered = sum(calls <= after for calls in answered_at) - 1
        now = known(restarted)
        assert now in states[answered:], f"after {after} calls, when {answered} steps were answered"
        seen.add(len(states) - 1 - states[::-1].index(now))
        check_goes_on(restarted)
    assert seen == set(range(1, len(states)))
