"""A share session with one broker: its connection, its epoch, its partitions, and the requests in flight.

The broker counts the requests of a session and releases all that it holds when the connection ends. So a session that
fails in any way is closed, and the next one begins anew on another connection. At most one ShareFetch, and one
ShareAcknowledge behind it, are in flight.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import Refused, refusal
from tailrace.client.net.connection import Pending
from tailrace.client.options import Address
from tailrace.client.share.acknowledgements import Acknowledgement, SharePartition, Terms, topics_of
from tailrace.protocol.messages.share_acknowledge import (
    FINAL_EPOCH,
    NOT_GIVEN,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from tailrace.protocol.messages.share_fetch import (
    RECORD_LIMIT,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)

VERSION_MIN = 2  # of ShareFetch and ShareAcknowledge: record limits, and renewals
_EPOCH_MAX = 0x7FFFFFFF


class Fetch(NamedTuple):
    """What a ShareFetch asks for. `lock_ms` needs a tailrace broker."""

    records_max: int
    wait_ms: int
    lock_ms: int | None = None


class Fetched(NamedTuple):
    wanted: Fetch
    response: ShareFetchResponse


class Acknowledged(NamedTuple):
    terms: Terms
    sent: list[Acknowledgement]
    response: ShareAcknowledgeResponse


class _InFlight(NamedTuple):
    pending: Pending[Any]
    deadline: float
    sent: Fetch | tuple[Terms, list[Acknowledgement]]


class Session:
    """Connects when it is made. Raises ClientError, as each method does; the caller then closes it."""

    def __init__(self, cluster: Cluster, address: Address, group: str, member_id: str) -> None:
        self._options = cluster.options
        self._pool = cluster.pool
        self._group = group
        self._member_id = member_id
        self._epoch = 0
        self._partitions: frozenset[SharePartition] = frozenset()
        self._in_flight: deque[_InFlight] = deque()
        self.connection = cluster.take(address, cluster.retry(f"a share session of group {group}"))
        self.address = address

    @property
    def is_fetching(self) -> bool:
        return any(isinstance(one.sent, Fetch) for one in self._in_flight)

    @property
    def is_acknowledging(self) -> bool:
        return any(not isinstance(one.sent, Fetch) for one in self._in_flight)

    @property
    def wanted(self) -> int:
        """How many records may still come."""
        return sum(one.sent.records_max for one in self._in_flight if isinstance(one.sent, Fetch))

    @property
    def is_waiting(self) -> bool:
        return bool(self._in_flight)

    @property
    def is_open(self) -> bool:
        """Whether the broker may hold records for it."""
        return self._epoch > 0 and not self.connection.is_closed

    @property
    def deadline(self) -> float:
        """When the next response must have come."""
        return self._in_flight[0].deadline if self._in_flight else float("inf")

    def fetch(self, partitions: frozenset[SharePartition], wanted: Fetch) -> None:
        """Sends a ShareFetch for these partitions, which replace those of the session."""
        options = self._options
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=wanted.wait_ms,
            min_bytes=1,
            max_bytes=options.fetch_max_bytes,
            max_records=wanted.records_max,
            batch_size=wanted.records_max,
            share_acquire_mode=RECORD_LIMIT,
            topics=_added(partitions - self._partitions),
            forgotten_topics_data=_forgotten(self._partitions - partitions),
            lock_duration_ms=NOT_GIVEN if wanted.lock_ms is None else wanted.lock_ms,
        )
        deadline = self._deadline(wanted.wait_ms / 1000)
        pending = self.connection.send(request, ShareFetchResponse, deadline, at_least=VERSION_MIN)
        self._in_flight.append(_InFlight(pending, deadline, wanted))
        self._partitions = partitions
        self._count()

    def acknowledge(self, terms: Terms, acknowledgements: list[Acknowledgement]) -> None:
        """Sends a ShareAcknowledge. The session has fetched before."""
        assert self._epoch
        self._acknowledge(self._epoch, terms, acknowledgements)
        self._count()

    def receive(self, until: float = float("inf")) -> Fetched | Acknowledged:
        """Waits for the next response, and returns it. Raises Refused if the session is not valid."""
        one = self._in_flight[0]
        response = self.connection.receive(one.pending, min(one.deadline, until))
        self._in_flight.popleft()
        if response.error_code:
            self.connection.close()
            raise refusal(f"share session of group {self._group}", response.error_code, response.error_message)
        return Fetched(one.sent, response) if isinstance(one.sent, Fetch) else Acknowledged(*one.sent, response)

    def finish(self, acknowledgements: list[Acknowledgement], until: float) -> list[Fetched | Acknowledged]:
        """Ends the session with these acknowledgements: the broker releases the other records that it holds for it.
        Returns the responses to all that was in flight, and to this.
        """
        self._acknowledge(FINAL_EPOCH, Terms(), acknowledgements)
        answers = [self.receive(until) for _ in range(len(self._in_flight))]
        self._pool.give_back(self.connection)
        return answers

    def close(self) -> None:
        """Ends the session with its connection."""
        self.connection.close()

    def _acknowledge(self, epoch: int, terms: Terms, acknowledgements: list[Acknowledgement]) -> None:
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=terms.is_renewal,
            topics=topics_of(acknowledgements),
            lock_duration_ms=NOT_GIVEN if terms.lock_ms is None else terms.lock_ms,
            delay_ms=NOT_GIVEN if terms.delay_ms is None else terms.delay_ms,
        )
        deadline = max([self._deadline(), *(one.deadline for one in self._in_flight)])
        pending = self.connection.send(request, ShareAcknowledgeResponse, deadline, at_least=VERSION_MIN)
        self._in_flight.append(_InFlight(pending, deadline, (terms, acknowledgements)))

    def _deadline(self, wait_s: float = 0.0) -> float:
        return time.monotonic() + self._options.request_timeout_s + wait_s

    def _count(self) -> None:
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1


def errors_of(acknowledged: Acknowledged) -> dict[SharePartition, Refused]:
    """Returns the error of each partition whose acknowledgements the broker has refused."""
    return {
        SharePartition(topic.topic_id, one.partition_index): Refused("acknowledging", one.error_code, one.error_message)
        for topic in acknowledged.response.responses
        for one in topic.partitions
        if one.error_code
    }


def _added(partitions: Iterable[SharePartition]) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for topic_id, index in sorted(partitions):
        topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id))
        topic.partitions.append(FetchPartition(partition_index=index))
    return list(topics.values())


def _forgotten(partitions: Iterable[SharePartition]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
    return list(topics.values())
