"""The gateway beside the broker: what it takes when idle, what it takes from others, and its rates beside the wire's.

Rates are of prepared bytes over 16 connections, each with one request in flight: JSON over HTTP, and Produce requests
of one batch with acks=all over Kafka's wire. So a row compares the two servers, and not their clients.
"""

import asyncio
import json
import multiprocessing
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from bench.harness import process_tree
from bench.harness.broker_process import BrokerProcess, broker_process, child_of
from bench.harness.measure import Bench, Demand, Figure, Sample, compare, percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import create_topic, open_topic, round_trips
from tailrace.protocol.frame import encode_request
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records.record import Record, encode_batch

MODULE = "tailrace.gateway"
CONNECTIONS = 16
BATCH = 100  # messages of a request
VALUE = "x" * 100
IDLE_POLLS = 1000
POLL_S = 60
P99_S = 5.0  # for which a producer is measured
SETTLE_S = 10.0  # for its start to be over
MEMORY_MB_MAX = 80
_VERSION = 9
_LENGTH = struct.Struct(">i")


def idle(bench: Bench) -> list[Figure]:
    """A broker with nothing on it, whose gateway has answered one request."""
    seconds = bench.pick(120, 10)
    with bench.place.directory() as data, broker_process(data, http=True) as broker:
        pid = child_of(broker, MODULE)
        asyncio.run(_get(broker, "/v1/topics"))
        bench.tell("the gateway with nothing to do")
        time.sleep(SETTLE_S)
        before, began = process_tree.cpu_seconds(pid), time.perf_counter()
        time.sleep(seconds)
        share = 100 * (process_tree.cpu_seconds(pid) - before) / (time.perf_counter() - began)
        memory = process_tree.memory_bytes(pid) / 1e6
    title = "the gateway with nothing to do"
    return [
        Figure(
            "gateway/idle/memory", f"{title}: memory", "MB", Sample.of([memory]),
            demanded=Demand("ours", "most", MEMORY_MB_MAX),
        ),
        Figure(
            "gateway/idle/cpu", f"{title}: CPU", "% of a core", Sample.of([share]),
            demanded=Demand("ours", "most", 0.5),
        ),
    ]  # fmt: skip


def first_ack(bench: Bench) -> list[Figure]:
    """From the start of the process to the first acknowledged message, with a gateway and without."""
    sides = partial(_first_ack_s, bench, True), partial(_first_ack_s, bench, False)
    with_it, without = bench.take_turns("start with a gateway", bench.pick(15, 2), *sides)
    title = "start to the first acknowledged message, with a gateway"
    demanded = Demand("ratio", "most", 1.1)
    return [compare("gateway/start", title, "s", with_it, without, "without it", demanded=demanded)]


def _first_ack_s(bench: Bench, http: bool) -> float:
    with bench.place.directory() as data:
        begun = time.perf_counter()
        with broker_process(data, http=http) as broker, RawConnection(broker.host, broker.port) as connection:
            create_topic(connection, "live")
            round_trips(connection, "live", -1, 1)
            return time.perf_counter() - begun


def rates(bench: Bench) -> list[Figure]:
    """Messages per second, one and a hundred in a request, with a key and without."""
    seconds = bench.pick(5, 1)
    with bench.place.directory() as data, broker_process(data, http=True) as broker:
        for topic in ("http", "wire", "keys"):
            with RawConnection(broker.host, broker.port) as connection:
                open_topic(connection, topic)
        figures = []
        for count, what in ((1, "one message in a request"), (BATCH, f"{BATCH} messages in a request")):
            sides = partial(_http_rate, broker, "http", count, seconds), partial(_wire_rate, broker, count, seconds)
            http, wire = bench.take_turns(what, bench.pick(5, 1), *sides)
            figures.append(compare(f"gateway/rate/{count}", f"HTTP, {what}", "messages/s", http, wire, "Kafka's wire"))
        asyncio.run(
            _requests_per_second(_address(broker), _posting("keys", 1, "first"), 0.1)
        )  # creates the topic of keys
        keyed = [_http_rate(broker, "keys", 1, seconds, has_key=True) for _ in range(bench.pick(3, 1))]
    title = "HTTP, one message in a request, with an Idempotency-Key"
    return [*figures, Figure("gateway/rate/keyed", title, "messages/s", Sample.of(keyed))]


def idle_polls(bench: Bench) -> list[Figure]:
    """What a thousand requests that wait for messages take from a producer."""
    with bench.place.directory() as data, broker_process(data, http=True) as broker:
        pid = child_of(broker, MODULE)
        with RawConnection(broker.host, broker.port) as connection:
            for topic in ("live", "waited"):
                open_topic(connection, topic)
            asyncio.run(_get(broker, "/v1/topics"))
            time.sleep(bench.pick(int(SETTLE_S), 1))
            sides = partial(_p99_beside_polls, broker, connection), partial(_p99, connection)
            beside, alone = bench.take_turns(f"{IDLE_POLLS} waiting requests", bench.pick(5, 1), *sides)
        memory = process_tree.memory_bytes(pid) / 1e6
    title = f"acks=1 p99 beside {IDLE_POLLS} requests that wait over HTTP"
    demanded = Demand("ratio", "most", 1.2)
    return [
        compare("gateway/polls/p99", title, "µs", beside, alone, "without them", demanded=demanded),
        Figure("gateway/polls/memory", "the gateway after these: memory", "MB", Sample.of([memory])),
    ]


