"""Transactions through real clients: what each producer commits is what each reader of committed messages gets."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from compat.brokers import BrokerProcess
from compat.clients.confluent import ConfluentClient
from compat.contract import Client, Isolation, Message, each_client_that
from compat.transactions import each_producer, transactional
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

ISOLATIONS: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
END = "end"


class Story(NamedTuple):
    """What is in each of the two partitions of a topic."""

    topic: str
    committed: list[str]
    everything: list[str]

    def values(self, isolation: Isolation) -> list[str]:
        return self.committed if isolation == "read_committed" else self.everything


def produce(client: ConfluentClient, topic: str, value: str) -> None:
    """To both partitions, outside of any transaction."""
    for partition in (0, 1):
        client.produce(topic, [Message(value.encode())], partition=partition)


def tell(kind: str, bootstrap: str, topic: str) -> Story:
    """Transactions that commit, abort, end with their producer, and are fenced, one after the other."""
    client = ConfluentClient(bootstrap)
    client.create_topic(topic, partitions=2)
    everything: list[str] = []

    def both(say: Callable[..., None], *values: str) -> None:
        for partition in (0, 1):
            say(topic, *values, partition=partition)
        everything.extend(values)

    both(lambda topic, value, partition: client.produce(topic, [Message(value.encode())], partition=partition), "plain")
    with transactional(kind, bootstrap, topic) as first:
        first.do("begin")
        both(first.send, "1", "2", "3")
        first.do("commit")
        first.do("begin")
        both(first.send, "aborted 1", "aborted 2")
        first.do("abort")
        first.do("begin")
        both(first.send, "4")
        first.do("commit")
        first.do("begin")
        both(first.send, "of a producer that crashes")
    with transactional(kind, bootstrap, topic) as second:
        second.do("begin")
        both(second.send, "5", "6")
        second.do("commit")
        second.do("begin")
        both(second.send, "fenced")
        with transactional(kind, bootstrap, topic) as third:
            third.do("begin")
            both(third.send, "7")
            assert second.attempt("commit").startswith("fenced")
            third.do("commit")
    produce(client, topic, END)
    everything.append(END)
    aborted = {"aborted 1", "aborted 2", "of a producer that crashes", "fenced"}
    return Story(topic, [value for value in everything if value not in aborted], everything)


@pytest.fixture(scope="session")
def stories(shared_broker: BrokerProcess) -> Callable[[str], Story]:
    """The story of each kind of producer, told once."""
    told: dict[str, Story] = {}

    def story(kind: str) -> Story:
        if kind not in told:
            told[kind] = tell(kind, shared_broker.bootstrap, f"story-of-{kind}")
        return told[kind]

    return story


def values_up_to_the_end(client: Client, topic: str, isolation: Isolation, partition: int = 0) -> list[str]:
    found: list[str] = []
    with client.consumer(topic, partitions=(partition,), isolation=isolation) as consumer:
        while END not in found:
            taken = consumer.take(1)
            assert taken, f"nothing comes after {found}"
            found += [(each.value or b"").decode() for each in taken]
    return found


@each_producer()
@each_client_that("reads what is committed")
def test_readers_get_the_committed_messages_or_all_in_order(
    stories: Callable[[str], Story], kind: str, client: Client
) -> None:
    story = stories(kind)
    for isolation in ISOLATIONS:
        assert values_up_to_the_end(client, story.topic, isolation) == story.values(isolation)


@each_producer()
def test_every_partition_of_a_transaction_ends_alike(
    stories: Callable[[str], Story], kind: str, reference: ConfluentClient
) -> None:
    story = stories(kind)
    for isolation in ISOLATIONS:
        assert values_up_to_the_end(reference, story.topic, isolation, 1) == story.values(isolation)


@each_client_that("reads what is committed")
def test_a_reader_of_committed_messages_waits_for_the_commit(
    broker: BrokerProcess, reference: ConfluentClient, topic: str, client: Client
) -> None:
    with transactional("confluent", broker.bootstrap, topic) as producer:
        producer.do("begin")
        producer.send(topic, "1", "2")
        reference.produce(topic, [Message(b"plain")])
        with client.consumer(topic, isolation="read_uncommitted") as consumer:
            assert [each.value for each in consumer.take(3)] == [b"1", b"2", b"plain"]
        with client.consumer(topic, isolation="read_committed") as consumer:
            assert consumer.take(1, within=1) == []
            producer.do("commit")
            assert [each.value for each in consumer.take(3)] == [b"1", b"2", b"plain"]


@each_producer()
def test_the_timeout_aborts_the_transaction_of_a_producer_that_crashed(
    broker: BrokerProcess, reference: ConfluentClient, topic: str, kind: str
) -> None:
    with transactional(kind, broker.bootstrap, topic, timeout_ms=1500) as producer:
        producer.do("begin")
        producer.send(topic, "left")
    reference.produce(topic, [Message(END.encode())])
    assert values_up_to_the_end(reference, topic, "read_committed") == [END]


@each_producer()
def test_a_producer_that_is_too_slow_commits_nothing(
    broker: BrokerProcess, reference: ConfluentClient, topic: str, kind: str
) -> None:
    with transactional(kind, broker.bootstrap, topic, timeout_ms=1500) as producer:
        producer.do("begin")
        producer.send(topic, "late")
        reference.produce(topic, [Message(END.encode())])
        assert values_up_to_the_end(reference, topic, "read_committed") == [END]  # which is when it was aborted
        assert producer.attempt("commit") != "done"
    with transactional(kind, broker.bootstrap, topic) as producer:
        producer.do("begin")
        producer.send(topic, "in time")
        producer.do("commit")
    with reference.consumer(topic, isolation="read_committed") as consumer:
        assert [each.value for each in consumer.take(2)] == [END.encode(), b"in time"]


@each_producer()
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_a_transaction_outlives_the_broker(own_broker: BrokerProcess, name: str, kind: str, verb: str) -> None:
    client = ConfluentClient(own_broker.bootstrap)
    client.create_topic(name)
    with transactional(kind, own_broker.bootstrap, name) as producer:
        producer.do("begin")
        producer.send(name, "1")
        own_broker.kill_and_start()
        producer.send(name, "2")
        own_broker.kill_and_start()
        producer.do(verb)
        own_broker.kill_and_start()
        producer.do("begin")
        producer.send(name, "3")
        producer.do("commit")
    client.produce(name, [Message(END.encode())])
    assert values_up_to_the_end(client, name, "read_uncommitted") == ["1", "2", "3", END]
    committed = ["1", "2", "3", END] if verb == "commit" else ["3", END]
    assert values_up_to_the_end(client, name, "read_committed") == committed


# Offsets in a transaction


def committed_offset(bootstrap: str, group: str, topic: str, *, is_stable: bool = False) -> int | None:
    """None where a transaction is open, if those that are stable are asked for; -1001 where there is none."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    (answer,) = admin.list_consumer_group_offsets(wanted, require_stable=is_stable, request_timeout=30).values()
    (found,) = answer.result(40).topic_partitions
    return None if found.error else int(found.offset)


