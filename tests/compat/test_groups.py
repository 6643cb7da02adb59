"""Groups of members that come, go, crash, fall silent and return, and of brokers that do.

In each: every message is delivered, none is skipped, and what is delivered again is exactly what was not committed
(`Group.check`). Nobody commits by himself; a test says who and when.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat.brokers import BrokerProcess, new_broker
from compat.clients.confluent import ConfluentClient
from compat.conftest import running
from compat.groups import HEARTBEAT_MS, KINDS, SETTINGS, Group, Member, each_kind
from compat.numbered_messages import meanwhile

PARTITIONS = 6
SHORT_MS = 2000  # the session of one that will crash, or fall silent
SILENCE_MS = 2500  # between two polls of that one

needs_all = pytest.mark.needs("kafka", "node")  # a test with members of several kinds


@pytest.fixture
def broker(group_broker: BrokerProcess) -> BrokerProcess:
    return group_broker


@pytest.fixture
def name() -> str:
    return f"t-{secrets.token_hex(4)}"


@pytest.fixture
def mortal_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A test's own, to be stopped and killed."""
    with running(new_broker(tmp_path / "broker", settings=SETTINGS)) as broker:
        yield broker


@contextlib.contextmanager
def new_group(
    broker: BrokerProcess, name: str, topic: str, directory: Path, *, partitions: int = PARTITIONS
) -> Iterator[Group]:
    """One that reads a new topic."""
    reference = ConfluentClient(broker.bootstrap)
    if topic not in reference.topics():
        reference.create_topic(topic, partitions=partitions)
    with contextlib.closing(Group(broker.bootstrap, name, {topic: partitions}, directory)) as group:
        yield group


@pytest.fixture
def group(broker: BrokerProcess, name: str, tmp_path: Path) -> Iterator[Group]:
    with new_group(broker, f"group-{name}", name, tmp_path) as group:
        yield group


def check_each_delivered_once(group: Group) -> None:
    assert set(group.deliveries.values()) == {1}
    assert len(group.deliveries) == sum(group.ends.values())


def check_description(group: Group) -> None:
    """What the broker says of the members is what they say."""
    found = group.description()
    assert found.state.name == "STABLE"
    assigned = [
        {(each.topic, each.partition) for each in member.assignment.topic_partitions} for member in found.members
    ]
    assert sorted(map(sorted, assigned)) == sorted(sorted(member.owned) for member in group.running)


@pytest.mark.slow
@each_kind()
def test_members_share_partitions_and_take_over_from_crashed_leaving_or_silent_ones(group: Group, kind: str) -> None:
    first, silent = group.start(kind), group.start(kind, session=SHORT_MS, poll=SILENCE_MS)
    crashing = group.start(kind, session=SHORT_MS)
    group.settle(first, silent, crashing)
    group.deliver(first, silent, crashing)
    check_each_delivered_once(group)
    check_description(group)
    group.commit(first, silent, crashing)
    assert group.offsets() == group.ends

    one_crashes(group, crashing, first, silent)
    leaving = group.start(kind)
    group.settle(first, silent, leaving)
    one_leaves(group, leaving, first, silent)
    one_falls_silent(group, silent, first)
    group.check()


def one_crashes(group: Group, crashing: Member, *others: Member) -> None:
    group.deliver(*others, crashing)
    with group.handing_over():
        crashing.kill()
        crashed_at = time.monotonic_ns()
        group.settle(*others)
        group.catch_up(*others)
    (taken_over_at, *_) = [event.at for event in group.events if event.name == "assigned" and event.at > crashed_at]
    assert taken_over_at - crashed_at > (SHORT_MS - 2 * HEARTBEAT_MS) * 1_000_000, "before its session was over"
    group.commit(*others)


def one_leaves(group: Group, leaving: Member, *others: Member) -> None:
    """All others but the first commit; the partitions change hands long before a session could be over."""
    group.deliver(*others, leaving)
    group.commit(*others[1:])
    with group.handing_over():
        leaving.leave()
        group.settle(*others)
        group.catch_up(*others)
    group.commit(*others)


