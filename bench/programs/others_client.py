"""The clients of Kafka, NATS, Redis and RabbitMQ, in the side environment that scripts/fetch-peers makes: nothing of
ours is there.

    python others_client.py kafka|nats|redis|rabbitmq produce|consume PORT COUNT SIZE

Producing ends when all is acknowledged in the way of that server, consuming when all was received (and acknowledged,
where there is such a thing). Prints one line of JSON: seconds, and cpu (seconds of this process).
"""

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable

IN_FLIGHT = 1000
NAME = "bench"
HOST = "127.0.0.1"


async def kafka(what: str, port: int, count: int, size: int) -> tuple[float, float]:
    """`acks=all`; up to a thousand messages wait for their acknowledgement. Read a thousand at a time."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    bootstrap = f"{HOST}:{port}"
    if what == "produce":
        client = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
        await client.start()
        start, body = clocks(), bytes(size)
        waiting: deque[Awaitable[object]] = deque()
        for _ in range(count):
            waiting.append(await client.send(NAME, body))
            if len(waiting) > IN_FLIGHT:
                await waiting.popleft()
        await asyncio.gather(*waiting)
    else:
        client = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await client.start()
        start, left = clocks(), count
        client.assign([TopicPartition(NAME, 0)])
        await client.seek_to_beginning()
        while left > 0:
            found = await client.getmany(max_records=IN_FLIGHT, timeout_ms=30_000)
            left -= sum(map(len, found.values()))
    taken = since(start)
    await client.stop()
    return taken


async def nats(what: str, port: int, count: int, size: int) -> tuple[float, float]:
    """A stream in files; up to a thousand messages wait for their acknowledgement. Read in pulls of a thousand, which
    are not acknowledged."""
    import nats as client

    connection = await client.connect(f"nats://{HOST}:{port}", pending_size=64 << 20)
    stream = connection.jetstream(publish_async_max_pending=IN_FLIGHT)
    if what == "produce":
        await stream.add_stream(name=NAME, subjects=[NAME])
        start, body = clocks(), bytes(size)
        futures = [await stream.publish_async(NAME, body, wait_stall=60) for _ in range(count)]
        await stream.publish_async_completed()
        for future in futures:
            future.result()  # raises where it was refused
    else:
        start = clocks()
        subscription = await stream.pull_subscribe(NAME, "", stream=NAME, config=_unacknowledged())
        left = count
        while left:
            left -= len(await subscription.fetch(min(left, IN_FLIGHT), timeout=30))
    taken = since(start)
    await connection.close()
    return taken


def _unacknowledged() -> object:
    from nats.js.api import AckPolicy, ConsumerConfig

    return ConsumerConfig(ack_policy=AckPolicy.NONE)


async def redis(what: str, port: int, count: int, size: int) -> tuple[float, float]:
    """XADD in pipelines of a thousand; XREAD of a thousand at a time."""
    from redis.asyncio import Redis

    connection = Redis(host=HOST, port=port, socket_timeout=60, protocol=2)
    await connection.ping()
    start, body = clocks(), bytes(size)
    if what == "produce":
        for begin in range(0, count, IN_FLIGHT):
            pipeline = connection.pipeline(transaction=False)
            for _ in range(min(IN_FLIGHT, count - begin)):
                pipeline.xadd(NAME, {"v": body})
            await pipeline.execute()
    else:
        last, left = b"0", count
        while left > 0:
            [(_, messages)] = await connection.xread({NAME: last}, count=IN_FLIGHT)
            last, left = messages[-1][0], left - len(messages)
    taken = since(start)
    await connection.aclose()
    return taken


async def rabbitmq(what: str, port: int, count: int, size: int) -> tuple[float, float]:
    """A durable queue, persistent messages, up to a thousand unconfirmed; read with a prefetch of a thousand and
    acknowledged, as many at a time as have come.
    """
    import aio_pika

    connection = await aio_pika.connect(f"amqp://guest:guest@{HOST}:{port}/")
    channel = await connection.channel(publisher_confirms=True)
    await channel.set_qos(prefetch_count=IN_FLIGHT)
    queue = await channel.declare_queue(NAME, durable=True)
    start = clocks()
    if what == "produce":
        message = aio_pika.Message(bytes(size), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        exchange = channel.default_exchange
        await at_most(IN_FLIGHT, count, lambda: exchange.publish(message, routing_key=NAME))
    else:
        await _receive(queue, count)
    taken = since(start)
    await connection.close()
    return taken


async def _receive(queue: object, count: int) -> None:
    done = asyncio.Event()
    left = count

    async def take(message: object) -> None:
        nonlocal left
        left -= 1
        if left % (IN_FLIGHT // 4) == 0:
            await message.ack(multiple=True)  # type: ignore[attr-defined]
        if left == 0:
            done.set()

    tag = await queue.consume(take)  # type: ignore[attr-defined]
    await done.wait()
    await queue.cancel(tag)  # type: ignore[attr-defined]


async def at_most(limit: int, count: int, send: Callable[[], Awaitable[object]]) -> None:
    """So many calls, no more than `limit` of them under way."""
    left = count

    async def one_after_the_other() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await send()

    await asyncio.gather(*(one_after_the_other() for _ in range(limit)))


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def since(start: tuple[float, float]) -> tuple[float, float]:
    now = clocks()
    return now[0] - start[0], now[1] - start[1]


def main() -> None:
    name, what, port, count, size = sys.argv[1:]
    work = {"kafka": kafka, "nats": nats, "redis": redis, "rabbitmq": rabbitmq}[name]
    seconds, cpu = asyncio.run(work(what, int(port), int(count), int(size)))
    print(json.dumps({"seconds": seconds, "cpu": cpu}))


if __name__ == "__main__":
    main()
