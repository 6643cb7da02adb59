"""Members of share groups, request by request, as Kafka answers them: who gets what, what is refused, what is listed.

Kafka assigns a partition two heartbeats after a member has joined, and we with the first: the tests send heartbeats
until all is as it shall be.
"""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compat.brokers import HOST, BrokerProcess, against_kafka, new_broker
from compat.clients.confluent import ConfluentClient
from compat.conftest import running
from compat.tools import Tools
from group_requests import commit_request, fetch_request
from waits import until

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tailrace.protocol.messages.heartbeat import HeartbeatRequest
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tailrace.protocol.messages.list_groups import ListGroupsRequest
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.protocol.messages.offset_delete import OffsetDeleteRequest
from tailrace.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from tailrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tailrace.testing.raw_client import RawClient

SETTINGS = {"group.share.assignment.interval.ms": "0", "group.share.max.size": "5"}
GROUP_RESOURCE = 32
TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running(new_broker(tmp_path_factory.mktemp("share") / "broker", settings=SETTINGS)) as broker:
        yield broker


def connected(broker: BrokerProcess) -> RawClient:
    """Kafka makes the topic of its coordinators when a client looks for one."""
    client = RawClient((HOST, broker.port), client_id="worker")
    until(lambda: not client.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4).coordinators[0].error_code)
    until(lambda: describe(client, "any").error_code == ErrorCode.GROUP_ID_NOT_FOUND)
    return client


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with connected(broker) as client:
        yield client


@pytest.fixture
def group() -> str:
    return f"workers-{secrets.token_hex(4)}"


@pytest.fixture
def new_topic(reference: ConfluentClient, name: str) -> Callable[[str, int], str]:
    def new_topic(ending: str, partitions: int) -> str:
        reference.create_topic(f"{name}-{ending}", partitions=partitions)
        return f"{name}-{ending}"

    return new_topic


class Worker:
    def __init__(self, client: RawClient, group: str, *topics: str, member_id: str | None = None) -> None:
        self.client = client
        self.group = group
        self.member_id = member_id or secrets.token_hex(8)
        self.topics = list(topics)
        self.epoch = 0
        self.answer: Any = None
        self.partitions: set[tuple[bytes, int]] = set()

    def beat(self, **changed: Any) -> ErrorCode:
        fields = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch}
        if self.epoch == 0:
            fields["subscribed_topic_names"] = self.topics
        self.answer = self.client.ask(ShareGroupHeartbeatRequest(**{**fields, **changed}), 1)
        if not self.answer.error_code:
            self.epoch = self.answer.member_epoch
            if self.answer.assignment is not None:
                found = self.answer.assignment.topic_partitions
                self.partitions = {(topic.topic_id, index) for topic in found for index in topic.partitions}
        return ErrorCode(self.answer.error_code)  # type: ignore[call-arg]

    def join(self) -> "Worker":
        assert self.beat() == ErrorCode.NONE, self.answer
        return self

    def leave(self) -> ErrorCode:
        return self.beat(member_epoch=-1)


def settle(is_settled: Callable[[], bool], *workers: Worker) -> None:
    """Sends heartbeats until that is so."""

    def beat_and_see() -> bool:
        for worker in workers:
            assert worker.beat() == ErrorCode.NONE, worker.answer
        return is_settled()

    until(beat_and_see)


def describe(client: RawClient, group: str) -> Any:
    (described,) = client.ask(ShareGroupDescribeRequest(group_ids=[group]), 1).groups
    return described


def listed(client: RawClient, **filters: Any) -> dict[str, tuple[str, str, str]]:
    groups = client.ask(ListGroupsRequest(**filters), 5).groups
    return {one.group_id: (one.group_type.lower(), one.protocol_type, one.group_state) for one in groups}


# Who gets what


def test_members_share_partitions_and_nobody_is_idle(
    client: RawClient, group: str, new_topic: Callable[[str, int], str]
) -> None:
    topic = new_topic("t", 2)
    workers = [Worker(client, group, topic).join()]
    settle(lambda: len(workers[0].partitions) == 2, *workers)
    workers += [Worker(client, group, topic).join() for _ in range(4)]
    settle(lambda: sorted(len(worker.partitions) for worker in workers) == [1, 1, 1, 1, 2], *workers)
    counts: dict[Any, int] = {}
    for worker in workers:
        for partition in worker.partitions:
            counts[partition] = counts.get(partition, 0) + 1
    assert list(counts.values()) == [3, 3]
    assert Worker(client, group, topic).beat() == ErrorCode.GROUP_MAX_SIZE_REACHED
    for worker in workers[1:]:
        assert worker.leave() == ErrorCode.NONE
        assert worker.answer.member_epoch == -1
    settle(lambda: len(workers[0].partitions) == 2, workers[0])
    assert workers[0].leave() == ErrorCode.NONE


