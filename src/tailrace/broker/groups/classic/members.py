"""A member of a classic group: its JoinGroup, its state, and the delayed responses it waits for."""

from collections.abc import Callable
from typing import NamedTuple

from tailrace.broker.core.delayed import Answer, DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.group import Identity
from tailrace.protocol.errors import ErrorCode


class JoinRequest(NamedTuple):
    """A JoinGroup. `protocols` are assignment strategies by name, most preferred first, each with metadata for the
    leader.
    """

    identity: Identity
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    must_know_id: bool = (
        False  # it gets its id first, and joins again with it: a client that gives up leaves no member behind
    )
    can_skip_assignment: bool = False


class MemberIdRequired(Refused):
    """A new member gets its id, and has to join again with it."""

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED, "join again with this id")
        self.member_id = member_id


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """A generation, as a member sees it; only the leader sees the other members."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class Synced(NamedTuple):
    """A member's assignment, in its protocol's encoding."""

    protocol_type: str
    protocol: str
    assignment: bytes


class Parked(DelayedResponse[Answer]):
    """A response that a member waits for. Calls back if the connection is closed before."""

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
    """`protocols` are those of its last JoinGroup; after a restart, only the one that the group chose then."""

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
        self.instance_id = joining.identity.instance_id  # permanent: a later JoinGroup may leave it out
        self.assignment = b""
        self.has_joined = False  # the current rebalance
        self.has_synced = False  # the current generation
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
        """Its metadata for a protocol."""
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
        """The approximate size of the client's bytes that are kept."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols)

    @property
    def is_parked(self) -> bool:
        """Whether a response is parked: then its session does not expire."""
        return self.join is not None or self.sync is not None
