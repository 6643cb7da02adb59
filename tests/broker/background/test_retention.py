"""Retention: what goes, when, of which topics, and who is told of it. The clock is the test's."""

import logging
import os
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import (
    NOW_MS,
    LocalBroker,
    a_batch,
    fetch_request,
    from_offset,
    only_partition,
    produce_request,
    resolved,
)

from tailrace.broker.background import retention
from tailrace.broker.metadata.config_changes import Operation
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.jobs import LogJob
from tailrace.log.retention import Reason
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.testing.faulty_files import FaultyFiles

CHECKPOINT_MS = 60_000  # log.flush.offset.checkpoint.interval.ms, by default

SECOND = 1000
EVERY_SECOND = {"log.retention.check.interval.ms": "1000"}
A_SEGMENT_EACH: dict[str, Any] = {"segment_ms": "1"}  # of records that are not produced in the same millisecond


def fill(broker: LocalBroker, count: int, *, topic: str = "orders", every_ms: int = SECOND, size: int = 100) -> None:
    """A record every second, each in a segment of its own; the first one now."""
    for number in range(count):
        assert broker.produce(b"%d" % number * size, topic=topic).error_code == 0
        broker.now_ms += every_ms


def files_of(broker: LocalBroker, topic: str = "orders") -> list[str]:
    return sorted(path.name for path in Path(broker.path, f"{topic}-0").glob("*.log"))


def name(offset: int) -> str:
    return f"{offset:020d}.log"


def alter(broker: LocalBroker, kind: int, resource: str, key: str, value: str) -> None:
    change = AlterableConfig(name=key, config_operation=Operation.SET, value=value)
    wanted = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[change])
    (answer,) = broker.ask(IncrementalAlterConfigsRequest(resources=[wanted]), 1).responses
    assert answer.error_code == 0, answer


# When


def test_by_age_a_segment_goes_in_the_second_in_which_it_expires(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="10000", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 3)
        broker.tick(7 * SECOND)  # the first record is now as old as it may get
        assert broker.now_ms == NOW_MS + 10 * SECOND
        assert broker.log().start_offset == 0
        starts = []
        for _ in range(5):
            broker.tick()
            broker.tick(0)  # files follow when what is derived is saved, as soon as that is
            starts.append((broker.log().start_offset, files_of(broker)))
        assert starts == [
            (1, [name(1), name(2)]),
            (2, [name(2)]),
            (3, [name(3)]),
            (3, [name(3)]),
            (3, [name(3)]),
        ]


def test_a_check_comes_with_each_interval_and_not_before(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"log.retention.check.interval.ms": "60000"}) as broker:
        broker.create_topic(retention_ms="1", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 2, every_ms=10)
        broker.tick(59 * SECOND)
        assert broker.log().start_offset == 0
        broker.tick()
        broker.tick(0)
        assert broker.log().start_offset == 2


def test_by_size_what_is_left_is_within_one_segment_of_retention_bytes(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_bytes="1000", **A_SEGMENT_EACH)
        broker.tick(0)
        for _ in range(30):
            fill(broker, 1)
            broker.tick(0)
            log = broker.log()
            largest = max(segment.size for segment in log.segments)
            assert min(1000, log.end_offset * largest) <= log.size < 1000 + largest
        assert log.start_offset > 20
        assert len(files_of(broker)) == len(log.segments)


def test_a_quiet_topic_is_emptied_and_goes_on_at_its_end_with_its_producers(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="5000")
        broker.tick(0)
        for sequence in range(3):
            broker.produce(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence)
        broker.tick(6 * SECOND)
        broker.tick(0)
        assert (broker.log().start_offset, broker.log().end_offset) == (3, 3)
        assert files_of(broker) == [name(3)]
        broker.kill()
        assert (broker.log().start_offset, broker.log().end_offset) == (3, 3)
        repeated = broker.produce(b"x", producer_id=7, producer_epoch=0, base_sequence=2)
        assert (repeated.error_code, repeated.base_offset) == (0, 2), "a retry of what is gone is still known"
        assert broker.produce(b"x", producer_id=7, producer_epoch=0, base_sequence=3).base_offset == 3


