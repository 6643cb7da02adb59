"""Configs through Kafka's own tool and a real client; and what a topic's codec makes of what real producers send."""

import re
import time
from collections.abc import Mapping

import pytest
from compat.brokers import BrokerProcess, against_kafka
from compat.clients.confluent import ConfluentClient
from compat.contract import Message
from compat.tools import Tools
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tailrace.records.batch import split
from tailrace.records.compression import Codec
from tailrace.records.record import decode_records

TOPIC, BROKER = ("--entity-type", "topics", "--entity-name"), ("--entity-type", "brokers", "--entity-name", "1")
ALL_BROKERS = ("--entity-type", "brokers", "--entity-default")
CODECS = {
    "uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD,
}  # fmt: skip
SENT = 300
SECONDS = 30
OF_BROKER, DEFAULT = 2, 5  # sources of values, in Kafka's numbers
INVALID_REQUEST = 42


def kept(broker: BrokerProcess, topic: str) -> tuple[set[Codec], list[bytes]]:
    """The codecs of a topic's batches on disk, and the values in them, in their order."""
    codecs, values = set(), []
    for segment in sorted((broker.data / f"{topic}-0").glob("*.log")):
        data = segment.read_bytes()
        for position, header in split(data):
            codecs.add(Codec(header.codec))
            values += [record.value or b"" for record in decode_records(data, position)]
    return codecs, values


@pytest.mark.parametrize(
    "kind", [kind if kind == "zstd" else pytest.param(kind, marks=pytest.mark.crash) for kind in CODECS]
)
def test_what_producers_send_is_kept_in_the_topics_codec_in_order(
    broker: BrokerProcess, reference: ConfluentClient, name: str, kind: str
) -> None:
    """Two pipelined idempotent producers, one of which sends it as it is kept."""
    values = [b"%d of many values" % n for n in range(SENT)]
    reference.create_topic(name, configs={"compression.type": kind})
    for sent in ("snappy", "none" if kind == "uncompressed" else kind):
        places = reference.produce(name, map(Message, values), compression=sent, idempotent=True)
        first = places[0].offset
        assert [place.offset for place in places] == list(range(first, first + SENT))
    with reference.consumer(name, 0) as consumer:
        assert [each.value for each in consumer.take(2 * SENT)] == values * 2
    assert kept(broker, name) == ({CODECS[kind]}, values * 2)


def test_a_brokers_configs_are_described_and_changed_by_a_client(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def described(name: str) -> ConfigEntry:
        (answer,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
        entry: ConfigEntry = answer.result(SECONDS)[name]
        return entry

    def change(operation: AlterConfigOpType, name: str, value: str | None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        (answer,) = admin.incremental_alter_configs([resource]).values()
        answer.result(SECONDS)

    def is_soon(name: str, value: str, source: int) -> bool:
        """Kafka is given a moment to do what it has said that it did; we are not."""
        deadline = time.monotonic() + (SECONDS if against_kafka() else 0)
        while ((entry := described(name)).value, entry.source) != (value, source) and time.monotonic() < deadline:
            time.sleep(0.02)
        return (entry.value, entry.source) == (value, source)

    before = described("log.segment.bytes")
    assert (before.value, before.is_read_only, before.source) == (str(1 << 30), False, DEFAULT)
    change(AlterConfigOpType.SET, "log.segment.bytes", "2000000")
    assert is_soon("log.segment.bytes", "2000000", OF_BROKER)
    change(AlterConfigOpType.DELETE, "log.segment.bytes", None)
    assert is_soon("log.segment.bytes", str(1 << 30), DEFAULT)
    assert described("num.partitions").is_read_only
    with pytest.raises(KafkaException) as refused:
        change(AlterConfigOpType.SET, "num.partitions", "3")
    assert refused.value.args[0].code() == INVALID_REQUEST
    assert str(broker.data) in str(described("log.dirs").value)
    assert str(described("listeners").value).startswith(f"PLAINTEXT://{broker.bootstrap}")


@pytest.mark.needs("kafka")
def test_the_config_tool_sets_shows_and_takes_back(broker: BrokerProcess, tools: Tools, topic: str) -> None:
    def configs(*arguments: str) -> str:
        return tools.run("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments)

    def shown(*whose: str) -> Mapping[str, str]:
        """Value and synonyms, but those that are not set, by name."""
        lines = re.findall(r"^  ([\w.]+)=(.*) sensitive=false synonyms=\{(.*)\}$", configs("--describe", *whose), re.M)
        return {name: f"{value} {re.sub(r',? ?DEFAULT_CONFIG:.*', '', synonyms)}" for name, value, synonyms in lines}

    configs("--alter", *TOPIC, topic, "--add-config", "segment.ms=5000,cleanup.policy=[compact,delete]")
    assert shown(*TOPIC, topic) == {
        "cleanup.policy": "compact,delete DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete",
        "segment.ms": "5000 DYNAMIC_TOPIC_CONFIG:segment.ms=5000",
    }
    configs("--alter", *TOPIC, topic, "--delete-config", "segment.ms,cleanup.policy")
    assert shown(*TOPIC, topic) == {}

    configs("--alter", *BROKER, "--add-config", "max.connections=700")
    configs("--alter", *ALL_BROKERS, "--add-config", "max.connections=800")
    assert shown(*BROKER)["max.connections"] == (
        "700 DYNAMIC_BROKER_CONFIG:max.connections=700, DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections=800"
    )
    assert shown(*ALL_BROKERS)["max.connections"] == "800 DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections=800"
    for whose in (BROKER, ALL_BROKERS):
        configs("--alter", *whose, "--delete-config", "max.connections")
    assert "max.connections" not in shown(*BROKER)
