"""Fetch: which bytes a reader gets, in which order, and which error."""

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
    values_of,
)

from tailrace.broker.fetch import reads as fetching
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchTopic
from tailrace.records import batch
from tailrace.records.control import Marker, encode_marker

SMALL_SEGMENTS = str(1 << 20)  # the smallest there are


def test_every_version_reads_what_was_written(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        broker.produce(b"a", b"b")
        for version in range(4, 19):
            topic = topic_id if version >= 13 else "orders"
            answer = only_partition(broker.fetch(from_offset(0), topic=topic, version=version))  # type: ignore[arg-type]
            assert values_of(answer) == [b"a", b"b"]
            assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 2, 2)
            assert answer.aborted_transactions is None, "null for those who read all"


def test_readers_never_see_what_is_not_on_disk(tmp_path: Path) -> None:
    """Design 5."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"safe")
        broker.hold_jobs = True
        broker.begin(produce_request(a_batch(b"written"), acks=1), 9)
        answer = only_partition(broker.fetch(from_offset(0)))
        assert (values_of(answer), answer.high_watermark) == ([b"safe"], 1)
        assert only_partition(broker.fetch(from_offset(1))).error_code == 0
        waiting = only_partition(broker.fetch(from_offset(2)))
        assert (waiting.error_code, values_of(waiting)) == (0, []), "it will be there"
        assert only_partition(broker.fetch(from_offset(3))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        broker.hold_jobs = False
        broker.tick(2000)
        assert broker.values() == [b"safe", b"written"]


def test_the_batch_that_holds_the_offset_is_returned_whole(tmp_path: Path) -> None:
    """Pitfall 18: the client leaves out what lies before."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"0", b"1", b"2")
        broker.produce(b"3", b"4")
        assert broker.values(offset=1) == [b"0", b"1", b"2", b"3", b"4"]
        assert broker.values(offset=3) == [b"3", b"4"]
        assert broker.values(offset=4) == [b"3", b"4"]
        assert broker.values(offset=5) == []


# How much: pitfall 19


@pytest.mark.parametrize("limit", [0, -1, 1, -(1 << 31)])
def test_one_batch_is_returned_even_if_it_is_larger_than_the_limits(tmp_path: Path, limit: int) -> None:
    """Pitfall 19."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a" * 5000)
        broker.produce(b"b")
        assert values_of(only_partition(broker.fetch(from_offset(0, max_bytes=limit)))) == [b"a" * 5000]
        assert values_of(only_partition(broker.fetch(from_offset(0), max_bytes=limit))) == [b"a" * 5000]


def test_whole_batches_are_returned_up_to_the_limit(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for number in range(10):
            broker.produce(b"%d" % number)
        size = len(a_batch(b"0"))
        for limit, count in ((3 * size, 3), (3 * size - 1, 2), (3 * size + 1, 3), (100 * size, 10)):
            assert len(values_of(only_partition(broker.fetch(from_offset(0, max_bytes=limit))))) == count


def test_partitions_are_served_in_the_order_asked_for_and_later_ones_must_fit(tmp_path: Path) -> None:
    """Pitfall 19."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=4)
        for number in (0, 1, 2):
            broker.produce(b"%d" % number * 200, partition=number)
        size = len(a_batch(b"0" * 200))
        wanted = [from_offset(0, number) for number in (3, 2, 0, 1)]
        answers = broker.fetch(*wanted, max_bytes=2 * size + 50).responses[0].partitions
        assert [answer.partition_index for answer in answers] == [3, 2, 0, 1]
        assert [len(values_of(answer)) for answer in answers] == [0, 1, 1, 0]
        answers = broker.fetch(*wanted, max_bytes=1).responses[0].partitions
        assert [len(values_of(answer)) for answer in answers] == [0, 1, 0, 0], "the first that has any, one batch"
        assert all(answer.high_watermark == 1 for answer in answers[1:]), "the others say at least how much there is"