def one_falls_silent(group: Group, silent: Member, other: Member) -> None:
    silent.hold()
    group.produce()
    group.wait(lambda: silent.told["held"], f"{silent} is held")
    group.settle(other)
    group.catch_up(other)
    other.commit()
    silent.go()
    group.settle(other, silent)
    group.deliver(other, silent)
    group.commit(other, silent)
    assert group.offsets() == group.ends


@needs_all
def test_members_of_all_kinds_share_a_group(group: Group) -> None:
    """And leave it, until one of them is left; whoever leads the group then, all understand what he assigns."""
    members = [group.start(kind) for kind in KINDS]
    group.settle(*members)
    group.deliver(*members)
    check_each_delivered_once(group)
    check_description(group)
    group.commit(*members)
    while len(members) > 1:
        group.deliver(*members, each=2)
        group.commit(*members[::2])
        with group.handing_over():
            members.pop(0).leave()
            group.settle(*members)
            group.catch_up(*members)
    group.check()


@pytest.mark.slow
@needs_all
@pytest.mark.parametrize("end", [Member.leave, Member.kill], ids=["leave", "kill"])
def test_a_returning_static_member_keeps_its_partitions_without_a_rebalance(
    group: Group, end: Callable[[Member], None]
) -> None:
    members = [group.start(kind, instance=f"static-{kind}") for kind in KINDS if kind != "kafkajs"]
    group.settle(*members)
    group.deliver(*members)
    group.commit(*members)
    check_description(group)
    generation = max(generations(group))
    group.deliver(*members)
    for number, old in enumerate(members):
        owned = set(old.owned)
        others = [member for member in members if member is not old]
        with group.handing_over(), group.undisturbed(*others):
            end(old)
            members[number] = group.start(old.kind, instance=f"static-{old.kind}")
            group.settle(*members, sizes=[len(member.owned) for member in others] + [len(owned)])
            group.catch_up(*members)
        assert members[number].owned == owned
        group.deliver(*members, each=1)
    assert max(generations(group)) == generation
    check_description(group)
    group.commit(*members)
    group.check()


def generations(group: Group) -> list[int]:
    """Those that members told of; not all kinds do."""
    return [event.what["generation"] for event in group.events if "generation" in event.what]


@each_kind("confluent", "kafka-python", "java")
def test_a_cooperative_group_moves_only_what_has_to_move(group: Group, kind: str) -> None:
    staying = [group.start(kind, assignor="cooperative") for _ in range(2)]
    group.settle(*staying)
    group.deliver(*staying)
    group.commit(*staying)
    group.deliver(*staying)
    owned = [set(member.owned) for member in staying]
    mark = len(group.events)
    with group.handing_over():
        third = group.start(kind, assignor="cooperative")
        group.settle(*staying, third)
        group.catch_up(*staying, third)
    for member, before in zip(staying, owned, strict=True):
        assert member.owned < before
        assert taken(group, member, mark) == before - member.owned
    mark = len(group.events)
    group.deliver(*staying, third)
    group.commit(staying[0])
    with group.handing_over():
        third.leave()
        group.settle(*staying)
        group.catch_up(*staying)
    assert [taken(group, member, mark) for member in staying] == [set(), set()]
    group.check()


def taken(group: Group, member: Member, mark: int) -> set[tuple[str, int]]:
    """What was taken from a member since, for however long."""
    events = [event for event in group.events[mark:] if event.member is member]
    return set().union(*(event.partitions for event in events if event.name in ("revoked", "lost")))


@each_kind("confluent", "aiokafka", "kafka-python", "java")
def test_a_pattern_finds_topics_that_are_made_later(
    broker: BrokerProcess, reference: ConfluentClient, name: str, tmp_path: Path, kind: str
) -> None:
    reference.create_topic(f"not-{name}-0")
    with new_group(broker, f"group-{name}", f"{name}-0", tmp_path, partitions=3) as group:
        members = [group.start(kind, pattern=f"^{name}-.*", metadata_ms=300) for _ in range(2)]
        group.settle(*members)
        group.deliver(*members)
        group.commit(*members)
        reference.create_topic(f"{name}-1", partitions=3)
        group.extend({f"{name}-1": 3})
        group.settle(*members, sizes=(4, 2))  # a range of each topic
        group.deliver(*members)
        group.commit(*members)
        group.check()