def test_members_with_other_subscriptions_share_topic_by_topic(
    client: RawClient, group: str, new_topic: Callable[[str, int], str]
) -> None:
    first, second = new_topic("a", 4), new_topic("b", 4)
    a, both, b = (Worker(client, group, *topics).join() for topics in ([first], [first, second], [second]))
    settle(lambda: [len(worker.partitions) for worker in (a, both, b)] == [2, 4, 2], a, both, b)
    assert b.beat(subscribed_topic_names=[first]) == ErrorCode.NONE
    settle(lambda: len(both.partitions) in (5, 6), a, both, b)
    assert len(a.partitions | b.partitions | both.partitions) == 8
    assert both.beat(subscribed_topic_names=[]) == ErrorCode.NONE
    settle(lambda: both.partitions == set(), a, both, b)


def test_new_partitions_and_topics_are_assigned(
    client: RawClient, group: str, reference: ConfluentClient, name: str
) -> None:
    worker = Worker(client, group, name).join()
    assert worker.partitions == set()
    reference.create_topic(name)
    settle(lambda: len(worker.partitions) == 1, worker)
    reference.add_partitions(name, 3)
    settle(lambda: len(worker.partitions) == 3, worker)


# What is refused


@pytest.mark.parametrize(
    "changed",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"rack_id": ""},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"member_epoch": -2},
    ],
    ids=str,
)
def test_invalid_heartbeats_are_refused(client: RawClient, group: str, changed: dict[str, Any]) -> None:
    worker = Worker(client, group, "t")
    assert worker.beat(**changed) == ErrorCode.INVALID_REQUEST
    assert group not in listed(client)


