"""confluent-kafka, which is librdkafka. It is also the one that tests prepare with, and check what others did."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from compat.brokers import against_kafka
from compat.contract import Acks, AtTime, Cluster, Isolation, Message, OffsetOf, Place, Received, Refused, Start
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import Message as ConfluentMessage
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

SECONDS = 50
OFFSET_SPECS = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest(), "newest": OffsetSpec.max_timestamp()}


class ConfluentClient:
    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500}

    def close(self) -> None:
        pass

    def _ask(self, verb: str, *what: Any) -> Any:
        """By a new client each time: one would remember the leader epochs of a broker that has been restarted."""
        admin = AdminClient(self._common)
        answer = getattr(admin, verb)(*what, request_timeout=SECONDS)
        (future,) = answer.values() if isinstance(answer, dict) else [answer]
        try:
            return future.result(SECONDS)
        except KafkaException as error:
            raise Refused(error.args[0].code(), error) from error

    def produce(
        self,
        topic: str,
        messages: Iterable[Message],
        *,
        partition: int | None = None,
        acks: Acks = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[Place]:
        delivered: list[ConfluentMessage] = []
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: ConfluentMessage) -> None:
            if error:
                errors.append(error)
            else:
                delivered.append(message)

        producer = Producer(
            self._common
            | {"acks": acks, "compression.type": compression, "enable.idempotence": idempotent}
            | {"linger.ms": 2, "message.max.bytes": 16_000_000, "batch.num.messages": 10 if idempotent else 10_000}
        )
        for message in messages:
            where: dict[str, Any] = {} if partition is None else {"partition": partition}
            when: dict[str, Any] = {} if message.timestamp is None else {"timestamp": message.timestamp}
            headers = list(message.headers)
            producer.produce(
                topic, message.value, message.key, headers=headers, on_delivery=on_delivery, **where, **when
            )
            producer.poll(0)
        assert producer.flush(SECONDS) == 0, "not everything was answered in time"
        for error in errors:
            raise Refused(error.code(), error)
        return [Place(message.partition(), message.offset()) for message in delivered]

    @contextlib.contextmanager
    def consumer(
        self,
        topic: str,
        start: Start = "earliest",
        *,
        partitions: Sequence[int] = (0,),
        wait_ms: int = 500,
        max_bytes: int | None = None,
        isolation: Isolation | None = None,
    ) -> Iterator["ConfluentConsumer"]:
        limits: dict[str, Any] = {} if max_bytes is None else {"fetch.message.max.bytes": max_bytes}
        limits |= {} if isolation is None else {"isolation.level": isolation}
        consumer = Consumer(
            self._common
            | {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"}
            | {"fetch.wait.max.ms": wait_ms, "socket.timeout.ms": wait_ms + 60_000}
            | limits
        )
        try:
            wanted = [TopicPartition(topic, partition, _offset(start)) for partition in partitions]
            consumer.assign(consumer.offsets_for_times(wanted, SECONDS) if isinstance(start, AtTime) else wanted)
            yield ConfluentConsumer(consumer, topic)
        finally:
            consumer.close()

    def offset(self, topic: str, of: OffsetOf, *, partition: int = 0) -> int | None:
        spec = OffsetSpec.for_timestamp(of.milliseconds) if isinstance(of, AtTime) else OFFSET_SPECS[of]
        offset: int = self._ask("list_offsets", {TopicPartition(topic, partition): spec}).offset
        return None if offset < 0 else offset

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None, replicas: int = 1
    ) -> None:
        self._ask("create_topics", [NewTopic(topic, partitions, replicas, config=dict(configs or {}))])
        self.wait_for(topic)

    def wait_for(self, topic: str, *, there: bool = True) -> None:
        """Kafka is given a moment between making a topic, or deleting it, and telling so; we are not."""
        deadline = time.monotonic() + (SECONDS if against_kafka() else 0)
        while (topic in self.topics()) != there:
            assert time.monotonic() < deadline, f"{topic} does not {'come' if there else 'go'}"
            time.sleep(0.02)

    def topics(self) -> set[str]:
        try:
            return set(AdminClient(self._common).list_topics(timeout=SECONDS).topics)
        except KafkaException as error:
            raise Refused(error.args[0].code(), error) from error

    def partitions(self, topic: str) -> int:
        return len(self._ask("describe_topics", TopicCollection([topic])).partitions)

    def topic_id(self, topic: str) -> str:
        return str(self._ask("describe_topics", TopicCollection([topic])).topic_id)

    def add_partitions(self, topic: str, total: int) -> None:
        self._ask("create_partitions", [NewPartitions(topic, total)])

    def delete_topic(self, topic: str) -> None:
        self._ask("delete_topics", [topic])

    def configs(self, topic: str) -> dict[str, str]:
        found = self._ask("describe_configs", [ConfigResource(ResourceType.TOPIC, topic)])
        return {name: entry.value for name, entry in found.items()}

    def set_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self.alter_configs(
            topic,
            [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()],
        )

    def alter_configs(self, topic: str, entries: list[ConfigEntry]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._ask("incremental_alter_configs", [resource])

    def delete_records(self, topic: str, before: int, *, partition: int = 0) -> None:
        self._ask("delete_records", [TopicPartition(topic, partition, before)])

    def cluster(self) -> Cluster:
        found = self._ask("describe_cluster")
        return Cluster(found.cluster_id, {node.id: f"{node.host}:{node.port}" for node in found.nodes})


class ConfluentConsumer:
    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def take(self, count: int, *, within: float = 45) -> list[Received]:
        taken: list[Received] = []
        deadline = time.monotonic() + within
        while len(taken) < count and time.monotonic() < deadline:
            for message in self._consumer.consume(count - len(taken), timeout=min(within, 0.5)):
                if error := message.error():
                    _raise_unless_passing(error)
                else:
                    taken.append(_received(message))
        return taken

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition, offset))

    def pause(self, partition: int) -> None:
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        self._consumer.resume([TopicPartition(self._topic, partition)])


def _raise_unless_passing(error: KafkaError) -> None:
    """Only what it cannot get over by itself is an error to a test."""
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise Refused(KafkaError.OFFSET_OUT_OF_RANGE, error)
    if error.code() > 0 or error.fatal():
        raise Refused(error.code(), error)


def _received(message: ConfluentMessage) -> Received:
    headers: Any = tuple(map(tuple, message.headers() or []))
    return Received(
        message.partition(), message.offset(), message.timestamp()[1], message.value(), message.key(), headers
    )


def _offset(start: Start) -> int:
    match start:
        case "earliest":
            return OFFSET_BEGINNING
        case "latest":
            return OFFSET_END
        case AtTime(milliseconds):
            return milliseconds
    return start
