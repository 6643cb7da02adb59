"""Membership in a share group: heartbeats to its coordinator, and the partitions that it assigns.

A heartbeat in flight does not hold up the caller, who waits for the connection among others.
"""

import time
from uuid import uuid4

from tailrace.client.cluster import coordinators
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.coordinators import Kind
from tailrace.client.errors import ClientError, refusal
from tailrace.client.net.connection import Connection, Pending
from tailrace.client.share.acknowledgements import SharePartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
INTERVAL_S_MIN = 0.05
_REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Member:
    """One member. `assignment` is what the coordinator assigned last; it is kept while no coordinator answers."""

    def __init__(self, cluster: Cluster, group: str, topics: list[str]) -> None:
        self.member_id = str(uuid4())
        self.assignment: frozenset[SharePartition] = frozenset()
        self.due = time.monotonic()  # when the next heartbeat is to be sent
        self._cluster = cluster
        self._group = group
        self._topics = sorted(set(topics))
        self._epoch = JOIN_EPOCH
        self._is_known = False  # the coordinator has our topics
        self._connection: Connection | None = None
        self._pending: tuple[Pending[ShareGroupHeartbeatResponse], float] | None = None

    @property
    def has_joined(self) -> bool:
        return self._epoch != JOIN_EPOCH

    @property
    def waiting_on(self) -> Connection | None:
        """The connection on which a response is due."""
        return self._connection if self._pending is not None else None

    @property
    def deadline(self) -> float:
        """When there is something to do at the latest, if no response comes."""
        return self.due if self._pending is None else self._pending[1]

    def step(self, now: float) -> None:
        """Sends a heartbeat if it is due. Raises ClientError; the next step begins anew."""
        if self._pending is not None and now >= self._pending[1]:
            self._forget_coordinator()
        if self._pending is None and now >= self.due:
            self._send(self._epoch)

    def receive(self) -> None:
        """Takes the response that has arrived. Raises ClientError, which a later step may mend if it is passing."""
        assert self._connection is not None
        assert self._pending is not None
        pending, deadline = self._pending
        try:
            answer = self._connection.receive(pending, deadline)
        except ClientError:
            self._forget_coordinator()
            raise
        self._pending = None
        self._take(answer)

    def leave(self, deadline: float) -> None:
        """Leaves the group, if it has joined, and closes the connection. Raises ClientError."""
        try:
            if self._pending is not None:
                self.receive()
            if self.has_joined:
                self._send(LEAVE_EPOCH)
                assert self._connection is not None
                assert self._pending is not None
                self._connection.receive(self._pending[0], deadline)
        finally:
            self._forget_coordinator()

    def close(self) -> None:
        """Closes the connection; the coordinator removes the member when its session times out."""
        self._forget_coordinator()

    def _send(self, epoch: int) -> None:
        retry = self._cluster.retry(f"heartbeats to group {self._group}")
        if self._connection is None or self._connection.is_closed:
            address = coordinators.coordinator(self._cluster, Kind.GROUP, self._group, retry)
            try:
                self._connection = self._cluster.take(address, retry)
            except ClientError:
                self._forget_coordinator()
                raise
        says_topics = epoch == JOIN_EPOCH or (epoch > JOIN_EPOCH and not self._is_known)
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=list(self._topics) if says_topics else None,
        )
        deadline = time.monotonic() + self._cluster.options.request_timeout_s
        try:
            sent = self._connection.send(request, ShareGroupHeartbeatResponse, deadline)
        except ClientError:
            self._forget_coordinator()
            raise
        self._pending = sent, deadline
        self._is_known = False  # until the response says that this one arrived

    def _take(self, answer: ShareGroupHeartbeatResponse) -> None:
        now = time.monotonic()
        if answer.error_code:
            self.due = now + self._cluster.options.retry_backoff_s
            if answer.error_code in _REJOIN:
                self._epoch = JOIN_EPOCH
                return
            error = refusal(f"group {self._group}", answer.error_code, answer.error_message)
            if error.is_passing:
                self._forget_coordinator()
            raise error
        self._epoch = answer.member_epoch
        self._is_known = True
        self.due = now + max(INTERVAL_S_MIN, answer.heartbeat_interval_ms / 1000)
        if answer.assignment is not None:
            self.assignment = frozenset(
                SharePartition(topic.topic_id, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            )

    def _forget_coordinator(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._pending = None
        self._is_known = False
        self.due = time.monotonic() + self._cluster.options.retry_backoff_s
        self._cluster.forget_coordinator((Kind.GROUP, self._group))
