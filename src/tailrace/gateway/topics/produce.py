"""POST /v1/topics/{topic}: writes one message or many, acknowledged by all replicas."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from tailrace.client.cluster.metadata import Topic, TopicPartition
from tailrace.client.errors import TopicNotFound
from tailrace.gateway.http.bodies import Bodies
from tailrace.gateway.http.endpoints import Content, Endpoint
from tailrace.gateway.http.parameters import integer, string
from tailrace.gateway.http.problems import Problem
from tailrace.gateway.http.replies import reply
from tailrace.gateway.idempotency.keys import Keys
from tailrace.gateway.idempotency.store import Keyed
from tailrace.gateway.kafka.batches import placed_by_partition
from tailrace.gateway.kafka.kafka import Kafka
from tailrace.gateway.kafka.partitioner import partition_for
from tailrace.gateway.kafka.sender import Sender
from tailrace.gateway.kafka.threads import Threads
from tailrace.gateway.topics.messages import JSON, media_type_of, record_of, rows_in
from tailrace.gateway.topics.schemas import PARTITION_MAX, PRODUCED, TOPIC_NAME, WRITTEN_MESSAGE, WRITTEN_MESSAGES
from tailrace.records.record import Record
from tailrace.util.json_messages import Row

INLINE_BYTES = 64 << 10  # longer bodies are parsed in a thread
PARSES_WAITING_MAX = 1000
RAW = "application/octet-stream"
IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEY_LENGTH_MAX = 255
KEY_CHARACTERS_MAX = 4000  # in an address; a body takes longer ones
OWN_TOPICS = "__tailrace_"  # the beginning of their names
_KEY = string("key", "The key of a message that is the whole body.", KEY_CHARACTERS_MAX)
_PARTITION = integer("partition", "The partition of a message that is the whole body.", 0, PARTITION_MAX)
_IDEMPOTENCY_KEY = string(
    IDEMPOTENCY_KEY,
    "With it, the messages of the request are written together or not at all, and once: a repeat gets the same "
    f"response, with the header {REPLAYED}: true.",
    KEY_LENGTH_MAX,
    length_min=1,
)
_TEXT = """\
The body is one message as JSON, or an object with a list of `messages`, or, with another `Content-Type` than \
application/json, the value itself. The response comes when all replicas have the messages. A topic that does not \
exist is created, if the brokers create topics on demand. With an error, some messages of the request may have been \
written, unless it has an Idempotency-Key."""


class Placed(NamedTuple):
    """The messages of a request: in their order, and each with its partition."""

    topic: str
    records: Sequence[Record]
    partitions: Sequence[int]


def idempotency_key_of(request: Request) -> str | None:
    """Raises Problem."""
    given = request.headers.getlist(IDEMPOTENCY_KEY)
    if not given:
        return None
    key = given[0]
    if len(given) > 1 or not (1 <= len(key) <= KEY_LENGTH_MAX and key.isascii() and key.isprintable()):
        raise Problem("bad-request", f"{IDEMPOTENCY_KEY} has 1 to {KEY_LENGTH_MAX} printable ASCII characters")
    return key


def fingerprint_of(request: Request, body: bytes) -> str:
    """Returns what tells a request from another one with the same key: its address, its type and its body."""
    digest = sha256()
    for part in (request.url.path, request.url.query, request.headers.get("content-type", "")):
        digest.update(f"{len(part)}:{part}".encode())
    digest.update(body)
    return digest.hexdigest()


class Producing:
    def __init__(self, kafka: Kafka, keys: Keys, bodies: Bodies) -> None:
        self._kafka = kafka
        self._keys = keys
        self._bodies = bodies
        self._parser = Threads("parse", 1, PARSES_WAITING_MAX)  # one at a time: a body may take 25 times its size

    def close(self) -> None:
        self._parser.close()

    def endpoint(self) -> Endpoint:
        example = {"messages": [{"key": "4711", "value": {"status": "paid"}}, {"key": "4712", "value": "cancelled"}]}
        return Endpoint(
            "POST",
            "/v1/topics/{topic}",
            self._produce,
            "Write messages",
            _TEXT,
            PRODUCED,
            path_parameters=[TOPIC_NAME],
            parameters=[_KEY, _PARTITION],
            headers=[_IDEMPOTENCY_KEY],
            bodies={
                JSON: Content({"anyOf": [WRITTEN_MESSAGES, WRITTEN_MESSAGE]}, example),
                RAW: Content({"type": "string", "format": "binary"}),
            },
            problems=[
                "bad-request", "topic-not-found", "request-timeout", "in-progress", "too-large",
                "unsupported-media-type", "key-reused", "too-many-requests", "not-supported", "unavailable",
            ],
            tag="topics",
        )  # fmt: skip

    async def _produce(self, request: Request, values: dict[str, Any]) -> Response:
        name = request.path_params["topic"]
        if name.startswith(OWN_TOPICS):
            raise Problem("forbidden", f"{name} is a topic that tailrace writes itself")
        key = idempotency_key_of(request)
        async with self._bodies.read(request) as body:
            rows = await self._rows(request.headers.get("content-type", ""), values, body)
            topic = await self._kafka.topic(name, may_create=True)
            placed = await self._placed(topic, rows, len(body))
            if key is not None:
                return await self._write_once(Keyed(key, fingerprint_of(request, body), *placed))
            offsets = await write(self._kafka.sender, placed)
        return _reply(placed.partitions, offsets)

    async def _write_once(self, keyed: Keyed) -> Response:
        answered = await self._keys.write(keyed)
        partitions, offsets = zip(*answered.request.messages, strict=True)
        headers = {REPLAYED: "true"} if answered.is_replayed else None
        return _reply(partitions, offsets, headers)

    async def _rows(self, content_type: str, values: dict[str, Any], body: bytes) -> list[Row]:
        key, partition = values["key"], values["partition"]
        if media_type_of(content_type) != JSON:
            return [Row(None if key is None else key.encode(), body, partition=partition)]
        if key is not None or partition is not None:
            raise Problem("bad-request", "the parameters key and partition go with a body that is the message itself")
        if len(body) <= INLINE_BYTES:
            return rows_in(body)
        return await self._parser.run(lambda: rows_in(body))

    async def _placed(self, topic: Topic, rows: Sequence[Row], size: int) -> Placed:
        if size <= INLINE_BYTES:
            return place(topic, rows)
        return await self._parser.run(lambda: place(topic, rows))  # keys may be long


def place(topic: Topic, rows: Sequence[Row]) -> Placed:
    """Chooses partitions: those without a key share one of a request's own. Raises TopicNotFound."""
    count = len(topic.leaders)
    free = secrets.randbelow(count)
    partitions = []
    for row in rows:
        if row.partition is not None:
            if row.partition not in topic.leaders:
                raise TopicNotFound(topic.name, row.partition)
            partitions.append(row.partition)
        else:
            partitions.append(free if row.key is None else partition_for(row.key, count))
    return Placed(topic.name, [record_of(row) for row in rows], partitions)


async def write(sender: Sender, placed: Placed) -> list[int | None]:
    """Returns the offset of each message. Raises ClientError."""
    numbers = placed_by_partition(placed.partitions)
    sends = [
        sender.send(TopicPartition(placed.topic, partition), [placed.records[n] for n in of_partition])
        for partition, of_partition in numbers.items()
    ]
    offsets: list[int | None] = [None] * len(placed.records)
    results = await asyncio.gather(*sends, return_exceptions=True)
    for of_partition, result in zip(numbers.values(), results, strict=True):
        if isinstance(result, BaseException):
            raise result
        for n, offset in zip(of_partition, result, strict=True):
            offsets[n] = offset
    return offsets


def _reply(
    partitions: Sequence[int], offsets: Sequence[int | None], headers: Mapping[str, str] | None = None
) -> Response:
    places = zip(partitions, offsets, strict=True)
    messages = [{"partition": partition, "offset": offset} for partition, offset in places]
    return reply({"messages": messages}, headers=headers)
