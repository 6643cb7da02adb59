import contextlib
import threading
import time
from typing import Any

import pytest
from batches import flip
from client.conftest import a_batch, create_topic, delete_topic, options, write
from client.fakes import HANG_UP, FakeBroker, once
from client.test_offsets import delete_records
from compat.brokers import BrokerProcess
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.batches import check_crcs, whole_batches
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import (
    BadAnswer,
    ClientError,
    CorruptRecords,
    EndNotReached,
    GaveUp,
    OffsetOutOfRange,
    TopicNotFound,
    TopicRecreated,
)
from tailrace.client.fetch import Chunk, PartitionReader
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.records.record import decode_records

ORDERS = TopicPartition("orders", 0)


def rows(chunks: list[Chunk], start: int = 0, end: int = 1 << 60) -> list[tuple[int, bytes]]:
    found = [
        (record.offset, record.value or b"")
        for chunk in chunks
        for position, _ in chunk.batches
        for record in decode_records(chunk.records, position)
    ]
    return [row for row in found if start <= row[0] < end]


def read(cluster: Cluster, topic: str, start: int, end: int, **fields: Any) -> list[tuple[int, bytes]]:
    with PartitionReader(cluster, topic, 0, start, end, **fields) as reader:
        return rows(list(reader), start, end)


def numbered(count: int, start: int = 0) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for n in range(start, start + count)]


def fill(cluster: Cluster, topic: str, batches: int, per_batch: int = 10) -> None:
    for n in range(batches):
        write(cluster, topic, *(b"%d" % (n * per_batch + m) for m in range(per_batch)))


@pytest.mark.parametrize("most", [1, 300, 1 << 20])
def test_a_range_is_read_in_any_number_of_fetches(bootstrap: str, cluster: Cluster, topic: str, most: int) -> None:
    fill(cluster, topic, 8)
    with contextlib.closing(Cluster(options(bootstrap, max_partition_fetch_bytes=str(most)))) as small:
        for start, end in [(0, 80), (13, 57), (10, 20), (79, 80), (0, 1)]:
            assert read(small, topic, start, end) == numbered(end - start, start)


def test_an_empty_range_asks_nothing(faked: Cluster, fake: FakeBroker) -> None:
    assert read(faked, "orders", 5, 5) == []
    assert fake.asked == []


