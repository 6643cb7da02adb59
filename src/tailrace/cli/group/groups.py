"""Requests about groups: members, committed offsets and lag; and changes to committed offsets.

A coordinator describes an unknown group as one that is dead and has committed nothing. An offset is
committed when a message was read; it names the next one.
"""

from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple

from tailrace.cli.common.client import (
    AdminClient,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    MemberDescription,
    TopicPartition,
)
from tailrace.cli.common.connection import REQUEST_SECONDS, Connection
from tailrace.cli.common.output import ExitCode, Failure, plural
from tailrace.cli.common.topics.offsets import Offsets, Partition
from tailrace.cli.group import share

_MANY = 200  # groups asked about at a time: each is a request of its own


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


Commits = dict[Partition, CommittedOffset]


class Standing(NamedTuple):
    """The position of a group in a partition, and the bounds of the log. `committed` is None without a commit."""

    committed: int | None
    start: int
    end: int

    @property
    def position(self) -> int | None:
        """The offset at which the group continues, within the bounds of the log."""
        return None if self.committed is None else min(max(self.committed, self.start), self.end)

    @property
    def lag(self) -> int | None:
        return None if self.position is None else self.end - self.position

    @property
    def lost(self) -> int:
        """Messages that were deleted before the group had read them."""
        return 0 if self.committed is None else max(0, self.start - self.committed)


class Groups:
    def __init__(self, connection: Connection, admin: AdminClient) -> None:
        self._connection = connection
        self._admin = admin

    def listed(self) -> list[ConsumerGroupListing]:
        listed = self._connection.result(
            self._admin.list_consumer_groups(request_timeout=REQUEST_SECONDS), "groups cannot be listed"
        )
        for error in listed.errors:
            raise self._connection.failure(error.args[0], "groups cannot be listed")
        return sorted(listed.valid, key=lambda group: str(group.group_id))

    def described(self, names: list[str]) -> dict[str, ConsumerGroupDescription]:
        found: dict[str, ConsumerGroupDescription] = {}
        for some in _in_turns(names):
            futures = self._admin.describe_consumer_groups(some, request_timeout=REQUEST_SECONDS)
            for name in some:
                found[name] = self._connection.result(futures[name], f"group {name} cannot be shown")
        return found

    def committed(self, names: list[str]) -> dict[str, Commits]:
        found: dict[str, Commits] = {}
        for some in _in_turns(names):
            futures = {name: self._offsets(name) for name in some}
            for name, future in futures.items():
                answer = self._connection.result(future, f"the offsets of group {name} cannot be had")
                found[name] = dict(self._commit_of(name, one) for one in answer.topic_partitions if one.offset >= 0)
        return found

    def require(self, names: list[str]) -> dict[str, ConsumerGroupDescription]:
        """The groups, all of which exist and have committed offsets. Raises a `Failure` that suggests similar names
        where one does not, and for a share group.
        """
        found = self.described(names)
        for name, group in found.items():
            if is_unknown(group):
                share.refuse(self._connection, name)
                raise self.unknown(name)
        return found

    def commit(self, name: str, commits: Commits) -> None:
        """All at once: the partitions named here, and no others."""
        places = [
            TopicPartition(*partition, commit.offset, commit.metadata, commit.leader_epoch)
            for partition, commit in commits.items()
        ]
        asked = [ConsumerGroupTopicPartitions(name, places)]
        future = self._admin.alter_consumer_group_offsets(asked, request_timeout=REQUEST_SECONDS)[name]
        doing = f"the offsets of group {name} are not changed"
        for place in self._connection.result(future, doing).topic_partitions:
            if place.error is not None:
                raise self._refusal(place.error, f"{doing}, at {place.topic} [{place.partition}]")

    def delete(self, name: str) -> None:
        future = self._admin.delete_consumer_groups([name], request_timeout=REQUEST_SECONDS)[name]
        self._connection.result(future, f"group {name} is not deleted")

    def _offsets(self, name: str) -> Any:
        asked = [ConsumerGroupTopicPartitions(name)]
        return self._admin.list_consumer_group_offsets(asked, request_timeout=REQUEST_SECONDS)[name]

    def _commit_of(self, name: str, place: TopicPartition) -> tuple[Partition, CommittedOffset]:
        partition = Partition(place.topic, place.partition)
        if place.error is not None:
            raise self._connection.failure(place.error, f"the offset of group {name} in {partition} cannot be had")
        epoch: int | None = place.leader_epoch
        return partition, CommittedOffset(place.offset, place.metadata or "", -1 if epoch is None else epoch)

    def _refusal(self, error: KafkaError, doing: str) -> Failure:
        if error.code() == KafkaError.UNKNOWN_MEMBER_ID:  # what a coordinator says if members come meanwhile
            return Failure(f"{doing}: it has members now", ExitCode.REFUSED)
        return self._connection.failure(error, doing)

    def unknown(self, name: str) -> Failure:
        return Failure(self._unknown(name), ExitCode.NOT_FOUND)

    def _unknown(self, name: str) -> str:
        there = [str(group.group_id) for group in self.listed()]
        message = f"there is no group {name!r} at {self._connection.bootstrap}"
        if close := get_close_matches(name, there, n=3, cutoff=0.7):
            return f"{message}; did you mean {' or '.join(close)}?"
        return f"{message}\n  `tailrace group list` shows which there are"


