"""Kafka's tools for administrators, all but those of groups: each call is one that Kafka answers alike."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from compat.brokers import BrokerProcess, against_kafka
from compat.clients.confluent import ConfluentClient
from compat.contract import Message
from compat.tools import TOOLS, Tools

pytestmark = pytest.mark.needs("kafka")

Tool = Callable[..., str]


@pytest.fixture
def tool(tools: Tools, broker: BrokerProcess) -> Tool:
    """Runs one, by the name of its class, on the broker. It must end well, unless another status is expected."""

    def run(name: str, *words: str, status: int = 0) -> str:
        class_name = name if name.startswith("kafka.") else f"{TOOLS}.{name}"
        ended = tools.attempt(class_name, "--bootstrap-server", broker.bootstrap, *words)
        assert ended.status == status, ended
        return ended.said

    return run


@pytest.fixture
def filled(reference: ConfluentClient, name: str) -> str:
    """A topic of three partitions, the second of which has ten messages of an idempotent producer."""
    reference.create_topic(name, partitions=3)
    messages = [Message(b"x" * 100, timestamp=1_700_000_000_000 + n) for n in range(10)]
    reference.produce(name, messages, partition=1, idempotent=True)
    return name


# Quotas


def configure(tool: Tool, *words: str, status: int = 0) -> str:
    return tool("kafka.admin.ConfigCommand", *words, status=status)


@pytest.mark.parametrize(
    ("entity", "shown", "quota"),
    [
        (("clients", "NAME"), "client-id 'NAME'", "producer_byte_rate=1.0E12"),
        (("users", "NAME"), "user-principal 'NAME'", "consumer_byte_rate=1.0E12"),
        (("users", "NAME", "clients", "NAME"), "user-principal 'NAME', client-id 'NAME'", "request_percentage=1000.5"),
        (("ips", "10.9.8.7"), "ip '10.9.8.7'", "connection_creation_rate=10000.0"),
        (("clients", ""), "the default client-id", "controller_mutation_rate=100000.0"),
    ],
    ids=["client", "user", "both", "ip", "default"],
)
def test_quotas_are_set_shown_and_taken_back(
    tool: Tool, name: str, entity: tuple[str, ...], shown: str, quota: str
) -> None:
    words = []
    for kind, who in zip(entity[::2], entity[1::2], strict=True):
        named = ("--entity-name", who.replace("NAME", name)) if who else ("--entity-default",)
        words += ["--entity-type", kind, *named]
    key = quota.partition("=")[0]
    line = f"Quota configs for {shown.replace('NAME', name)} are {quota}"
    assert "Completed updating" in configure(tool, *words, "--alter", "--add-config", quota)
    assert line in configure(tool, *words, "--describe").splitlines()
    assert line in configure(tool, *(word for kind in entity[::2] for word in ("--entity-type", kind)), "--describe")
    assert "Completed updating" in configure(tool, *words, "--alter", "--delete-config", key)
    assert line not in configure(tool, *words, "--describe")
    assert "Invalid config(s)" in configure(tool, *words, "--alter", "--delete-config", key, status=1)


def test_a_quota_of_nothing_is_refused(tool: Tool, name: str) -> None:
    words = ("--entity-type", "clients", "--entity-name", name, "--alter", "--add-config")
    said = configure(tool, *words, "producer_byte_rate=0", status=1)
    assert "InvalidRequestException" in said
    assert "greater than 0" in said


# Where things are


def test_log_directories(tool: Tool, broker: BrokerProcess, filled: str) -> None:
    said = tool("LogDirsCommand", "--describe", "--topic-list", filled)
    (described,) = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (directory,) = described["brokers"][0]["logDirs"]
    assert (directory["logDir"], directory["error"]) == (str(broker.data), None)
    sizes = {one["partition"]: one["size"] for one in directory["partitions"]}
    segment = broker.data / f"{filled}-1" / f"{0:020}.log"
    assert sizes == {f"{filled}-0": 0, f"{filled}-1": segment.stat().st_size, f"{filled}-2": 0}
    assert {(one["offsetLag"], one["isFuture"]) for one in directory["partitions"]} == {(0, False)}


def test_offsets_by_time(tool: Tool, filled: str) -> None:
    for time, offsets in {
        "-1": {0: 0, 1: 10, 2: 0},
        "-2": {0: 0, 1: 0, 2: 0},
        "-3": {1: 9},
        "-4": {0: 0, 1: 0, 2: 0},
        "-5": {},
        "-6": {},
        "1700000000004": {1: 4},
        "1800000000000": {},
    }.items():
        lines = tool("GetOffsetShell", "--topic", filled, "--time", time).split()
        assert lines == [f"{filled}:{partition}:{offset}" for partition, offset in offsets.items()], time


def test_records_are_deleted(tool: Tool, filled: str, tmp_path: Path) -> None:
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": filled, "partition": 1, "offset": 4}]}))
    assert f"partition: {filled}-1\tlow_watermark: 4" in tool("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"{filled}:1:4" in tool("GetOffsetShell", "--topic", filled, "--time", "-2").split()


def test_topics_are_created_altered_and_deleted(tool: Tool, name: str) -> None:
    def topic(*words: str, status: int = 0) -> str:
        return tool("TopicCommand", *words, "--topic", name, status=status)

    create = ("--create", "--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=100000")
    assert f"Created topic {name}." in topic(*create)
    assert "already" in topic(*create, status=1)
    topic(*create, "--if-not-exists")
    topic("--alter", "--partitions", "3")
    assert "PartitionCount: 3" in topic("--describe")
    assert "retention.ms=100000" in topic("--describe")
    for wrong in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert name not in topic("--describe", wrong)
    topic("--delete")
    assert "does not exist" in topic("--describe", status=1)


# A cluster of one


def test_leaders_need_no_election(tool: Tool, filled: str) -> None:
    for kind in ("preferred", "unclean"):
        one = ("--election-type", kind, "--topic", filled, "--partition", "0")
        assert f"Valid replica already elected for partitions {filled}-0" in tool("LeaderElectionCommand", *one)
    unknown = ("--election-type", "preferred", "--topic", f"no-{filled}", "--partition", "0")
    assert "UnknownTopicOrPartitionException" in tool("LeaderElectionCommand", *unknown, status=1)
    tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")


def test_partitions_stay_where_they_are(tool: Tool, filled: str, tmp_path: Path) -> None:
    def move(*words: str, to: int = 1, status: int = 0) -> str:
        places = [{"topic": filled, "partition": 1, "replicas": [to], "log_dirs": ["any"]}]
        file = tmp_path / f"{to}.json"
        file.write_text(json.dumps({"version": 1, "partitions": places}))
        return tool("reassign.ReassignPartitionsCommand", *words, "--reassignment-json-file", str(file), status=status)

    assert "No partition reassignments found" in tool("reassign.ReassignPartitionsCommand", "--list")
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": filled}]}))
    plan = ("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1")
    assert tool("reassign.ReassignPartitionsCommand", *plan).count('"replicas":[1]') == 6, "what is, and what is to be"
    assert f"Successfully started partition reassignment for {filled}-1" in move("--execute")
    assert f"Reassignment of partition {filled}-1 is completed" in move("--verify")
    assert "None of the specified partition reassignments are active" in move("--cancel")
    assert "Unknown broker id 2" in move("--execute", to=2, status=1)


def test_producers_and_transactions(tools: Tools, broker: BrokerProcess, filled: str) -> None:
    def rows(*words: str) -> list[list[str]]:
        """Those below the head."""
        said = tools.run(f"{TOOLS}.TransactionsCommand", "--bootstrap-server", broker.bootstrap, *words)
        head, *lines = [line.split() for line in said.splitlines()]
        assert len(head) > 3
        return lines

    ((_, epoch, _, *last),) = rows("describe-producers", "--topic", filled, "--partition", "1")
    assert (epoch, last) == ("0", ["9", "1700000000009", "None"])
    assert rows("describe-producers", "--topic", filled, "--partition", "0") == []
    assert filled not in {row[0] for row in rows("list")}
    assert rows("find-hanging", "--broker-id", "1", "--topic", filled) == []
    describe = ("--bootstrap-server", broker.bootstrap, "describe", "--transactional-id", filled)
    ended = tools.attempt(f"{TOOLS}.TransactionsCommand", *describe)
    assert ended.status == 1
    assert "could not be found" in ended.said


def test_there_are_no_acls(tool: Tool, filled: str) -> None:
    one = ("--allow-principal", "User:a", "--operation", "Read", "--topic", filled)
    for words in (("--list",), ("--add", *one), ("--remove", "--force", *one)):
        assert "SecurityDisabledException" in tool("AclCommand", *words, status=1)


def test_what_else_is_asked_of_a_cluster(tool: Tool, tools: Tools, broker: BrokerProcess) -> None:
    def command(name: str, *words: str) -> str:
        """Of those whose verb comes first."""
        return tools.run(f"{TOOLS}.{name}", *words, "--bootstrap-server", broker.bootstrap)

    assert re.search(r"Cluster ID: \S{22}$", command("ClusterTool", "cluster-id"), re.MULTILINE)
    endpoints = command("ClusterTool", "list-endpoints")
    assert re.search(rf"^1 .* {broker.port} .* unfenced +broker", endpoints, re.MULTILINE)
    tools.run(f"{TOOLS}.FeatureCommand", "--bootstrap-server", broker.bootstrap, "describe")
    for group in ("GroupsCommand", "consumer.group.ShareGroupCommand", "streams.StreamsGroupCommand"):
        tool(group, "--list")
    tool("ClientMetricsCommand", "--list")
    for kind in ("topics", "brokers", "users", "clients", "ips", "client-metrics", "groups"):
        configure(tool, "--entity-type", kind, "--describe")


@pytest.mark.skipif(against_kafka(), reason="Kafka has all of these")
def test_what_is_not_here_is_said_clearly(tool: Tool, name: str) -> None:
    user = ("--entity-type", "users", "--entity-name", name)
    said = configure(tool, *user, "--alter", "--add-config", "SCRAM-SHA-256=[password=x]", status=1)
    assert "does not support ALTER_USER_SCRAM_CREDENTIALS" in said


def test_the_quorum_is_described(tools: Tools, broker: BrokerProcess) -> None:
    quorum = ("--bootstrap-server", broker.bootstrap, "describe", "--status")
    ended = tools.attempt(f"{TOOLS}.MetadataQuorumCommand", *quorum)
    assert ended.status == 0, ended.said
    assert "LeaderId:               1" in ended.said
