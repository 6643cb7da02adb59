"""Metadata: which topics are told, which come into being, and what is kept of the answer."""

from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import ENDPOINT, NOW_MS, LocalBroker, resolved

from tailrace.broker.apis import k03_metadata
from tailrace.broker.metadata.topic_changes import add_partitions
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.testing.faulty_files import FaultyFiles

NOT_ASKED = -(1 << 31)


def ask(broker: LocalBroker, *names: str, version: int = 12, create: bool = False, **fields: Any) -> dict[str, Any]:
    """What is said of these topics, by name."""
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=create, **fields)
    if version < 4:
        request.allow_auto_topic_creation = True
    return {topic.name: topic for topic in broker.ask(request, version).topics}


def by_id(broker: LocalBroker, topic_id: bytes) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    (topic,) = broker.ask(request, 12).topics
    return topic


def everything(broker: LocalBroker, version: int = 12, **fields: Any) -> set[str]:
    return {topic.name for topic in broker.ask(MetadataRequest(topics=None, **fields), version).topics}


def test_the_cluster_is_one_live_broker_with_a_name(tmp_path: Path) -> None:
    """Pitfall 12."""
    with LocalBroker(tmp_path, {"node.id": "7"}) as broker:
        broker.create_topic(partitions=2)
        for version in range(14):
            response = broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), version)
            (node,) = response.brokers
            assert (node.node_id, node.host, node.port) == (7, ENDPOINT.host, ENDPOINT.port)
            assert response.throttle_time_ms == 0
            if version >= 2:
                assert response.cluster_id
            if version >= 1:
                assert response.controller_id == 7
            (topic,) = response.topics
            assert [(one.partition_index, one.leader_id) for one in topic.partitions] == [(0, 7), (1, 7)]
            assert all(one.replica_nodes == one.isr_nodes == [7] for one in topic.partitions)
            assert topic.topic_authorized_operations == NOT_ASKED


def test_null_is_all_and_an_empty_list_is_none(tmp_path: Path) -> None:
    """Pitfall 10: but in version 0 an empty list is all."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("a")
        broker.create_topic("b")
        everybody = {"__tailrace_metadata", "a", "b"}
        for version in range(1, 14):
            assert everything(broker, version) == everybody
            assert ask(broker, version=version) == {}
        assert set(ask(broker, version=0)) == everybody


def test_internal_topics_say_so(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        answers = ask(broker, "__tailrace_metadata", "orders")
        assert (answers["__tailrace_metadata"].is_internal, answers["orders"].is_internal) == (True, False)


# Coming into being: pitfall 10


def test_a_topic_that_is_asked_for_is_created(tmp_path: Path) -> None:
    """Pitfall 10: versions before 4 imply it; and it can be used at once."""
    with LocalBroker(tmp_path, {"num.partitions": "3"}) as broker:
        for version in range(14):
            name = f"topic-{version}"
            topic = ask(broker, name, version=version, create=True)[name]
            assert (topic.error_code, len(topic.partitions)) == (0, 3)
            assert broker.produce(b"a", topic=name, partition=2).error_code == 0


def test_it_is_not_where_the_request_or_the_broker_says_no(tmp_path: Path) -> None:
    """Pitfall 10."""
    with LocalBroker(tmp_path / "a") as broker:
        assert ask(broker, "orders", create=False)["orders"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert everything(broker) == {"__tailrace_metadata"}
    with LocalBroker(tmp_path / "b", {"auto.create.topics.enable": "false"}) as broker:
        for version in (3, 12):
            unknown = ask(broker, "orders", version=version, create=True)["orders"]
            assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert everything(broker) == {"__tailrace_metadata"}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250, "__consumer_offsets"])
def test_invalid_names_are_never_created(tmp_path: Path, name: str) -> None:
    """Pitfall 10."""
    with LocalBroker(tmp_path) as broker:
        for create in (True, False):
            assert ask(broker, name, create=create)[name].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert everything(broker) == {"__tailrace_metadata"}


def test_names_that_collide_as_metrics_are_not_both_created(tmp_path: Path) -> None:
    """Nor where one request asks for both."""
    with LocalBroker(tmp_path) as broker:
        ask(broker, "a.b", create=True)
        assert ask(broker, "a_b", create=True)["a_b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        both = ask(broker, "c.d", "c_d", create=True)
        codes = sorted(topic.error_code for topic in both.values())
        assert codes == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_one_request_creates_only_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k03_metadata, "CREATED_MAX", 3)
    with LocalBroker(tmp_path) as broker:
        names = [f"t{number}" for number in range(5)]
        codes = [topic.error_code for topic in ask(broker, *names, create=True).values()]
        assert codes == [0, 0, 0, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]
        assert all(topic.error_code == 0 for topic in ask(broker, *names, create=True).values()), "asked again"


def test_the_answer_waits_until_the_new_topic_is_on_disk(tmp_path: Path) -> None:
    """Design 4; and so does whoever only reads of it."""
    with LocalBroker(tmp_path) as broker:
        broker.hold_jobs = True
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        asking = resolved(broker.begin(request, 12))
        reading = resolved(broker.begin(MetadataRequest(topics=None), 12))
        assert not asking
        assert not reading
        broker.run_jobs()
        assert asking
        assert reading


def test_a_full_disk_creates_nothing_and_answers(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        files.fail("write_at", ENOSPC, name=".log")
        assert ask(broker, "orders", create=True)["orders"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert ask(broker, "orders", create=True)["orders"].error_code == 0


# By id: pitfall 11


def test_topics_are_found_by_id(tmp_path: Path) -> None:
    """Pitfall 11."""
    with LocalBroker(tmp_path) as broker:
        old = broker.create_topic()
        assert int.from_bytes(old) > 1
        assert (by_id(broker, old).error_code, by_id(broker, old).name) == (0, "orders")
        for unknown in (bytes(16), b"\7" * 16):
            assert (by_id(broker, unknown).error_code, by_id(broker, unknown).name) == (
                ErrorCode.UNKNOWN_TOPIC_ID,
                None,
            )
        broker.restart()
        assert by_id(broker, old).error_code == 0, "it is stable"
        broker.delete_topic()
        new = broker.create_topic()
        assert by_id(broker, old).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert by_id(broker, new).topic_id == new != old
        assert ask(broker, "orders")["orders"].topic_id == new


def test_asking_by_an_unknown_id_creates_nothing(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        by_id(broker, b"\7" * 16)
        assert everything(broker) == {"__tailrace_metadata"}


# Epochs: pitfall 12


def test_the_leader_epoch_rises_with_unclean_starts_and_never_falls(tmp_path: Path) -> None:
    """Pitfall 12: of partitions that were written to and of those that were not."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        broker.produce(b"a")
        seen = []
        for start in ("restart", "kill", "restart", "kill"):
            getattr(broker, start)()
            seen.append([one.leader_epoch for one in ask(broker, "orders")["orders"].partitions])
        assert seen == [[0, 0], [1, 1], [1, 1], [2, 2]]
        broker.produce(b"b", partition=1)
        assert [one.leader_epoch for one in ask(broker, "orders")["orders"].partitions] == [2, 2]


