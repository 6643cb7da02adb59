"""DeleteRecords: where a partition begins afterwards, and that it stays so."""

from errno import EIO
from pathlib import Path

import pytest
from brokers import LocalBroker, from_offset, only_partition, resolved

from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tailrace.testing.faulty_files import FaultyFiles

VERSIONS = range(3)


def before(*offsets: int, topic: str = "orders", partition: int = 0) -> DeleteRecordsRequest:
    wanted = [DeleteRecordsPartition(partition_index=partition, offset=offset) for offset in offsets]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=wanted)], timeout_ms=1000)


def delete(broker: LocalBroker, request: DeleteRecordsRequest, version: int = 2) -> tuple[int, int]:
    """The error and the low watermark."""
    result = only_partition(broker.ask(request, version))
    return result.error_code, result.low_watermark


def with_records(broker: LocalBroker, **configs: str) -> None:
    broker.create_topic("orders", 2, **configs)
    for number in range(5):
        broker.produce(b"%d" % number)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_begins_at_the_offset_afterwards(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        assert delete(broker, before(3), version) == (0, 3)
        assert broker.partition().start_offset == 3
        assert broker.values(offset=3) == [b"3", b"4"]
        gone = only_partition(broker.fetch(from_offset(0)))
        assert (gone.error_code, gone.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_minus_one_is_the_high_watermark(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        assert delete(broker, before(-1), version) == (0, 5)
        assert broker.values(offset=5) == []
        assert broker.produce(b"next").base_offset == 5


@pytest.mark.parametrize("offset", [6, 99, -2])
def test_an_offset_that_is_not_there_is_out_of_range(tmp_path: Path, offset: int) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        assert delete(broker, before(offset)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert broker.partition().start_offset == 0


def test_a_partition_that_begins_later_stays_as_it_is(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        delete(broker, before(3))
        assert delete(broker, before(1)) == (0, 3)


def test_what_nobody_has_written_to_is_empty(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert delete(broker, before(0)) == (0, 0)
        assert delete(broker, before(-1)) == (0, 0)
        assert delete(broker, before(1)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert not list(tmp_path.glob("orders-*"))


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_and_internal_topics_are_refused(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert delete(broker, before(0, topic="nobody"), version) == unknown
        assert delete(broker, before(0, partition=2), version) == unknown
        assert delete(broker, before(0, partition=-1), version) == unknown
        internal = before(1, topic="__tailrace_metadata")
        assert delete(broker, internal, version) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_a_topic_that_is_compacted_only_is_refused(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("kept", cleanup_policy="compact")
        broker.create_topic("both", cleanup_policy="compact,delete")
        assert delete(broker, before(0, topic="kept")) == (ErrorCode.POLICY_VIOLATION, -1)
        assert delete(broker, before(0, topic="both")) == (0, 0)


def test_of_a_partition_that_is_named_twice_the_last_offset_counts(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        assert delete(broker, before(4, 2)) == (0, 2)


def test_partitions_stand_for_themselves(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        request = before(2)
        request.topics[0].partitions += [DeleteRecordsPartition(partition_index=index, offset=9) for index in (1, 7)]
        (topic,) = broker.ask(request, 2).topics
        assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
            (0, 0),
            (1, ErrorCode.OFFSET_OUT_OF_RANGE),
            (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


def test_a_client_may_name_the_end_of_its_own_writes_that_are_not_flushed(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        broker.produce(b"a", b"b", acks=1)
        assert broker.partition().high_watermark == 0
        answers = resolved(broker.begin(before(2), 2))
        broker.run_jobs()
        assert only_partition(answers[0]).low_watermark == 2


def test_it_is_answered_when_the_start_is_on_disk(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        broker.hold_jobs = True
        answers = resolved(broker.begin(before(3), 2))
        broker.run_flushes()
        assert not answers
        assert "orders 0 3" not in (tmp_path / "log-start-offset-checkpoint").read_text()
        broker.run_jobs()
        assert only_partition(answers[0]).low_watermark == 3
        assert "orders 0 3" in (tmp_path / "log-start-offset-checkpoint").read_text()


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_where_a_partition_begins_survives(tmp_path: Path, how: str) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        delete(broker, before(3))
        getattr(broker, how)()
        assert broker.partition().start_offset == 3
        assert broker.values(offset=3) == [b"3", b"4"]


def test_where_a_partition_begins_survives_when_nothing_is_left_in_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        delete(broker, before(-1))
        broker.kill()
        assert (broker.partition().start_offset, broker.partition().high_watermark) == (5, 5)
        assert broker.produce(b"next").base_offset == 5


def test_segments_before_the_start_are_deleted(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", segment_bytes=str(1 << 20))
        for _ in range(6):
            broker.produce(b"x" * 400_000)
        assert len(list(tmp_path.glob("orders-0/*.log"))) > 1
        delete(broker, before(-1))
        assert len(list(tmp_path.glob("orders-0/*.log"))) == 1


def test_a_disk_that_does_not_take_the_start_is_an_error(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        with_records(broker)
        files.fail("rename", EIO, name="log-start-offset-checkpoint")
        assert delete(broker, before(3)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_a_topic_that_is_deleted_while_it_waits_is_unknown(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        broker.produce(b"a", acks=1)
        answers = resolved(broker.begin(before(1), 2))
        topic = broker.broker.metadata.topics["orders"]
        broker.broker.remove_logs([topic], broker.now_ms)
        broker.run_jobs()
        assert only_partition(answers[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nothing_is_deleted_from_a_log_that_is_offline(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_records(broker)
        broker.log().take_offline("a test has said so", OSError(EIO, "no"))
        assert delete(broker, before(3)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert broker.partition().start_offset == 0
