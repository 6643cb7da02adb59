"""aiokafka, on an event loop of its own in a thread, so that it goes on while a test does something else."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, KafkaError
from compat.contract import Acks, AtTime, Cluster, Code, Isolation, Message, OffsetOf, Place, Received, Refused, Start

SECONDS = 50
T = TypeVar("T")


class AiokafkaClient:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka")
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        del self._loop  # and all that hangs on it

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS + 5)
        except BrokerResponseError as error:
            raise Refused(error.errno, error) from error
        except KafkaError as error:
            raise Refused(Code.UNREACHABLE, error) from error

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
        settings = {
            "acks": acks if acks == "all" else int(acks),
            "compression_type": None if compression == "none" else compression,
            "enable_idempotence": idempotent,
            "request_timeout_ms": SECONDS * 1000,  # for a message, with all its retries
        }
        return self._run(self._produce(topic, messages, partition, settings))

    async def _produce(
        self, topic: str, messages: Iterable[Message], partition: int | None, settings: dict[str, Any]
    ) -> list[Place]:
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, max_request_size=16_000_000, **settings)
        await producer.start()
        try:
            answers = []
            todo = iter(messages)
            while (message := await asyncio.to_thread(next, todo, None)) is not None:
                value, key, headers, timestamp = message
                where = {"partition": partition, "timestamp_ms": timestamp, "headers": list(headers)}
                answers.append(await producer.send(topic, value, key, **where))
            found = await asyncio.gather(*answers, return_exceptions=True)
            places = []
            for each in found:
                if isinstance(each, BaseException):
                    raise each
                if each is not None:  # unless unacknowledged
                    places.append(Place(each.partition, each.offset))
            return places
        finally:
            await producer.stop()

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
    ) -> Iterator["AiokafkaConsumer"]:
        own: dict[str, Any] = {} if isolation is None else {"isolation_level": isolation}
        own |= {} if max_bytes is None else {"max_partition_fetch_bytes": max_bytes, "fetch_max_bytes": max_bytes}
        consumer = self._run(self._started(topic, partitions, start, fetch_max_wait_ms=wait_ms, **own))
        try:
            yield AiokafkaConsumer(consumer, topic, self._run)
        finally:
            self._run(consumer.stop())

    async def _started(self, topic: str, partitions: Sequence[int], start: Start, **settings: Any) -> AIOKafkaConsumer:
        wait_ms = settings.get("fetch_max_wait_ms", 0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="none",
            request_timeout_ms=wait_ms + 40_000,
            **settings,
        )
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        await consumer.start()
        consumer.assign(wanted)
        await _place(consumer, wanted, start)
        return consumer

    def offset(self, topic: str, of: OffsetOf, *, partition: int = 0) -> int | None:
        return self._run(self._offset(TopicPartition(topic, partition), of))

    async def _offset(self, partition: TopicPartition, of: OffsetOf) -> int | None:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        await consumer.start()
        try:
            if isinstance(of, AtTime):
                found = (await consumer.offsets_for_times({partition: of.milliseconds}))[partition]
                return found and found.offset
            ask = {"earliest": consumer.beginning_offsets, "latest": consumer.end_offsets}[of]
            return (await ask([partition]))[partition]
        finally:
            await consumer.stop()

    def _manage(self, verb: str, *arguments: Any) -> Any:
        async def manage() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap, request_timeout_ms=SECONDS * 1000)
            await admin.start()
            try:
                return await getattr(admin, verb)(*arguments)
            finally:
                await admin.close()

        return self._run(manage())

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        _check_all(self._manage("create_topics", [new]).topic_errors)

    def topics(self) -> set[str]:
        return set(self._manage("list_topics"))

    def partitions(self, topic: str) -> int:
        (found,) = self._manage("describe_topics", [topic])
        _check(found["error_code"])
        return len(found["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        _check_all(self._manage("create_partitions", {topic: NewPartitions(total)}).topic_errors)

    def delete_topic(self, topic: str) -> None:
        _check_all(self._manage("delete_topics", [topic]).topic_error_codes)

    def configs(self, topic: str) -> dict[str, str]:
        (answer,) = self._manage("describe_configs", [ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((code, said, _, _, entries),) = answer.resources
        _check(code, said)
        return {entry[0]: entry[1] for entry in entries}

    def set_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        (answer,) = self._manage("alter_configs", [ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])
        for code, said, *_ in answer.resources:
            _check(code, said)

    def delete_records(self, topic: str, before: int, *, partition: int = 0) -> None:
        self._manage("delete_records", {TopicPartition(topic, partition): RecordsToDelete(before)})

    def cluster(self) -> Cluster:
        found = self._manage("describe_cluster")
        brokers = {broker["node_id"]: f"{broker['host']}:{broker['port']}" for broker in found["brokers"]}
        return Cluster(found["cluster_id"], brokers)


class AiokafkaConsumer:
    def __init__(self, consumer: AIOKafkaConsumer, topic: str, run: Any) -> None:
        self._consumer = consumer
        self._topic = topic
        self._run = run

    def take(self, count: int, *, within: float = 45) -> list[Received]:
        taken: list[Received] = []
        deadline = time.monotonic() + within
        while len(taken) < count and time.monotonic() < deadline:
            found = self._run(self._consumer.getmany(timeout_ms=200, max_records=count - len(taken)))
            taken += [_received(record) for records in found.values() for record in records]
        return taken

    def seek(self, partition: int, offset: int) -> None:
        self._on_loop(self._consumer.seek, TopicPartition(self._topic, partition), offset)

    def pause(self, partition: int) -> None:
        self._on_loop(self._consumer.pause, TopicPartition(self._topic, partition))

    def resume(self, partition: int) -> None:
        self._on_loop(self._consumer.resume, TopicPartition(self._topic, partition))

    def _on_loop(self, function: Any, *arguments: Any) -> None:
        async def call() -> None:
            function(*arguments)

        self._run(call())


async def _place(consumer: AIOKafkaConsumer, partitions: list[TopicPartition], start: Start) -> None:
    match start:
        case "earliest":
            await consumer.seek_to_beginning(*partitions)
        case "latest":
            await consumer.seek_to_end(*partitions)
        case AtTime(milliseconds):
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, milliseconds))
            for partition, place in found.items():
                consumer.seek(partition, place.offset)
        case _:
            for partition in partitions:
                consumer.seek(partition, start)


def _received(record: ConsumerRecord) -> Received:
    return Received(record.partition, record.offset, record.timestamp, record.value, record.key, tuple(record.headers))


def _check(code: int, said: object = "") -> None:
    if code:
        raise Refused(code, said)


def _check_all(answers: Iterable[Sequence[Any]]) -> None:
    for _, code, *said in answers:
        _check(code, said)
