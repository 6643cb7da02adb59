"""A cluster as one process sees it: cached metadata, kept connections, retried errors.

    cluster = cluster_for(options)      # the same object each time, in one process
    cluster.topic("orders").partitions

Safe to be used by several threads: what is remembered is replaced, not changed, and connections are leased.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from tailrace.client.cluster.metadata import NO_EPOCH, NO_LEADER, Leader, Topic, TopicPartition, brokers_in, topics_in
from tailrace.client.cluster.retry import Retry
from tailrace.client.errors import ClientError, ConnectionLost, Refused, TopicNotFound, TopicRecreated
from tailrace.client.net.connection import Connection
from tailrace.client.net.pool import Pool
from tailrace.client.options import Address, ClientOptions
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

METADATA_MIN = 4  # from it on, asking about a topic need not create it
CREATION_S = 5.0
PATIENCE_S = 1.0  # a topic that was just created is not known to every broker at once


class Cluster:
    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self.pool = Pool(options)
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, tuple[Topic, float]] = {}  # with the time at which we were told
        self._coordinators: dict[tuple[int, str], Address] = {}  # by kind and key

    def close(self) -> None:
        """Closes the connections that are not in use. It can be used again."""
        self.pool.close()

    def retry(self, doing: str, first_pause_s: float | None = None) -> Retry:
        return Retry(self.options, doing, first_pause_s)

    # Topics

    def all_topics(self) -> dict[str, Topic]:
        """Every topic that we may see, internal ones included; asked anew."""
        self.refresh(None, self.retry("listing topics"))
        return {name: topic for name, (topic, _) in self._topics.items() if not topic.error_code}

    def topic(
        self, name: str, *, expect_id: bytes | None = None, fresh: bool = False, may_create: bool = False
    ) -> Topic:
        """Raises TopicNotFound, or TopicRecreated where the topic has another id than expected. One that may be created
        is, where brokers create topics that somebody is going to write to.
        """
        topic = None if fresh else self._remembered(name)
        if topic is None or topic.error_code:
            topic = self.topics([name], may_create=may_create).get(name)
        if topic is None:
            raise TopicNotFound(name)
        if expect_id is not None and topic.has_id and topic.topic_id != expect_id:
            if not fresh:  # what is remembered may be what is out of date
                return self.topic(name, expect_id=expect_id, fresh=True)
            raise TopicRecreated(name, expect_id, topic.topic_id)
        return topic

    def topics(self, names: Iterable[str], *, may_create: bool = False) -> dict[str, Topic]:
        """These topics, asked for anew in one request; without those that, after some patience, are not there."""
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

    def _remembered(self, name: str) -> Topic | None:
        topic, told_at = self._topics.get(name, (None, 0.0))
        return topic if time.monotonic() - told_at < self.options.metadata_max_age_s else None

    def leader(self, partition: TopicPartition, retry: Retry) -> Leader | None:
        """Who leads it, as far as we know; None where nobody does for now. Raises TopicNotFound after some patience."""
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
        """Asks about these topics, or about all."""
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
        """The answer of the first broker that gives one."""
        return self._ask_any(request, response, retry, (at_least, at_most))[1]

    def offers(self, requests: Mapping[type[Any], int]) -> bool:
        """Whether the first broker that answers knows all of these requests, in these versions or later ones."""
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
        """What comes of the first connection that can be had and holds, with the deadline of a request."""
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
        """As we were told last."""
        return list(self._brokers.values())

    def _addresses(self) -> Iterator[Address]:
        """Brokers that we know, then those that we were told to begin with."""
        yield from dict.fromkeys([*self._brokers.values(), *self.options.bootstrap])

    def take(self, address: Address, retry: Retry) -> Connection:
        """A connection for oneself, to be given to `pool.give_back`."""
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
    """The one cluster of this process for these options: its connections outlive whoever uses them."""
    with _lock:
        cluster = _clusters.get(options)
        if cluster is None:
            cluster = _clusters[options] = Cluster(options)
        return cluster


def close_all() -> None:
    """Closes and forgets what `cluster_for` keeps."""
    with _lock:
        clusters = list(_clusters.values())
        _clusters.clear()
    for cluster in clusters:
        cluster.close()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # the other may be held by a thread that was not forked; pools see to themselves


os.register_at_fork(after_in_child=_after_fork_in_child)
