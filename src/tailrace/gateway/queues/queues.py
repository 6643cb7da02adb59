"""All queues of the gateway: opened when a request asks for one, and closed when they are idle."""

import asyncio

from tailrace.client.share.consumer import ShareConsumer
from tailrace.gateway.http.problems import Problem
from tailrace.gateway.kafka.kafka import Kafka
from tailrace.gateway.queues.opening import prepare
from tailrace.gateway.queues.queue import Queue

QUEUES_MAX = 200  # each is a thread, and a few connections

Name = tuple[str, str]
"""A group and a topic."""


class Queues:
    """Used from the loop's thread alone."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._queues: dict[Name, Queue] = {}
        self._opening: dict[Name, asyncio.Future[Queue]] = {}

    @property
    def open(self) -> int:
        return len(self._queues)

    @property
    def leases(self) -> int:
        return sum(queue.leases for queue in self._queues.values())

    def find(self, name: Name) -> Queue | None:
        return self._queues.get(name)

    async def get(self, name: Name) -> Queue:
        """Opens the queue if it is not open. Raises Problem and ClientError."""
        queue = self._queues.get(name)
        if queue is not None:
            return queue
        opening = self._opening.get(name)
        if opening is None:
            if len(self._queues) + len(self._opening) >= QUEUES_MAX:
                raise Problem("too-many-requests", f"{QUEUES_MAX} queues are in use")
            opening = self._opening[name] = asyncio.ensure_future(self._open(name))
            opening.add_done_callback(lambda _: self._opening.pop(name, None))
        return await asyncio.shield(opening)

    async def _open(self, name: Name) -> Queue:
        group, topic = name
        await self._kafka.topic(topic)
        cluster = self._kafka.cluster
        is_tailrace = await self._kafka.threads.run(lambda: prepare(cluster, group))
        consumer = ShareConsumer(cluster.options, group, [topic])
        queue = Queue(
            f"queue {group} {topic}",
            consumer,
            is_tailrace=is_tailrace,
            when_closed=lambda queue: self.forget(name, queue),
        )
        self._queues[name] = queue
        return queue

    def forget(self, name: Name, queue: Queue) -> None:
        """The queue has closed."""
        if self._queues.get(name) is queue:
            del self._queues[name]

    def close(self) -> None:
        """Ends all leases: the brokers have the messages back when this returns."""
        queues = list(self._queues.values())
        for queue in queues:
            queue.stop()
        for queue in queues:
            queue.join()