def test_an_emptied_topic_waits_until_its_producers_are_saved(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, EVERY_SECOND, files=files) as broker:
        broker.create_topic(retention_ms="5000")
        broker.tick(0)
        broker.produce(b"x")
        broker.log().roll()
        broker.log().checkpoint(None)
        broker.produce(b"y", producer_id=7, producer_epoch=0, base_sequence=0)
        broker.hold_jobs = True
        broker.tick(6 * SECOND)
        broker.tick(10)
        assert broker.log().start_offset == 1, "what a saved snapshot covers need not wait"
        files.fail("write_at", ENOSPC, name=".snapshot", forever=True)
        broker.hold_jobs = False
        broker.run_jobs()
        broker.tick(10)
        assert broker.log().start_offset == 1
        broker.kill()
        repeated = broker.produce(b"y", producer_id=7, producer_epoch=0, base_sequence=0)
        assert (repeated.error_code, repeated.base_offset) == (0, 1), "or it would be there twice"
        files.heal()
        for _ in range(3):
            broker.tick(CHECKPOINT_MS)
            broker.tick(10)
        assert broker.log().start_offset == 2


def test_what_is_not_flushed_is_not_deleted(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="5000", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 1)
        broker.hold_jobs = True
        for _ in range(2):
            broker.produce(b"x", acks=1)
            broker.now_ms += SECOND
        broker.tick(20 * SECOND)
        assert (broker.log().high_watermark, broker.log().start_offset) == (1, 1)


def test_a_change_of_retention_counts_with_the_next_check(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(**A_SEGMENT_EACH)
        broker.create_topic("others", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 3)
        fill(broker, 3, topic="others")
        broker.tick()
        assert broker.log().start_offset == 0
        alter(broker, 2, "orders", "retention.ms", "1000")
        broker.tick()
        broker.tick(0)
        assert (broker.log().start_offset, broker.log("others").start_offset) == (3, 0)
        alter(broker, 4, "", "log.retention.ms", "1000")
        broker.tick()
        broker.tick(0)
        assert broker.log("others").start_offset == 3


def test_a_clock_that_jumps_ahead_and_is_put_right_soon_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ten_years_ms = 10 * 365 * 86_400 * SECOND
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="10000", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 3)
        broker.tick()
        broker.jump(ten_years_ms)
        for _ in range(5):
            broker.tick()
        assert broker.log().start_offset == 0
        assert caplog.text.count("the clock has jumped ahead") == 1
        broker.jump(-ten_years_ms)
        broker.tick(5 * SECOND)
        broker.tick(0)
        assert broker.log().start_offset > 0, "and afterwards it goes on"


def test_a_small_step_back_does_not_put_a_clock_right_that_has_jumped_ahead(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="10000", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 3)
        broker.jump(2 * 3600 * SECOND)
        broker.tick()
        broker.jump(-2 * SECOND)
        for _ in range(5):
            broker.tick()
        assert broker.log().start_offset == 0


def test_a_clock_that_has_jumped_ahead_for_good_is_believed_after_ten_minutes(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="10000", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 2)
        broker.jump(2 * 3600 * SECOND)
        broker.tick()
        broker.tick(599 * SECOND)
        assert broker.log().start_offset == 0
        broker.tick()
        broker.tick(0)
        assert broker.log().start_offset == 2


def test_minutes_and_hours_of_the_broker_count(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {**EVERY_SECOND, "log.retention.minutes": "1", "log.roll.ms": "1"}) as broker:
        broker.create_topic()
        broker.tick(0)
        fill(broker, 2)
        broker.tick(58 * SECOND)
        assert broker.log().start_offset == 0
        broker.tick()
        assert broker.log().start_offset == 1


# What


@pytest.mark.parametrize(
    ("configs", "is_deleted"),
    [
        ({}, True),
        ({"cleanup_policy": "compact,delete"}, True),
        ({"cleanup_policy": "compact"}, False),
        ({"cleanup_policy": ""}, False),
        ({"retention_ms": "-1"}, False),
    ],
)
def test_only_topics_that_delete_are_touched(tmp_path: Path, configs: dict[str, str], is_deleted: bool) -> None:
    with LocalBroker(tmp_path, {**EVERY_SECOND, "log.retention.ms": "1000"}) as broker:
        broker.create_topic(**A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 3)
        for key, value in configs.items():
            alter(broker, 2, "orders", key.replace("_", "."), value)
        broker.tick(10 * SECOND)
        broker.tick(0)
        assert (broker.log().start_offset > 0) is is_deleted


