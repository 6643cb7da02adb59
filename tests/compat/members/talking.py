"""What members written in Python share: telling what happens to them, and being told what to do.

A member is a process of its own, so that it can be killed. What it is to be is on its command line, as `name=value`:

    bootstrap, group    where, and in which group
    topics              their names, with commas in between, or
    pattern             a regular expression that begins with ^
    assignor            range or cooperative
    session_ms, heartbeat_ms, poll_ms, metadata_ms
    instance            of a static member
    protocol            consumer (KIP-848), with which the broker has the timeouts and the assignor; else classic

It prints a line of JSON for each thing that happens, with the time `at` (nanoseconds of the machine's steady clock,
which all processes share) and the `event`:

    assigned, revoked, lost     partitions: [[topic, partition], …]; generation, where the client tells
    message                     topic, partition, offset, value
    committed                   offsets: [[topic, partition, the next one], …]
    refused                     text: why a commit was
    held                        it has stopped asking for messages
    leaving, left               before and after it closes

It does what it reads, a word on each line: `commit` what was delivered to it and is still its own; `hold`, which is to
stop asking for messages, and `go` on; `leave`, which ends it. It ends at once when there is nobody to tell it anything.
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Settings(NamedTuple):
    bootstrap: str
    group: str
    session_ms: int
    heartbeat_ms: int
    poll_ms: int
    metadata_ms: int
    assignor: str = "range"
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    instance: str | None = None
    protocol: str = "classic"


def settings() -> Settings:
    given: dict[str, Any] = dict(argument.split("=", 1) for argument in sys.argv[1:])
    if "topics" in given:
        given["topics"] = tuple(given["topics"].split(","))
    numbers: dict[str, Any] = {name: int(value) for name, value in given.items() if name.endswith("_ms")}
    return Settings(**(given | numbers))


def tell(event: str, **what: Any) -> None:
    sys.stdout.write(json.dumps({"at": time.monotonic_ns(), "event": event, **what}) + "\n")
    sys.stdout.flush()


class Delivered:
    """What was delivered and may be committed: of partitions that are still the member's."""

    def __init__(self) -> None:
        self.next: dict[tuple[str, int], int] = {}

    def assigned(self, partitions: Iterable[Any], **what: Any) -> None:
        tell("assigned", partitions=sorted((each.topic, each.partition) for each in partitions), **what)

    def taken(self, partitions: Iterable[Any], *, how: str = "revoked") -> None:
        taken = sorted((each.topic, each.partition) for each in partitions)
        for each in taken:
            self.next.pop(each, None)
        tell(how, partitions=taken)

    def message(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        self.next[topic, partition] = offset + 1
        tell("message", topic=topic, partition=partition, offset=offset, value=value.decode())

    def committed(self) -> None:
        tell("committed", offsets=sorted((*place, offset) for place, offset in self.next.items()))


def listen(obey: Callable[[str], object]) -> None:
    """Calls it with each word, from a thread of its own."""

    def read() -> None:
        for line in sys.stdin:
            obey(line.strip())
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()


class Words:
    """For members with a loop of their own, which asks `next` whether there is something to do."""

    def __init__(self) -> None:
        self._words: queue.Queue[str] = queue.Queue()
        listen(self._words.put)

    def next(self) -> str | None:
        try:
            word = self._words.get_nowait()
        except queue.Empty:
            return None
        if word == "hold":
            tell("held")
            word = self._words.get()
        return word
