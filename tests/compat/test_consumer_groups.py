"""Consumer groups of KIP-848 with real clients (`group.protocol=consumer`): members come, go, crash, fall silent and
return, topics grow, come and go, the broker is killed, and groups change their protocol while they work.

In each: every message is delivered, none is skipped, no partition has two owners, and what is delivered again is
exactly what was not committed (`Group.check`).
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat.brokers import BrokerProcess, new_broker
from compat.clients.confluent import ConfluentClient
from compat.conftest import running
from compat.groups import (
    CONSUMER_KINDS,
    CONSUMER_SESSION_MS,
    HEARTBEAT_MS,
    SETTINGS,
    Group,
    each_kind,
)
from compat.numbered_messages import meanwhile
from compat.test_groups import check_description, check_each_delivered_once, new_group, taken
from confluent_kafka.admin import AdminClient, NewPartitions

SILENCE_MS = 2_500  # between two polls of a member that falls silent

each_consumer_kind = each_kind(*CONSUMER_KINDS)


@pytest.fixture
def mortal_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A test's own, to be killed."""
    with running(new_broker(tmp_path / "broker", settings=SETTINGS)) as broker:
        yield broker


@pytest.fixture
def broker(group_broker: BrokerProcess) -> BrokerProcess:
    return group_broker


@pytest.fixture
def group(broker: BrokerProcess, name: str, tmp_path: Path) -> Iterator[Group]:
    with new_group(broker, f"group-{name}", name, tmp_path) as group:
        yield group


@each_consumer_kind
def test_members_take_over_from_crashed_leaving_and_silent_ones(group: Group, kind: str) -> None:
    first, silent, crashing = group.start(kind), group.start(kind, poll=SILENCE_MS), group.start(kind)
    group.settle(first, silent, crashing)
    group.deliver(first, silent, crashing)
    check_each_delivered_once(group)
    check_description(group)
    group.commit(first, silent, crashing)
    assert group.offsets() == group.ends

    group.deliver(first, silent, crashing)
    with group.handing_over():
        crashing.kill()
        crashed_at = time.monotonic_ns()
        group.settle(first, silent)
        group.catch_up(first, silent)
    taken_over_at = min(event.at for event in group.events if event.name == "assigned" and event.at > crashed_at)
    assert taken_over_at - crashed_at > (CONSUMER_SESSION_MS - 2 * HEARTBEAT_MS) * 1_000_000, "before its session ended"
    group.commit(first, silent)

    leaving = group.start(kind)
    group.settle(first, silent, leaving)
    group.deliver(first, silent, leaving)
    group.commit(silent)
    with group.handing_over():
        leaving.leave()
        group.settle(first, silent)
        group.catch_up(first, silent)
    group.commit(first, silent)

    silent.hold()
    group.produce()
    group.wait(lambda: silent.told["held"], f"{silent} is held")
    group.settle(first)
    group.catch_up(first)
    first.commit()
    silent.go()
    group.settle(first, silent)
    group.deliver(first, silent)
    group.commit(first, silent)
    group.check()


@pytest.mark.needs("kafka")
def test_only_what_has_to_move_moves_between_members_of_two_clients(group: Group) -> None:
    staying = [group.start(kind) for kind in CONSUMER_KINDS]
    group.settle(*staying)
    group.deliver(*staying)
    group.commit(*staying)
    group.deliver(*staying)
    owned = [set(member.owned) for member in staying]
    mark = len(group.events)
    with group.handing_over():
        third = group.start(CONSUMER_KINDS[0])
        group.settle(*staying, third)
        group.catch_up(*staying, third)
    for member, before in zip(staying, owned, strict=True):
        assert taken(group, member, mark) == before - member.owned
    mark = len(group.events)
    group.commit(*staying, third)
    with group.handing_over():
        third.leave()
        group.settle(*staying)
    assert [taken(group, member, mark) for member in staying] == [set(), set()]
    group.deliver(*staying)
    group.commit(*staying)
    group.check()


