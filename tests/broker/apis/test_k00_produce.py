"""Produce: what is refused, what an acknowledgement means, and that a retry is recognised."""

from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import (
    NOW_MS,
    LocalBroker,
    a_batch,
    from_offset,
    only_partition,
    produce_request,
    resolved,
    values_of,
)

from tailrace.broker.core.api import Silence
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.metadata.topic_changes import create_topic
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records import batch
from tailrace.records.compression import Codec
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, encode_batch
from tailrace.testing.faulty_files import FaultyFiles

HOUR_MS = 3_600_000
LEGACY_MAGIC = 16  # where the number of a batch's format stands


def refused(broker: LocalBroker, records: bytes | bytearray | None, version: int = 12, **options: Any) -> int:
    """The error that these bytes are answered with; nothing may have been written."""
    answer = only_partition(broker.ask(produce_request(records, **options), version))
    assert answer.base_offset == -1
    log = broker.broker.partition("orders", 0).log  # type: ignore[union-attr]
    assert log is None or log.end_offset == 0, "what is refused is not written"
    return int(answer.error_code)


def changed(data: bytearray, position: int, value: bytes) -> bytearray:
    """With other bytes in the header, and a CRC that is right again."""
    data[position : position + len(value)] = value
    batch.seal(data)
    return data


# What is answered, and when


def test_a_batch_gets_the_next_offsets_in_every_version(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        for number, version in enumerate(range(3, 14)):
            topic = topic_id if version >= 13 else "orders"
            answer = only_partition(broker.ask(produce_request(a_batch(b"a", b"b"), topic), version))
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 2 * number, -1)
            assert answer.log_start_offset == (0 if version >= 5 else -1)
        assert broker.values() == [b"a", b"b"] * 11


def test_acks_all_waits_for_the_flush(tmp_path: Path) -> None:
    """Pitfall 16: acknowledged means on disk."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        answers = resolved(broker.begin(produce_request(a_batch(b"a")), 9))
        assert not answers
        broker.run_jobs()
        assert only_partition(answers[0]).error_code == 0
        assert broker.log().high_watermark == 1


def test_acks_one_does_not_wait_for_the_flush(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        answer = broker.begin(produce_request(a_batch(b"a"), acks=1), 9)
        assert not isinstance(answer, DelayedResponse)
        assert only_partition(answer).base_offset == 0
        assert broker.log().high_watermark == 0


def test_pipelined_produces_share_one_flush(tmp_path: Path) -> None:
    """Pitfall 4: requests start on arrival, so that pipelined ones share an fsync."""
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"first")
        broker.hold_jobs = True
        answers = [resolved(broker.begin(produce_request(a_batch(b"x")), 9)) for _ in range(20)]
        files.count.clear()
        broker.run_jobs()
        assert [only_partition(answer[0]).base_offset for answer in answers] == list(range(1, 21))
        assert files.count["sync"] == 1


def test_two_partitions_are_acknowledged_when_both_are_on_disk(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        broker.hold_jobs = True
        request = produce_request(a_batch(b"a"))
        request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=a_batch(b"b")))
        answers = resolved(broker.begin(request, 9))
        job = broker.broker.flushes.next_job()
        assert job is not None
        job.run()
        broker.broker.flushed(job)
        assert not answers
        broker.run_jobs()
        assert [one.error_code for one in answers[0].responses[0].partition_responses] == [0, 0]


def test_acks_zero_is_silent(tmp_path: Path) -> None:
    """Pitfall 5."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        answer = broker.begin(produce_request(a_batch(b"a"), acks=0), 9)
        assert isinstance(answer, Silence)
        assert not answer.close
        broker.tick(2000)
        assert broker.values() == [b"a"]


def test_acks_zero_closes_the_connection_where_it_failed(tmp_path: Path) -> None:
    """Pitfall 5: the only way to say so."""
    with LocalBroker(tmp_path) as broker:
        answer = broker.begin(produce_request(a_batch(b"a"), "nowhere", acks=0), 9)
        assert isinstance(answer, Silence)
        assert answer.close


