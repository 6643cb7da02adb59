"""Share sessions: remember which partitions a member of a share group fetches, and end with its connection.

    0      a new session with the partitions of the request; it takes the place of one that there is
    n > 0  the n-th request of the session: partitions are added or forgotten
    -1     the last request: the session ends, and what the member has acquired is released

A session belongs to the connection over which it was used last. When that is closed, the session ends at once, and what
the member has acquired is available to others: they need not wait for its locks.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tailrace.broker.core.api import ELEMENTS_MAX
from tailrace.broker.core.clients import ClientConnection
from tailrace.broker.core.errors import Refused
from tailrace.broker.queues.names import TopicPartitionId
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fetch_wire import INITIAL_EPOCH, epoch_after

MEMBER_ID_LENGTH_MAX = 36
PARTITIONS_MAX = ELEMENTS_MAX // 2  # of one session


class Member(NamedTuple):
    group: str
    member_id: str


class ShareSession:
    """The partitions that a member fetches, and the epoch of its next request."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.epoch = INITIAL_EPOCH + 1
        self.partitions: dict[TopicPartitionId, None] = {}  # a dict, for its order
        self.is_ended = False
        self.when_ended: dict[Callable[[], None], None] = {}
        self._connection: ClientConnection | None = None
        self._lost: Callable[[], None] = lambda: None

    def bind(self, connection: ClientConnection | None, lost: Callable[[], None]) -> None:
        """Calls `lost` when this connection is closed, and no other."""
        if connection is not self._connection:
            if self._connection is not None:
                self._connection.forget(self._lost)
            self._connection, self._lost = connection, lost
            if connection is not None:
                connection.when_closed(lost)

    def rotated(self) -> list[TopicPartitionId]:
        """Returns the partitions, beginning with another one for each request, so that none starves."""
        partitions = list(self.partitions)
        if not partitions:
            return partitions
        first = self.epoch % len(partitions)
        return partitions[first:] + partitions[:first]


class ShareSessions:
    """`release` is called when a session ends of itself: with its last request, or with its connection."""

    def __init__(self, sessions_max: int, release: Callable[[Member], None]) -> None:
        self._sessions_max = sessions_max
        self._release = release
        self._sessions: dict[Member, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, member: Member) -> ShareSession | None:
        return self._sessions.get(member)

    def begin(self, member: Member, connection: ClientConnection | None) -> ShareSession:
        """Begins a session, in place of an earlier one. What the member acquired in that stays locked: a client that
        begins anew may have the records in hand. Raises Refused if there are too many.
        """
        earlier = self._sessions.get(member)
        if earlier is None and len(self._sessions) >= self._sessions_max:
            raise Refused(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"there are {self._sessions_max} share sessions already"
            )
        if earlier is not None:
            self._end(earlier)
        session = self._sessions[member] = ShareSession(member)
        session.bind(connection, partial(self.close, session))
        return session

    def go_on(self, member: Member, epoch: int, connection: ClientConnection | None) -> ShareSession:
        """Returns the session of its next request. Raises Refused."""
        session = self._require(member)
        if epoch != session.epoch:
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"epoch {epoch}, expected {session.epoch}")
        session.epoch = epoch_after(session.epoch)
        session.bind(connection, partial(self.close, session))
        return session

    def finish(self, member: Member) -> ShareSession:
        """Returns the session for its last request: `close` ends it. Raises Refused if there is none."""
        return self._require(member)

    def close(self, session: ShareSession) -> None:
        """Ends a session, and releases what its member has acquired."""
        if not session.is_ended:
            self._end(session)
            self._release(session.member)

    def _require(self, member: Member) -> ShareSession:
        session = self._sessions.get(member)
        if session is None:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND, f"{member.member_id!r} has no share session")
        return session

    def _end(self, session: ShareSession) -> None:
        session.is_ended = True
        del self._sessions[session.member]
        session.bind(None, lambda: None)
        ended, session.when_ended = session.when_ended, {}
        for notify in ended:
            notify()