def test_batches_outside_of_the_range_are_left_out(faked: Cluster, fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [a_batch(b"x" * n, b"y", base_offset=2 * n) for n in range(5)]
    chunks = list(PartitionReader(faked, "orders", 0, 3, 7))
    headers = [header for chunk in chunks for _, header in chunk.batches]
    assert [header.base_offset for header in headers] == [2, 4, 6]
    assert [len(chunk.records) for chunk in chunks] == [sum(header.size for header in headers)]


def test_the_next_answer_is_on_its_way_while_one_is_worked_on(faked: Cluster, fake: FakeBroker) -> None:
    batches = [a_batch(b"a", base_offset=n) for n in range(3)]
    fake.topics["orders"][0] = batches
    arrived = threading.Semaphore(0)

    def one_batch(request: FetchRequest, version: int) -> FetchResponse:
        arrived.release()
        return fake.fetch(request, records=batches[request.topics[0].partitions[0].fetch_offset])

    fake.answers[FetchRequest] = one_batch
    with PartitionReader(faked, "orders", 0, 0, 3) as reader:
        for number, _ in enumerate(reader):
            for _ in range(2 if number == 0 else 1 if number == 1 else 0):
                assert arrived.acquire(timeout=5)
    assert fake.count(FetchRequest) == 3


def test_a_reader_that_is_left_early_spoils_nothing(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 4)
    for _ in range(3):
        with PartitionReader(cluster, topic, 0, 0, 40) as reader:
            next(iter(reader))
        assert read(cluster, topic, 0, 40) == numbered(40)


def test_gaps_between_and_inside_batches_are_passed(faked: Cluster, fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [
        a_batch(b"a", base_offset=3, last_offset_delta=6),
        a_batch(b"b", base_offset=20),
        a_batch(b"c", base_offset=90),
    ]
    assert read(faked, "orders", 0, 50) == [(3, b"a"), (20, b"b")]
    assert read(faked, "orders", 5, 15) == [], "the batch has no such record"
    assert read(faked, "orders", 12, 18) == []
    assert read(faked, "orders", 30, 91) == [(90, b"c")]


def test_a_gap_that_nothing_follows_is_believed_when_it_stays(faked: Cluster, fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [a_batch(b"a", b"b")]
    fake.answers[FetchRequest] = lambda request, version: fake.fetch(request, high_watermark=9)
    with PartitionReader(faked, "orders", 0, 0, 9) as reader:
        assert rows(list(reader)) == [(0, b"a"), (1, b"b")]
    assert reader.gap == (2, 9)


def test_a_broker_that_throttles_is_waited_for(faked: Cluster, fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [a_batch(b"a")]

    def throttled(request: FetchRequest, version: int) -> FetchResponse:
        answer = fake.fetch(request, records=b"")
        answer.throttle_time_ms = 10
        return answer

    fake.answers[FetchRequest] = once(*[throttled] * 5, lambda request, version: fake.fetch(request))
    assert read(faked, "orders", 0, 1) == [(0, b"a")]


def test_an_end_that_does_not_come_is_given_up(fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [a_batch(b"a")]
    with (
        contextlib.closing(Cluster(options(fake.bootstrap, default_api_timeout_ms="200"))) as cluster,
        pytest.raises(EndNotReached, match="can be read to offset 1 and not to 5"),
    ):
        read(cluster, "orders", 0, 5)


def test_a_batch_larger_than_what_was_asked_for_comes_whole_in_the_end(fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [a_batch(b"x" * 5000), a_batch(b"y", base_offset=1)]

    def cut(request: FetchRequest, version: int) -> FetchResponse:
        """As brokers did before KIP-74."""
        answer = fake.fetch(request)
        data = answer.responses[0].partitions[0]
        data.records = bytes(data.records or b"")[: request.topics[0].partitions[0].partition_max_bytes]
        return answer

    fake.answers[FetchRequest] = cut
    for most in ("10", "100", "5050"):
        with contextlib.closing(Cluster(options(fake.bootstrap, max_partition_fetch_bytes=most))) as cluster:
            assert read(cluster, "orders", 0, 2) == [(0, b"x" * 5000), (1, b"y")]


def test_aborted_transactions_are_handed_on(faked: Cluster, fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [a_batch(b"a")]
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    fake.answers[FetchRequest] = lambda request, version: fake.fetch(request, aborted_transactions=aborted)
    (chunk,) = PartitionReader(faked, "orders", 0, 0, 1)
    assert chunk.aborted == [(7, 0)]


# What changes underneath


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_passing_errors_are_retried_from_where_it_was(faked: Cluster, fake: FakeBroker, code: ErrorCode) -> None:
    batches = [a_batch(b"%d" % n, base_offset=n) for n in range(4)]
    fake.topics["orders"][0] = batches

    def good(request: FetchRequest, version: int) -> FetchResponse:
        return fake.fetch(request, records=batches[request.topics[0].partitions[0].fetch_offset])

    def bad(request: FetchRequest, version: int) -> FetchResponse:
        return fake.fetch(request, error_code=code, records=None)

    fake.answers[FetchRequest] = once(good, bad, good, lambda request, version: HANG_UP, good)
    assert read(faked, "orders", 0, 4) == numbered(4)


def test_the_time_that_records_are_worked_on_does_not_count(fake: FakeBroker) -> None:
    batches = [a_batch(b"%d" % n, base_offset=n) for n in range(3)]
    fake.topics["orders"][0] = batches

    def good(request: FetchRequest, version: int) -> FetchResponse:
        return fake.fetch(request, records=batches[request.topics[0].partitions[0].fetch_offset])

    fake.answers[FetchRequest] = once(good, lambda request, version: HANG_UP, good)
    with contextlib.closing(Cluster(options(fake.bootstrap, default_api_timeout_ms="200"))) as cluster:
        seen = []
        for chunk in PartitionReader(cluster, "orders", 0, 0, 3):
            seen.append(chunk)
            time.sleep(0.25)
    assert rows(seen) == numbered(3)


def test_a_leader_that_moves_is_followed(faked: Cluster, fake: FakeBroker, another_fake: FakeBroker) -> None:
    batches = [a_batch(b"%d" % n, base_offset=n) for n in range(4)]
    fake.topics["orders"][0] = batches

    def moves(request: FetchRequest, version: int) -> FetchResponse:
        fake.leaders["orders", 0] = another_fake.node_id
        return fake.fetch(request, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, records=None)

    fake.answers[FetchRequest] = once(lambda request, version: fake.fetch(request, records=batches[0]), moves)
    assert read(faked, "orders", 0, 4) == numbered(4)
    assert another_fake.count(FetchRequest) == 1


def test_a_broker_killed_in_the_middle_is_waited_for(own_broker: BrokerProcess) -> None:
    with contextlib.closing(Cluster(options(own_broker.bootstrap, max_partition_fetch_bytes="1"))) as cluster:
        create_topic(cluster, "orders")
        fill(cluster, "orders", 6)
        seen: list[Chunk] = []
        with PartitionReader(cluster, "orders", 0, 0, 60) as reader:
            for chunk in reader:
                seen.append(chunk)
                if len(seen) == 2:
                    own_broker.kill_and_start()
        assert rows(seen) == numbered(60)


def test_records_that_are_gone_are_named(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 2)
    delete_records(cluster, topic, 15)
    with pytest.raises(OffsetOutOfRange, match="offsets 3 to 14 are gone"):
        read(cluster, topic, 3, 20)
    with pytest.raises(OffsetOutOfRange, match="ends at offset 20, before offset 25"):
        read(cluster, topic, 25, 30)
    assert read(cluster, topic, 15, 20) == numbered(5, 15)


def test_a_topic_made_again_between_plan_and_read_is_an_error(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 1)
    planned = cluster.topic(topic).topic_id
    delete_topic(cluster, topic)
    create_topic(cluster, topic)
    fill(cluster, topic, 2)
    with pytest.raises(TopicRecreated, match=planned.hex()):
        read(cluster, topic, 0, 10, topic_id=planned)
    assert read(cluster, topic, 0, 20) == numbered(20)


def test_a_topic_made_again_while_it_is_read_is_an_error(bootstrap: str, topic: str) -> None:
    with contextlib.closing(Cluster(options(bootstrap, max_partition_fetch_bytes="1"))) as cluster:
        fill(cluster, topic, 4)
        chunks = iter(PartitionReader(cluster, topic, 0, 0, 40))
        next(chunks)
        delete_topic(cluster, topic)
        create_topic(cluster, topic)
        fill(cluster, topic, 5)
        with pytest.raises(TopicRecreated):
            list(chunks)


def test_a_topic_deleted_while_it_is_read_is_an_error(bootstrap: str, topic: str) -> None:
    with contextlib.closing(Cluster(options(bootstrap, max_partition_fetch_bytes="1"))) as cluster:
        fill(cluster, topic, 4)
        chunks = iter(PartitionReader(cluster, topic, 0, 0, 40))
        next(chunks)
        delete_topic(cluster, topic)
        with pytest.raises(TopicNotFound):
            list(chunks)


def test_without_topic_ids_it_is_read_by_name(fake: FakeBroker) -> None:
    fake.versions[1] = (4, 11)
    fake.topics["orders"][0] = [a_batch(b"a")]
    with contextlib.closing(Cluster(options(fake.bootstrap))) as cluster:
        assert read(cluster, "orders", 0, 1, topic_id=fake.topic_id) == [(0, b"a")]
        assert (FetchRequest, 11) in fake.asked
        fake.answers[FetchRequest] = lambda request, version: (
            setattr(fake, "topic_id", b"x" * 16),
            fake.fetch(request),
        )[1]
        with pytest.raises(TopicRecreated):
            read(cluster, "orders", 0, 1, topic_id=fake.topic_id)


def test_a_broker_that_tells_no_topic_ids_is_read_by_name(fake: FakeBroker) -> None:
    fake.versions[3] = (4, 8)
    fake.topics["orders"][0] = [a_batch(b"a")]
    with contextlib.closing(Cluster(options(fake.bootstrap))) as cluster:
        assert read(cluster, "orders", 0, 1) == [(0, b"a")]
    assert (FetchRequest, 12) in fake.asked
    assert (MetadataRequest, 8) in fake.asked


def test_what_cannot_be_cured_in_time_is_given_up(fake: FakeBroker) -> None:
    fake.answers[FetchRequest] = lambda request, version: fake.fetch(request, error_code=6, records=None)
    with (
        contextlib.closing(Cluster(options(fake.bootstrap, default_api_timeout_ms="200"))) as cluster,
        pytest.raises(GaveUp, match=r"reading orders-0: .*NOT_LEADER_OR_FOLLOWER"),
    ):
        read(cluster, "orders", 0, 1)


# Damage


def test_a_wrong_crc_is_named_and_not_delivered(faked: Cluster, fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [a_batch(b"a"), bytearray(flip(a_batch(b"b", base_offset=1), 8 * 65))]
    with pytest.raises(CorruptRecords, match=r"orders-0 is damaged at offset 1: CRC-32C"):
        read(faked, "orders", 0, 2)


def test_damage_that_the_broker_tells_of_is_not_retried(faked: Cluster, fake: FakeBroker) -> None:
    fake.answers[FetchRequest] = lambda request, version: fake.fetch(request, error_code=2, records=None)
    with pytest.raises(CorruptRecords, match="the broker reports it"):
        read(faked, "orders", 4, 9)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_old_formats_are_named(faked: Cluster, fake: FakeBroker, magic: int) -> None:
    batch = a_batch(b"a")
    batch[16] = magic
    fake.answers[FetchRequest] = lambda request, version: fake.fetch(request, records=batch, high_watermark=1)
    with pytest.raises(CorruptRecords, match=f"format v{magic} of Kafka before"):
        read(faked, "orders", 0, 1)


def test_batches_that_run_backwards_are_damage(faked: Cluster, fake: FakeBroker) -> None:
    records = a_batch(b"a", base_offset=5) + a_batch(b"b", base_offset=2, last_offset_delta=9)
    fake.answers[FetchRequest] = lambda request, version: fake.fetch(request, records=records, high_watermark=9)
    with pytest.raises(CorruptRecords, match="a batch at 2 follows one that ends at 5"):
        read(faked, "orders", 5, 9)
    with pytest.raises(CorruptRecords, match="end before it"):
        read(faked, "orders", 50, 90)


def test_bytes_that_never_become_a_batch_are_given_up(faked: Cluster, fake: FakeBroker) -> None:
    fake.answers[FetchRequest] = lambda request, version: fake.fetch(request, records=b"x" * 20, high_watermark=9)
    with pytest.raises(CorruptRecords, match="is always truncated"):
        read(faked, "orders", 0, 9)


def test_no_answer_for_the_partition_is_no_answer(faked: Cluster, fake: FakeBroker) -> None:
    fake.answers[FetchRequest] = lambda request, version: FetchResponse()
    with pytest.raises(BadAnswer, match="has 0 answers"):
        read(faked, "orders", 0, 9)


@given(st.integers(0, 700), st.binary(min_size=1, max_size=12), st.integers(0, 8), st.integers(0, 12))
def test_no_bytes_break_it(at: int, junk: bytes, start: int, length: int) -> None:
    good = b"".join(a_batch(b"a" * 50, b"b" * 50, base_offset=2 * n) for n in range(4))
    records = memoryview(good[:at] + junk + good[at + len(junk) :])
    with contextlib.suppress(ClientError):
        whole = whole_batches(records, ORDERS, start, start + length)
        check_crcs(records, whole.batches, ORDERS)
        for _, header in whole.batches:
            assert header.last_offset >= start
            assert header.base_offset < start + length
