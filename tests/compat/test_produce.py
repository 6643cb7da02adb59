"""What clients send is kept as they sent it, whatever they compress with and however they want it acknowledged."""

import time
from pathlib import Path

import pytest
from compat.brokers import BrokerProcess
from compat.clients.confluent import ConfluentClient
from compat.contract import Acks, Client, Code, Message, Received, each_client_that, refused

from tailrace.records.batch import split
from tailrace.records.compression import Codec

MAX_MESSAGE_BYTES = 1_048_588  # Kafka's default: the largest batch
OVERHEAD = 72  # of a batch with one record of about a megabyte, without key or headers
MINUTE_MS = 60_000

some_messages = [Message(b"value %d" % n, b"key %d" % (n % 3)) for n in range(50)]
keyless = [Message(b"value %d" % n) for n in range(20)]


def read(reference: ConfluentClient, topic: str, count: int, *, partition: int = 0) -> list[Received]:
    """So many messages from the beginning; the partition holds no more."""
    with reference.consumer(topic, 0, partitions=[partition]) as consumer:
        found = consumer.take(count)
    assert [each.offset for each in found] == list(range(count))
    assert reference.offset(topic, "latest", partition=partition) == count
    return found


def sent(found: list[Received]) -> list[Message]:
    return [each.message for each in found]


def codecs_on_disk(directory: Path) -> set[str]:
    (segment,) = directory.glob("*.log")
    return {Codec(header.codec).name.lower() for _, header in split(segment.read_bytes())}


@each_client_that("produces")
@pytest.mark.parametrize("acks", ["1", "all"])
def test_messages_are_kept_as_they_were_sent(
    client: Client, reference: ConfluentClient, topic: str, acks: Acks
) -> None:
    client.produce(topic, some_messages, acks=acks)
    assert sent(read(reference, topic, len(some_messages))) == some_messages


@each_client_that("produces")
def test_messages_that_nobody_acknowledges_are_kept_too(client: Client, reference: ConfluentClient, topic: str) -> None:
    client.produce(topic, some_messages, acks="0")
    with reference.consumer(topic, 0) as consumer:
        assert sent(consumer.take(len(some_messages))) == some_messages


def check_codec(client: Client, reference: ConfluentClient, broker: BrokerProcess, topic: str, codec: str) -> None:
    compressible = [Message(b"value %d " % n * 40, b"key") for n in range(50)]
    client.produce(topic, compressible, compression=codec)
    assert sent(read(reference, topic, len(compressible))) == compressible
    assert codecs_on_disk(broker.data / f"{topic}-0") == {codec}


@each_client_that("compresses")
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_messages_are_kept_as_they_were_compressed(
    client: Client, reference: ConfluentClient, broker: BrokerProcess, topic: str, codec: str
) -> None:
    check_codec(client, reference, broker, topic, codec)


@each_client_that("knows every codec")
@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstd"])
def test_messages_are_kept_as_they_were_compressed_by_other_codecs(
    client: Client, reference: ConfluentClient, broker: BrokerProcess, topic: str, codec: str
) -> None:
    check_codec(client, reference, broker, topic, codec)


@each_client_that("sends headers")
def test_headers_are_kept_in_order_with_names_that_repeat(
    client: Client, reference: ConfluentClient, topic: str
) -> None:
    messages = [Message(b"value", b"key", (("a", b"1"), ("a", b""), ("b", b"2"))) for _ in range(3)]
    client.produce(topic, messages)
    assert sent(read(reference, topic, 3)) == messages


@each_client_that("sends headers", but=["kafka-python", "kafkajs"])  # which refuse them themselves
def test_headers_without_a_value_are_kept(client: Client, reference: ConfluentClient, topic: str) -> None:
    messages = [Message(b"value", b"key", (("none", None), ("empty", b"")))]
    client.produce(topic, messages)
    assert sent(read(reference, topic, 1)) == messages


@each_client_that("produces")
def test_a_null_value_is_not_an_empty_one(client: Client, reference: ConfluentClient, topic: str) -> None:
    messages = [Message(None, b"key"), Message(None, b"other")]
    client.produce(topic, messages)
    client.produce(topic, [Message(b"", b"key")])
    assert sent(read(reference, topic, 3)) == [*messages, Message(b"", b"key")]


@each_client_that("mixes nulls and empties")
def test_null_and_empty_keys_and_values_are_kept(client: Client, reference: ConfluentClient, topic: str) -> None:
    messages = [Message(b"v", None), Message(b"v", b""), Message(None, b"k"), Message(b"", b"k"), Message(b"", None)]
    client.produce(topic, messages)
    assert sent(read(reference, topic, len(messages))) == messages


@each_client_that("sends any bytes")
def test_any_bytes_are_kept(client: Client, reference: ConfluentClient, topic: str) -> None:
    messages = [Message(bytes(range(256)), bytes(reversed(range(256))), (("ü", b"\xff\x00"),))]
    client.produce(topic, messages)
    assert sent(read(reference, topic, 1)) == messages