def test_other_acks_are_invalid(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for acks in (2, -2, 100):
            assert refused(broker, a_batch(b"a"), acks=acks) == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_disk_that_takes_too_long_is_a_timeout_and_the_retry_a_duplicate(tmp_path: Path) -> None:
    """Pitfall 16."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        idempotent: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        waiting = broker.begin(produce_request(a_batch(b"a", **idempotent), timeout_ms=700), 9)
        answers = resolved(waiting)
        assert waiting.wait_ms == 700
        waiting.expire()
        assert only_partition(answers[0]).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert only_partition(answers[0]).base_offset == -1
        broker.run_jobs()
        assert len(answers) == 1, "the flush that comes later tells nobody again"
        broker.hold_jobs = False
        assert broker.produce(b"a", **idempotent).base_offset == 0
        assert broker.values() == [b"a"]


def test_a_timeout_below_zero_is_none(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        assert broker.begin(produce_request(a_batch(b"a"), timeout_ms=-1), 9).wait_ms == 0
        broker.run_jobs()


def test_a_partition_that_is_refused_does_not_hold_up_another(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        request = produce_request(b"no batch at all")
        request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=a_batch(b"b")))
        bad, good = broker.ask(request, 9).responses[0].partition_responses
        assert (bad.error_code, good.error_code) == (ErrorCode.CORRUPT_MESSAGE, 0)
        assert "header" in bad.error_message
        assert broker.values(partition=1) == [b"b"]


def test_a_partition_named_twice_gets_both_batches(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        request = produce_request(a_batch(b"a"))
        request.topic_data[0].partition_data.append(PartitionProduceData(index=0, records=a_batch(b"b")))
        answers = broker.ask(request, 9).responses[0].partition_responses
        assert [one.base_offset for one in answers] == [0, 1]


# Which topic


@pytest.mark.parametrize("partition", [1, -1, 1 << 30])
def test_a_partition_that_is_not_there_is_unknown(tmp_path: Path, partition: int) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        for version, topic in ((12, "orders"), (13, topic_id)):
            code = refused(broker, a_batch(b"a"), version, topic=topic, partition=partition)
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_topic_is_unknown_by_its_name_or_by_its_id(tmp_path: Path) -> None:
    """Pitfall 11: by id, the error is another."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert refused(broker, a_batch(b"a"), 12, topic="other") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused(broker, a_batch(b"a"), 13, topic=bytes(15) + b"\7") == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_id_of_a_topic_that_was_created_again_is_unknown(tmp_path: Path) -> None:
    """Pitfall 11: an id is never that of another topic."""
    with LocalBroker(tmp_path) as broker:
        old = broker.create_topic()
        broker.produce(b"old")
        broker.delete_topic()
        new = broker.create_topic()
        assert new != old
        assert refused(broker, a_batch(b"a"), 13, topic=old) == ErrorCode.UNKNOWN_TOPIC_ID
        assert only_partition(broker.ask(produce_request(a_batch(b"new"), new), 13)).base_offset == 0
        assert broker.values() == [b"new"]


def test_a_topic_created_again_waits_until_the_old_one_is_off_the_disk(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"old")
        broker.hold_jobs = True
        broker.delete_topic()
        changes = create_topic(broker.broker.metadata, "orders", 1, {}, broker.broker.random_bytes)
        broker.broker.metadata_log.write(changes, NOW_MS)
        broker.run_flushes()
        answer = broker.begin(produce_request(a_batch(b"new")), 9)
        assert only_partition(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "clients ask again"
        broker.hold_jobs = False
        broker.run_jobs()
        assert broker.produce(b"new").base_offset == 0


def test_internal_topics_are_not_for_clients_to_write(tmp_path: Path) -> None:
    """Pitfall 13."""
    with LocalBroker(tmp_path) as broker:
        end = broker.log("__tailrace_metadata").end_offset
        answer = only_partition(broker.ask(produce_request(a_batch(b"a"), "__tailrace_metadata"), 9))
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert broker.log("__tailrace_metadata").end_offset == end


def test_a_response_to_a_write_to_a_new_topic_waits_for_its_creation(tmp_path: Path) -> None:
    """Pitfall 10; design: a Produce is acknowledged only when the topic's creation is flushed, too."""
    with LocalBroker(tmp_path) as broker:
        broker.hold_jobs = True
        metadata = resolved(broker.begin(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 4))
        produced = resolved(broker.begin(produce_request(a_batch(b"a"), acks=1), 9))
        assert not metadata
        assert not produced, "acks=1 rests on the topic, which a power cut could still take back"
        broker.run_jobs()
        assert metadata
        assert only_partition(produced[0]).error_code == 0


# What is refused by the header: pitfall 13


@pytest.mark.parametrize("records", [None, b""])
def test_no_batch_is_an_invalid_record(tmp_path: Path, records: bytes | None) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert refused(broker, records) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_format_than_2_is_an_invalid_record(tmp_path: Path, magic: int) -> None:
    """Pitfall 13: as Kafka says it, from version 3 on."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        data = a_batch(b"a")
        data[LEGACY_MAGIC] = magic
        assert refused(broker, data) == ErrorCode.INVALID_RECORD


def test_several_batches_are_an_invalid_record(tmp_path: Path) -> None:
    """Pitfall 13."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert refused(broker, a_batch(b"a") + a_batch(b"b")) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [-1, 0, 48, -(1 << 31)])
def test_a_length_that_no_batch_has_is_corrupt(tmp_path: Path, length: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        data = a_batch(b"a")
        data[8:12] = length.to_bytes(4, signed=True)
        assert refused(broker, data) == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_that_is_cut_is_corrupt(tmp_path: Path) -> None:
    """Pitfall 13: the length is compared with the bytes that are there."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        whole = a_batch(b"a" * 100)
        for size in (1, 60, 61, len(whole) - 1):
            assert refused(broker, whole[:size]) == ErrorCode.CORRUPT_MESSAGE


def test_a_wrong_crc_is_corrupt(tmp_path: Path) -> None:
    """Pitfall 13."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        data = a_batch(b"a")
        data[-1] ^= 1
        assert refused(broker, data) == ErrorCode.CORRUPT_MESSAGE


def test_more_records_than_there_are_is_an_invalid_record(tmp_path: Path) -> None:
    """Pitfall 13: who could claim any number would use up offsets."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        data = changed(a_batch(b"a", b"b"), 23, (1 << 20).to_bytes(4))
        assert refused(broker, data) == ErrorCode.INVALID_RECORD
        data = changed(changed(a_batch(b"a"), 23, ((1 << 20) - 1).to_bytes(4)), 57, (1 << 20).to_bytes(4))
        assert refused(broker, data) == ErrorCode.INVALID_RECORD


def test_control_batches_are_not_for_clients(tmp_path: Path) -> None:
    """Pitfall 13."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert refused(broker, encode_marker(Marker.COMMIT, 1, 0, 0, NOW_MS)) == ErrorCode.INVALID_RECORD


def test_a_transactional_batch_needs_a_transaction(tmp_path: Path) -> None:
    """Pitfall 13."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        data = a_batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        assert refused(broker, data) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "and a transactional id"
        for fields in ({}, {"producer_id": 1}, {"producer_id": 1, "producer_epoch": 0}):
            assert refused(broker, a_batch(b"a", transactional=True, **fields)) == ErrorCode.INVALID_RECORD


def test_the_log_append_time_is_not_for_clients_to_claim(tmp_path: Path) -> None:
    """Pitfall 13."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        data = a_batch(b"a")
        batch.set_log_append_time(data, batch.read_header(data), NOW_MS)
        assert refused(broker, data) == ErrorCode.INVALID_TIMESTAMP


def test_timestamps_beyond_the_limits_are_refused(tmp_path: Path) -> None:
    """Pitfalls 13 and 15: an hour ahead is the limit; the past has none unless a topic says so."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert refused(broker, a_batch(b"a", now_ms=NOW_MS + HOUR_MS + 1)) == ErrorCode.INVALID_TIMESTAMP
        assert broker.produce(b"a").error_code == 0
        for time in (NOW_MS + HOUR_MS, 0):
            assert only_partition(broker.ask(produce_request(a_batch(b"a", now_ms=time)), 9)).error_code == 0
        broker.create_topic("strict", message_timestamp_before_max_ms=str(HOUR_MS))
        for time, code in ((NOW_MS - HOUR_MS, 0), (NOW_MS - HOUR_MS - 1, ErrorCode.INVALID_TIMESTAMP)):
            request = produce_request(a_batch(b"a", now_ms=time), "strict")
            assert only_partition(broker.ask(request, 9)).error_code == code


def test_a_batch_may_be_as_large_as_the_topic_says(tmp_path: Path) -> None:
    """Pitfall 13."""
    with LocalBroker(tmp_path) as broker:
        data = a_batch(b"a" * 500)
        broker.create_topic(max_message_bytes=str(len(data)))
        assert refused(broker, a_batch(b"a" * 501)) == ErrorCode.MESSAGE_TOO_LARGE
        assert only_partition(broker.ask(produce_request(data), 9)).error_code == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_takes_no_record_without_a_key(tmp_path: Path, codec: Codec) -> None:
    """Pitfall 13."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(cleanup_policy="compact")
        keyed, bare = Record(0, NOW_MS, b"key", b"1"), Record(1, NOW_MS, None, b"2")
        mixed = encode_batch([keyed, bare, Record(2, NOW_MS, None, b"3")], codec=codec)
        answer = only_partition(broker.ask(produce_request(mixed), 12))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [one.batch_index for one in answer.record_errors] == [1, 2]
        assert only_partition(broker.ask(produce_request(encode_batch([keyed], codec=codec)), 12)).error_code == 0
        broken = encode_batch([keyed], codec=codec)
        broken[-1] ^= 1
        assert only_partition(broker.ask(produce_request(broken), 12)).error_code == ErrorCode.CORRUPT_MESSAGE


def test_zstd_needs_version_7(tmp_path: Path) -> None:
    """Pitfall 39."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        data = a_batch(b"a" * 500, codec=Codec.ZSTD)
        assert refused(broker, data, 6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert only_partition(broker.ask(produce_request(data), 7)).error_code == 0
        assert broker.values() == [b"a" * 500]


@pytest.mark.parametrize(
    "producer",
    [
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": -1},
        {"producer_id": 1, "producer_epoch": -1, "base_sequence": 0},
        {"producer_id": -7, "producer_epoch": 0, "base_sequence": 0},
    ],
)
def test_half_a_producer_is_an_invalid_record(tmp_path: Path, producer: dict[str, int]) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert refused(broker, a_batch(b"a", **producer)) == ErrorCode.INVALID_RECORD


# Log-append time: pitfall 15


def test_where_the_broker_sets_the_time_it_says_which(tmp_path: Path) -> None:
    """Pitfall 15: bit, time and CRC are set, the client's time does not matter, and a duplicate has the first time."""
    idempotent: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(message_timestamp_type="LogAppendTime")
        request = produce_request(a_batch(b"a", now_ms=NOW_MS + 9 * HOUR_MS, **idempotent))
        answer = only_partition(broker.ask(request, 9))
        assert (answer.error_code, answer.log_append_time_ms) == (0, NOW_MS)
        stored = only_partition(broker.fetch(from_offset(0)))
        header = batch.check(bytes(stored.records))
        assert header.has_log_append_time
        assert header.max_timestamp == NOW_MS
        broker.now_ms += 5000
        again = broker.produce(b"a", **idempotent)
        assert (again.base_offset, again.log_append_time_ms) == (0, NOW_MS)


# Idempotence: pitfall 14


def idempotent(broker: LocalBroker, sequence: int, *values: bytes, epoch: int = 0, producer: int = 5) -> Any:
    values = values or (b"%d" % sequence,)
    return broker.produce(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def test_a_duplicate_is_answered_with_the_original_offsets(tmp_path: Path) -> None:
    """Pitfall 14."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"somebody else's")
        first = [idempotent(broker, sequence) for sequence in range(5)]
        again = [idempotent(broker, sequence) for sequence in range(5)]
        assert [one.base_offset for one in again] == [one.base_offset for one in first] == [1, 2, 3, 4, 5]
        assert broker.log().end_offset == 6


def test_only_the_last_five_batches_are_remembered(tmp_path: Path) -> None:
    """Pitfall 14."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for sequence in range(6):
            idempotent(broker, sequence)
        assert idempotent(broker, 1).base_offset == 1
        assert idempotent(broker, 0).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order(tmp_path: Path) -> None:
    """Pitfall 14."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        idempotent(broker, 0)
        assert idempotent(broker, 2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert idempotent(broker, 1).base_offset == 1


def test_a_producer_that_is_not_known_begins_anywhere(tmp_path: Path) -> None:
    """Pitfall 14: its state may have expired."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert idempotent(broker, 41).error_code == 0
        assert idempotent(broker, 42).error_code == 0


def test_a_new_epoch_begins_at_zero_and_fences_the_old(tmp_path: Path) -> None:
    """Pitfall 14."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        idempotent(broker, 0)
        assert idempotent(broker, 1, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert idempotent(broker, 0, epoch=1).error_code == 0
        assert idempotent(broker, 1, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap(tmp_path: Path) -> None:
    """Pitfall 14: 0 follows 2^31 - 1, also inside of a batch."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        last = (1 << 31) - 1
        assert idempotent(broker, last - 1, b"a", b"b").error_code == 0
        assert idempotent(broker, 0).base_offset == 2
        broker.create_topic("other")
        across = {"producer_id": 6, "producer_epoch": 0, "base_sequence": last}
        assert broker.produce(b"a", b"b", topic="other", **across).base_offset == 0
        assert broker.produce(b"a", b"b", topic="other", **across).base_offset == 0, "a duplicate"
        assert broker.produce(b"c", topic="other", **(across | {"base_sequence": 1})).base_offset == 2


@pytest.mark.parametrize("kind", ["restart", "kill"])
def test_producers_are_remembered_over_a_start(tmp_path: Path, kind: str) -> None:
    """Pitfall 14."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for sequence in range(3):
            idempotent(broker, sequence)
        getattr(broker, kind)()
        assert idempotent(broker, 1).base_offset == 1
        assert idempotent(broker, 4).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert idempotent(broker, 3).base_offset == 3


def test_a_duplicate_is_acknowledged_only_when_its_original_is_on_disk(tmp_path: Path) -> None:
    """Pitfall 14."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.hold_jobs = True
        fields: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        broker.begin(produce_request(a_batch(b"a", **fields), acks=1), 9)
        again = resolved(broker.begin(produce_request(a_batch(b"a", **fields)), 9))
        assert not again
        broker.run_jobs()
        assert only_partition(again[0]).base_offset == 0
        later = broker.begin(produce_request(a_batch(b"a", **fields)), 9)
        assert resolved(later), "now it is, and nobody waits"


def test_what_was_counted_is_what_was_appended(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        fields: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        for _ in range(2):
            broker.produce(b"a", b"b", **fields)
        counters = broker.broker.counters.topics["orders"]
        assert (counters.records_in, counters.bytes_in) == (2, len(a_batch(b"a", b"b", **fields)))


# Disks that refuse


def test_a_flush_that_fails_is_told_to_all_who_wait_and_to_all_who_come(tmp_path: Path) -> None:
    """Pitfall 16; and the other partitions go on."""
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(partitions=2)
        broker.produce(b"safe")
        broker.hold_jobs = True
        answers = [resolved(broker.begin(produce_request(a_batch(b"lost")), 9)) for _ in range(3)]
        files.fail("sync", EIO, name=".log")
        broker.run_jobs()
        for answer in answers:
            assert only_partition(answer[0]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert only_partition(answer[0]).base_offset == -1
        broker.hold_jobs = False
        assert broker.produce(b"later").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.values() == [b"safe"], "what is on disk can be read; what is not is not shown"
        assert broker.produce(b"fine", partition=1).error_code == 0


def test_a_full_disk_refuses_and_the_same_batch_can_be_sent_again(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        files.fail("write_at", ENOSPC, name=".log")
        assert broker.produce(b"b").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.produce(b"b").base_offset == 1
        assert broker.values() == [b"a", b"b"]


def test_a_log_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        files.fail("make_directory", ENOSPC)
        assert broker.produce(b"a").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.produce(b"a").base_offset == 0


def test_who_waits_for_a_topic_that_is_deleted_is_told(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        answers = resolved(broker.begin(produce_request(a_batch(b"b")), 9))
        topic = broker.broker.metadata.topics["orders"]
        broker.broker.remove_logs([topic], broker.now_ms)
        assert only_partition(answers[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.hold_jobs = False


def test_a_request_makes_a_hundred_logs_at_most_and_the_rest_with_the_next_try(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=150)

        def refused_of(indexes: list[int]) -> list[int]:
            data = [PartitionProduceData(index=index, records=a_batch(b"x")) for index in indexes]
            request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="orders", partition_data=data)])
            answers = broker.ask(request, 12).responses[0].partition_responses
            assert {answer.error_code for answer in answers} <= {0, ErrorCode.NOT_LEADER_OR_FOLLOWER}
            return [answer.index for answer in answers if answer.error_code]

        left = refused_of(list(range(150)))
        assert left == list(range(100, 150))
        assert refused_of(left) == []


def test_a_compacted_topic_takes_batches_that_are_quickly_looked_through(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(cleanup_policy="compact")
        many = encode_batch([Record(n, NOW_MS, b"", b"") for n in range(50_001)])
        assert only_partition(broker.ask(produce_request(many), 12)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_an_empty_produce_is_answered_with_nothing(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        assert broker.ask(ProduceRequest(acks=-1, timeout_ms=1000), 9).responses == []
        topics = [TopicProduceData(name="orders")]
        answered = broker.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9).responses
        assert [topic.partition_responses for topic in answered] == [[]]


def test_records_are_stored_as_they_came(tmp_path: Path) -> None:
    """Design 2: opaque batches. Offset and epoch are stamped, and nothing else is touched."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"first")
        sent = a_batch(b"x" * 100, b"y", codec=Codec.GZIP)
        broker.ask(produce_request(sent), 9)
        answer = only_partition(broker.fetch(from_offset(1)))
        stored = bytes(answer.records)
        assert stored[16:] == sent[16:]
        assert batch.read_header(stored).base_offset == 1
        assert values_of(answer) == [b"x" * 100, b"y"]
