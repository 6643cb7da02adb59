"""Data directories of all releases so far, kept in tests/data: today's opens each, and finds all that is in them.

What is expected stands beside them, written by who made them (scripts/make_format_fixture.py) from what it had sent.
"""

import json
import shutil
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.tools.locate import locate
from tailrace.log.tools.verify import verify
from tailrace.testing import Broker

KEPT = sorted((Path(__file__).parents[1] / "data").glob("format-*"))
DIRECTORIES = [pytest.param(kept, name, id=f"{kept.name}-{name}") for kept in KEPT for name in ("stopped", "killed")]
WAIT_S = 20


@pytest.mark.parametrize(("kept", "name"), DIRECTORIES)
def test_a_directory_of_an_earlier_release_is_opened_with_all_that_is_in_it(
    kept: Path, name: str, tmp_path: Path
) -> None:
    data = shutil.copytree(kept / name, tmp_path / name)
    expected = json.loads((kept / "expected.json").read_text())[name]
    files = OperatingSystemFiles()
    assert verify(files, locate(files, str(data))).healthy
    with Broker(data=str(data)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert topics_of(admin) == {name: len(topic["partitions"]) for name, topic in expected["topics"].items()}
        for topic, one in expected["topics"].items():
            assert configs_of(admin, ResourceType.TOPIC, topic).items() >= one["configs"].items()
        assert configs_of(admin, ResourceType.BROKER, "1").items() >= expected["broker_configs"].items()
        for group, commits in expected["groups"].items():
            assert commits_of(admin, group) == commits
        check_logs(broker, partitions_of(expected))
    with Broker(data=str(data)) as broker:  # what the first start has made of it, the next one opens, too
        ends = {topic: one["partitions"][0]["end"] for topic, one in expected["topics"].items()}
        assert next_offsets(broker, list(ends)) == ends, "and it goes on"


def partitions_of(expected: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {
        (topic, number): content
        for topic, one in expected["topics"].items()
        for number, content in enumerate(one["partitions"])
    }


def topics_of(admin: AdminClient) -> dict[str, int]:
    found = admin.list_topics(timeout=WAIT_S).topics
    return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}


def configs_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, str]:
    resource = ConfigResource(kind, name)
    return {key: entry.value for key, entry in admin.describe_configs([resource])[resource].result(WAIT_S).items()}


def commits_of(admin: AdminClient, group: str) -> dict[str, list[Any]]:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
        except KafkaException as error:  # the groups are read when others are served already
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > deadline:
                raise
            continue
        found = answer.topic_partitions
        return {place.topic: [place.offset, place.metadata or ""] for place in found if place.offset >= 0}


def check_logs(broker: Broker, partitions: dict[tuple[str, int], dict[str, Any]]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test", "enable.partition.eof": True})
    try:
        for (topic, number), content in partitions.items():
            bounds = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=WAIT_S)
            assert bounds == (content["start"], content["end"])
        consumer.assign([TopicPartition(*place, content["start"]) for place, content in partitions.items()])
        found = read_to_end(consumer, len(partitions))
    finally:
        consumer.close()
    for place, content in partitions.items():
        assert found.get(place, []) == [as_read(record) for record in content["records"]]
    gaps = {place: content["gaps"] for place, content in partitions.items() if content["gaps"]}
    recorded = {
        tuple(name): [[gap.first_offset, gap.last_offset] for gap in log.recorded_gaps]
        for name, log in broker.node.directory.logs.items()
        if log.recorded_gaps
    }
    assert recorded == gaps


def as_read(record: dict[str, Any]) -> tuple[Any, ...]:
    key, value = (None if record[name] is None else b64decode(record[name]) for name in ("key", "value"))
    headers = [(name, b64decode(value)) for name, value in record["headers"]]
    return record["offset"], record["timestamp"], key, value, headers


def read_to_end(consumer: Consumer, partitions: int) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """The records of each partition, once the ends of all of them have come."""
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    deadline = time.monotonic() + WAIT_S
    while partitions:
        assert time.monotonic() < deadline, "the end does not come"
        message = consumer.poll(1)
        if message is not None and (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            partitions -= 1
        elif message is not None:
            content = message.key(), message.value(), message.headers() or []
            here = found.setdefault((str(message.topic()), int(message.partition() or 0)), [])
            here.append((message.offset(), message.timestamp()[1], *content))
    return found


def next_offsets(broker: Broker, topics: list[str]) -> dict[str, int]:
    answers: dict[str, int] = {}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for topic in topics:
        producer.produce(
            topic,
            "more",
            key="more",
            partition=0,
            on_delivery=lambda _, message: answers.update({str(message.topic()): int(message.offset() or 0)}),
        )
    assert producer.flush(WAIT_S) == 0
    return answers
