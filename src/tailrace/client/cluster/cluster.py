"""The cluster as one process sees it: cached metadata, pooled connections, retried errors.

    cluster = cluster_for(options)      # the same object each time, in one process
    cluster.topic("orders").partitions

Thread-safe: cached values are replaced, not changed, and connections are leased.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from tailrace.client.cluster.metadata import NO_EPOCH, NO_LEADER, Leader, Topic, TopicPartition, brokers_in, topics_in
from tailrace.client.cluster.retry import Retry
from tailrace.client.errors import BrokerNotFound, ClientError, ConnectionLost, Refused, TopicNotFound, TopicRecreated
from tailrace.client.net.connection import Connection
from tailrace.client.net.pool import Pool
from tailrace.client.options import Address, ClientOptions
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

METADATA_MIN = 4  # the first version that can ask about a topic without creating it
CREATION_S = 5.0
PATIENCE_S = 1.0  # a new topic takes a moment to reach every broker


class Cluster:
    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self.pool = Pool(options)
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, tuple[Topic, float]] = {}  # with the time of the response
        self._coordinators: dict[tuple[int, str], Address] = {}  # by kind and key

    def close(self) -> None:
        """Closes idle connections. The cluster can be used again."""
        self.pool.close()

    def retry(self, doing: str, first_pause_s: float | None = None) -> Retry:
        return Retry(self.options, doing, first_pause_s)

    # Topics

    def all_topics(self) -> dict[str, Topic]:
        """Fetches every topic that this client may see, including internal ones."""
        self.refresh(None, self.retry("listing topics"))
        return {name: topic for name, (topic, _) in self._topics.items() if not topic.error_code}

    def topic(
        self, name: str, *, expect_id: bytes | None = None, fresh: bool = False, may_create: bool = False
    ) -> Topic:
        """Returns a topic, cached for a while. Raises TopicNotFound, or TopicRecreated if its id is not the expected
        one. With `may_create`, brokers that create topics on demand create it.
        """
        topic = None if fresh else self._remembered(name)
        if topic is None or topic.error_code:
            topic = self.topics([name], may_create=may_create).get(name)
        if topic is None:
            raise TopicNotFound(name)
        if expect_id is not None and topic.has_id and topic.topic_id != expect_id:
            if not fresh:  # the cache may be out of date
                return self.topic(name, expect_id=expect_id, fresh=True)
            raise TopicRecreated(name, expect_id, topic.topic_id)
        return topic

    def topics(self, names: Iterable[str], *, may_create: bool = False) -> dict[str, Topic]:
        """Fetches these topics in one request. Leaves out those that do not exist after a few retries."""
        wanted = list(names)
        retry, patience_s = self.retry("looking for topics"), CREATION_S if may_create else PATIENCE_S
        while wanted:
            self.refresh(wanted, retry, may_create=may_create)
            found = {name: self._topics[name][0] for name in wanted if name in self._topics}
            missing = [name for name in wanted if name not in found or found[name].is_missing]
            there = {name: topic for name, topic in found.items() if name not in missing}
            trouble = next((trouble for topic in there.values() if (trouble := topic.trouble())), None)
            if trouble is None and missing and retry.elapsed <= patience_s:
                trouble = Refused(f"topic {missing[0]}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if trouble is None:
                return there
            retry.pause(trouble)
        return {}

    def known_topic(self, name: str) -> Topic | None:
        """Returns a usable topic from the cache, without a request; None if it is not there."""
        topic = self._remembered(name)
        return None if topic is None or topic.error_code else topic

    def _remembered(self, name: str) -> Topic | None:
        topic, told_at = self._topics.get(name, (None, 0.0))
        return topic if time.monotonic() - told_at < self.options.metadata_max_age_s else None

    def leader(self, partition: TopicPartition, retry: Retry) -> Leader | None:
        """Returns the cached leader; None while the partition has none. Raises TopicNotFound after a few retries."""
        topic = self._remembered(partition.topic)
        if topic is None:
            self.refresh([partition.topic], retry)
            topic = self._remembered(partition.topic)
        if topic is None or topic.is_missing or (not topic.error_code and partition.partition not in topic.leaders):
            if retry.elapsed > PATIENCE_S:
                exists = topic is not None and not topic.is_missing
                raise TopicNotFound(partition.topic, partition.partition if exists else None)
            return None
        if (trouble := topic.trouble()) is not None and not trouble.is_passing:
            raise trouble
        address = self._brokers.get(topic.leaders.get(partition.partition, NO_LEADER))
        return None if address is None else Leader(address, topic.epochs.get(partition.partition, NO_EPOCH))

    def refresh(self, names: Iterable[str] | None, retry: Retry, *, may_create: bool = False) -> None:
        """Fetches these topics, or all."""
        wanted = None if names is None else sorted(set(names))
        request = MetadataRequest(
            topics=None if wanted is None else [MetadataRequestTopic(name=name) for name in wanted],
            allow_auto_topic_creation=may_create,
        )
        version, response = self._ask_any(request, MetadataResponse, retry, (METADATA_MIN, 0x7FFF))
        now = time.monotonic()
        told = {topic.name: (topic, now) for topic in topics_in(response, version)}
        self._brokers = brokers_in(response)
        self._topics = told if wanted is None else {**self._topics, **told}

    # Requests

    def ask_any(self, request: Any, response: type[T], retry: Retry, *, at_least: int = 0, at_most: int = 0x7FFF) -> T:
        """Returns the response of the first broker that can be reached."""
        return self._ask_any(request, response, retry, (at_least, at_most))[1]

    def ask_broker(self, node_id: int, request: Any, response: type[T], retry: Retry) -> T:
        """The answer of one broker. Raises BrokerNotFound for an id that no broker of the cluster has."""
        if node_id not in self._brokers:
            self.refresh([], retry)
        address = self._brokers.get(node_id)
        if address is None:
            raise BrokerNotFound(node_id, sorted(self._brokers))
        return self.ask_at(address, request, response, retry)

    def ask_at(
        self,
        address: Address,
        request: Any,
        response: type[T],
        retry: Retry,
        *,
        at_least: int = 0,
        at_most: int = 0x7FFF,
    ) -> T:
        """Returns the response of one broker, once it can be reached."""
        while True:
            deadline = retry.request_deadline()
            try:
                with self.pool.lease(address, deadline) as connection:
                    return connection.ask(request, response, deadline, at_least=at_least, at_most=at_most)
            except ConnectionLost as error:
                retry.pause(error)

    def offers(self, requests: Mapping[type[Any], int]) -> bool:
        """Whether the first broker that responds supports all of these requests, in these versions or later ones."""
        return self._with_any(
            lambda connection, _: all(connection.highest(request) >= least for request, least in requests.items()),
            self.retry("asking what is offered"),
        )

    def _ask_any(self, request: Any, response: type[T], retry: Retry, versions: tuple[int, int]) -> tuple[int, T]:
        def ask(connection: Connection, deadline: float) -> tuple[int, T]:
            pending = connection.send(request, response, deadline, at_least=versions[0], at_most=versions[1])
            return pending.version, connection.receive(pending, deadline)

        return self._with_any(ask, retry)

    def _with_any(self, use: Callable[[Connection, float], T], retry: Retry) -> T:
        """Returns the result of `use` with the first connection that works. `use` gets the deadline of a request."""
        while True:
            failed: ClientError | None = None
            for address in self._addresses():
                try:
                    deadline = retry.request_deadline()
                    with self.pool.lease(address, deadline) as connection:
                        return use(connection, deadline)
                except ConnectionLost as error:
                    failed = error
            assert failed is not None
            retry.pause(failed)

    @property
    def brokers(self) -> list[Address]:
        """The brokers of the latest metadata response."""
        return list(self._brokers.values())

    @property
    def nodes(self) -> dict[int, Address]:
        """The same by their ids."""
        return self._brokers

    def _addresses(self) -> Iterator[Address]:
        """Yields the known brokers, then those of `bootstrap.servers`."""
        yield from dict.fromkeys([*self._brokers.values(), *self.options.bootstrap])

    def take(self, address: Address, retry: Retry) -> Connection:
        """Takes a connection for exclusive use, until `pool.give_back`."""
        return self.pool.take(address, retry.request_deadline())

    # Coordinators, which `coordinators` finds

    def coordinator(self, key: tuple[int, str]) -> Address | None:
        return self._coordinators.get(key)

    def remember_coordinator(self, key: tuple[int, str], address: Address) -> None:
        self._coordinators[key] = address

    def forget_coordinator(self, key: tuple[int, str]) -> None:
        self._coordinators.pop(key, None)


_lock = threading.Lock()
_clusters: dict[ClientOptions, Cluster] = {}


def cluster_for(options: ClientOptions) -> Cluster:
    """Returns the one cluster of this process for these options. Its connections stay open between uses."""
    with _lock:
        cluster = _clusters.get(options)
        if cluster is None:
            cluster = _clusters[options] = Cluster(options)
        return cluster


def close_all() -> None:
    """Closes and forgets the clusters that `cluster_for` keeps."""
    with _lock:
        clusters = list(_clusters.values())
        _clusters.clear()
    for cluster in clusters:
        cluster.close()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that was not forked may hold the old one; pools handle forks themselves


os.register_at_fork(after_in_child=_after_fork_in_child)
