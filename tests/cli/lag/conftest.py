"""Two brokers for the same tests: ours, and Apache Kafka, where only estimates can be had."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cli.conftest import our_broker
from compat.brokers import KafkaProcess
from waits import until

OURS = pytest.mark.parametrize("bootstrap", ["tailrace"], indirect=True, scope="session")


@pytest.fixture(scope="session", params=["tailrace", pytest.param("kafka", marks=pytest.mark.needs("kafka"))])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp(request.param) / "broker"
    if request.param == "tailrace":
        with our_broker(directory) as (address, _):
            yield address
        return
    settings = {"group.initial.rebalance.delay.ms": "0", "transaction.state.log.num.partitions": "1"}
    with contextlib.closing(KafkaProcess(directory, settings=settings)) as kafka:
        kafka.start()
        yield kafka.bootstrap


@pytest.fixture
def is_ours(request: pytest.FixtureRequest, bootstrap: str) -> bool:
    from tailrace.monitor.sources.connection import connect
    from tailrace.monitor.sources.tailrace_facts import TailraceFacts, facts_about

    with contextlib.closing(connect({"bootstrap.servers": bootstrap})) as cluster:
        return isinstance(facts_about(cluster), TailraceFacts)


@pytest.fixture
def commit(admin: Any) -> Callable[[str, str, int], None]:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

    def commit(group: str, topic: str, offset: int) -> None:
        places = [TopicPartition(topic, 0, offset)]

        def is_committed() -> bool:  # the first commit to a Kafka finds no coordinator for a while
            with contextlib.suppress(KafkaException):
                result = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group]
                return not any(place.error for place in result.result(20).topic_partitions)
            return False

        until(is_committed)

    return commit


@pytest.fixture
def produce(bootstrap: str) -> Callable[..., None]:
    """Produces one message for each timestamp, in one batch."""
    from confluent_kafka import Producer

    def produce(topic: str, timestamps: list[int], **config: Any) -> None:
        settings = {"linger.ms": 200, **{key.replace("_", "."): value for key, value in config.items()}}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for number, timestamp in enumerate(timestamps):
            producer.produce(topic, f"value {number}" * 20, timestamp=timestamp)
        assert producer.flush(30) == 0

    return produce
