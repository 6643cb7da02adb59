"""A member of a classic group: its JoinGroup, its state, and the delayed responses it waits for."""

from collections.abc import Callable
from typing import NamedTuple

from tailrace.broker.core.delayed import Answer, DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.protocol.errors import ErrorCode


class Identity(NamedTuple):
    """Who asks: the id that the broker gave it, and the name that a static member keeps when it comes back."""

    member_id: str
    instance_id: str | None = None


class JoinRequest(NamedTuple):
    """A JoinGroup. `protocols` are ways to share the work, by name, the one it likes best first; each has bytes for the
    member that does the sharing.
    """

    identity: Identity
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    must_know_id: bool = False  # it is told its id first, and comes again: one that gives up then leaves nothing behind
    can_skip_assignment: bool = False


class MemberIdRequired(Refused):
    """A newcomer is told its id, and has to come again with it."""

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED, "join again with this id")
        self.member_id = member_id


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """A generation, as a member learns of it; only the leader learns of the others."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class Synced(NamedTuple):
    """What a member is to work on, in the words of its protocol."""

    protocol_type: str
    protocol: str
    assignment: bytes


class Parked(DelayedResponse[Answer]):
    """An answer that a member waits for. It is told where the connection is gone before."""

    __slots__ = ("_gone",)

    def __init__(self, gone: "Callable[[Parked[Answer]], None]") -> None:
        super().__init__()
        self._gone = gone

    def abandon(self) -> None:
        super().abandon()
        self._gone(self)


ParkedJoin = Parked[Joined | ErrorCode]
ParkedSync = Parked[Synced | ErrorCode]


class Member:
    """`protocols` are those of its last join; after a restart, only the one that was chosen then."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "has_joined",
        "has_synced",
        "instance_id",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
    )

    def __init__(self, member_id: str, joining: JoinRequest) -> None:
        self.member_id = member_id
        self.instance_id = joining.identity.instance_id  # for good: a later join may leave it out
        self.assignment = b""
        self.has_joined = False  # the rebalance that is under way
        self.has_synced = False  # the generation that is
        self.join: ParkedJoin | None = None
        self.sync: ParkedSync | None = None
        self.update(joining)

    def update(self, joining: JoinRequest) -> None:
        self.client_id = joining.client_id
        self.client_host = joining.client_host
        self.session_timeout_ms = joining.session_timeout_ms
        self.rebalance_timeout_ms = joining.rebalance_timeout_ms
        self.protocols = joining.protocols

    def metadata(self, protocol: str | None) -> bytes:
        """What it said for a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def answer_join(self, answer: Joined | ErrorCode) -> None:
        parked, self.join = self.join, None
        if parked is not None:
            parked.resolve(answer)

    def answer_sync(self, answer: Synced | ErrorCode) -> None:
        parked, self.sync = self.sync, None
        if parked is not None:
            parked.resolve(answer)

    @property
    def size(self) -> int:
        """About how many bytes of the client's are kept."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols)

    @property
    def is_parked(self) -> bool:
        """Whether it waits for an answer: then its silence means nothing."""
        return self.join is not None or self.sync is not None
