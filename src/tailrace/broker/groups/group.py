"""What the coordinator needs of a group, of whatever kind: classic or consumer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tailrace.broker.groups.records import Change
from tailrace.protocol.errors import ErrorCode

CommitCheck = Callable[[bytes, int], ErrorCode]
"""Tells for a topic id and the index of a partition whether a member may commit its offset."""


class Identity(NamedTuple):
    """The sender of a request: the id of the member, and the instance id that a static member keeps."""

    member_id: str
    instance_id: str | None = None


NOT_A_MEMBER = Identity("")


class Group(Protocol):
    group_id: str
    is_saved: bool  # whether the log has it

    @property
    def kind(self) -> str: ...

    @property
    def protocol_type(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and none that are joining."""
        ...

    @property
    def members(self) -> Mapping[str, Any]: ...

    def client_of(self, member_id: str) -> str | None:
        """Returns the client id of a member; None if it is none."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member has subscribed to the topic; in doubt, True."""
        ...

    def check_commit(self, identity: Identity, epoch: int, version: int) -> CommitCheck | None:
        """Returns a check for each partition, None if all may be committed. Raises Refused for a client that may not
        commit offsets.
        """
        ...

    def check_transactional_commit(self, identity: Identity, epoch: int) -> CommitCheck | None:
        """Does what `check_commit` does, for offsets in a transaction: only a client that says which member it is must
        be that one.
        """
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises Refused for a client that may not read the committed offsets."""
        ...

    def timed_out(self, kind: str, member_id: str) -> None:
        """A deadline of this kind is due."""
        ...

    def resume(self) -> None:
        """Restarts all deadlines, after a restart of the broker."""
        ...

    def refuse_waiting(self) -> None:
        """Refuses all parked requests, because the broker is about to stop."""
        ...

    def tombstones(self) -> Sequence[Change]:
        """Returns what removes the group, which is empty, from the log."""
        ...
