"""kafka-python."""

import contextlib
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from compat.contract import Acks, AtTime, Cluster, Code, Isolation, Message, OffsetOf, Place, Received, Refused, Start
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import BrokerResponseError, KafkaError

SECONDS = 50
BIG = 16_000_000
logging.getLogger("kafka").setLevel(logging.CRITICAL)  # pytest would keep what it logs, with the sockets it speaks of
OFFSET_SPECS = {"earliest": -2, "latest": -1, "newest": -3}


class KafkaPythonClient:
    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap_servers": bootstrap, "reconnect_backoff_max_ms": 500}

    def close(self) -> None:
        pass

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
        producer = KafkaProducer(
            **self._common,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            max_request_size=BIG,
        )
        try:
            answers = []
            for value, key, headers, timestamp in messages:
                where = {"partition": partition, "timestamp_ms": timestamp, "headers": list(headers)}
                answers.append(producer.send(topic, value, key, **where))
            with _refusals():
                return [Place(found.partition, found.offset) for found in (answer.get(SECONDS) for answer in answers)]
        finally:
            producer.close()

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
    ) -> Iterator["KafkaPythonConsumer"]:
        own: dict[str, Any] = {} if isolation is None else {"isolation_level": isolation}
        own |= {} if max_bytes is None else {"max_partition_fetch_bytes": max_bytes, "fetch_max_bytes": max_bytes}
        consumer = KafkaConsumer(
            **self._common,
            auto_offset_reset="none",
            fetch_max_wait_ms=wait_ms,
            request_timeout_ms=wait_ms + 60_000,
            **own,
        )
        try:
            wanted = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(wanted)
            _place(consumer, wanted, start)
            yield KafkaPythonConsumer(consumer, topic)
        finally:
            consumer.close()

    @contextlib.contextmanager
    def _admin(self) -> Iterator[KafkaAdminClient]:
        admin = KafkaAdminClient(**self._common, request_timeout_ms=SECONDS * 1000)
        try:
            with _refusals():
                yield admin
        finally:
            admin.close()

    def offset(self, topic: str, of: OffsetOf, *, partition: int = 0) -> int | None:
        wanted = TopicPartition(topic, partition)
        spec = of.milliseconds if isinstance(of, AtTime) else OFFSET_SPECS[of]
        with self._admin() as admin:
            offset: int = admin.list_partition_offsets({wanted: spec})[wanted].offset
        return None if offset < 0 else offset

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        with self._admin() as admin:
            admin.create_topics({topic: {"num_partitions": partitions, "configs": dict(configs or {})}})

    def topics(self) -> set[str]:
        with self._admin() as admin:
            return set(admin.list_topics())

    def partitions(self, topic: str) -> int:
        with self._admin() as admin:
            (found,) = admin.describe_topics([topic])
        if found["error_code"]:
            raise Refused(found["error_code"])
        return len(found["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        with self._admin() as admin:
            admin.create_partitions({topic: total})

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])

    def configs(self, topic: str) -> dict[str, str]:
        with self._admin() as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            found = admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: config["value"] for name, config in found.items()}

    def set_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        with self._admin() as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
            said = admin.alter_configs([resource], raise_on_unknown=False)["topic"][topic]
        if error := re.match(r"\[Error (\d+)\]", said):
            raise Refused(int(error[1]), said)
        assert said == "OK"

    def delete_records(self, topic: str, before: int, *, partition: int = 0) -> None:
        with self._admin() as admin:
            admin.delete_records({TopicPartition(topic, partition): before})

    def cluster(self) -> Cluster:
        with self._admin() as admin:
            found = admin.describe_cluster()
        brokers = {broker["broker_id"]: f"{broker['host']}:{broker['port']}" for broker in found["brokers"]}
        return Cluster(found["cluster_id"], brokers)


class KafkaPythonConsumer:
    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def take(self, count: int, *, within: float = 45) -> list[Received]:
        taken: list[Received] = []
        deadline = time.monotonic() + within
        while len(taken) < count and time.monotonic() < deadline:
            with _refusals():
                found = self._consumer.poll(timeout_ms=200, max_records=count - len(taken))
            taken += [_received(record) for records in found.values() for record in records]
        return taken

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition), offset)

    def pause(self, partition: int) -> None:
        self._consumer.pause(TopicPartition(self._topic, partition))

    def resume(self, partition: int) -> None:
        self._consumer.resume(TopicPartition(self._topic, partition))


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise Refused(error.errno, error) from error
    except KafkaError as error:
        raise Refused(Code.UNREACHABLE, error) from error


def _place(consumer: KafkaConsumer, partitions: list[TopicPartition], start: Start) -> None:
    match start:
        case "earliest":
            consumer.seek_to_beginning(*partitions)
        case "latest":
            consumer.seek_to_end(*partitions)
        case AtTime(milliseconds):
            found = consumer.offsets_for_times(dict.fromkeys(partitions, milliseconds))
            for partition, place in found.items():
                consumer.seek(partition, place.offset)
        case _:
            for partition in partitions:
                consumer.seek(partition, start)


def _received(record: Any) -> Received:
    return Received(record.partition, record.offset, record.timestamp, record.value, record.key, tuple(record.headers))
