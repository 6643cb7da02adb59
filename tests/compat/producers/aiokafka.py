import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced
from compat.producers.talking import obey, settings

given = settings()
loop = asyncio.new_event_loop()


async def new() -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=given.bootstrap,
        transactional_id=given.id,
        transaction_timeout_ms=given.timeout_ms,
        request_timeout_ms=60_000,
    )


producer = loop.run_until_complete(new())
acknowledgements: list[Any] = []


async def flush() -> None:
    waiting, acknowledgements[:] = list(acknowledgements), []
    await asyncio.gather(*waiting)


async def do(verb: str, *words: str) -> None:
    match verb, words:
        case "init", ():
            await producer.start()
        case "begin", ():
            await producer.begin_transaction()
        case "send", (topic, partition, value):
            acknowledgements.append(await producer.send(topic, value.encode(), partition=int(partition)))
        case "flush", ():
            await flush()
        case "offset", (group, topic, partition, offset):
            await producer.send_offsets_to_transaction({TopicPartition(topic, int(partition)): int(offset)}, group)
        case "commit", ():
            await producer.commit_transaction()
        case "abort", ():
            await producer.abort_transaction()
        case _:
            sys.exit(f"unknown: {verb} {words}")


obey(lambda *words: loop.run_until_complete(do(*words)), lambda error: isinstance(error, ProducerFenced))
