"""Kafka's own programs against the broker: load, checks of load, descriptions, and a look into its data directory."""

import json
import re

import pytest
from compat.brokers import BrokerProcess
from compat.clients.confluent import ConfluentClient
from compat.clients.java import TOOLS, run_tool
from compat.contract import Message

pytestmark = pytest.mark.needs("kafka")


def test_the_load_producer_is_acknowledged_all_it_sends(
    broker: BrokerProcess, reference: ConfluentClient, topic: str
) -> None:
    load = ("--topic", topic, "--num-records", "50000", "--record-size", "100", "--throughput", "-1")
    settings = ("--bootstrap-server", broker.bootstrap, "--command-property", "acks=all")
    said = run_tool(f"{TOOLS}.ProducerPerformance", *load, *settings)
    assert "50000 records sent" in said
    assert reference.offset(topic, "latest") == 50_000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_the_load_producer_compresses(
    broker: BrokerProcess, reference: ConfluentClient, topic: str, codec: str
) -> None:
    load = ("--topic", topic, "--num-records", "5000", "--record-size", "1000", "--throughput", "-1")
    settings = ("--bootstrap-server", broker.bootstrap, "--command-property", f"compression.type={codec}")
    assert "5000 records sent" in run_tool(f"{TOOLS}.ProducerPerformance", *load, *settings)
    with reference.consumer(topic, 0) as consumer:
        assert [each.offset for each in consumer.take(5000)] == list(range(5000))


def test_the_verifiable_producer_is_told_of_each_message_where_it_is(
    broker: BrokerProcess, reference: ConfluentClient, topic: str
) -> None:
    arguments = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--max-messages", "500", "--acks", "-1")
    events = [json.loads(line) for line in run_tool(f"{TOOLS}.VerifiableProducer", *arguments).splitlines()]
    told = {event["offset"]: event["value"] for event in events if event["name"] == "producer_send_success"}
    with reference.consumer(topic, 0) as consumer:
        assert {each.offset: (each.value or b"").decode() for each in consumer.take(500)} == told
    (result,) = [event for event in events if event["name"] == "tool_data"]
    assert (result["sent"], result["acked"]) == (500, 500)


def test_the_topic_tool_describes_by_identity_and_lists_what_is_wrong_as_nothing(
    broker: BrokerProcess, reference: ConfluentClient, topic: str
) -> None:
    def describe(*arguments: str) -> str:
        return run_tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", broker.bootstrap, "--describe", *arguments)

    said = describe("--topic", topic)
    identity = reference.topic_id(topic).translate(str.maketrans("+/", "-_"))  # as Java writes it
    assert f"\tTopicId: {identity}\t" in said
    assert describe("--topic-id", identity).splitlines()[0] == said.splitlines()[0]
    for wrong in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert describe("--topic", topic, wrong).strip() == ""


def test_every_version_that_the_broker_offers_is_understood(broker: BrokerProcess) -> None:
    said = run_tool(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", broker.bootstrap)
    usable = dict(re.findall(r"^\s(\w+)\(\d+\): .*\[usable: (\d+)\]", said, flags=re.MULTILINE))
    assert {name: int(usable[name]) for name in ("Produce", "Fetch", "ListOffsets", "Metadata", "CreateTopics")} == {
        "Produce": 13,
        "Fetch": 18,
        "ListOffsets": 11,
        "Metadata": 13,
        "CreateTopics": 7,
    }


@pytest.mark.parametrize("ended", [False, True], ids=["running", "stopped"])
def test_the_dump_tool_reads_what_the_broker_wrote(own_broker: BrokerProcess, ended: bool, name: str) -> None:
    client = ConfluentClient(own_broker.bootstrap)
    messages = [Message(b"value %d" % n, b"key", (("h", b"x"),)) for n in range(100)]
    client.produce(name, messages, idempotent=True, compression="zstd")
    client.produce(name, messages)
    if ended:
        own_broker.stop()
    (segment,) = (own_broker.data / f"{name}-0").glob("*.log")
    said = run_tool(f"{TOOLS}.DumpLogSegments", "--print-data-log", "--files", str(segment))
    found = re.findall(r"^\| offset: (\d+) .* key: key payload: (.*)$", said, flags=re.MULTILINE)
    assert found == [(str(n), f"value {n % 100}") for n in range(200)]
    assert "isvalid: false" not in said
