"""DeleteTopics: that a deleted topic is gone for everyone, for good, and its name free."""

from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, a_batch, fetch_request, from_offset, only_partition, produce_request, resolved

from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.testing.faulty_files import FaultyFiles

VERSIONS = range(1, 7)
UNKNOWN_ID = b"\x01" * 16


def by_name(*names: str, version: int = 6) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names))
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])


def delete(broker: LocalBroker, *names: str, version: int = 6) -> list[int]:
    response = broker.ask(by_name(*names, version=version), version)
    return [result.error_code for result in response.responses]


def delete_states(broker: LocalBroker, *states: DeleteTopicState) -> list[Any]:
    responses: list[Any] = broker.ask(DeleteTopicsRequest(topics=list(states)), 6).responses
    return responses


def create(broker: LocalBroker, name: str = "orders") -> None:
    broker.begin(CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]), 7)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_deleted_topic_is_gone_and_so_are_its_files(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        broker.produce(b"a")
        response = broker.ask(by_name("orders", version=version), version)
        assert [(one.name, one.error_code, one.error_message) for one in response.responses] == [("orders", 0, None)]
        assert response.responses[0].topic_id == (topic_id if version >= 6 else ZERO_UUID)
        assert "orders" not in broker.broker.metadata.topics
        assert not list(tmp_path.glob("orders-*"))
        assert broker.produce(b"b").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_may_be_deleted_by_its_id(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        (result,) = delete_states(broker, DeleteTopicState(name=None, topic_id=topic_id))
        assert (result.error_code, result.name, result.topic_id) == (0, "orders", topic_id)
        assert "orders" not in broker.broker.metadata.topics


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_stand_for_themselves(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        for name in ("a", "b"):
            broker.create_topic(name)
        assert delete(broker, "a", "nobody", "b", version=version) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


def test_the_internal_topic_is_refused(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        assert delete(broker, "__tailrace_metadata") == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        topic_id = broker.broker.metadata.topics["__tailrace_metadata"].topic_id
        (result,) = delete_states(broker, DeleteTopicState(name=None, topic_id=topic_id))
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_an_id_that_nobody_has_is_unknown_as_an_id(tmp_path: Path) -> None:
    """Pitfall 11."""
    with LocalBroker(tmp_path) as broker:
        (result,) = delete_states(broker, DeleteTopicState(name=None, topic_id=UNKNOWN_ID))
        assert (result.error_code, result.name, result.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, UNKNOWN_ID)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_named_twice_is_refused_and_answered_once(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert delete(broker, "orders", "orders", version=version) == [ErrorCode.INVALID_REQUEST]
        assert "orders" in broker.broker.metadata.topics


def test_a_topic_that_is_named_by_name_and_by_id_is_refused(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        states = [DeleteTopicState(name="orders"), DeleteTopicState(name=None, topic_id=topic_id)]
        assert [one.error_code for one in delete_states(broker, *states)] == [ErrorCode.INVALID_REQUEST] * 2
        both = DeleteTopicState(name="orders", topic_id=topic_id)
        neither = DeleteTopicState(name=None)
        assert [one.error_code for one in delete_states(broker, both, neither)] == [ErrorCode.INVALID_REQUEST] * 2
        assert "orders" in broker.broker.metadata.topics


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_may_be_told_not_to_delete_topics(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path, {"delete.topic.enable": "false"}) as broker:
        broker.create_topic()
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        assert delete(broker, "orders", version=version) == [code]
        assert "orders" in broker.broker.metadata.topics


# When it is answered, and what others see meanwhile


def test_it_is_answered_when_the_name_is_free_again(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        answers = resolved(broker.begin(by_name("orders"), 6))
        assert not answers
        assert list(tmp_path.glob("orders-0")), "not before the deletion is on disk"
        broker.run_flushes()
        assert not answers, "the directory has its old name still"
        broker.run_jobs()
        assert answers[0].responses[0].error_code == 0


def test_a_topic_without_logs_is_answered_when_it_is_on_disk(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        answers = resolved(broker.begin(by_name("orders"), 6))
        assert not answers
        broker.run_flushes()
        assert answers[0].responses[0].error_code == 0


@pytest.mark.parametrize("version", [12, 13])
def test_a_reader_that_waits_is_told(tmp_path: Path, version: int) -> None:
    """Pitfall 32: and not before the deletion is on disk."""
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        topic = topic_id if version >= 13 else "orders"
        fetches = resolved(broker.begin(fetch_request(from_offset(1), topic=topic, max_wait_ms=60_000), version))
        broker.begin(by_name("orders"), 6)
        assert not fetches
        broker.run_flushes()
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert only_partition(fetches[0]).error_code == unknown
        broker.run_jobs()


def test_a_reader_of_an_empty_partition_is_told_too(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        fetches = resolved(broker.begin(fetch_request(from_offset(0), max_wait_ms=60_000), 12))
        assert delete(broker, "orders") == [0]
        assert only_partition(fetches[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_writer_that_waits_for_the_disk_is_told(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        waiting = resolved(broker.begin(produce_request(a_batch(b"b")), 12))
        broker.begin(by_name("orders"), 6)
        of_orders, of_metadata = broker.broker.flushes.next_job(), broker.broker.flushes.next_job()
        assert of_orders is not None
        assert of_metadata is not None
        for job in (of_metadata, of_orders):  # the one that was begun last comes back first
            job.run()
            broker.broker.flushed(job)
        assert only_partition(waiting[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.run_jobs()


def test_a_topic_of_the_same_name_takes_no_records_until_the_old_logs_are_gone(tmp_path: Path) -> None:
    """Producers create topics by asking for them: the next one may be there before the deletion is on disk."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"old")
        broker.hold_jobs = True
        answers = resolved(broker.begin(by_name("orders"), 6))
        create(broker)
        waiting = resolved(broker.begin(produce_request(a_batch(b"too early")), 12))
        broker.run_flushes()
        still = broker.produce(b"too early")
        broker.run_jobs()
        for refused in (only_partition(waiting[0]), still):
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "try again"
        assert answers[0].responses[0].error_code == 0
        broker.hold_jobs = False
        assert broker.produce(b"new").base_offset == 0
        assert broker.values() == [b"new"]


# What is left


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_deletion_survives(tmp_path: Path, how: str) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        delete(broker, "orders")
        getattr(broker, how)()
        assert "orders" not in broker.broker.metadata.topics
        assert not list(tmp_path.glob("orders-*"))


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_topic_of_the_same_name_is_another_one_that_begins_at_0(tmp_path: Path, how: str) -> None:
    """Pitfall 11."""
    with LocalBroker(tmp_path) as broker:
        first = broker.create_topic("orders", 1, retention_ms="5")
        broker.produce(b"a", b"b")
        delete(broker, "orders")
        second = broker.create_topic()
        assert second != first
        assert broker.broker.metadata.topics["orders"].overrides == {}
        assert broker.produce(b"c").base_offset == 0
        getattr(broker, how)()
        assert broker.broker.metadata.topics["orders"].topic_id == second
        assert broker.values() == [b"c"]
        assert [path.name for path in tmp_path.glob("orders-*")] == ["orders-0"]


def test_a_kill_between_the_record_and_the_removal_leaves_nothing_behind(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        broker.begin(by_name("orders"), 6)
        broker.run_flushes()
        assert list(tmp_path.glob("orders-0"))
        broker.hold_jobs = False
        broker.kill()
        assert "orders" not in broker.broker.metadata.topics
        assert not list(tmp_path.glob("orders-*"))
        assert broker.create_topic()
        assert broker.produce(b"b").base_offset == 0


def test_a_disk_that_is_full_refuses_it_and_the_topic_stays(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        files.fail("write_at", ENOSPC)
        assert delete(broker, "orders") == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert broker.values() == [b"a"]
