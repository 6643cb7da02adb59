"""kcat, a command line over librdkafka; Debian's is of 2021 with a librdkafka of 2023, which makes it our oldest."""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from compat.clients import programs
from compat.contract import Acks, AtTime, Isolation, Message, OffsetOf, Place, Received, Refused, Start
from confluent_kafka import KafkaError

END_OF_MESSAGE, END_OF_KEY = b"\n", b"\x02"
LAST_CODE = 133
CODES = {KafkaError(code).str(): code for code in range(LAST_CODE + 1)}  # librdkafka tells errors by their texts
OFFSET_SPECS = {"earliest": -2, "latest": -1}


class KcatClient:
    def __init__(self, bootstrap: str) -> None:
        patience = ["-m", "30", "-X", "reconnect.backoff.max.ms=500"]
        self._command = ["kcat", "-b", bootstrap, "-E", *patience]

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
        messages = iter(messages)
        first = next(messages)
        settings = {
            "acks": acks,
            "compression.type": compression,
            "enable.idempotence": str(idempotent).lower(),
            "linger.ms": "2",
            "message.max.bytes": "16000000",
            "batch.num.messages": "10" if idempotent else "10000",
        }
        command = [*self._command, "-P", "-t", topic, "-K", END_OF_KEY.decode()]
        command += [] if partition is None else ["-p", str(partition)]
        command += ["-Z"] if first.value is None else []
        for name, value in first.headers:
            command += ["-H", name if value is None else f"{name}={value.decode()}"]
        for name, text in settings.items():
            command += ["-X", f"{name}={text}"]
        status, said = programs.feed(command, (_line(each, first) for each in _chain(first, messages)))
        if status:
            _raise_refusal(said)
            raise AssertionError(f"kcat ended with {status}: {said}")
        return []

    def consumer(
        self,
        topic: str,
        start: Start = "earliest",
        *,
        partitions: Sequence[int] = (0,),
        wait_ms: int = 500,
        max_bytes: int | None = None,
        isolation: Isolation | None = None,
    ) -> AbstractContextManager[programs.PrintingConsumer]:
        (partition,) = partitions
        begin = {"earliest": "beginning", "latest": "end"}
        offset = f"s@{start.milliseconds}" if isinstance(start, AtTime) else begin.get(str(start), str(start))
        command = [*self._command, "-C", "-t", topic, "-p", str(partition), "-o", offset, "-J", "-u", "-q"]
        settings = {"auto.offset.reset": "error", "fetch.wait.max.ms": wait_ms, "socket.timeout.ms": wait_ms + 60_000}
        for name, value in settings.items():
            command += ["-X", f"{name}={value}"]
        command += [] if max_bytes is None else ["-X", f"fetch.message.max.bytes={max_bytes}"]
        command += [] if isolation is None else ["-X", f"isolation.level={isolation}"]
        return programs.printing(command, _received, _raise_refusal)

    def offset(self, topic: str, of: OffsetOf, *, partition: int = 0) -> int | None:
        spec = of.milliseconds if isinstance(of, AtTime) else OFFSET_SPECS[of]
        done = programs.run([*self._command, "-Q", "-t", f"{topic}:{partition}:{spec}"])
        found = re.fullmatch(rf"{re.escape(topic)} \[{partition}\] offset (-?\d+)\n", done.stdout)
        assert found, done
        return None if int(found[1]) < 0 else int(found[1])

    def topics(self) -> set[str]:
        return {topic["topic"] for topic in json.loads(programs.run([*self._command, "-L", "-J"]).stdout)["topics"]}


def _chain(first: Message, rest: Iterable[Message]) -> Iterable[Message]:
    yield first
    yield from rest


def _line(message: Message, first: Message) -> bytes:
    value, key, headers, _ = message
    assert headers == first.headers, "it gives the same headers to all"
    assert value is not None or first.value is None, "it sends every empty value as null, or none"
    return (b"" if key is None else key + END_OF_KEY) + (value or b"") + END_OF_MESSAGE


def _received(line: bytes) -> Received:
    found = json.loads(line)
    headers = iter(found.get("headers", []))
    return Received(
        found["partition"],
        found["offset"],
        found["ts"],
        _bytes(found["payload"]),
        _bytes(found["key"]),
        tuple((name, _bytes(value)) for name, value in zip(headers, headers, strict=True)),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _raise_refusal(said: str) -> None:
    if (found := re.search(r"Broker: [^\n(]*[^\n( ]", said)) and found[0] in CODES:
        raise Refused(CODES[found[0]], said)
