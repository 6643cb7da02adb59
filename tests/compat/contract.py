"""What the tests ask of a client, in words that fit all of them, and which client can do what.

An adapter in `clients/` says each of these things in its client's own way. A test is written once, against `Client`,
and runs with every client that can do what it is about: `@each_client_that("sets timestamps")`.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import Literal, NamedTuple, Protocol

import pytest

# x: it can; a blank: it cannot, or not without what is yet to come (groups).
# Console tools send lines of text and say nothing of where those went; KafkaJS consumes in groups only and brings one
# codec of its own; kcat gives one set of headers to all that it sends, knows of an empty value or of a null one, and
# manages nothing.
ABILITIES = """
                           confluent  aiokafka  kafka-python  kcat  java  kafkajs
    produces                   x         x           x         x     x       x
    compresses                 x         x           x         x     x       x
    knows every codec          x         x           x         x     x
    sends headers              x         x           x         x     x       x
    mixes nulls and empties    x         x           x               x       x
    sends any bytes            x         x           x                       x
    sets timestamps            x         x           x                       x
    chooses partitions         x         x           x         x             x
    tells offsets              x         x           x                       x
    is idempotent              x         x           x         x     x       x
    consumes                   x         x           x         x     x
    limits bytes               x         x           x         x     x
    reads what is committed    x         x           x         x     x
    starts at a time           x         x           x         x
    seeks                      x         x           x
    pauses                     x         x           x
    assigns many               x         x           x
    finds offsets              x         x           x         x     x       x
    finds times                x         x           x         x     x
    finds the newest           x                     x               x
    lists topics               x         x           x         x     x       x
    manages topics             x         x           x               x       x
    manages configs            x         x           x               x       x
    deletes records            x         x           x               x       x
    describes the cluster      x         x           x               x       x
"""
# Where a connection is refused, asyncio (of 3.11) and kafka-python leave the socket to the garbage.
leaves_sockets = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
MARKS = {
    "aiokafka": leaves_sockets,
    "kafka-python": leaves_sockets,
    "kcat": pytest.mark.needs("kcat"),
    "java": pytest.mark.needs("kafka"),
    "kafkajs": pytest.mark.needs("node"),
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Acks = Literal["0", "1", "all"]
Isolation = Literal["read_committed", "read_uncommitted"]


def _read_abilities() -> dict[str, list[str]]:
    head, *rows = [line for line in ABILITIES.splitlines() if line.strip()]
    ends = {name: head.index(name) + len(name) for name in head.split()}
    names = {row[: head.index(head.split()[0])].strip(): row for row in rows}
    return {ability: [n for n, end in ends.items() if "x" in row[end - len(n) : end]] for ability, row in names.items()}


WHO_CAN = _read_abilities()


def each_client_that(ability: str, *, but: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Runs a test, which takes `client`, with each of them. Why some are left out, a comment says."""
    names = [name for name in WHO_CAN[ability] if name not in but]
    return pytest.mark.parametrize(
        "client", [pytest.param(name, marks=MARKS.get(name, ())) for name in names], indirect=True
    )


class Code(IntEnum):
    """Kafka's own numbers, those that the tests expect."""

    UNREACHABLE = -195  # librdkafka's number; the broker itself has said nothing
    NOT_TOLD = 0  # by the client, which says only that it was refused
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC = 17
    INVALID_TIMESTAMP = 32
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_CONFIG = 40
    INVALID_RECORD = 87


class Refused(Exception):
    """The broker said no; every adapter translates its client's way to tell."""

    def __init__(self, code: int, said: object = "") -> None:
        super().__init__(code, said)
        self.code = code


@contextlib.contextmanager
def refused(code: int) -> Iterator[None]:
    with pytest.raises(Refused) as refusal:
        yield
    assert refusal.value.code in (code, Code.NOT_TOLD)


Header = tuple[str, bytes | None]


class Message(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None


class Received(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    value: bytes | None
    key: bytes | None
    headers: tuple[Header, ...]

    @property
    def message(self) -> Message:
        return Message(self.value, self.key, self.headers)


class Place(NamedTuple):
    partition: int
    offset: int


class AtTime(NamedTuple):
    milliseconds: int


Start = Literal["earliest", "latest"] | int | AtTime
OffsetOf = Literal["earliest", "latest", "newest"] | AtTime


class Cluster(NamedTuple):
    id: str | None
    brokers: dict[int, str]


class Consumer(Protocol):
    """Reads partitions given to it. It never jumps: an offset that is not there is an error, raised as Refused."""

    def take(self, count: int, *, within: float = 45) -> list[Received]:
        """The next messages; fewer only where the time is over."""

    def seek(self, partition: int, offset: int) -> None: ...

    def pause(self, partition: int) -> None: ...

    def resume(self, partition: int) -> None: ...


class Client(Protocol):
    def close(self) -> None: ...

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
        """Sends as the messages come, and returns when all are acknowledged: where each is, or nothing, by ability."""

    def consumer(
        self,
        topic: str,
        start: Start = "earliest",
        *,
        partitions: Sequence[int] = (0,),
        wait_ms: int = 500,
        max_bytes: int | None = None,
        isolation: Isolation | None = None,
    ) -> AbstractContextManager[Consumer]:
        """`wait_ms`: for how long the broker may hold a fetch that finds nothing. `isolation`: the client's default."""

    def offset(self, topic: str, of: OffsetOf, *, partition: int = 0) -> int | None: ...

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None: ...

    def topics(self) -> set[str]: ...

    def partitions(self, topic: str) -> int: ...

    def add_partitions(self, topic: str, total: int) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def configs(self, topic: str) -> dict[str, str]: ...

    def set_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Those, and no others, are set from now on or as before: clients differ in what becomes of the rest."""

    def delete_records(self, topic: str, before: int, *, partition: int = 0) -> None: ...

    def cluster(self) -> Cluster: ...
