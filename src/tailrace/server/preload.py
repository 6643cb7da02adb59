"""Imports the modules that a start has left out, one after the other, once the first clients are served.

Otherwise the first request that needs a module would import it: the first consumer that joins a group would wait for
that. And an upgrade may replace the files of a running broker, whose modules must all be of one release.
"""

from asyncio import AbstractEventLoop
from collections.abc import Iterator
from importlib import import_module

from tailrace.broker.apis.registry import APIS

AFTER_S = 0.1  # before the first heartbeat, which needs all of them but the APIs
PAUSE_S = 0.005  # lets clients have their turn; an import takes 1 or 2 ms, the largest 4 ms
_PARTS = (  # split where one import would hold the loop for too long
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
