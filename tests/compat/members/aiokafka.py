import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from compat.members.talking import Delivered, Settings, listen, settings, tell


class Listener(ConsumerRebalanceListener):
    def __init__(self, consumer: AIOKafkaConsumer, delivered: Delivered) -> None:
        self._consumer = consumer
        self._delivered = delivered

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._delivered.assigned(assigned, generation=self._consumer._coordinator.generation)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._delivered.taken(revoked)


async def commit(consumer: AIOKafkaConsumer, delivered: Delivered) -> None:
    try:
        if delivered.next:
            await consumer.commit({TopicPartition(*place): offset for place, offset in delivered.next.items()})
    except KafkaError as error:
        tell("refused", text=repr(error))
    else:
        delivered.committed()


async def words_of(loop: asyncio.AbstractEventLoop) -> asyncio.Queue[str]:
    words: asyncio.Queue[str] = asyncio.Queue()
    listen(lambda word: loop.call_soon_threadsafe(words.put_nowait, word))
    return words


async def main(given: Settings) -> None:
    words = await words_of(asyncio.get_running_loop())
    delivered = Delivered()
    assert given.assignor == "range"
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        group_instance_id=given.instance,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=given.session_ms,
        heartbeat_interval_ms=given.heartbeat_ms,
        max_poll_interval_ms=given.poll_ms,
        rebalance_timeout_ms=given.poll_ms,
        metadata_max_age_ms=given.metadata_ms,
    )
    consumer.subscribe(topics=given.topics, pattern=given.pattern, listener=Listener(consumer, delivered))
    await consumer.start()
    while True:
        word = None if words.empty() else words.get_nowait()
        if word == "hold":
            tell("held")
            word = await words.get()
        if word == "commit":
            await commit(consumer, delivered)
        if word == "leave":
            break
        for records in (await consumer.getmany(timeout_ms=50)).values():
            for record in records:
                delivered.message(record.topic, record.partition, record.offset, record.value)
    tell("leaving")
    await consumer.stop()
    tell("left")


asyncio.run(main(settings()))
