"""The metadata log: one replay, while running and at a start; nothing is told before it is on disk."""

from errno import EIO
from pathlib import Path

import pytest
from brokers import NOW_MS, LocalBroker, a_batch, produce_request, resolved

from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.metadata.log import replay_all
from tailrace.broker.metadata.records import (
    ConfigChanged,
    ProducerIdsReserved,
    TopicCreated,
    UnknownRecord,
    decode,
    encode,
)
from tailrace.broker.metadata.state import Metadata
from tailrace.broker.metadata.topic_changes import add_partitions
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.errors import LogOffline
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.records.record import Record
from tailrace.testing.faulty_files import FaultyFiles


def asked_for(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


def change_a_lot(broker: LocalBroker) -> None:
    broker.create_topic("a", partitions=3, retention_ms="5000")
    broker.create_topic("b")
    broker.create_topic("c")
    broker.broker.metadata_log.write([add_partitions(broker.broker.metadata.topics["a"], 7)], NOW_MS)
    broker.run_jobs()
    broker.delete_topic("b")
    broker.broker.producer_ids.take(NOW_MS)
    broker.run_jobs()


def test_a_replay_of_the_log_has_the_same_state(tmp_path: Path) -> None:
    """Design 4."""
    with LocalBroker(tmp_path) as broker:
        change_a_lot(broker)
        again = Metadata(BrokerConfigs())
        replay_all(broker.broker.metadata_log.log, again)
        assert again.describe() == broker.broker.metadata.describe()


@pytest.mark.parametrize("start", ["restart", "kill"])
def test_so_has_the_next_process(tmp_path: Path, start: str) -> None:
    with LocalBroker(tmp_path) as broker:
        change_a_lot(broker)
        before = broker.broker.metadata.describe()
        getattr(broker, start)()
        after = broker.broker.metadata.describe()
        assert after | {"unclean_starts": 0} == before
        assert after["unclean_starts"] == (1 if start == "kill" else 0)


def test_a_config_that_this_release_does_not_take_counts_as_not_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Or a directory of another release would not open, for the sake of a level of compression."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for kind, name, key, value in (
            (2, "orders", "compression.gzip.level", "0"),
            (2, "orders", "compression.type", "gzip"),
            (2, "orders", "no.such.config", "1"),
            (4, "", "message.max.bytes", "many"),
        ):
            change = ConfigChanged(resource_type=kind, resource_name=name, key=key, value=value)
            broker.broker.metadata_log.write([change], NOW_MS)
        broker.run_jobs()
        broker.restart()
        topic = broker.broker.metadata.topics["orders"]
        assert topic.overrides == {"compression.type": "gzip"}
        assert topic.config.max_message_bytes == BrokerConfigs().topic_defaults.max_message_bytes
        assert "topic orders: ignored a stored config value: compression.gzip.level" in caplog.text


def test_a_record_of_a_kind_that_is_not_known_is_refused() -> None:
    good = encode(TopicCreated(topic_id=b"x" * 16, name="a", partition_count=1), NOW_MS)
    assert isinstance(decode(good), TopicCreated)
    for bad in (
        good._replace(key=None),
        good._replace(key=b"\0\0"),
        good._replace(key=b"\x7f\0\0\0"),
        good._replace(key=b"\0\2\0\7"),
        good._replace(value=good.value[:-1] if good.value else b""),
        Record(0, NOW_MS, b"\0\2\0\0", None),
    ):
        with pytest.raises(UnknownRecord):
            decode(bad)


def test_every_answer_waits_for_what_was_written_before(tmp_path: Path) -> None:
    """Design 4: even where it may rest on nothing of it."""
    with LocalBroker(tmp_path) as broker:
        broker.hold_jobs = True
        first = resolved(broker.begin(asked_for("a"), 12))
        other = resolved(broker.begin(ApiVersionsRequest(), 2))
        assert (first, other) == ([], [])
        broker.run_jobs()
        assert first
        assert other
        assert broker.broker.metadata_log.is_settled


def test_an_answer_that_waits_for_two_things_leaves_when_both_are_there(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        broker.begin(asked_for("b"), 12)
        waiting = broker.begin(produce_request(a_batch(b"b"), timeout_ms=300), 9)
        answers = resolved(waiting)
        assert waiting.wait_ms == 300
        for _ in range(2):
            assert not answers
            job = broker.broker.flushes.next_job()
            assert job is not None
            job.run()
            broker.broker.flushed(job)
        assert len(answers) == 1


def test_where_it_cannot_be_flushed_the_process_must_stop_and_nobody_is_told(tmp_path: Path) -> None:
    """Design 4: a flush failure on an internal log stops the process."""
    files = FaultyFiles(OperatingSystemFiles())
    broker = LocalBroker(tmp_path, files=files)
    broker.hold_jobs = True
    answers = [resolved(broker.begin(asked_for("a"), 12)) for _ in range(2)]
    produced = resolved(broker.begin(produce_request(a_batch(b"x"), "a"), 9))
    files.fail("sync", EIO, name=".log", forever=True)
    with pytest.raises(LogOffline):
        broker.run_jobs()
    assert answers == [[], []]
    assert produced == []
    files.heal()
    broker.kill()
    broker.hold_jobs = False
    assert broker.ask(asked_for("c"), 12).topics[0].error_code == 0
    broker.close()


def test_where_it_cannot_be_written_the_process_stops_with_the_next_flush(tmp_path: Path) -> None:
    """It can promise nothing more."""
    files = FaultyFiles(OperatingSystemFiles())
    broker = LocalBroker(tmp_path, files=files)
    broker.create_topic()
    files.fail("write_at", EIO, name=".log")
    broker.ask(asked_for("a"), 12)
    with pytest.raises(LogOffline):
        broker.produce(b"x")
    broker.kill()
    broker.close()


def test_all_records_of_one_change_stand_in_one_batch(tmp_path: Path) -> None:
    """So that a crash leaves all of them or none."""
    with LocalBroker(tmp_path) as broker:
        log = broker.broker.metadata_log.log
        end = log.end_offset
        broker.create_topic("a", retention_ms="5000", segment_ms="7000")
        piece = log.read(end, 1)
        assert piece is not None
        with piece:
            assert piece.next_offset == log.end_offset == end + 3


def test_producer_ids_go_on_behind_the_last_block(tmp_path: Path) -> None:
    metadata = Metadata(BrokerConfigs())
    for number in (1000, 2000):
        metadata.replay(ProducerIdsReserved(next_producer_id=number))
    assert metadata.next_producer_id == 2000