@each_consumer_kind
def test_a_returning_static_member_keeps_its_partitions(group: Group, kind: str) -> None:
    members = [group.start(kind, instance=f"static-{number}") for number in range(2)]
    group.settle(*members)
    group.deliver(*members)
    group.commit(*members)
    group.deliver(*members)
    owned = set(members[0].owned)
    with group.handing_over(), group.undisturbed(members[1]):
        members[0].leave()
        members[0] = group.start(kind, instance="static-0")
        group.settle(*members)
        group.catch_up(*members)
    assert members[0].owned == owned
    group.commit(*members)
    group.check()


@each_consumer_kind
def test_a_pattern_finds_topics_that_are_created_later(
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
        group.settle(*members)
        group.deliver(*members)
        group.commit(*members)
        group.check()


@each_consumer_kind
def test_new_partitions_are_assigned_and_those_of_a_deleted_topic_are_taken(
    broker: BrokerProcess, reference: ConfluentClient, name: str, tmp_path: Path, kind: str
) -> None:
    reference.create_topic(f"{name}-b", partitions=2)
    with new_group(broker, f"group-{name}", f"{name}-a", tmp_path, partitions=2) as group:
        group.extend({f"{name}-b": 2})
        members = [group.start(kind, metadata_ms=300) for _ in range(2)]
        group.settle(*members)
        group.deliver(*members)
        group.commit(*members)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for done in admin.create_partitions([NewPartitions(f"{name}-a", 4)]).values():
            done.result(30)
        group.extend({f"{name}-a": 4})
        group.ends |= group.committed
        group.settle(*members)
        group.deliver(*members)
        group.commit(*members)
        for done in admin.delete_topics([f"{name}-b"]).values():
            done.result(30)
        group.wait(
            lambda: all(topic == f"{name}-a" for member in members for topic, _ in member.owned), "the topic is taken"
        )


@pytest.mark.needs("kafka")
@pytest.mark.parametrize("end", [BrokerProcess.restart, BrokerProcess.kill_and_start], ids=["restart", "kill"])
def test_members_go_on_undisturbed_when_the_broker_comes_back(
    mortal_broker: BrokerProcess, name: str, tmp_path: Path, end: Callable[[BrokerProcess], None]
) -> None:
    with new_group(mortal_broker, f"group-{name}", name, tmp_path) as group:
        members = [group.start(kind) for kind in (*CONSUMER_KINDS, CONSUMER_KINDS[0])]
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
        with group.handing_over():
            members.pop().leave()
            group.settle(*members)
            group.catch_up(*members)
        group.commit(*members)
        group.check()


# A group changes its protocol


@pytest.mark.needs("kafka")
@pytest.mark.parametrize("classic", ["confluent", "java", "aiokafka", "kafka-python"])
@each_consumer_kind
def test_a_group_changes_its_protocol_and_back_while_its_members_work(group: Group, classic: str, kind: str) -> None:
    """One of the classic members stays all the time."""
    staying, replaced = group.start(classic), group.start(classic)
    group.settle(staying, replaced)
    group.deliver(staying, replaced)
    group.commit(staying, replaced)
    assert described_type(group) == "CLASSIC"

    new = group.start(kind)
    group.settle(staying, replaced, new)
    assert described_type(group) == "CONSUMER"
    group.deliver(staying, replaced, new)
    group.commit_all(staying, replaced, new)
    replaced.leave()
    group.settle(staying, new)
    group.deliver(staying, new)
    group.commit_all(staying, new)

    back = group.start(classic)
    group.settle(staying, new, back)
    group.deliver(staying, new, back)
    group.commit_all(staying, new, back)
    new.leave()
    group.settle(staying, back)
    assert described_type(group) == "CLASSIC"
    group.deliver(staying, back)
    group.commit_all(staying, back)
    group.check()


def described_type(group: Group) -> str:
    return str(group.description().type.name)
