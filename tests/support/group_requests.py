"""Members of groups for tests of a broker: they send requests, and remember what they were told.

    a, b = share(Consumer(broker, "a"), Consumer(broker, "b"))
    assert a.heartbeat() == 0

A broker for them waits for nobody when a group is new: `with broker_for_groups(tmp_path) as broker`.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from brokers import LocalBroker

from tailrace.broker.core.delayed import DelayedResponse
from tailrace.protocol.messages.heartbeat import HeartbeatRequest
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

BILLING = "billing"
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
Place = tuple[str, int]


def broker_for_groups(path: Path | str, configs: Mapping[str, str] | None = None, **options: Any) -> LocalBroker:
    return LocalBroker(path, {**NO_DELAY, **(configs or {})}, **options)


def subscription(*topics: str) -> bytes:
    """What a consumer says when it joins: version 0, topics, nothing of its own."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Asked:
    """A request; `answer` is None until it is answered."""

    def __init__(
        self, broker: LocalBroker, request: Any, version: int, told: Callable[[Any], None] = lambda answer: None
    ) -> None:
        self.answer: Any = None
        answer = broker.begin(request, version)
        self.later: DelayedResponse[Any] | None = answer if isinstance(answer, DelayedResponse) else None

        def tell(made: Any) -> None:
            assert self.answer is None, "answered twice"
            self.answer = broker.decode(made, type(request), version)
            told(self.answer)

        if isinstance(answer, DelayedResponse):
            answer.when_resolved(tell)
        else:
            tell(answer)
        if not broker.hold_jobs:
            broker.run_jobs()

    @property
    def code(self) -> int | None:
        return None if self.answer is None else int(self.answer.error_code)

    def abandon(self) -> None:
        """The connection is gone, perhaps with the answer still in it."""
        if self.later is not None:
            self.later.abandon()


class Consumer:
    def __init__(
        self,
        broker: LocalBroker,
        name: str = "c",
        *,
        group: str = BILLING,
        instance_id: str | None = None,
        topics: Sequence[str] = ("orders",),
        protocols: Sequence[str] = ("range",),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
    ) -> None:
        self.broker = broker
        self.name = name
        self.group = group
        self.instance_id = instance_id
        self.topics = topics
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.joined: Any = None  # the last answer to a join, and
        self.assignment: bytes | None = None  # to a sync

    def join(self, version: int = 9) -> Asked:
        """With the id that it was told, if it was told one."""
        metadata = subscription(*self.topics)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.protocols],
        )
        return Asked(self.broker, request, version, self._joined)

    def _joined(self, answer: Any) -> None:
        if answer.member_id:
            self.member_id = answer.member_id
        if not answer.error_code:
            self.joined, self.generation = answer, answer.generation_id

    def enter(self, version: int = 9) -> Asked:
        """Joins in two steps, where there are two."""
        if not self.member_id and self.instance_id is None and version >= 4:
            self.join(version)
        return self.join(version)

    @property
    def is_leader(self) -> bool:
        return self.joined is not None and self.joined.leader == self.member_id

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> Asked:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=work)
                for member_id, work in (assignments or {}).items()
            ],
        )
        return Asked(self.broker, request, version, self._synced)

    def _synced(self, answer: Any) -> None:
        if not answer.error_code:
            self.assignment = bytes(answer.assignment)

    def heartbeat(self, version: int = 4) -> int:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return int(self.broker.ask(request, version).error_code)

    def leave(self, version: int = 5) -> int:
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
            return int(self.broker.ask(request, version).error_code)
        gone = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        (answer,) = self.broker.ask(LeaveGroupRequest(group_id=self.group, members=[gone]), version).members
        return int(answer.error_code)

    def commit(self, offset: int, topic: str = "orders", partition: int = 0) -> int:
        request = commit_request(
            {(topic, partition): offset},
            group=self.group,
            member_id=self.member_id,
            generation_id_or_member_epoch=self.generation,
            group_instance_id=self.instance_id,
        )
        return int(self.broker.ask(request, 9).topics[0].partitions[0].error_code)


def share(*members: Consumer) -> Sequence[Consumer]:
    """Waits until they are the group, and each works on what is called after it."""
    for n, one in enumerate(members):
        one.enter()
        for earlier in members[:n]:
            earlier.join()
    share_out(*members)
    return members


def share_out(*members: Consumer) -> None:
    """All ask for their work, the leader last."""
    waiting = [one.sync() for one in members if not one.is_leader]
    (leader,) = [one for one in members if one.is_leader]
    waiting.append(leader.sync({one.member_id: b"work of " + one.name.encode() for one in members}))
    assert [one.code for one in waiting] == [0] * len(members)
    assert [one.assignment for one in members] == [b"work of " + one.name.encode() for one in members]


def commit_request(
    offsets: Mapping[Place, int], *, group: str = BILLING, note: str | None = "", epoch: int = -1, **fields: Any
) -> OffsetCommitRequest:
    """Of somebody who is no member, unless `fields` say so."""
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=note,
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ],
        **fields,
    )


def fetch_request(
    *places: Place, version: int = 9, group: str = BILLING, is_all: bool = False, **fields: Any
) -> OffsetFetchRequest:
    """An OffsetFetch by names."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    if version < 8:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in by_topic.items()]
        return OffsetFetchRequest(group_id=group, topics=None if is_all else topics, **fields)
    several = [OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in by_topic.items()]
    wanted = OffsetFetchRequestGroup(group_id=group, topics=None if is_all else several)
    return OffsetFetchRequest(groups=[wanted], **fields)


def commit(broker: LocalBroker, offset: int, topic: str = "orders", partition: int = 0, group: str = BILLING) -> int:
    """As one that is no member."""
    answer = broker.ask(commit_request({(topic, partition): offset}, group=group), 9)
    return int(answer.topics[0].partitions[0].error_code)


def offsets(broker: LocalBroker, group: str = BILLING) -> dict[Place, int]:
    """All that a group has."""
    (answer,) = broker.ask(fetch_request(group=group, is_all=True), 9).groups
    assert answer.error_code == 0
    return offsets_in(answer)


def offsets_in(answer: Any) -> dict[Place, int]:
    return {
        (topic.name, one.partition_index): one.committed_offset for topic in answer.topics for one in topic.partitions
    }
