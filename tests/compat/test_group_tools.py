"""Kafka's own tool for groups, and kcat as a member of one."""

import contextlib
import datetime
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.brokers import BrokerProcess
from compat.clients import programs
from compat.clients.confluent import ConfluentClient
from compat.contract import Message
from compat.groups import CONSUMER, Group, Member
from compat.tools import Tools

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PARTITIONS = 3
EACH = 10  # messages in each partition

needs_java = pytest.mark.needs("kafka")


@pytest.fixture
def broker(group_broker: BrokerProcess) -> BrokerProcess:
    return group_broker


@pytest.fixture
def name() -> str:
    return f"t-{secrets.token_hex(4)}"


@pytest.fixture
def group(broker: BrokerProcess, reference: ConfluentClient, name: str, tmp_path: Path) -> Iterator[Group]:
    """One whose messages are all delivered, and half of them committed."""
    reference.create_topic(name, partitions=PARTITIONS)
    with contextlib.closing(Group(broker.bootstrap, f"group-{name}", {name: PARTITIONS}, tmp_path)) as group:
        group.produce(EACH // 2)
        yield group


@pytest.fixture(params=["confluent", f"confluent{CONSUMER}"])
def kind(request: pytest.FixtureRequest) -> str:
    """Members of either protocol."""
    return str(request.param)


@pytest.fixture
def members(group: Group, kind: str) -> list[Member]:
    members = [group.start(kind) for _ in range(2)]
    group.settle(*members)
    group.catch_up(*members)
    group.commit(*members)
    group.deliver(*members, each=EACH // 2)
    return members


class GroupTool:
    def __init__(self, tools: Tools, broker: BrokerProcess, group: Group) -> None:
        self._tools = tools
        self._server = ("--bootstrap-server", broker.bootstrap)
        self.group = group
        self.name = group.name
        (self.topic,) = group.topics

    def run(self, *words: str) -> str:
        return self._tools.run(TOOL, *self._server, *words)

    def table(self, *words: str) -> list[dict[str, str]]:
        return read_table(self.run(*words))

    def describe(self, *words: str) -> list[dict[str, str]]:
        return self.table("--describe", "--group", self.name, *words)

    def reset(self, *how: str, topic: str | None = None) -> dict[int, int]:
        what = ("--reset-offsets", "--group", self.name, "--topic", topic or self.topic)
        found = self.table(*what, *how)
        assert {(row["GROUP"], row["TOPIC"]) for row in found} <= {(self.name, self.topic)}
        return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in found}

    def offsets(self) -> dict[int, int]:
        return {partition: offset for (_, partition), offset in self.group.offsets().items()}


@pytest.fixture
def tool(tools: Tools, broker: BrokerProcess, group: Group) -> GroupTool:
    return GroupTool(tools, broker, group)


def read_table(said: str) -> list[dict[str, str]]:
    """The rows below the head. A cell may be empty, so that it is known by where it stands."""
    head, *rows = [line for line in said.splitlines() if re.match("GROUP|group-", line)]
    starts = [found.start() for found in re.finditer(r"\S+( \(ID\))?", head)]
    ends = [*starts[1:], None]
    names = [head[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    cells = ([row[start:end].strip() for start, end in zip(starts, ends, strict=True)] for row in rows)
    return [dict(zip(names, each, strict=True)) for each in cells]


def same_for_all(offset: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), offset)


@needs_java
def test_groups_are_listed_by_state_and_type(tool: GroupTool, members: list[Member], kind: str) -> None:
    def listed(*words: str) -> dict[str, str]:
        rows = tool.table("--list", *words)
        return {row["GROUP"]: row.get("STATE", "") + row.get("TYPE", "") for row in rows}

    assert tool.name in tool.run("--list").split()
    assert listed("--state")[tool.name] == "Stable"
    assert tool.name in listed("--state", "stable")
    assert tool.name not in listed("--state", "empty,dead")
    own, other = ("consumer", "classic") if kind.endswith(CONSUMER) else ("classic", "consumer")
    assert listed("--type")[tool.name] == own.title()
    assert tool.name in listed("--type", own)
    assert tool.name not in listed("--type", other)
    for member in members:
        member.leave()
    assert listed("--state", "empty")[tool.name] == "Empty"


@needs_java
def test_a_group_is_described(tool: GroupTool, members: list[Member], broker: BrokerProcess, kind: str) -> None:
    def number_of(partitions: str) -> int:
        return len(partitions.partition(":")[2].split(","))

    rows = tool.describe("--offsets")
    assert rows == tool.describe()
    assert [(row["TOPIC"], row["PARTITION"]) for row in rows] == [(tool.topic, str(n)) for n in range(PARTITIONS)]
    assert {(row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows} == {("5", "10", "5")}
    assert {(row["HOST"], row["CLIENT-ID"]) for row in rows} == {("/127.0.0.1", "rdkafka")}
    consumers = {row["CONSUMER-ID"] for row in rows}
    assert len(consumers) == 2

    found = tool.describe("--members", "--verbose")
    assert {row["CONSUMER-ID"] for row in found} == consumers
    assert sorted((row["#PARTITIONS"], number_of(row["CURRENT-ASSIGNMENT"])) for row in found) == [("1", 1), ("2", 2)]
    assert {row["CURRENT-ASSIGNMENT"].partition(":")[0] for row in found} == {tool.topic}

    (state,) = tool.describe("--state")
    assert state["COORDINATOR (ID)"].startswith(broker.bootstrap)
    assignor = "uniform" if kind.endswith(CONSUMER) else "range"
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == (assignor, "Stable", "2")

    for member in members:
        member.leave()
    assert "has no active members" in tool.run("--describe", "--group", tool.name)
    assert {(row["CURRENT-OFFSET"], row["CONSUMER-ID"]) for row in tool.describe()} == {("5", "-")}
    (state,) = tool.describe("--state")
    assert (state["STATE"], state["#MEMBERS"]) == ("Empty", "0")
    assert "GroupIdNotFoundException" in tool.run("--describe", "--group", f"no-{tool.name}")


@needs_java
def test_an_active_group_is_neither_reset_nor_deleted(tool: GroupTool, members: list[Member]) -> None:
    refusal = tool.run("--reset-offsets", "--group", tool.name, "--topic", tool.topic, "--to-earliest", "--execute")
    assert "can only be reset if the group" in refusal
    assert "the current state is Stable" in refusal
    assert "GroupNotEmptyException" in tool.run("--delete", "--group", tool.name)
    refusal = tool.run("--delete-offsets", "--group", tool.name, "--topic", tool.topic)
    assert refusal.count("GroupSubscribedToTopicException") == PARTITIONS
    assert tool.offsets() == same_for_all(5)


@needs_java
def test_offsets_are_reset_in_every_way(
    tool: GroupTool, members: list[Member], reference: ConfluentClient, tmp_path: Path, kind: str
) -> None:
    for member in members:
        member.leave()
    assert tool.reset("--to-earliest", "--dry-run") == same_for_all(0)
    assert tool.reset("--to-latest", "--dry-run") == same_for_all(EACH)
    assert tool.reset("--to-current", "--dry-run") == same_for_all(5)
    assert tool.reset("--shift-by", "3", "--dry-run") == same_for_all(8)
    assert tool.reset("--shift-by", "-100", "--dry-run") == same_for_all(0)
    assert tool.reset("--to-offset", "100", "--dry-run") == same_for_all(EACH)
    assert tool.offsets() == same_for_all(5), "they were dry runs"

    assert tool.reset("--to-offset", "3", "--execute", topic=f"{tool.topic}:0,1") == {0: 3, 1: 3}
    assert tool.offsets() == {0: 3, 1: 3, 2: 5}
    assert tool.reset("--shift-by", "-2", "--execute") == {0: 1, 1: 1, 2: 3}
    assert tool.offsets() == {0: 1, 1: 1, 2: 3}

    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=30)
    stamps = [int(later.timestamp() * 1000) + n for n in (0, 1000)]
    for partition in range(PARTITIONS):
        messages = [Message(b"later", timestamp=stamp) for stamp in stamps]
        reference.produce(tool.topic, messages, partition=partition)
    between = (later + datetime.timedelta(milliseconds=500)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    assert tool.reset("--to-datetime", f"{between}Z", "--execute") == same_for_all(EACH + 1)
    assert tool.offsets() == same_for_all(EACH + 1)
    assert tool.reset("--by-duration", "PT1H", "--execute") == same_for_all(0)

    saved = tool.run("--reset-offsets", "--group", tool.name, "--topic", tool.topic, "--shift-by", "4", "--export")
    lines = sorted(line for line in saved.splitlines() if line.startswith(tool.topic))
    assert lines == [f"{tool.topic},{partition},4" for partition in range(PARTITIONS)]
    file = tmp_path / "offsets.csv"
    file.write_text("\n".join(line.replace(",4", f",{7 + n}") for n, line in enumerate(lines)) + "\n")
    assert tool.table("--reset-offsets", "--group", tool.name, "--from-file", str(file), "--execute")
    assert tool.offsets() == {0: 7, 1: 8, 2: 9}

    again = tool.group.start(kind)
    tool.group.settle(again)
    places = set(tool.group.ends)
    tool.group.wait(lambda: again.positions == dict.fromkeys(places, EACH + 2), "it reads from there")
    messages = [event.what for event in tool.group.events if event.member is again and event.name == "message"]
    assert {n: min(each["offset"] for each in messages if each["partition"] == n) for n in range(PARTITIONS)} == {
        0: 7,
        1: 8,
        2: 9,
    }


@needs_java
def test_offsets_of_a_group_that_is_not_there_are_set(tool: GroupTool) -> None:
    assert tool.reset("--to-latest", "--execute") == same_for_all(5)
    assert {row["LAG"] for row in tool.describe()} == {"0"}
    (state,) = tool.describe("--state")
    assert state["STATE"] == "Empty"


@needs_java
def test_offsets_and_groups_are_deleted(tool: GroupTool, members: list[Member]) -> None:
    for member in members:
        member.leave()
    said = tool.run("--delete-offsets", "--group", tool.name, "--topic", f"{tool.topic}:1")
    assert re.search(rf"^{tool.topic}\s+1\s+Successful", said, flags=re.MULTILINE)
    assert tool.offsets() == {0: 5, 2: 5}
    said = tool.run("--delete-offsets", "--group", tool.name, "--topic", f"no-{tool.topic}")
    assert "UnknownTopicOrPartitionException" in said

    said = tool.run("--delete", "--group", tool.name)
    assert f"('{tool.name}') was successful" in said
    assert tool.offsets() == {}
    assert tool.name not in tool.run("--list").split()
    assert "GroupIdNotFoundException" in tool.run("--delete", "--group", tool.name)


@pytest.mark.needs("kcat")
def test_kcat_reads_as_a_group(broker: BrokerProcess, group: Group) -> None:
    def read() -> list[str]:
        settings = ["-X", "auto.offset.reset=earliest", "-X", "fetch.wait.max.ms=100"]
        command = ["kcat", "-b", broker.bootstrap, "-q", "-e", *settings, "-f", "%p %o\\n", "-G", group.name]
        done = programs.run([*command, *group.topics])
        assert done.returncode == 0, done
        return sorted(done.stdout.splitlines())

    assert read() == [f"{partition} {n}" for partition in range(PARTITIONS) for n in range(5)]
    assert group.offsets() == group.ends
    assert read() == []
    group.produce(2)
    assert read() == [f"{partition} {n}" for partition in range(PARTITIONS) for n in (5, 6)]
    assert group.offsets() == group.ends
