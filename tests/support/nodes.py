"""A node in a thread of its own, with a loop of its own, and the way to its insides.

with RunningNode(tmp_path) as node:
    RawClient(node.address) …
    node.on_loop(lambda: len(node.node.connections))
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from waits import until

from tailrace.broker.metadata.topic_changes import create_topic
from tailrace.log.disk.interface import Files
from tailrace.server.http import Pages
from tailrace.server.node import Node
from tailrace.server.run import new_event_loop
from tailrace.server.settings import Listen

Result = TypeVar("Result")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": new_event_loop,
    "asyncio": asyncio.new_event_loop,
}

new_event_loop().close()  # libuv keeps a pipe from the first loop of a process on: it is there before anybody counts


class RunningNode:
    def __init__(
        self,
        path: Path | str,
        configs: Mapping[str, str] | None = None,
        *,
        listen: Sequence[Listen] = (Listen("127.0.0.1", 0),),
        files: Files | None = None,
        loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    ) -> None:
        self.node = Node(str(path), list(listen), dict(configs or {}), files=files)
        self.pages = Pages(self.node)
        self.errors: list[dict[str, Any]] = []  # that the loop has met in a callback
        self.loop = loop()
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self._thread = threading.Thread(target=self._run, name="node")
        self._is_stopped = False

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.run(self.node.start())
            self.run(self.pages.start("127.0.0.1", 0))
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._end_loop()
        if kind is None:
            assert not self.errors, self.errors

    def stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self.run(self.pages.stop())
            self.run(self.node.stop())

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    # On the node's own thread

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def on_loop(self, function: Callable[[], Result]) -> Result:
        async def call() -> Result:
            return function()

        result: Result = self.run(call())
        return result

    def until(self, is_so: Callable[[], object], timeout_s: float = 10) -> None:
        """Waits until something is so on the loop."""
        until(lambda: self.on_loop(is_so), timeout_s, poll_s=0.005)

    @property
    def address(self) -> tuple[str, int]:
        first = self.node.listeners[0]
        return first.host, first.port

    def create_topic(self, name: str = "orders", partitions: int = 1, **configs: str) -> bytes:
        """Its id. A config is written with underscores for its dots."""

        def create() -> bytes:
            broker = self.node.broker
            overrides = {key.replace("_", "."): value for key, value in configs.items()}
            changes = create_topic(broker.metadata, name, partitions, overrides, broker.random_bytes)
            broker.metadata_log.write(changes, int(time.time() * 1000))
            self.node.pump()
            return broker.metadata.topics[name].topic_id

        topic_id = self.on_loop(create)
        self.until(lambda: self.node.broker.metadata_log.is_settled)
        return topic_id
