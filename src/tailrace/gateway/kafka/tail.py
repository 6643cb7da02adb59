"""Waits until partitions have more messages. Many waiting requests share a few fetches that the broker keeps.

A watch is one long poll for a set of partitions. A partition that is waited for and not watched begins a new watch at
once, while there are fewer than WATCHES_MAX; the more there are, the sooner a new one ends, and its partitions become
part of the next one. So no request waits for another's long poll to end, and a thousand that wait cost a few fetches.
"""

import asyncio
from collections.abc import Mapping

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import ClientError
from tailrace.client.long_poll import wait_for_more
from tailrace.gateway.kafka.threads import Threads

WATCHES_MAX = 8
WATCH_S = 2.0
WATCH_S_MIN = 0.25


class Tail:
    """Used from the loop's thread alone."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._threads = Threads("tail", WATCHES_MAX, 0)
        self._waiting: dict[TopicPartition, dict[asyncio.Future[None], int]] = {}  # with offsets
        self._watched: dict[TopicPartition, int] = {}  # offsets from which on watches look
        self._watches: set[asyncio.Task[None]] = set()
        self._is_due = False

    @property
    def watches(self) -> int:
        return len(self._watches)

    def close(self) -> None:
        self._threads.close()

    async def wait(self, partition: TopicPartition, offset: int) -> None:
        """Returns when the partition may have messages at `offset`, or may not be there any more: the caller looks."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(partition, {})
        waiting[future] = offset
        self._start_soon()
        try:
            await future
        finally:
            waiting.pop(future, None)
            if not waiting and self._waiting.get(partition) is waiting:
                del self._waiting[partition]

    def _start_soon(self) -> None:
        """Watches begin in the next turn of the loop, so that requests that came together share one."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._is_due = False
        positions = {
            partition: offset
            for partition, waiting in self._waiting.items()
            if (offset := min(waiting.values())) < self._watched.get(partition, 1 << 63)
        }
        if not positions or len(self._watches) >= WATCHES_MAX:
            return
        seconds = max(WATCH_S_MIN, WATCH_S / 2 ** len(self._watches))
        self._watched.update(positions)
        watch = asyncio.create_task(self._watch(positions, seconds))
        self._watches.add(watch)
        watch.add_done_callback(self._ended)

    def _ended(self, watch: "asyncio.Task[None]") -> None:
        self._watches.discard(watch)
        self._start_soon()

    async def _watch(self, positions: Mapping[TopicPartition, int], seconds: float) -> None:
        found: Mapping[TopicPartition, int]
        try:
            found = await self._threads.run(lambda: wait_for_more(self._cluster, positions, seconds))
        except ClientError:  # of one partition or of all: each waiting request reads again, and gets its own error
            found = dict.fromkeys(positions, 1 << 63)
        finally:
            for partition, offset in positions.items():
                if self._watched.get(partition) == offset:
                    del self._watched[partition]
        for partition, end in found.items():
            for future, offset in list(self._waiting.get(partition, {}).items()):
                if offset < end and not future.done():
                    future.set_result(None)