def test_internal_topics_are_never_touched(tmp_path: Path) -> None:
    configs = {**EVERY_SECOND, "log.retention.ms": "1", "log.retention.bytes": "0", "log.roll.ms": "1"}
    with LocalBroker(tmp_path, configs) as broker:
        for number in range(5):
            broker.create_topic(f"topic-{number}")
            broker.tick()
        log = broker.log("__tailrace_metadata")
        assert len(log.segments) > 3
        broker.tick(60 * SECOND)
        assert log.start_offset == 0


def test_segments_of_an_earlier_process_go_too_though_nothing_of_them_is_in_memory(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="20000", **A_SEGMENT_EACH)
        fill(broker, retention.AGES_AT_ONCE + 10, every_ms=2)
        broker.restart()
        assert broker.log().segments[0].largest_timestamp is None
        broker.tick(0)
        broker.tick(19 * SECOND)
        assert broker.log().start_offset == 0
        broker.tick(2 * SECOND)
        broker.tick(0)
        assert broker.log().start_offset == broker.log().end_offset


def test_a_segment_whose_records_have_no_time_is_as_old_as_its_file(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="10000", **A_SEGMENT_EACH)
        broker.tick(0)
        for age_s in (30, 5):
            assert only_partition(broker.ask(produce_request(a_batch(b"x", now_ms=-1)), 12)).error_code == 0
            written = (broker.now_ms - age_s * SECOND) / 1000
            os.utime(broker.log().active.log.path, (written, written))
            broker.now_ms += 2
        broker.tick()
        broker.tick(0)
        assert broker.log().start_offset == 1
        broker.tick(6 * SECOND)
        broker.tick(0)
        assert broker.log().start_offset == 2


def test_a_segment_whose_age_cannot_be_read_stays_and_others_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, EVERY_SECOND, files=files) as broker:
        for topic in ("orders", "others"):
            broker.create_topic(topic, retention_ms="10000", **A_SEGMENT_EACH)
            fill(broker, 3, topic=topic)
        broker.restart()
        files.fail("read_at", EIO, name="00000000000000000001.sums", forever=True)
        files.fail("read_at", EIO, name="00000000000000000001.log", forever=True)
        broker.tick(0)
        broker.tick(20 * SECOND)
        broker.tick(0)
        starts = sorted(int(broker.log(topic).start_offset) for topic in ("orders", "others"))
        assert starts == [1, 1]
        assert "cannot determine the age of" in caplog.text
        files.heal()
        broker.tick()
        broker.tick(0)
        assert broker.log("orders").start_offset == broker.log("others").start_offset == 3


def test_a_log_that_is_offline_keeps_what_it_has(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, EVERY_SECOND, files=files) as broker:
        broker.create_topic(retention_ms="1000", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 2, every_ms=10)
        files.fail("sync", EIO, name=".log")
        broker.produce(b"x")
        broker.tick(5 * SECOND)
        assert broker.log().offline is not None
        assert broker.log().start_offset == 0


def test_many_logs_are_gone_over_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "LOGS_AT_ONCE", 4)
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(partitions=10, retention_ms="1000")
        broker.tick(0)
        for index in range(10):
            broker.produce(b"x", partition=index)
        rolled = []
        for _ in range(4):
            broker.tick(2 * SECOND if not rolled else 0)
            rolled.append(sum(len(broker.log(index=index).segments) == 2 for index in range(10)))
        assert rolled[0] < 5
        broker.tick(0)
        assert [int(broker.log(index=index).start_offset) for index in range(10)] == [1] * 10


# Who is told


def test_only_a_fetch_of_deleted_records_gets_the_new_start_offset(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="3000", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 5)
        broker.tick(0)
        broker.tick(0)
        start = broker.log().start_offset
        assert 0 < start < 5
        answer = only_partition(broker.fetch(from_offset(start - 1)))
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, start)
        assert answer.high_watermark == 5
        answer = only_partition(broker.fetch(from_offset(start)))
        assert (answer.error_code, answer.log_start_offset) == (0, start)