@needs_all
def test_a_member_without_partitions_waits_for_one_to_leave(broker: BrokerProcess, name: str, tmp_path: Path) -> None:
    with new_group(broker, f"group-{name}", name, tmp_path, partitions=2) as group:
        members = [group.start(kind) for kind in ("confluent", "aiokafka", "kafkajs")]
        group.settle(*members, sizes=(1, 1, 0))
        (idle,) = [member for member in members if not member.owned]
        check_description(group)
        group.deliver(*members)
        assert not idle.told["message"]
        members.remove(idle)
        group.commit(*members)
        group.deliver(*members)
        with group.handing_over():
            members[0].leave()
            group.settle(members[1], idle)
            group.catch_up(members[1], idle)
        group.commit(members[1], idle)
        group.check()


@needs_all
def test_each_of_two_groups_is_delivered_everything(broker: BrokerProcess, name: str, tmp_path: Path) -> None:
    with (
        new_group(broker, f"one-{name}", name, tmp_path) as one,
        new_group(broker, f"two-{name}", name, tmp_path) as two,
    ):
        kinds = ("confluent", "aiokafka", "kafkajs")
        of_one, of_two = [one.start(kind) for kind in kinds], [two.start(kind) for kind in kinds]
        one.settle(*of_one)
        two.settle(*of_two)
        one.deliver(*of_one)
        two.ends |= one.ends
        two.catch_up(*of_two)
        check_each_delivered_once(one)
        check_each_delivered_once(two)
        one.commit(*of_one)
        assert two.offsets() == {}
        with two.undisturbed(*of_two):
            of_one.pop().leave()
            one.settle(*of_one)
            one.deliver(*of_one)
        one.check()
        two.ends |= one.ends
        two.check()


each_end = pytest.mark.parametrize(
    "end", [BrokerProcess.restart, BrokerProcess.kill_and_start], ids=["restart", "kill"]
)
End = Callable[[BrokerProcess], None]


@pytest.mark.needs("kafka")
@each_end
def test_members_go_on_undisturbed_when_the_broker_comes_back(
    mortal_broker: BrokerProcess, name: str, tmp_path: Path, end: End
) -> None:
    with new_group(mortal_broker, f"group-{name}", name, tmp_path) as group:
        members = [group.start(kind) for kind in KINDS if kind != "kafkajs"]
        group.settle(*members)
        group.deliver(*members)
        group.commit(*members)
        group.deliver(*members)
        with group.undisturbed(*members):
            with meanwhile(lambda: end(mortal_broker)):
                group.produce()
            group.catch_up(*members)
            group.commit(*members)
            check_description(group)
        group.deliver(*members)
        end(mortal_broker)
        group.commit(*members[1:])  # and those know again where to say that they leave
        with group.handing_over():
            members.pop().leave()
            group.settle(*members)
            group.catch_up(*members)
        group.commit(*members)
        group.check()


@pytest.mark.needs("node")
@each_end
def test_kafkajs_joins_again_when_the_broker_comes_back(
    mortal_broker: BrokerProcess, name: str, tmp_path: Path, end: End
) -> None:
    """With another identity, at times; then all wait until the session of the old one is over."""
    with new_group(mortal_broker, f"group-{name}", name, tmp_path) as group:
        members = [group.start("kafkajs", session=2 * SHORT_MS) for _ in range(3)]
        group.settle(*members)
        group.deliver(*members)
        group.commit(*members)
        group.deliver(*members)
        group.suspect(*members)
        with meanwhile(lambda: end(mortal_broker)):
            group.produce()
        group.catch_up(*members)
        group.commit_all(*members)
        group.deliver(*members)
        group.commit_all(*members)
        group.check()