def test_a_later_partition_must_fit_into_its_own_limit_too(tmp_path: Path) -> None:
    """Pitfall 19."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        for number in (0, 1):
            broker.produce(b"%d" % number * 200, partition=number)
        first, second = broker.fetch(from_offset(0, 0, 10), from_offset(0, 1, 10)).responses[0].partitions
        assert (len(values_of(first)), len(values_of(second))) == (1, 0)


def test_the_broker_has_a_limit_of_its_own(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"fetch.max.bytes": "1024"}) as broker:
        broker.create_topic()
        for _ in range(5):
            broker.produce(b"x" * 400)
        assert len(broker.values()) == 2


def test_a_partition_asked_for_twice_is_answered_twice_within_the_limit(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        size = len(a_batch(b"a"))
        answers = broker.fetch(*[from_offset(0)] * 5, max_bytes=2 * size).responses[0].partitions
        assert [len(values_of(answer)) for answer in answers] == [1, 1, 0, 0, 0]


# Which offsets: pitfall 21


def test_an_answer_has_records_of_so_many_partitions_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all of ten thousand would hold up the others; the next request gets the rest, and need not wait."""
    monkeypatch.setattr(fetching, "READS_MAX", 2)
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=4)
        for index in range(4):
            broker.produce(b"x", partition=index)
        wanted = [from_offset(0, index) for index in range(4)]
        answers = broker.fetch(*wanted, max_wait_ms=10_000, min_bytes=1 << 20).responses[0].partitions
        assert [values_of(answer) for answer in answers] == [[b"x"], [b"x"], [], []]