@each_client_that("produces")
def test_a_message_may_be_as_large_as_the_topic_allows_and_no_larger(
    client: Client, reference: ConfluentClient, topic: str
) -> None:
    largest = b"x" * (MAX_MESSAGE_BYTES - OVERHEAD)
    client.produce(topic, [Message(largest)])
    with refused(Code.MESSAGE_TOO_LARGE):
        client.produce(topic, [Message(largest + b"x")])
    assert sent(read(reference, topic, 1)) == [Message(largest)]


@each_client_that("produces")
def test_several_messages_of_a_megabyte_are_kept(client: Client, reference: ConfluentClient, topic: str) -> None:
    messages = [Message(b"%d" % n * 1_000_000, b"key") for n in range(5)]
    client.produce(topic, messages)
    assert sent(read(reference, topic, 5)) == messages


@each_client_that("produces")
def test_messages_of_a_key_go_to_one_partition_in_order(client: Client, reference: ConfluentClient, name: str) -> None:
    reference.create_topic(name, partitions=4)
    messages = [Message(b"%d" % n, b"key %d" % (n % 20)) for n in range(100)]
    client.produce(name, messages)
    found = []
    for partition in range(4):
        found += read(reference, name, reference.offset(name, "latest", partition=partition) or 0, partition=partition)
    assert len(found) == len(messages)
    assert len({each.partition for each in found}) > 1
    for key in {message.key for message in messages}:
        assert len({each.partition for each in found if each.key == key}) == 1
        assert [each.message for each in found if each.key == key] == [each for each in messages if each.key == key]


@each_client_that("chooses partitions")
def test_messages_go_to_the_partition_that_the_client_chose(
    client: Client, reference: ConfluentClient, name: str
) -> None:
    reference.create_topic(name, partitions=3)
    client.produce(name, some_messages, partition=2)
    assert sent(read(reference, name, len(some_messages), partition=2)) == some_messages


@each_client_that("sets timestamps")
def test_timestamps_are_kept(client: Client, reference: ConfluentClient, topic: str) -> None:
    now = int(time.time() * 1000)
    times = [now - MINUTE_MS, now, now - 2 * MINUTE_MS, 1, now + MINUTE_MS]
    client.produce(topic, [Message(b"v", b"k", timestamp=when) for when in times])
    assert [each.timestamp for each in read(reference, topic, len(times))] == times


@each_client_that("sets timestamps")
def test_a_timestamp_far_in_the_future_is_refused(client: Client, reference: ConfluentClient, topic: str) -> None:
    with refused(Code.INVALID_TIMESTAMP):
        client.produce(topic, [Message(b"v", b"k", timestamp=int(time.time() * 1000) + 120 * MINUTE_MS)])
    assert reference.offset(topic, "latest") == 0


@each_client_that("sets timestamps")
def test_a_topic_may_keep_the_broker_s_time_instead(client: Client, reference: ConfluentClient, name: str) -> None:
    reference.create_topic(name, configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    client.produce(name, [Message(b"v", b"k", timestamp=1), Message(b"v", b"k", timestamp=2)])
    assert all(before <= each.timestamp <= time.time() * 1000 for each in read(reference, name, 2))


@each_client_that("tells offsets")
@pytest.mark.parametrize("acks", ["1", "all"])
def test_the_client_is_told_where_its_messages_are(
    client: Client, reference: ConfluentClient, topic: str, acks: Acks
) -> None:
    reference.produce(topic, keyless)
    places = client.produce(topic, some_messages, acks=acks)
    assert places == [(0, len(keyless) + n) for n in range(len(some_messages))]


@each_client_that("produces")
def test_a_topic_is_made_by_the_first_message_for_it(client: Client, reference: ConfluentClient, name: str) -> None:
    client.produce(name, some_messages)
    assert sent(read(reference, name, len(some_messages))) == some_messages


@each_client_that("produces", but=["aiokafka", "kafka-python"])  # which look at names themselves
def test_no_topic_is_made_of_a_name_that_is_none(client: Client, reference: ConfluentClient) -> None:
    with refused(Code.INVALID_TOPIC):
        client.produce("not/a/name", keyless)
    assert "not/a/name" not in reference.topics()


@each_client_that("produces", but=["aiokafka"])  # which does not know the number of this error
def test_a_message_without_a_key_is_refused_where_keys_are_what_is_kept(
    client: Client, reference: ConfluentClient, name: str
) -> None:
    reference.create_topic(name, configs={"cleanup.policy": "compact"})
    with refused(Code.INVALID_RECORD):
        client.produce(name, [Message(b"value")])
    client.produce(name, some_messages)
    assert sent(read(reference, name, len(some_messages))) == some_messages


@each_client_that("is idempotent")
def test_an_idempotent_producer_s_messages_are_kept_as_they_were_sent(
    client: Client, reference: ConfluentClient, topic: str
) -> None:
    for _ in range(2):
        client.produce(topic, some_messages, idempotent=True)
    assert sent(read(reference, topic, 2 * len(some_messages))) == some_messages * 2
