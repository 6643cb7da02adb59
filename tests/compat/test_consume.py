"""Clients that are given partitions read them from where they want, message by message, and never past the end."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator

import pytest
from compat.clients.confluent import ConfluentClient
from compat.contract import CODECS, AtTime, Client, Code, Message, each_client_that, refused

COUNT = 100
LONG_AGO = 1_700_000_000_000  # from there on, ten milliseconds between two of the messages


@pytest.fixture
def filled(reference: ConfluentClient, topic: str) -> str:
    """A topic with messages in batches of twenty, each batch compressed in another way."""
    for start, codec in zip(range(0, COUNT, 20), CODECS, strict=True):
        reference.produce(
            topic,
            [
                Message(b"value %d" % n * 9, b"key %d" % n, timestamp=LONG_AGO + 10 * n)
                for n in range(start, start + 20)
            ],
            compression=codec,
        )
    return topic


@each_client_that("consumes")
def test_every_message_is_read_from_the_beginning_in_order(client: Client, filled: str) -> None:
    with client.consumer(filled) as consumer:
        found = consumer.take(COUNT)
    assert [(each.partition, each.offset) for each in found] == [(0, n) for n in range(COUNT)]
    assert [each.value for each in found] == [b"value %d" % n * 9 for n in range(COUNT)]
    assert [each.key for each in found] == [b"key %d" % n for n in range(COUNT)]
    assert [each.timestamp for each in found] == [LONG_AGO + 10 * n for n in range(COUNT)]


@each_client_that("consumes")
def test_nulls_empties_and_headers_are_read_as_they_were_sent(
    client: Client, reference: ConfluentClient, topic: str
) -> None:
    headers = (("a", b"1"), ("a", b""), ("none", None))
    messages = [Message(None, b"k"), Message(b"", b"k"), Message(b"v", None), Message(b"v", b""), Message(None, None)]
    messages.append(Message(b"v", b"k", headers))
    reference.produce(topic, messages)
    with client.consumer(topic) as consumer:
        assert [each.message for each in consumer.take(len(messages))] == messages


@each_client_that("consumes")
@pytest.mark.parametrize("offset", [37, 60])
def test_reading_starts_at_an_offset_within_a_batch_or_not(client: Client, filled: str, offset: int) -> None:
    with client.consumer(filled, offset) as consumer:
        assert [each.offset for each in consumer.take(COUNT - offset)] == list(range(offset, COUNT))


@contextlib.contextmanager
def ticking(reference: ConfluentClient, topic: str) -> Iterator[None]:
    """Numbered messages, one after the other, until the end."""
    ended = threading.Event()

    def ticks() -> Iterator[Message]:
        for number in itertools.count():
            if ended.wait(0.02):
                return
            yield Message(b"tick %d" % number)

    thread = threading.Thread(target=lambda: reference.produce(topic, ticks()))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@each_client_that("consumes")
def test_reading_from_the_end_gives_only_what_comes_later(
    client: Client, reference: ConfluentClient, filled: str
) -> None:
    with client.consumer(filled, "latest") as consumer, ticking(reference, filled):
        found = consumer.take(20)
    assert found[0].offset >= COUNT
    assert [each.offset for each in found] == list(range(found[0].offset, found[0].offset + 20))
    assert [each.value for each in found] == [b"tick %d" % (each.offset - COUNT) for each in found]


@each_client_that("starts at a time")
@pytest.mark.parametrize(("milliseconds", "offset"), [(0, 0), (200, 20), (365, 37), (990, 99)])
def test_reading_starts_at_the_first_message_of_a_time(
    client: Client, filled: str, milliseconds: int, offset: int
) -> None:
    with client.consumer(filled, AtTime(LONG_AGO + milliseconds)) as consumer:
        assert [each.offset for each in consumer.take(COUNT - offset)] == list(range(offset, COUNT))


@each_client_that("seeks")
def test_a_reader_goes_back_and_forward(client: Client, filled: str) -> None:
    with client.consumer(filled) as consumer:
        assert [each.offset for each in consumer.take(50)] == list(range(50))
        for offset, count in ((10, 30), (90, 10), (0, 100), (55, 1)):
            consumer.seek(0, offset)
            assert [each.offset for each in consumer.take(count)] == list(range(offset, offset + count))


@each_client_that("pauses")
def test_a_paused_reader_goes_on_where_it_was(client: Client, reference: ConfluentClient, filled: str) -> None:
    with client.consumer(filled, max_bytes=100) as consumer:
        found = consumer.take(30)
        consumer.pause(0)
        found += consumer.take(COUNT, within=0.5)  # what it had fetched by then may still come
        assert consumer.take(1, within=0.5) == []
        reference.produce(filled, [Message(b"later")])
        assert consumer.take(1, within=0.5) == []
        consumer.resume(0)
        found += consumer.take(COUNT + 1 - len(found))
    assert [each.offset for each in found] == list(range(COUNT + 1))


@each_client_that("consumes")
def test_an_offset_past_the_end_is_an_error(client: Client, filled: str) -> None:
    with client.consumer(filled, COUNT + 1) as consumer, refused(Code.OFFSET_OUT_OF_RANGE):
        consumer.take(1)


@each_client_that("consumes")
def test_an_offset_before_the_first_is_an_error(client: Client, reference: ConfluentClient, filled: str) -> None:
    reference.delete_records(filled, 30)
    with client.consumer(filled, 29) as consumer, refused(Code.OFFSET_OUT_OF_RANGE):
        consumer.take(1)
    with client.consumer(filled) as consumer:
        assert [each.offset for each in consumer.take(COUNT - 30)] == list(range(30, COUNT))


@each_client_that("limits bytes")
def test_a_batch_comes_whole_however_few_bytes_are_asked_for(client: Client, filled: str) -> None:
    with client.consumer(filled, max_bytes=1) as consumer:
        assert [each.offset for each in consumer.take(COUNT)] == list(range(COUNT))


@each_client_that("consumes")
def test_messages_of_a_megabyte_are_read(client: Client, reference: ConfluentClient, topic: str) -> None:
    messages = [Message(b"%d" % n * 1_000_000) for n in range(8)]
    reference.produce(topic, messages)
    with client.consumer(topic) as consumer:
        assert [each.message for each in consumer.take(8)] == messages


@each_client_that("consumes")
def test_a_long_history_is_read_to_its_end(client: Client, reference: ConfluentClient, topic: str) -> None:
    """Long enough for the broker to hand who reads on to another process, once that is there."""
    messages = [Message(b"%d " % n * 2_000) for n in range(3_000)]
    reference.produce(topic, messages)
    with client.consumer(topic) as consumer:
        found = consumer.take(len(messages))
    assert [each.offset for each in found] == list(range(len(messages)))
    assert all(each.message == message for each, message in zip(found, messages, strict=True))


@each_client_that("assigns many")
def test_many_partitions_are_read_at_once(client: Client, reference: ConfluentClient, name: str) -> None:
    reference.create_topic(name, partitions=30)
    for partition in range(30):
        reference.produce(name, [Message(b"%d" % n) for n in range(10)], partition=partition)
    with client.consumer(name, partitions=range(30)) as consumer:
        found = consumer.take(300)
    for partition in range(30):
        assert [each.value for each in found if each.partition == partition] == [b"%d" % n for n in range(10)]


@each_client_that("assigns many")
def test_a_partition_is_read_while_others_are_empty(client: Client, reference: ConfluentClient, name: str) -> None:
    reference.create_topic(name, partitions=10)
    for partition in range(10):
        reference.produce(name, [Message(b"first")], partition=partition)
    with client.consumer(name, 0, partitions=range(10), wait_ms=10_000) as consumer:
        assert len(consumer.take(10)) == 10  # from now on it asks for all of them at once
        for partition in (7, 2, 9, 2):
            reference.produce(name, [Message(b"value")], partition=partition)
            assert [each.partition for each in consumer.take(1, within=8)] == [partition]


@each_client_that("consumes")
def test_a_consumer_at_the_end_gets_a_message_at_once_and_not_at_its_timeout(
    client: Client, reference: ConfluentClient, filled: str
) -> None:
    with client.consumer(filled, COUNT - 1, wait_ms=30_000) as consumer:
        assert [each.offset for each in consumer.take(1)] == [COUNT - 1]
        for number in range(3):
            time.sleep(0.3)
            reference.produce(filled, [Message(b"later %d" % number)])
            assert [each.value for each in consumer.take(1, within=15)] == [b"later %d" % number]