def is_unknown(group: ConsumerGroupDescription) -> bool:
    """Whether the coordinator knows no classic or consumer group of that name."""
    return group.state == ConsumerGroupState.DEAD and not group.members


def standings(offsets: Offsets, partitions: Iterable[Partition], commits: Commits) -> dict[Partition, Standing]:
    partitions = list(partitions)
    start, end = offsets.earliest(partitions), offsets.latest(partitions)
    return {
        partition: Standing(
            commits[partition].offset if partition in commits else None, start[partition], end[partition]
        )
        for partition in partitions
    }


def labels(members: list[MemberDescription]) -> dict[str, str]:
    """Returns labels of members by their ids, as short as distinguishes them."""
    own = Counter(map(_own_name, members))
    names = {
        str(member.member_id): _own_name(member) if own[_own_name(member)] == 1 else _short_id(member)
        for member in members
    }
    return names if len(set(names.values())) == len(names) else {member_id: member_id for member_id in names}


def host_of(member: MemberDescription) -> str:
    return str(member.host).removeprefix("/")


def require_no_members(group: ConsumerGroupDescription, doing: str) -> None:
    """Refuses while the group has members: their next commit would overwrite the change."""
    members = group.members
    if not members:
        return
    names = labels(members)
    said = [f"{names[str(member.member_id)]} at {host_of(member)}" for member in members[:5]]
    more = f" and {len(members) - 5} more" if len(members) > 5 else ""
    wait = "one that was killed counts until its session times out, mostly 45 s"
    if any(member.group_instance_id for member in members):
        wait += "; so does one with an instance id, however it ends"
    raise Failure(
        f"{doing}: group {group.group_id} has {plural(len(members), 'member')} ({', '.join(said)}{more})\n"
        f"  stop them first, then try again; {wait}",
        ExitCode.REFUSED,
    )


def _own_name(member: MemberDescription) -> str:
    return str(member.group_instance_id or member.client_id)


def _short_id(member: MemberDescription) -> str:
    """The id begins with the client's or the instance's name; behind it, eight characters of many are enough."""
    start = next((name for name in (member.group_instance_id, member.client_id) if _begins(member, name)), "")
    return str(member.member_id)[: len(start or "") + 9]


def _begins(member: MemberDescription, name: str | None) -> bool:
    return bool(name) and str(member.member_id).startswith(f"{name}-")


def _in_turns(names: list[str]) -> list[list[str]]:
    return [names[start : start + _MANY] for start in range(0, len(names), _MANY)]
