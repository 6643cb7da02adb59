"""ListOffsets: where a partition begins and ends, and which offset a time has."""

from pathlib import Path
from typing import Any

import pytest
from brokers import NOW_MS, LocalBroker, a_batch, only_partition, produce_request, resolved

from tailrace.log.log import Log
from tailrace.log.reader import ReadableLog
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tailrace.records.record import Record, encode_batch

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


def request(timestamp: int, topic: str = "orders", partition: int = 0, epoch: int = -1, isolation: int = 0) -> Any:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)


def ask(broker: LocalBroker, timestamp: int, version: int = 11, **fields: Any) -> tuple[int, int, int]:
    """Error, offset and timestamp."""
    answer = only_partition(broker.ask(request(timestamp, **fields), version))
    return answer.error_code, answer.offset, answer.timestamp


def timed(broker: LocalBroker, *times: int) -> None:
    """One batch, with a record for each time, counted from now."""
    records = [Record(n, NOW_MS + time, None, b"%d" % time) for n, time in enumerate(times)]
    broker.ask(produce_request(encode_batch(records)), 9)


def test_special_timestamps_in_every_version(tmp_path: Path) -> None:
    """Pitfall 24."""
    first = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, PENDING_UPLOAD: 11}
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        timed(broker, 0, 30, 10)
        timed(broker, 20)
        broker.log().delete_before(1)
        expected = {
            LATEST: (0, 4, -1),
            EARLIEST: (0, 1, -1),
            MAX_TIMESTAMP: (0, 1, NOW_MS + 30),
            EARLIEST_LOCAL: (0, 1, -1),
            LATEST_TIERED: (0, -1, -1),
            PENDING_UPLOAD: (0, -1, -1),
        }
        for version in range(1, 12):
            for timestamp, from_version in first.items():
                if version >= from_version:
                    assert ask(broker, timestamp, version) == expected[timestamp], (timestamp, version)
                else:
                    assert ask(broker, timestamp, version) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


@pytest.mark.parametrize("timestamp", [-7, -100, -(1 << 63)])
def test_other_negative_timestamps_are_not_known(tmp_path: Path, timestamp: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert ask(broker, timestamp)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_a_partition_that_nobody_wrote_to_begins_and_ends_at_zero(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert ask(broker, LATEST) == ask(broker, EARLIEST) == (0, 0, -1)
        assert ask(broker, MAX_TIMESTAMP) == ask(broker, NOW_MS) == (0, -1, -1)


def test_a_time_is_found_inside_of_a_batch(tmp_path: Path) -> None:
    """Pitfall 24."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        timed(broker, 0, 10, 20)
        timed(broker, 30, 50, 40)
        for time, offset, found in ((-5, 0, 0), (0, 0, 0), (1, 1, 10), (20, 2, 20), (21, 3, 30), (41, 4, 50)):
            assert ask(broker, NOW_MS + time) == (0, offset, NOW_MS + found)
        assert ask(broker, 0) == (0, 0, NOW_MS)


def test_no_record_of_that_time_or_later_is_no_error(tmp_path: Path) -> None:
    """Pitfall 24: offset -1, timestamp -1."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        timed(broker, 0)
        assert ask(broker, NOW_MS + 1) == (0, -1, -1)


def test_who_asks_for_the_end_waits_until_all_that_was_appended_is_on_disk(tmp_path: Path) -> None:
    """Design 5: so that a client finds its own acks=1 writes."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        for _ in range(3):
            broker.begin(produce_request(a_batch(b"a"), acks=1), 9)
        answers = resolved(broker.begin(request(LATEST), 11))
        earliest = resolved(broker.begin(request(EARLIEST), 11))
        assert earliest, "the start waits for nobody"
        assert not answers
        broker.run_jobs()
        assert only_partition(answers[0]).offset == 3
        assert resolved(broker.begin(request(LATEST), 11)), "nothing to wait for"


def test_what_is_not_on_disk_has_no_time_yet(tmp_path: Path) -> None:
    """Design 5: readers see only what is on disk."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        timed(broker, 0)
        broker.hold_jobs = True
        broker.begin(produce_request(a_batch(b"a", now_ms=NOW_MS + 10), acks=1), 9)
        answers = [resolved(broker.begin(request(time), 11)) for time in (NOW_MS + 5, MAX_TIMESTAMP)]
        while broker._jobs:
            job, finish = broker._jobs.popleft()
            job.run()
            finish()
        assert [only_partition(answer[0]).offset for answer in answers] == [-1, 0]


def test_read_committed_ends_at_the_last_stable_offset(tmp_path: Path) -> None:
    """Pitfall 24."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"plain")
        undecided = a_batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        broker.log().append(undecided, NOW_MS)
        assert ask(broker, LATEST, isolation=1) == (0, 1, -1)
        assert ask(broker, LATEST, isolation=0) == (0, 2, -1)


def test_epochs_are_checked_and_told(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        timed(broker, 0)
        broker.kill()
        timed(broker, 10)
        assert ask(broker, LATEST, epoch=1)[0] == 0
        assert ask(broker, LATEST, epoch=0)[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert ask(broker, LATEST, epoch=2)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        expected = {LATEST: 1, EARLIEST: 0, NOW_MS: 0, NOW_MS + 5: 1, MAX_TIMESTAMP: 1}
        for timestamp, epoch in expected.items():
            assert only_partition(broker.ask(request(timestamp), 11)).leader_epoch == epoch, timestamp


def test_unknown_and_repeated_partitions(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert ask(broker, LATEST, topic="nowhere")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert ask(broker, LATEST, partition=1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wanted = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        topics = [ListOffsetsTopic(name="orders", partitions=[wanted, wanted]) for _ in range(2)]
        response = broker.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 11)
        codes = [one.error_code for topic in response.topics for one in topic.partitions]
        assert codes == [0, *[ErrorCode.INVALID_REQUEST] * 3]


def test_the_answer_leaves_when_the_last_partition_has_one(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3)
        broker.hold_jobs = True
        wanted = [
            ListOffsetsPartition(partition_index=number, timestamp=timestamp)
            for number, timestamp in enumerate((LATEST, NOW_MS, EARLIEST))
        ]
        for number in range(3):
            broker.begin(produce_request(a_batch(b"a"), partition=number), 9)
        topics = [ListOffsetsTopic(name="orders", partitions=wanted)]
        answers = resolved(broker.begin(ListOffsetsRequest(replica_id=-1, topics=topics), 11))
        broker.run_flushes()
        assert not answers
        broker.run_jobs()
        assert [one.offset for one in answers[0].topics[0].partitions] == [1, 0, 0]


def test_a_topic_that_is_deleted_meanwhile_is_unknown(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        broker.begin(produce_request(a_batch(b"b"), acks=1), 9)
        answers = [resolved(broker.begin(request(time), 11)) for time in (LATEST, NOW_MS)]
        broker.broker.remove_logs([broker.broker.metadata.topics["orders"]], broker.now_ms)
        broker.run_jobs()
        for answer in answers:
            assert only_partition(answer[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.hold_jobs = False


def test_a_search_that_fails_unforeseen_is_an_error_and_not_a_missing_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        timed(broker, 0)

        def wrong(log: Log, timestamp: int) -> None:
            raise EOFError

        monkeypatch.setattr(ReadableLog, "find_time", wrong)
        assert ask(broker, NOW_MS) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)
