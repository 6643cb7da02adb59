"""Every config does what it says. Each row gives a config and something that is observed, which is other where the
config is at its default: so a config that is ignored fails here.

A topic's config is given in each of the ways there are: by the topic, by the broker at its start, and at run time. The
last tests hold the table against the registry: no config is without a row, but those that DEVIATIONS calls ignored.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, a_batch, fetch_request, from_offset, only_partition, produce_request
from group_requests import NO_DELAY, Consumer, commit_request
from logs import DATA, memory_files
from transactions import TransactionalProducer

from tailrace.broker.configs.ignored import family_of
from tailrace.broker.configs.tables import BROKER_KEYS, TOPIC_KEYS
from tailrace.broker.metadata.config_changes import Operation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.describe_cluster import DescribeClusterRequest
from tailrace.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.records.batch import read_header
from tailrace.records.compression import Codec

TESTS = Path(__file__).parents[1]
DEVIATIONS = TESTS.parent / "docs" / "DEVIATIONS.md"
OF_TOPICS = {key.broker_key for key in TOPIC_KEYS.values()}
IGNORED = "Accepted and ignored"  # how the words on such a config begin

NOT_YET = "takes effect with the release"  # and of one that is about to be more than shown
# Those that do something, a broker's for what topics can say themselves not counted again.
IN_EFFECT = [
    key
    for key in (TOPIC_KEYS | {name: key for name, key in BROKER_KEYS.items() if name not in OF_TOPICS}).values()
    if not key.doc.startswith(IGNORED) and NOT_YET not in key.doc
]
# What Kafka 4.3.1 says of its broker configs: type, whether it can be changed at run time, and the default.
KAFKA = {
    name: (int(kind), change == "dynamic", default)
    for name, kind, change, default in (
        line.split("\t") for line in (TESTS / "data" / "kafka-broker-configs.txt").read_text().splitlines()
    )
}
OTHER_DEFAULT = {  # for a reason that DEVIATIONS has; or Kafka has none, and goes by another config
    "broker.id", "node.id", "listeners", "log.dir", "max.connections", "offsets.topic.num.partitions",
    "socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes",
    "log.flush.interval.ms", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms",
    "transaction.state.log.num.partitions", "group.share.min.record.lock.duration.ms",
}  # fmt: skip
ONLY_AT_START = {"listeners"}  # for such a reason, too

# What queues read: each gets a row, or the place of its test, when they do.
UNREAD = {
    "errors.deadletterqueue.group.enable",
    "group.share.delivery.count.limit",
    "group.share.max.share.sessions",
    "group.share.partition.max.record.locks",
    "group.share.record.lock.duration.ms",
    "tailrace.delay.headers",
    "tailrace.delivery.delay.ms",
    "tailrace.dlq.rate",
    "tailrace.message.ttl.ms",
    "tailrace.priority",
    "tailrace.ttl.headers",
}

Observe = Callable[[LocalBroker], object]


@dataclass
class Row:
    """`observe` is called on a broker with a topic `orders`, with the config and without."""

    name: str
    value: str
    observe: Observe
    expected: object
    by_default: object
    beside: Mapping[str, str] = field(default_factory=dict)  # what else is set, in both cases

    def __str__(self) -> str:
        return self.name


# What is observed


def code_of(broker: LocalBroker, batch: bytearray) -> object:
    return ErrorCode(only_partition(broker.ask(produce_request(batch), 12)).error_code)  # type: ignore[call-arg]


def without_key(broker: LocalBroker) -> object:
    return code_of(broker, a_batch(b"no key"))


def larger(size: int) -> Observe:
    return lambda broker: code_of(broker, a_batch(bytes(size)))


def dated(ahead_ms: int) -> Observe:
    return lambda broker: code_of(broker, a_batch(b"", now_ms=broker.now_ms + ahead_ms))


def timestamp(broker: LocalBroker) -> object:
    sent = broker.now_ms - 5
    broker.ask(produce_request(a_batch(b"", now_ms=sent)), 12)
    return header(broker).max_timestamp - sent


def header(broker: LocalBroker) -> Any:
    piece = broker.log().read(0, 1 << 20)
    assert piece is not None
    with piece:
        return read_header(piece.read())


def codec(broker: LocalBroker) -> object:
    broker.produce(b"a", codec=Codec.SNAPPY)
    return Codec(header(broker).codec)


def is_smaller_than(size: int) -> Observe:
    def observe(broker: LocalBroker) -> object:
        broker.produce(*(b"%d" % (n * n * 7919) for n in range(2000)))
        return broker.log().active.size < size

    return observe


def flushed_after(batches: int = 1, wait_ms: int = 0) -> Observe:
    def observe(broker: LocalBroker) -> object:
        broker.hold_jobs = True
        for _ in range(batches):
            broker.begin(produce_request(a_batch(b"a"), acks=1), 12)
        broker.tick(wait_ms)
        broker.run_flushes()
        return broker.log().high_watermark

    return observe


def index_entries(broker: LocalBroker) -> object:
    for _ in range(4):
        broker.produce(b"a")
    return len(broker.log().active.derived().index)


def segments(batches: int, *, size: int = 1, every_ms: int = 0) -> Observe:
    def observe(broker: LocalBroker) -> object:
        for _ in range(batches):
            broker.produce(bytes(size))
            broker.now_ms += every_ms
        return len(broker.log().segments)

    return observe


def partitions_that_roll(broker: LocalBroker) -> object:
    for _ in range(2):
        for index in range(16):
            broker.produce(b"", partition=index)
        broker.now_ms += 600
    return sum(len(broker.log(index=index).segments) > 1 for index in range(16)) > 0


def metadata(broker: LocalBroker, *names: str) -> Any:
    return broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), 12)


def partitions_of_a_new_topic(broker: LocalBroker) -> object:
    (topic,) = metadata(broker, "new").topics
    return len(topic.partitions)


def node_id(broker: LocalBroker) -> object:
    return broker.ask(DescribeClusterRequest(), 1).controller_id


def rack(broker: LocalBroker) -> object:
    (seen,) = {metadata(broker).brokers[0].rack, broker.ask(DescribeClusterRequest(), 1).brokers[0].rack}
    return seen


def deletion(broker: LocalBroker) -> object:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=1000)
    return ErrorCode(broker.ask(request, 6).responses[0].error_code)  # type: ignore[call-arg]


def fetched_values(broker: LocalBroker) -> object:
    for _ in range(2):
        broker.produce(bytes(1000))
    return len(broker.values())


def fetch_session(broker: LocalBroker) -> object:
    answer = broker.ask(fetch_request(from_offset(0), max_wait_ms=0, session_id=0, session_epoch=0), 12)
    return answer.session_id > 0


def join(session_ms: int) -> Observe:
    return lambda broker: Consumer(broker, session_ms=session_ms).enter().code


def is_answered_at_once(broker: LocalBroker) -> object:
    return Consumer(broker).enter().code == 0


def second_member(broker: LocalBroker) -> object:
    first = Consumer(broker, "a")
    first.enter()
    second = Consumer(broker, "b")
    answer = second.enter()
    first.join()
    return answer.code


def commit_with_a_note(broker: LocalBroker) -> object:
    request = commit_request({("orders", 0): 1})
    request.topics[0].partitions[0].committed_metadata = "a note"
    return ErrorCode(broker.ask(request, 9).topics[0].partitions[0].error_code)  # type: ignore[call-arg]


def log_of_groups(broker: LocalBroker) -> object:
    commit_with_a_note(broker)
    topic = broker.broker.metadata.topics["__consumer_offsets"]
    return topic.partition_count, topic.config.log.segment_bytes


def begins_a_second(broker: LocalBroker) -> object:
    """A producer whose transactions may take a second."""
    return TransactionalProducer(broker, timeout_ms=1_000, begins=False).init().error_code


def log_of_transactions(broker: LocalBroker) -> object:
    TransactionalProducer(broker)
    topic = broker.broker.metadata.topics["__transaction_state"]
    return topic.partition_count, topic.config.log.segment_bytes


def ids_after_two_minutes(broker: LocalBroker) -> object:
    TransactionalProducer(broker)
    broker.tick(120_000)
    return len(broker.broker.transactions.transactions)


def is_checkpointed_after_a_second(broker: LocalBroker) -> object:
    broker.tick(0)
    broker.produce(b"a")
    broker.tick(1000)
    return broker.log().recovery_point == 1


def producers_after_two_minutes(broker: LocalBroker) -> object:
    broker.tick(0)
    broker.produce(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        broker.now_ms += 60_000
        broker.produce(b"b")
        broker.tick(0)
    return len(broker.log().producers.producers)


def has_more(broker: LocalBroker) -> object:
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000)
    return broker.ask(request, 0).next_cursor is not None


OK, TOO_LARGE, LATE = ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP
EVERY_BATCH = {"index.interval.bytes": "0"}
# fmt: off
TOPIC_ROWS = [
    Row("cleanup.policy", "compact", without_key, ErrorCode.INVALID_RECORD, OK),
    Row("compression.gzip.level", "1", is_smaller_than(15_000), False, True, {"compression.type": "gzip"}),
    Row("compression.lz4.level", "1", is_smaller_than(23_000), False, True, {"compression.type": "lz4"}),
    Row("compression.type", "zstd", codec, Codec.ZSTD, Codec.SNAPPY),
    Row("compression.zstd.level", "-500", is_smaller_than(20_000), False, True, {"compression.type": "zstd"}),
    Row("flush.messages", "2", flushed_after(2), 2, 0),
    Row("flush.ms", "100", flushed_after(1, wait_ms=100), 1, 0),
    Row("index.interval.bytes", "0", index_entries, 3, 0),
    Row("max.message.bytes", "500", larger(500), TOO_LARGE, OK),
    Row("message.timestamp.after.max.ms", "100", dated(101), LATE, OK),
    Row("message.timestamp.before.max.ms", "100", dated(-101), LATE, OK),
    Row("message.timestamp.type", "LogAppendTime", timestamp, 5, 0),
    Row("segment.bytes", str(1 << 20), segments(2, size=800_000), 2, 1),
    Row("segment.index.bytes", "60", segments(10), 2, 1, EVERY_BATCH),
    Row("segment.jitter.ms", "1000", partitions_that_roll, True, False, {"segment.ms": "1000"}),
    Row("segment.ms", "1000", segments(2, every_ms=1001), 2, 1),
]
BROKER_ROWS = [
    Row("auto.create.topics.enable", "false", partitions_of_a_new_topic, 0, 1),
    Row("broker.id", "7", node_id, 7, 1),
    Row("broker.rack", "left", rack, "left", None),
    Row("delete.topic.enable", "false", deletion, ErrorCode.TOPIC_DELETION_DISABLED, OK),
    Row("fetch.max.bytes", "1024", fetched_values, 1, 2),
    Row("group.initial.rebalance.delay.ms", "0", is_answered_at_once, True, False),
    Row("group.max.session.timeout.ms", "20000", join(20_001), ErrorCode.INVALID_SESSION_TIMEOUT, 0, NO_DELAY),
    Row("group.max.size", "1", second_member, ErrorCode.GROUP_MAX_SIZE_REACHED, 0, NO_DELAY),
    Row("group.min.session.timeout.ms", "7000", join(6_999), ErrorCode.INVALID_SESSION_TIMEOUT, 0, NO_DELAY),
    Row("log.roll.hours", "1", segments(2, every_ms=3_600_001), 2, 1),
    Row("log.roll.jitter.hours", "1", partitions_that_roll, True, False, {"segment.ms": "1000"}),
    Row("log.flush.offset.checkpoint.interval.ms", "1000", is_checkpointed_after_a_second, True, False),
    Row("max.incremental.fetch.session.cache.slots", "0", fetch_session, False, True),
    Row("max.request.partition.size.limit", "1", has_more, True, False),
    Row("node.id", "7", node_id, 7, 1),
    Row("num.partitions", "3", partitions_of_a_new_topic, 3, 1),
    Row("offset.metadata.max.bytes", "5", commit_with_a_note, ErrorCode.OFFSET_METADATA_TOO_LARGE, OK),
    Row("offsets.topic.num.partitions", "4", log_of_groups, (4, 100 << 20), (1, 100 << 20)),
    Row("offsets.topic.segment.bytes", "2000000", log_of_groups, (1, 2_000_000), (1, 100 << 20)),
    Row("transaction.max.timeout.ms", "999", begins_a_second, ErrorCode.INVALID_TRANSACTION_TIMEOUT, OK),
    Row("transaction.state.log.num.partitions", "4", log_of_transactions, (4, 100 << 20), (1, 100 << 20)),
    Row("transaction.state.log.segment.bytes", "2000000", log_of_transactions, (1, 2_000_000), (1, 100 << 20)),
    Row("transactional.id.expiration.ms", "119999", ids_after_two_minutes, 0, 1),
    Row("producer.id.expiration.ms", "30000", producers_after_two_minutes, 0, 1),
]
# fmt: on
BROKER_ROWS = [row for row in BROKER_ROWS if row.name in BROKER_KEYS]  # those in hours come with retention

# Of these the tests are with what they are about; they name them.
SERVER = "server/test_node.py"
ELSEWHERE = {
    "advertised.listeners": "server/test_settings.py",
    "connections.max.idle.ms": SERVER,
    **dict.fromkeys(
        (
            "group.consumer.assignment.interval.ms",
            "group.consumer.assignors",
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.max.assignment.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
            "group.consumer.max.session.timeout.ms",
            "group.consumer.min.assignment.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.min.session.timeout.ms",
            "group.consumer.session.timeout.ms",
        ),
        "broker/apis/test_group_configs.py",
    ),
    **dict.fromkeys(
        (
            "errors.deadletterqueue.auto.create.topics.enable",
            "errors.deadletterqueue.topic.name.prefix",
            "group.share.assignors",
            "group.share.max.assignment.interval.ms",
            "group.share.max.delivery.count.limit",
            "group.share.max.heartbeat.interval.ms",
            "group.share.max.partition.max.record.locks",
            "group.share.max.record.lock.duration.ms",
            "group.share.max.session.timeout.ms",
            "group.share.min.assignment.interval.ms",
            "group.share.min.delivery.count.limit",
            "group.share.min.heartbeat.interval.ms",
            "group.share.min.partition.max.record.locks",
            "group.share.min.record.lock.duration.ms",
            "group.share.min.session.timeout.ms",
        ),
        "broker/configs/test_share.py",
    ),
    **dict.fromkeys(
        (
            "group.share.assignment.interval.ms",
            "group.share.heartbeat.interval.ms",
            "group.share.max.size",
            "group.share.session.timeout.ms",
        ),
        "broker/groups/share/test_share_groups.py",
    ),
    "group.consumer.max.size": "broker/groups/consumer/test_consumer_groups.py",
    "group.consumer.migration.policy": "broker/groups/consumer/test_migration.py",
    "listeners": "server/test_settings.py",
    "log.dir": "server/test_settings.py",
    "log.dirs": "server/test_settings.py",
    "max.connection.creation.rate": "server/net/test_admission.py",
    "max.connections": "server/net/test_admission.py",
    "max.connections.per.ip": "server/net/test_admission.py",
    "max.connections.per.ip.overrides": "server/net/test_admission.py",
    "remote.log.storage.system.enable": "broker/configs/test_registry.py",
    "remote.storage.enable": "broker/configs/test_registry.py",
    "socket.listen.backlog.size": SERVER,
    "socket.receive.buffer.bytes": SERVER,
    "socket.request.max.bytes": SERVER,
    "socket.send.buffer.bytes": SERVER,
    "tailrace.backlog.bytes": "broker/backlog/test_policies.py",
    "tailrace.backlog.expiry.ms": "broker/backlog/test_policies.py",
    "tailrace.backlog.groups": "broker/backlog/test_policies.py",
    "tailrace.backlog.ms": "broker/backlog/test_policies.py",
    "tailrace.backlog.policy": "broker/backlog/test_policies.py",
    "tailrace.group.history.interval.ms": "broker/backlog/test_history.py",
    "tailrace.group.history.ms": "broker/backlog/test_history.py",
    "tailrace.inflight.bytes": "server/net/test_connection.py",
    "tailrace.journal.bytes": "broker/background/test_journal.py",
    "tailrace.alert.command": "monitor/alerts/test_settings.py",
    "tailrace.alert.disk.seconds": "monitor/alerts/test_settings.py",
    "tailrace.alert.idle.ms": "monitor/alerts/test_settings.py",
    "tailrace.alert.lag.seconds": "monitor/alerts/test_settings.py",
    "tailrace.alert.loss.seconds": "monitor/alerts/test_settings.py",
    "tailrace.alert.stopped.seconds": "monitor/alerts/test_settings.py",
    "tailrace.alert.webhook.format": "monitor/alerts/test_settings.py",
    "tailrace.alert.webhook.url": "monitor/alerts/test_settings.py",
    "tailrace.http.access.log": "gateway/test_settings.py",
    "tailrace.http.body.max.bytes": "gateway/test_settings.py",
    "tailrace.http.hosts": "gateway/test_settings.py",
    "tailrace.http.idempotency.keys": "gateway/test_settings.py",
    "tailrace.http.idempotency.ms": "gateway/test_settings.py",
    "tailrace.http.waiting.max": "gateway/test_settings.py",
    "tailrace.monitor.interval.ms": "monitor/alerts/test_settings.py",
    "tailrace.monitor.series.max": "monitor/alerts/test_settings.py",
    "tailrace.monitor.enable": "server/children/test_children.py",
    "tailrace.write.timeout.ms": "server/net/test_connection.py",
}
# Retention, compaction, scrubbing and quotas have modules of their own, where these are observed at length.
UPKEEP = re.compile(
    r"(log\.)?retention\.|delete\.retention\.ms|compaction\.lag|min\.cleanable|log\.cleaner\.|log\.roll\.(jitter\.)?hours"
    r"|tailrace\.disk\.|tailrace\.scrub|quota\.window\."
)
REGISTRY = ("test_configs.py", "test_each_config.py")  # which name them all


# The rows


@contextmanager
def opened(row: Row, way: str | None) -> Iterator[LocalBroker]:
    """A broker on a disk in memory, and the topic, with the config given in that way; None is not at all."""
    names = {name: TOPIC_KEYS[name].broker_key or "" for name in TOPIC_KEYS}
    at_start = {names.get(name, name): text for name, text in row.beside.items()}
    if way == "at the start":
        at_start[names.get(row.name, row.name)] = row.value
    with LocalBroker(DATA, at_start, files=memory_files()) as broker:
        of_topic = {row.name.replace(".", "_"): row.value} if way == "by the topic" else {}
        broker.create_topic(partitions=16, **of_topic)
        if way == "at run time":
            set_at_run_time(broker, names.get(row.name, row.name), row.value)
        yield broker


def set_at_run_time(broker: LocalBroker, name: str, value: str) -> None:
    change = AlterableConfig(name=name, config_operation=Operation.SET, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    (answer,) = broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert not answer.error_code, answer.error_message


@pytest.mark.parametrize("way", ["by the topic", "at the start", "at run time"])
@pytest.mark.parametrize("row", TOPIC_ROWS, ids=str)
def test_a_topics_config_does_what_it_says_however_it_is_given(row: Row, way: str) -> None:
    with opened(row, way) as broker:
        assert row.observe(broker) == row.expected


@pytest.mark.parametrize("row", BROKER_ROWS, ids=str)
def test_a_brokers_config_does_what_it_says(row: Row) -> None:
    ways = ["at the start", "at run time"] if BROKER_KEYS[row.name].is_dynamic else ["at the start"]
    for way in ways:
        with opened(row, way) as broker:
            assert row.observe(broker) == row.expected


@pytest.mark.parametrize("row", [*TOPIC_ROWS, *BROKER_ROWS], ids=str)
def test_without_it_that_is_not_so(row: Row) -> None:
    assert row.expected != row.by_default
    with opened(row, None) as broker:
        assert row.observe(broker) == row.by_default


# The table is complete


def test_every_config_that_is_not_ignored_has_a_row_or_says_where_its_test_is() -> None:
    rows = {row.name for row in (*TOPIC_ROWS, *BROKER_ROWS)}
    missing = {key.name for key in IN_EFFECT if key.name not in rows | ELSEWHERE.keys() and not UPKEEP.search(key.name)}
    assert missing == UNREAD


def test_tests_that_are_elsewhere_are_there() -> None:
    for name, module in ELSEWHERE.items():
        assert name in BROKER_KEYS or name in TOPIC_KEYS
        assert re.search(rf"\b{re.escape(name)}\b", (TESTS / module).read_text()), f"{module} says nothing of {name}"


def test_what_belongs_to_upkeep_is_named_by_a_test_of_it() -> None:
    others = [module.read_text() for module in TESTS.rglob("test_*.py") if module.name not in REGISTRY]
    rows = {row.name for row in (*TOPIC_ROWS, *BROKER_ROWS)}
    for key in IN_EFFECT:
        if UPKEEP.search(key.name) and key.name not in rows:
            written = re.compile(re.escape(key.name).replace(r"\.", "[._]"))
            assert any(written.search(text) for text in others), f"no test names {key.name}"


def test_every_config_that_is_ignored_is_one_of_the_deviations() -> None:
    deviations = DEVIATIONS.read_text()
    for key in (*TOPIC_KEYS.values(), *BROKER_KEYS.values()):
        if key.doc.startswith(IGNORED):
            assert f"`{key.name}`" in deviations, f"DEVIATIONS does not say that {key.name} is ignored"


def test_every_broker_config_of_kafka_is_ours_or_has_a_reason_not_to_be() -> None:
    strangers = [name for name in KAFKA if name not in BROKER_KEYS and family_of(name) is None]
    assert [name for name in strangers if not UPKEEP.search(name)] == []


def test_our_configs_have_the_type_default_and_mutability_of_kafkas() -> None:
    assert len(KAFKA) == 340
    for name in BROKER_KEYS.keys() & KAFKA.keys():
        key, (kind, is_dynamic, default) = BROKER_KEYS[name], KAFKA[name]
        assert (name, key.type, key.is_dynamic) == (name, kind, is_dynamic and name not in ONLY_AT_START)
        if name not in OTHER_DEFAULT:
            assert (name, key.default or "-") == (name, default)


def test_what_is_ours_is_ours_although_its_family_has_no_place_here() -> None:
    both = {name for name in BROKER_KEYS if family_of(name) is not None}
    assert both == {
        "default.replication.factor",
        "remote.log.storage.system.enable",
        "transaction.max.timeout.ms",
        "transaction.state.log.num.partitions",
        "transaction.state.log.segment.bytes",
    }
