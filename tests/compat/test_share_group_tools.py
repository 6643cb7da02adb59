"""Kafka's tools for share groups: `kafka-share-groups.sh`, its consumers, and its load test."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from compat.brokers import BrokerProcess, against_kafka, new_broker
from compat.clients.confluent import ConfluentClient
from compat.contract import Message
from compat.crews import crew_of
from compat.tools import TOOLS, Tools
from queues import SHARE_SETTINGS

from tailrace.client.admin.configs import alter_group_configs
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.options import ClientOptions

pytestmark = pytest.mark.needs("kafka")

Rows = Callable[..., list[dict[str, str]]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = new_broker(tmp_path_factory.mktemp("queues") / "broker", settings=SHARE_SETTINGS)
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def group(broker: BrokerProcess, name: str) -> str:
    """One that begins at the start of its topics."""
    cluster = Cluster(ClientOptions.from_properties({"bootstrap.servers": broker.bootstrap}))
    alter_group_configs(cluster, f"group-{name}", {"share.auto.offset.reset": "earliest"})
    cluster.close()
    return f"group-{name}"


@pytest.fixture
def share_groups(tools: Tools, broker: BrokerProcess) -> Callable[..., str]:
    def run(*words: str) -> str:
        command = f"{TOOLS}.consumer.group.ShareGroupCommand"
        return tools.run(command, "--bootstrap-server", broker.bootstrap, *words)

    return run


@pytest.fixture
def rows(share_groups: Callable[..., str]) -> Rows:
    """What a verb prints as a table: each row by the names of its columns."""

    def run(*words: str) -> list[dict[str, str]]:
        lines = [
            re.split(r"\s{2,}|\s(?=\S)", line.strip()) for line in share_groups(*words).splitlines() if line.strip()
        ]
        head = next((number for number, line in enumerate(lines) if line[0] == "GROUP"), None)
        if head is None:
            return []
        return [dict(zip(lines[head], line, strict=False)) for line in lines[head + 1 :]]

    return run


def consume(tools: Tools, broker: BrokerProcess, topic: str, group: str, count: int, *more: str) -> str:
    """What the console consumer prints of so many messages."""
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group)
    return tools.run(
        f"{TOOLS}.consumer.ConsoleShareConsumer", *where, "--max-messages", str(count), "--timeout-ms", "20000", *more
    )


def produce(reference: ConfluentClient, topic: str, count: int) -> None:
    reference.produce(topic, [Message(b"value %d" % number) for number in range(count)], idempotent=True)


def test_the_console_consumer_prints_messages_each_once(
    tools: Tools, broker: BrokerProcess, reference: ConfluentClient, topic: str, group: str
) -> None:
    produce(reference, topic, 20)
    said = consume(tools, broker, topic, group, 20)
    assert re.findall(r"^value \d+$", said, re.MULTILINE) == [f"value {number}" for number in range(20)]


def test_the_console_consumer_rejects_and_releases(
    tools: Tools, broker: BrokerProcess, reference: ConfluentClient, topic: str, group: str, rows: Rows
) -> None:
    produce(reference, topic, 10)
    released = consume(tools, broker, topic, group, 10, "--release")
    assert "value 0" in released
    rejected = consume(tools, broker, topic, group, 10, "--reject")
    assert "value 0" in rejected
    (row,) = rows("--describe", "--group", group)
    assert row["LAG"] == "0"


def test_groups_are_listed_with_their_state(
    tools: Tools, broker: BrokerProcess, reference: ConfluentClient, topic: str, group: str,
    share_groups: Callable[..., str], rows: Rows,
) -> None:  # fmt: skip
    produce(reference, topic, 1)
    consume(tools, broker, topic, group, 1)
    assert group in share_groups("--list").split()
    states = {row["GROUP"]: row["STATE"] for row in rows("--list", "--state")}
    assert states[group] == "Empty"
    assert group not in share_groups("--list", "--state", "Stable").split()


def test_a_group_is_described_with_start_and_lag(
    tools: Tools, broker: BrokerProcess, reference: ConfluentClient, topic: str, group: str, rows: Rows
) -> None:
    produce(reference, topic, 10)
    consume(tools, broker, topic, group, 10)
    produce(reference, topic, 3)
    (row,) = rows("--describe", "--group", group)
    assert (row["GROUP"], row["TOPIC"], row["PARTITION"], row["LAG"]) == (group, topic, "0", "3")
    if not against_kafka():  # which moves the start some time later
        assert row["START-OFFSET"] == "10"


def test_members_of_a_group_are_described(broker: BrokerProcess, topic: str, name: str, rows: Rows) -> None:
    with crew_of(broker.bootstrap, f"crew-{name}", topic) as crew:
        crew.start("confluent", 2).wait_until_joined()
        crew.wait(lambda: crew.unfinished() == 0)
        members = ("--describe", "--group", f"crew-{name}", "--members", "--verbose")
        crew.wait(lambda: len({row["CONSUMER-ID"] for row in rows(*members)}) == 2)
        (state,) = rows("--describe", "--group", f"crew-{name}", "--state")
        assert state["STATE"] == "Stable"
        assert state["#MEMBERS"] == "2"


def test_offsets_are_reset_and_deleted_and_then_the_group_is(
    tools: Tools, broker: BrokerProcess, reference: ConfluentClient, topic: str, group: str,
    share_groups: Callable[..., str], rows: Rows,
) -> None:  # fmt: skip
    produce(reference, topic, 10)
    consume(tools, broker, topic, group, 10)
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest")
    (planned,) = rows(*reset, "--dry-run")
    assert planned["NEW-OFFSET"] == "0"
    share_groups(*reset, "--execute")
    (row,) = rows("--describe", "--group", group)
    assert (row["START-OFFSET"], row["LAG"]) == ("0", "10")
    said = consume(tools, broker, topic, group, 10)
    assert "value 0" in said
    assert topic in share_groups("--delete-offsets", "--group", group, "--topic", topic)
    assert "Deletion of requested share groups" in share_groups("--delete", "--group", group)
    assert group not in share_groups("--list").split()


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_the_verifiable_consumer_acknowledges_all_that_it_receives(
    tools: Tools, broker: BrokerProcess, reference: ConfluentClient, topic: str, name: str, mode: str
) -> None:
    produce(reference, topic, 100)
    said = tools.run(
        f"{TOOLS}.VerifiableShareConsumer", "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--group-id", f"verified-{name}", "--max-messages", "100", "--acknowledgement-mode", mode,
        "--offset-reset-strategy", "earliest",
    )  # fmt: skip
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    counts = {
        kind: sum(event["count"] for event in events if event["name"] == kind)
        for kind in ("records_consumed", "offsets_acknowledged")
    }
    assert counts == {"records_consumed": 100, "offsets_acknowledged": 100}
    assert all(event.get("success", True) for event in events)


def test_the_load_test_consumes_all(
    tools: Tools, broker: BrokerProcess, reference: ConfluentClient, topic: str, group: str
) -> None:
    reference.produce(topic, [Message(b"x" * 100) for _ in range(5000)])
    said = tools.run(
        f"{TOOLS}.ShareConsumerPerformance", "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--group", group, "--num-records", "5000", "--timeout", "20000",
    )  # fmt: skip
    assert re.search(r"\b5000\b", said), said