def hostile(bench: Bench) -> list[Figure]:
    """What clients that send bodies of a million empty objects take from a producer, and from the gateway."""
    with bench.place.directory() as data, broker_process(data, http=True) as broker:
        pid = child_of(broker, MODULE)
        with RawConnection(broker.host, broker.port) as connection:
            open_topic(connection, "live")
            asyncio.run(_get(broker, "/v1/topics"))
            time.sleep(bench.pick(int(SETTLE_S), 1))
            sides = partial(_p99_beside_attack, broker, connection), partial(_p99, connection)
            beside, alone = bench.take_turns("hostile bodies", bench.pick(5, 1), *sides)
        memory = process_tree.memory_bytes(pid) / 1e6
    title = "acks=1 p99 beside 4 clients that send hostile bodies"
    demanded = Demand("ratio", "most", 1.2)
    return [
        compare("gateway/hostile/p99", title, "µs", beside, alone, "without them", demanded=demanded),
        Figure("gateway/hostile/memory", "the gateway after these: memory", "MB", Sample.of([memory])),
    ]


# Over HTTP


def _address(broker: BrokerProcess) -> tuple[str, int]:
    host, _, port = broker.http_url.removeprefix("http://").rpartition(":")
    return host, int(port)


async def _get(broker: BrokerProcess, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(*_address(broker))
    writer.write(_head("GET", path))
    body = await _body(reader)
    writer.close()
    return body


def _head(method: str, path: str, *fields: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", "")).encode()


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
    return await reader.readexactly(length)


def _http_rate(broker: BrokerProcess, topic: str, count: int, seconds: float, has_key: bool = False) -> float:
    exchange = _posting(topic, count, f"{time.time_ns()}" if has_key else None)
    return count * asyncio.run(_requests_per_second(_address(broker), exchange, seconds))


def _posting(topic: str, count: int, keys: str | None = None) -> "Exchange":
    """`keys` is what the keys of the requests begin with; None for requests without."""
    messages = [{"value": VALUE}] * count
    body = json.dumps({"messages": messages} if count > 1 else messages[0]).encode()
    common = ("Content-Type: application/json", f"Content-Length: {len(body)}")

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        key = () if keys is None else (f"Idempotency-Key: {keys}/{number}",)
        writer.write(_head("POST", f"/v1/topics/{topic}", *common, *key) + body)
        await _body(reader)

    return exchange


def _wire_rate(broker: BrokerProcess, count: int, seconds: float) -> float:
    records = encode_batch([Record(n, int(time.time() * 1000), None, VALUE.encode()) for n in range(count)])
    data = [TopicProduceData(name="wire", partition_data=[PartitionProduceData(index=0, records=records)])]
    request = encode_request(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), _VERSION, 0, "bench")

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(request)
        await reader.readexactly(_LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0])

    return count * asyncio.run(_requests_per_second(broker.address, exchange, seconds))


Exchange = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


async def _requests_per_second(address: tuple[str, int], exchange: Exchange, seconds: float) -> float:
    done = 0
    end = time.perf_counter() + seconds

    async def work() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection(*address)
        while time.perf_counter() < end:
            done += 1
            await exchange(reader, writer, done)
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    return done / (time.perf_counter() - begun)


# A producer beside requests that wait


def _p99(connection: RawConnection) -> float:
    times: list[float] = []
    end = time.perf_counter() + P99_S
    while time.perf_counter() < end:
        times += round_trips(connection, "live", 1, 500)
    return 1e6 * percentile(times, 99)


def _p99_beside_polls(broker: BrokerProcess, connection: RawConnection) -> float:
    return asyncio.run(_beside_polls(broker, connection))


async def _beside_polls(broker: BrokerProcess, connection: RawConnection) -> float:
    request = _head("GET", f"/v1/topics/waited/messages?from=latest&wait_seconds={POLL_S}")
    writers = []
    for _ in range(IDLE_POLLS):
        _, writer = await asyncio.open_connection(*_address(broker))
        writer.write(request)
        writers.append(writer)
    await _until_waiting(broker, IDLE_POLLS)
    found = _p99(connection)
    for writer in writers:
        writer.close()
    await _until_waiting(broker, 0)
    return found


def _p99_beside_attack(broker: BrokerProcess, connection: RawConnection) -> float:
    """The clients are a process of their own, as they work hard, too."""
    context = multiprocessing.get_context("spawn")
    attackers = context.Process(target=_attack, args=(_address(broker),), daemon=True)
    attackers.start()
    try:
        time.sleep(1)  # for its start
        return _p99(connection)
    finally:
        attackers.kill()
        attackers.join()


def _attack(address: tuple[str, int]) -> None:
    body = b'{"messages":[' + b",".join([b"{}"] * 1_000_000) + b"]}"
    request = _head("POST", "/v1/topics/live", "Content-Type: application/json", f"Content-Length: {len(body)}") + body

    async def client() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(request)
                await reader.readuntil(b"\r\n\r\n")
                writer.close()

    async def clients() -> None:
        await asyncio.gather(*(client() for _ in range(4)))

    asyncio.run(clients())


async def _until_waiting(broker: BrokerProcess, count: int) -> None:
    while f"tailrace_http_waiting {count}\n".encode() not in await _get(broker, "/metrics"):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
