"""Imports the modules that a start has left out, one after the other, once the first clients have been served.

They would be imported by the first request that needs them, too. But then the first consumer to join a group would wait
for that; and an upgrade may replace the files of a broker that runs, all of which has to be of one release.
"""

from asyncio import AbstractEventLoop
from collections.abc import Iterator
from importlib import import_module

from tailrace.broker.apis.registry import APIS

AFTER_S = 0.1  # so that it comes before the first heartbeat, which asks for all but the APIs
PAUSE_S = 0.005  # in which others have their turn; a piece takes a millisecond or two, the largest four
_PARTS = (  # with what they would import themselves, where all of that at once would be felt
    "json",
    "hashlib",
    "datetime",
    "dataclasses",
    "tailrace.log.compaction.filter",
    "tailrace.log.compaction.messages",
    "tailrace.broker.background.compaction",
    "tailrace.records.codecs",
    "tailrace.broker.groups.records",
    "tailrace.broker.groups.classic.group",
    "tailrace.broker.groups.coordinator",
)


class Preload:
    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._rest = _pieces()
        self._timer = loop.call_later(AFTER_S, self._go_on)

    def _go_on(self) -> None:
        for _ in self._rest:
            self._timer = self._loop.call_later(PAUSE_S, self._go_on)
            return

    def stop(self) -> None:
        self._timer.cancel()


def _pieces() -> Iterator[object]:
    for name in _PARTS:
        yield import_module(name)
    yield from APIS.values()
