"""One Fetch of a partition: what is there now, and never less than what a broker says there is."""

import contextlib
from typing import Any

import pytest
from batches import flip
from client.conftest import a_batch, create_topic, delete_topic, options, write
from client.fakes import HANG_UP, FakeBroker, once
from client.test_offsets import delete_records

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import CorruptRecords, GaveUp, OffsetOutOfRange, TopicNotFound
from tailrace.client.fetch_once import Fetched, fetch_once
from tailrace.client.transactions import TransactionalProducer
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse
from tailrace.records.record import decode_records

ORDERS = TopicPartition("orders", 0)


def values(fetched: Fetched, offset: int = 0) -> list[bytes]:
    records = [one for position, _ in fetched.batches for one in decode_records(fetched.records, position)]
    return [one.value or b"" for one in records if one.offset >= offset]


def test_what_is_there_is_read_from_an_offset_on(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    assert fetch_once(cluster, place, 0, 1000)[1:] == ([], 0, 0)
    write(cluster, topic, b"a", b"b")
    write(cluster, topic, b"c")
    found = fetch_once(cluster, place, 1, 1 << 20)
    assert (values(found, 1), found.next_offset, found.end) == ([b"b", b"c"], 3, 3)
    assert fetch_once(cluster, place, 3, 1000)[1:] == ([], 3, 3)


def test_a_few_bytes_are_one_batch_at_least(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    write(cluster, topic, b"a" * 5000)
    write(cluster, topic, b"b")
    found = fetch_once(cluster, place, 0, 1)
    assert (values(found), found.next_offset, found.end) == ([b"a" * 5000], 1, 2)


def test_an_offset_that_is_not_there_is_told(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    write(cluster, topic, b"a", b"b", b"c")
    with pytest.raises(OffsetOutOfRange) as after:
        fetch_once(cluster, place, 4, 1000)
    delete_records(cluster, topic, 2)
    with pytest.raises(OffsetOutOfRange) as before:
        fetch_once(cluster, place, 1, 1000)
    assert [(error.value.earliest, error.value.latest) for error in (after, before)] == [(0, 3), (2, 3)]
    with pytest.raises(TopicNotFound):
        fetch_once(cluster, TopicPartition(topic, 7), 0, 1000)


def test_a_topic_of_the_same_name_is_read_in_its_place(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    write(cluster, topic, b"old")
    assert values(fetch_once(cluster, place, 0, 1000)) == [b"old"]
    delete_topic(cluster, topic)
    with contextlib.closing(Cluster(cluster.options)) as other:  # so that the first one keeps the old id
        create_topic(other, topic)
        write(other, topic, b"new")
    assert values(fetch_once(cluster, place, 0, 1000)) == [b"new"]


def test_committed_records_are_what_counts(bootstrap: str, cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    producer = TransactionalProducer(cluster, f"id-{topic}")
    for value, committed in ((b"a", True), (b"b", False), (b"c", True)):
        producer.send({place: a_batch(value)})
        producer.commit() if committed else producer.abort()
    producer.send({place: a_batch(b"open")})
    with contextlib.closing(Cluster(options(bootstrap, isolation_level="read_committed"))) as reading:
        assert all_values(reading, place) == ([b"a", b"c"], 6)
        assert fetch_once(reading, place, 6, 1 << 20)[1:] == ([], 6, 6)
    assert all_values(cluster, place) == ([b"a", b"b", b"c", b"open"], 7)
    producer.abort()


def all_values(cluster: Cluster, place: TopicPartition) -> tuple[list[bytes], int]:
    """Up to the end, and the end: a broker may return less than there is."""
    found, offset = [], 0
    while (fetched := fetch_once(cluster, place, offset, 1 << 20)).next_offset > offset:
        found += values(fetched, offset)
        offset = fetched.next_offset
    return found, fetched.end


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_passing_errors_are_retried(faked: Cluster, fake: FakeBroker, code: ErrorCode) -> None:
    fake.topics["orders"][0] = [a_batch(b"a")]
    fake.answers[FetchRequest] = once(
        lambda request, version: fake.fetch(request, error_code=code, records=None),
        lambda request, version: HANG_UP,
        lambda request, version: fake.fetch(request),
    )
    assert values(fetch_once(faked, ORDERS, 0, 1000)) == [b"a"]


def test_offsets_without_records_are_passed_over_once_it_is_sure(faked: Cluster, fake: FakeBroker) -> None:
    """Compaction has removed the records at the end."""
    fake.topics["orders"][0] = []
    fake.answers[FetchRequest] = lambda request, version: fake.fetch(request, high_watermark=9)
    assert fetch_once(faked, ORDERS, 5, 1000)[1:] == ([], 9, 9)
    assert fake.count(FetchRequest) > 1


def test_records_written_meanwhile_are_not_passed_over(faked: Cluster, fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [a_batch(b"a")]
    early = lambda request, version: fake.fetch(request, records=b"", high_watermark=1)  # noqa: E731
    fake.answers[FetchRequest] = once(early, early, lambda request, version: fake.fetch(request))
    assert values(fetch_once(faked, ORDERS, 0, 1000)) == [b"a"]


def test_a_throttled_response_says_nothing_about_records(fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [a_batch(b"a")]

    def throttled(request: FetchRequest, version: int) -> FetchResponse:
        answer: Any = fake.fetch(request, records=b"")
        answer.throttle_time_ms = 10
        return answer

    fake.answers[FetchRequest] = once(*[throttled] * 5, lambda request, version: fake.fetch(request))
    with contextlib.closing(Cluster(options(fake.bootstrap))) as cluster:
        assert values(fetch_once(cluster, ORDERS, 0, 1000)) == [b"a"]
    fake.answers[FetchRequest] = throttled
    impatient = options(fake.bootstrap, default_api_timeout_ms="200")
    with contextlib.closing(Cluster(impatient)) as cluster, pytest.raises(GaveUp):
        fetch_once(cluster, ORDERS, 0, 1000)


def test_a_batch_that_was_cut_short_is_asked_for_whole(faked: Cluster, fake: FakeBroker) -> None:
    fake.topics["orders"][0] = [a_batch(b"x" * 5000)]

    def cut(request: FetchRequest, version: int) -> FetchResponse:
        """As brokers did before KIP-74."""
        answer = fake.fetch(request)
        data = answer.responses[0].partitions[0]
        data.records = bytes(data.records or b"")[: request.topics[0].partitions[0].partition_max_bytes]
        return answer

    fake.answers[FetchRequest] = cut
    assert values(fetch_once(faked, ORDERS, 0, 100)) == [b"x" * 5000]


@pytest.mark.parametrize("damage", ["crc", "always cut", "told"])
def test_damage_is_named_and_not_passed_over(faked: Cluster, fake: FakeBroker, damage: str) -> None:
    batch = a_batch(b"x" * 500)
    if damage == "crc":
        fake.topics["orders"][0] = [bytearray(flip(bytes(batch), 8 * (len(batch) - 5)))]
    else:
        fake.topics["orders"][0] = [batch]
        fields: dict[str, Any] = (
            {"records": bytes(batch[:200])} if damage == "always cut" else {"error_code": ErrorCode.CORRUPT_MESSAGE}
        )
        fake.answers[FetchRequest] = lambda request, version: fake.fetch(request, **fields)
    with pytest.raises(CorruptRecords):
        fetch_once(faked, ORDERS, 0, 1000)