@each_producer()
def test_offsets_count_when_their_transaction_is_committed(
    broker: BrokerProcess, topic: str, reference: ConfluentClient, kind: str
) -> None:
    reference.produce(topic, [Message(b"x")] * 9)
    group = f"group-{topic}"
    with transactional(kind, broker.bootstrap, topic) as producer:
        for offset, verb, wanted in ((3, "abort", -1001), (5, "commit", 5), (7, "abort", 5), (8, "commit", 8)):
            before = committed_offset(broker.bootstrap, group, topic)
            producer.do("begin")
            producer.do("offset", group, topic, 0, offset - 1)
            producer.do("offset", group, topic, 0, offset)
            assert committed_offset(broker.bootstrap, group, topic) == before
            assert committed_offset(broker.bootstrap, group, topic, is_stable=True) is None
            producer.do(verb)
            assert committed_offset(broker.bootstrap, group, topic, is_stable=True) == wanted
        producer.do("begin")
        producer.do("offset", group, topic, 0, 9)
    with transactional(kind, broker.bootstrap, topic):  # which aborts what the one that was killed has left
        assert committed_offset(broker.bootstrap, group, topic, is_stable=True) == 8


@each_producer()
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_messages_and_offsets_of_a_transaction_outlive_the_broker(
    own_broker: BrokerProcess, name: str, kind: str, verb: str
) -> None:
    client = ConfluentClient(own_broker.bootstrap)
    client.create_topic(name)
    with transactional(kind, own_broker.bootstrap, name) as producer:
        producer.do("begin")
        producer.send(name, "1")
        producer.do("offset", "group", name, 0, 5)
        own_broker.kill_and_start()
        producer.do("offset", "group", name, 0, 7)
        producer.do(verb)
        own_broker.kill_and_start()
    client.produce(name, [Message(END.encode())])
    assert values_up_to_the_end(client, name, "read_committed") == (["1", END] if verb == "commit" else [END])
    assert committed_offset(own_broker.bootstrap, "group", name) == (7 if verb == "commit" else -1001)
