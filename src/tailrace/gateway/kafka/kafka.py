"""All that the gateway asks of one cluster: a client, and what reads, writes and waits with it."""

from collections.abc import Mapping
from typing import NamedTuple

from tailrace.client.cluster.metadata import Topic
from tailrace.client.options import Isolation
from tailrace.gateway.kafka.connection import connect
from tailrace.gateway.kafka.reader import Reader
from tailrace.gateway.kafka.sender import Sender
from tailrace.gateway.kafka.tail import Tail
from tailrace.gateway.kafka.threads import Threads

THREADS = 16
CALLS_WAITING_MAX = 4000


class View(NamedTuple):
    """The messages of a cluster, as one isolation level shows them."""

    reader: Reader
    tail: Tail


class Kafka:
    """Used from the loop's thread alone, but for `cluster`."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises BadProperties. Connects to no broker yet."""
        self.cluster = connect(properties, Isolation.READ_COMMITTED)
        self.threads = Threads("kafka", THREADS, CALLS_WAITING_MAX)
        self.sender = Sender(self.cluster)
        # Watches leave connections behind that are busy, so they do not share those of other requests.
        self._clusters = [self.cluster]
        self._views: dict[Isolation, View] = {}
        self._properties = properties

    def view(self, isolation: Isolation) -> View:
        if isolation not in self._views:
            reading = self.cluster if isolation is Isolation.READ_COMMITTED else connect(self._properties, isolation)
            waiting = connect(self._properties, isolation)
            self._clusters += [reading, waiting]
            self._views[isolation] = View(Reader(reading, self.threads), Tail(waiting))
        return self._views[isolation]

    async def topic(self, name: str, *, may_create: bool = False) -> Topic:
        """Raises ClientError, TopicNotFound among others. With `may_create`, brokers that create topics on demand
        create it.
        """
        known = self.cluster.known_topic(name)
        if known is not None:
            return known
        return await self.threads.run(lambda: self.cluster.topic(name, may_create=may_create))

    def close(self) -> None:
        """Waits for calls that run: for a moment, or until they give up on a broker that does not answer."""
        self.sender.close()
        self.threads.close()
        for view in self._views.values():
            view.tail.close()
        for cluster in self._clusters:
            cluster.close()