def a_reader(broker: LocalBroker, offset: int, **fields: Any) -> list[object]:
    return resolved(broker.begin(fetch_request(from_offset(offset), **({"max_wait_ms": 60_000} | fields)), 12))


def test_only_fetches_that_wait_at_deleted_offsets_are_answered_after_a_deletion(
    tmp_path: Path,
) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="3000", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 5)
        at_the_end = a_reader(broker, 5)
        waiting_for_more = a_reader(broker, 4, min_bytes=1 << 20)
        assert (at_the_end, waiting_for_more) == ([], [])
        broker.tick(10 * SECOND)
        broker.tick(0)
        assert broker.log().start_offset == 5
        assert at_the_end == []
        answer = only_partition(broker.decode(waiting_for_more[0], FetchRequest, 12))
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 5)
        broker.produce(b"more")
        assert len(at_the_end) == 1


def test_a_piece_that_a_reader_has_is_read_to_its_end_although_its_file_is_gone(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="3000", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 2)
        piece = broker.log().read(0, 1 << 20)
        assert piece is not None
        broker.tick(10 * SECOND)
        broker.tick(0)
        assert files_of(broker) == [name(2)]
        with piece:
            assert b"000" in piece.read()


def test_each_deletion_is_logged_with_what_it_took_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tailrace.broker.background")
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="3000", **A_SEGMENT_EACH)
        broker.create_topic("others", retention_bytes="0", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 4)
        sizes = [segment.size for segment in broker.log().segments]
        broker.tick(SECOND)
        assert broker.log().start_offset == 2
        fill(broker, 1, topic="others")
        broker.tick(0)
        broker.tick(0)
        counted = broker.broker.counters
        assert [record.message for record in caplog.records] == [
            f"deleted from orders-0: offsets 0 to 1, {sum(sizes[:2])} bytes in 2 segments (age)",
            f"deleted from orders-0: offsets 2 to 2, {sizes[2]} bytes in 1 segments (age)",
            f"deleted from others-0: offsets 0 to 0, {sizes[0]} bytes in 1 segments (size)",
        ]
        assert counted.bytes_deleted == {"age": sum(sizes[:3]), "size": sizes[0]}
        assert counted.segments_deleted == {"age": 3, "size": 1}
        assert counted.topics["orders"].bytes_deleted == sum(sizes[:3])


# A disk that refuses


@pytest.mark.parametrize(
    ("call", "error", "file"),
    [("rename", EIO, "log-start-offset"), ("write_at", ENOSPC, "log-start-offset"), ("remove", EIO, ".log")],
)
def test_what_the_disk_refuses_is_tried_again_and_readers_never_see_it(
    tmp_path: Path, call: str, error: int, file: str
) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, EVERY_SECOND, files=files) as broker:
        broker.create_topic(retention_ms="3000", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 3)
        files.fail(call, error, name=file)
        broker.tick()
        assert broker.log().start_offset == 1
        assert name(0) in files_of(broker)
        broker.tick(6 * SECOND)
        broker.tick(0)
        assert files_of(broker) == [name(3)]


def test_a_log_that_cannot_roll_keeps_what_has_expired_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, EVERY_SECOND, files=files) as broker:
        broker.create_topic(retention_ms="3000")
        broker.tick(0)
        broker.produce(b"x")
        files.fail("open", ENOSPC, name=".log")
        broker.tick(5 * SECOND)
        assert "cannot delete expired records" in caplog.text
        assert (broker.log().offline, broker.log().start_offset) == (None, 0)
        broker.tick()
        broker.tick(0)
        assert broker.log().start_offset == 1


# Beside a compaction


def test_a_log_whose_segments_are_being_replaced_is_looked_at_again_when_they_are(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="-1", **A_SEGMENT_EACH)
        broker.tick(0)
        fill(broker, 3)
        log = broker.log()
        log.replacing = LogJob(log)
        broker.broker.retention.delete(broker.partition(), 2, Reason.DELETE_RECORDS, broker.now_ms)  # a client's
        broker.tick()
        broker.tick()
        assert len(log.segments) == 3
        log.replacing = None
        broker.tick(1)  # long before the next round
        broker.tick(0)
        assert log.start_offset == 2
        assert files_of(broker) == [name(2)]