def test_an_offset_outside_of_the_log_is_out_of_range_and_says_where_the_log_begins(tmp_path: Path) -> None:
    """Pitfall 21."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for number in range(4):
            broker.produce(b"%d" % number)
        broker.log().delete_before(2)
        for offset in (-1, 0, 1, 5, 1 << 40):
            answer = only_partition(broker.fetch(from_offset(offset)))
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (answer.log_start_offset, answer.high_watermark, answer.last_stable_offset) == (2, 4, 4)
            assert values_of(answer) == []
        assert broker.values(offset=2) == [b"2", b"3"]


def test_a_partition_that_nobody_wrote_to_is_empty(tmp_path: Path) -> None:
    """Pitfall 21: never -1 on success."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        answer = only_partition(broker.fetch(from_offset(0)))
        assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 0, 0)
        assert answer.log_start_offset == 0
        assert only_partition(broker.fetch(from_offset(1))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert not (tmp_path / "orders-0").exists(), "reading makes nothing"


def test_epochs_of_the_leader_are_compared(tmp_path: Path) -> None:
    """Pitfall 21."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        broker.produce(b"a")
        broker.kill()
        broker.kill()
        assert broker.log().leader_epoch == 2
        expected = {-1: 0, 2: 0, 1: ErrorCode.FENCED_LEADER_EPOCH, 3: ErrorCode.UNKNOWN_LEADER_EPOCH}
        for partition in (0, 1):
            for epoch, code in expected.items():
                wanted = from_offset(0, partition, current_leader_epoch=epoch)
                assert only_partition(broker.fetch(wanted)).error_code == code


def test_a_client_that_has_read_what_was_lost_is_told_at_once_where_histories_part(tmp_path: Path) -> None:
    """Pitfall 21; KIP-595: the answer has no records, and does not wait for some."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"0")
        broker.produce(b"1")
        broker.kill()
        broker.produce(b"2")
        wanted = from_offset(3, last_fetched_epoch=0)
        answers = resolved(broker.begin(fetch_request(wanted), 12))
        answer = only_partition(answers[0])
        assert (answer.error_code, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 0, 2)
        assert values_of(answer) == []
        assert broker.fetch(from_offset(2, last_fetched_epoch=0)).responses[0].partitions[0].diverging_epoch is None
        unknown = only_partition(broker.fetch(from_offset(2, last_fetched_epoch=7)))
        assert unknown.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "nobody knows that epoch, nor where it ends"


# Which topics: pitfall 11


def test_unknown_topics_and_partitions_have_errors_of_their_own(tmp_path: Path) -> None:
    """Pitfall 11."""
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        broker.produce(b"a")
        by_name = broker.fetch(from_offset(0), topic="nowhere")
        by_id = broker.fetch(from_offset(0), topic=b"\7" * 16, version=13)  # type: ignore[arg-type]
        partition = broker.fetch(from_offset(0, 5), topic=topic_id, version=13)  # type: ignore[arg-type]
        assert only_partition(by_name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert only_partition(by_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert by_id.responses[0].topic_id == b"\7" * 16
        assert only_partition(partition).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_created_again_is_another(tmp_path: Path) -> None:
    """Pitfall 11."""
    with LocalBroker(tmp_path) as broker:
        old = broker.create_topic()
        broker.produce(b"old")
        broker.delete_topic()
        new = broker.create_topic()
        broker.produce(b"new")
        gone = broker.fetch(from_offset(0), topic=old, version=13)  # type: ignore[arg-type]
        assert only_partition(gone).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        there = broker.fetch(from_offset(0), topic=new, version=13)  # type: ignore[arg-type]
        assert values_of(only_partition(there)) == [b"new"]


def test_internal_topics_can_be_read(tmp_path: Path) -> None:
    """Design 4."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert broker.values("__tailrace_metadata")


def test_an_error_in_one_partition_does_not_keep_the_records_of_another(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        request = fetch_request(from_offset(0))
        request.topics.insert(0, FetchTopic(topic="nowhere", partitions=[from_offset(0)]))
        unknown, known = broker.ask(request, 12).responses
        assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert values_of(known.partitions[0]) == [b"a"]


# Transactions: pitfall 22


def test_read_committed_ends_before_what_is_undecided_and_names_what_was_aborted(tmp_path: Path) -> None:
    """Pitfall 22: control batches are in the log, and are sent."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"plain")
        for producer in (1, 2):
            _transact(broker, producer, b"of %d" % producer)
        committed: dict[str, Any] = {"isolation_level": 1}
        answer = only_partition(broker.fetch(from_offset(0), **committed))
        assert (values_of(answer), answer.last_stable_offset, answer.high_watermark) == ([b"plain"], 1, 3)
        assert answer.aborted_transactions == []
        assert broker.values() == [b"plain", b"of 1", b"of 2"], "who reads uncommitted reads on"
        _decide(broker, 1, Marker.ABORT)
        answer = only_partition(broker.fetch(from_offset(0), **committed))
        assert answer.last_stable_offset == 2
        assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(1, 1)]
        _decide(broker, 2, Marker.COMMIT)
        answer = only_partition(broker.fetch(from_offset(0), **committed))
        assert answer.last_stable_offset == answer.high_watermark == 5
        assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(1, 1)]
        headers = [header for _, header in batch.split(bytes(answer.records))]
        assert [header.is_control for header in headers] == [False, False, False, True, True]
        at_end = only_partition(broker.fetch(from_offset(5), **committed))
        assert at_end.aborted_transactions == []


def test_a_reader_of_committed_records_waits_for_the_marker(tmp_path: Path) -> None:
    """Pitfalls 17 and 22."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        _transact(broker, 1, b"undecided")
        answers = resolved(broker.begin(fetch_request(from_offset(0), isolation_level=1), 12))
        assert not answers
        _decide(broker, 1, Marker.COMMIT)
        assert values_of(_read(broker, answers))[:1] == [b"undecided"]


def _transact(broker: LocalBroker, producer: int, value: bytes) -> None:
    """As a coordinator lets a client write: there is none yet, so straight into the log."""
    data = a_batch(value, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
    _append(broker, data)


def _decide(broker: LocalBroker, producer: int, marker: Marker) -> None:
    _append(broker, encode_marker(marker, producer, 0, 0, NOW_MS))


def _append(broker: LocalBroker, data: bytearray) -> None:
    broker.log().append(data, NOW_MS) if broker.partition().log else _first_append(broker, data)
    broker.broker.appended(broker.partition(), broker.log(), NOW_MS)
    broker.broker.flushes.request(broker.log())
    broker.run_jobs()


def _first_append(broker: LocalBroker, data: bytearray) -> None:
    broker.broker.log_for_append(broker.partition()).append(data, NOW_MS)


def _read(broker: LocalBroker, answers: list[object]) -> object:
    assert answers
    return only_partition(broker.decode(answers[0], type(fetch_request()), 12))


# Limits and the end of a segment


def test_a_reader_that_is_behind_is_not_made_to_wait_at_the_end_of_a_segment(tmp_path: Path) -> None:
    """Pitfall 17: `min_bytes` cannot come from a segment that is full, so there is nothing to wait for."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(segment_bytes=SMALL_SEGMENTS, max_message_bytes=str(1 << 20))
        for number in range(3):
            broker.produce(b"%d" % number * 600_000)
        assert len(broker.log().segments) == 3
        answers = resolved(broker.begin(fetch_request(from_offset(0), min_bytes=1_000_000), 12))
        assert len(values_of(_read(broker, answers))) == 1
        at_the_end = resolved(broker.begin(fetch_request(from_offset(2), min_bytes=1_000_000), 12))
        assert not at_the_end, "here more may come"


def test_more_than_the_limit_is_never_waited_for(tmp_path: Path) -> None:
    """Pitfall 17: with `min_bytes` above `max_bytes` an answer that is full is enough."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for _ in range(3):
            broker.produce(b"x" * 400)
        for limit in (500, 1000):
            answers = resolved(broker.begin(fetch_request(from_offset(0), min_bytes=5000, max_bytes=limit), 12))
            assert values_of(_read(broker, answers))
        small = from_offset(0, max_bytes=1000)
        assert resolved(broker.begin(fetch_request(small, min_bytes=1000), 12)), "two batches, and no third would fit"