# What is kept


def test_what_is_kept_of_an_answer_is_made_anew_when_a_topic_changes(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("a")
        for names in (("a",), None):
            assert _partitions(broker, names)["a"] == 1
        record = add_partitions(broker.broker.metadata.topics["a"], 5)
        broker.broker.metadata_log.write([record], NOW_MS)
        broker.run_jobs()
        for names in (("a",), None):
            assert _partitions(broker, names)["a"] == 5
        broker.create_topic("b")
        assert set(_partitions(broker, None)) == {"__tailrace_metadata", "a", "b"}
        broker.delete_topic("a")
        assert set(_partitions(broker, None)) == {"__tailrace_metadata", "b"}
        broker.create_topic("a", partitions=2)
        assert _partitions(broker, None)["a"] == 2


def _partitions(broker: LocalBroker, names: tuple[str, ...] | None) -> dict[str, int]:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return {topic.name: len(topic.partitions) for topic in broker.ask(MetadataRequest(topics=topics), 12).topics}


def test_the_second_answer_is_made_of_the_same_bytes(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("a", partitions=100)
        request = MetadataRequest(topics=None)
        first, second = broker.begin(request, 12), broker.begin(request, 12)
        assert first.topics.data is second.topics.data


def test_operations_are_told_to_those_who_ask(tmp_path: Path) -> None:
    """Pitfall 12: INT32_MIN unless asked; and an answer with them is not given to who asks without."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for asked in (True, False, True, False):
            fields = {"include_topic_authorized_operations": asked}
            one = ask(broker, "orders", **fields)["orders"]
            every = broker.ask(MetadataRequest(topics=None, **fields), 12).topics
            for topic in (one, *every):
                assert (topic.topic_authorized_operations != NOT_ASKED) == asked
        response = broker.ask(MetadataRequest(topics=[], include_cluster_authorized_operations=True), 8)
        assert response.cluster_authorized_operations > 0


def test_a_topic_named_again_and_again_is_told_once(tmp_path: Path) -> None:
    """Design 8: or a small request would have an answer of gigabytes."""
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic(partitions=10)
        topics = [MetadataRequestTopic(name="orders")] * 1000 + [MetadataRequestTopic(name=None, topic_id=topic_id)] * 9
        assert len(broker.ask(MetadataRequest(topics=topics), 12).topics) == 2