def test_wrong_epochs_and_members_are_refused(
    client: RawClient, group: str, new_topic: Callable[[str, int], str]
) -> None:
    topic = new_topic("t", 2)
    assert Worker(client, group, topic).beat(member_epoch=1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert Worker(client, group, topic).leave() == ErrorCode.GROUP_ID_NOT_FOUND
    worker = Worker(client, group, topic).join()
    stranger = Worker(client, group, topic)
    assert stranger.beat(member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    settle(lambda: len(worker.partitions) == 2, worker)
    assert worker.beat(member_epoch=worker.epoch + 1) == ErrorCode.FENCED_MEMBER_EPOCH
    before = worker.epoch
    other = Worker(client, group, topic).join()
    settle(lambda: worker.epoch > before and len(worker.partitions) == 1, worker)
    assert worker.beat(member_epoch=before) == ErrorCode.NONE, "the response was lost"
    assert other.leave() == ErrorCode.NONE
    settle(lambda: len(worker.partitions) == 2, worker)
    assert worker.beat(member_epoch=before) == ErrorCode.FENCED_MEMBER_EPOCH
    again = Worker(client, group, topic, member_id=worker.member_id).join()
    assert (again.epoch, again.partitions) == (worker.epoch, worker.partitions)


def test_a_full_heartbeat_is_answered_with_the_assignment(
    client: RawClient, group: str, new_topic: Callable[[str, int], str]
) -> None:
    topic = new_topic("t", 1)
    worker = Worker(client, group, topic).join()
    settle(lambda: len(worker.partitions) == 1, worker)
    assert worker.beat() == ErrorCode.NONE
    assert worker.answer.assignment is None
    assert worker.beat(subscribed_topic_names=[topic]) == ErrorCode.NONE
    assert worker.answer.assignment is not None  # type: ignore[unreachable]
    assert len(worker.answer.assignment.topic_partitions) == 1
    assert worker.answer.heartbeat_interval_ms == 5_000


def test_a_share_group_is_no_other_kind_of_group(client: RawClient, group: str, name: str) -> None:
    worker = Worker(client, group, name).join()
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    join = JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
        protocols=protocols, member_id="m",
    )  # fmt: skip
    assert client.ask(join, 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    beat = HeartbeatRequest(group_id=group, member_id=worker.member_id, generation_id=worker.epoch)
    assert client.ask(beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", rebalance_timeout_ms=10_000, subscribed_topic_names=[name], topic_partitions=[]
    )
    assert client.ask(consumer, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (described,) = client.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (dead,) = client.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    assert (dead.error_code, dead.group_state) == (0, "Dead")
    (unknown,) = client.ask(DescribeGroupsRequest(groups=[group]), 6).groups
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_consumer_or_classic_group_is_no_share_group(
    client: RawClient, group: str, new_topic: Callable[[str, int], str]
) -> None:
    topic = new_topic("t", 1)
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", rebalance_timeout_ms=10_000, subscribed_topic_names=[topic], topic_partitions=[]
    )
    assert client.ask(consumer, 1).error_code == 0
    assert Worker(client, group, topic).beat() == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(client, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    committed = client.ask(commit_request({(topic, 0): 0}, group=f"{group}-offsets"), 9)
    assert committed.topics[0].partitions[0].error_code == 0
    assert Worker(client, f"{group}-offsets", topic).beat() == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_share_group_has_no_committed_offsets(
    client: RawClient, group: str, new_topic: Callable[[str, int], str]
) -> None:
    topic = new_topic("t", 1)
    worker = Worker(client, group, topic).join()
    for version in (8, 9):
        committed = client.ask(commit_request({(topic, 0): 0}, group=group), version)
        assert committed.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (fetched,) = client.ask(fetch_request((topic, 0), group=group), 9).groups
    assert (fetched.error_code, fetched.topics[0].partitions[0].committed_offset) == (0, -1)
    assert client.ask(OffsetDeleteRequest(group_id=group), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert worker.leave() == ErrorCode.NONE


# What is listed


def test_groups_are_listed_described_and_deleted(
    client: RawClient, group: str, new_topic: Callable[[str, int], str]
) -> None:
    topic = new_topic("t", 2)
    a = Worker(client, group, topic).join()
    settle(lambda: len(a.partitions) == 2, a)
    assert listed(client, types_filter=["share"])[group] == ("share", "share", "Stable")
    assert group not in listed(client, types_filter=["consumer"])
    assert group in listed(client, states_filter=["Stable"])
    found = describe(client, group)
    assert (found.group_state, found.assignor_name, found.assignment_epoch) == ("Stable", "simple", found.group_epoch)
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.subscribed_topic_names) == (a.member_id, a.epoch, [topic])
    assert (member.client_id, member.client_host) == ("worker", "/127.0.0.1")
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, sorted(assigned.partitions)) == (topic, [0, 1])

    def delete() -> int:
        return int(client.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    assert a.leave() == ErrorCode.NONE
    assert listed(client)[group] == ("share", "share", "Empty")
    assert describe(client, group).group_state == "Empty"
    assert delete() == 0
    assert group not in listed(client)
    assert describe(client, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("key", "value", "is_valid"),
    [
        ("share.record.lock.duration.ms", "20000", True),
        ("share.record.lock.duration.ms", "60001", False),
        ("share.delivery.count.limit", "2", True),
        ("share.delivery.count.limit", "11", False),
        ("share.partition.max.record.locks", "99", False),
        ("share.auto.offset.reset", "earliest", True),
        ("share.auto.offset.reset", "by_duration:P1DT2H", True),
        ("share.auto.offset.reset", "by_duration:-PT2H", False),
        ("share.auto.offset.reset", "by_duration:2h", False),
        ("share.isolation.level", "read_committed", True),
        ("share.isolation.level", "committed", False),
        ("share.renew.acknowledge.enable", "false", True),
        ("share.session.timeout.ms", "44999", False),
        ("share.heartbeat.interval.ms", "15001", False),
        ("share.assignment.interval.ms", "15000", True),
    ],
)
def test_configs_of_groups_have_the_limits_of_kafka(
    client: RawClient, group: str, key: str, value: str, is_valid: bool
) -> None:
    change = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[change])
    (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == (ErrorCode.NONE if is_valid else ErrorCode.INVALID_CONFIG), answer.error_message


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_group_goes_on_where_the_broker_ended(tmp_path: Path, end: str, group: str) -> None:
    with contextlib.closing(new_broker(tmp_path / "broker", settings=SETTINGS)) as broker:
        broker.start()
        with contextlib.closing(ConfluentClient(broker.bootstrap)) as reference:
            reference.create_topic("t", partitions=3)
        with connected(broker) as client:
            a, b = (Worker(client, group, "t", member_id=name).join() for name in "ab")
            settle(lambda: sorted([len(a.partitions), len(b.partitions)]) == [1, 2], a, b)
        broker.kill() if end == "kill" else broker.stop()
        broker.start()
        with connected(broker) as client:
            epoch = describe(client, group).group_epoch
            for worker in (a, b):
                worker.client = client
                assert worker.beat() == ErrorCode.NONE
                assert worker.answer.assignment is None
            assert a.epoch == b.epoch == epoch


@pytest.mark.needs("kafka")
def test_kafkas_tool_shows_members_and_states(
    client: RawClient, group: str, new_topic: Callable[[str, int], str], broker: BrokerProcess, tools: Tools
) -> None:
    topic = new_topic("t", 2)
    worker = Worker(client, group, topic).join()
    settle(lambda: len(worker.partitions) == 2, worker)

    def run(*words: str) -> str:
        return tools.run(TOOL, "--bootstrap-server", broker.bootstrap, *words)

    assert group in run("--list").split()
    assert [group, "Stable"] in [line.split() for line in run("--list", "--state").splitlines()]
    said = run("--describe", "--group", group, "--members", "--verbose")
    (line,) = [line.split() for line in said.splitlines() if line.startswith(group)]
    assert line[:5] == [group, worker.member_id, "/127.0.0.1", "worker", "2"], said
    assert f"{topic}:0,1" in "".join(line)
    said = run("--describe", "--group", group, "--state", "--verbose")
    (line,) = [line.split() for line in said.splitlines() if line.startswith(group)]
    assert "Stable" in line
    assert worker.leave() == ErrorCode.NONE
    if not against_kafka():
        assert client.ask(MetadataRequest(topics=[]), 12).brokers, "the broker goes on"
