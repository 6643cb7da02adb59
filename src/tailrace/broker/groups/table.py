"""All groups by name, of whatever kind: makes them, replays their records, and lets a group change its kind.

A name that only has committed offsets belongs to a classic group. A group of one kind without members makes room for
one of another kind; with members, it changes its protocol (`consumer/migration`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tailrace.broker.configs.groups import GroupValues
from tailrace.broker.configs.keys import parts_of
from tailrace.broker.configs.share import ShareSettings, share_settings
from tailrace.broker.core.errors import Refused, in_short
from tailrace.broker.groups.classic.group import ClassicGroup
from tailrace.broker.groups.classic.members import Joined, JoinRequest, ParkedJoin, ParkedSync, Synced
from tailrace.broker.groups.classic.state import GroupSettings, HeldBytes, Ports
from tailrace.broker.groups.consumer.catalog import BrokerCatalog
from tailrace.broker.groups.consumer.draft import ConsumerSettings
from tailrace.broker.groups.consumer.group import ConsumerGroup, ConsumerPorts
from tailrace.broker.groups.consumer.heartbeat import JOINING_EPOCH, Heartbeat, Outcome
from tailrace.broker.groups.consumer.state import Member
from tailrace.broker.groups.consumer.topic_index import TopicIndex
from tailrace.broker.groups.consumer_records import GroupEpochChanged
from tailrace.broker.groups.group import Group, Identity
from tailrace.broker.groups.record_kinds import EpochChange
from tailrace.broker.groups.records import Change, GroupMetadataValue, GroupRemoved, GroupSaved
from tailrace.broker.groups.share.group import ShareGroup, SharePorts
from tailrace.broker.groups.share.heartbeat import Outcome as ShareOutcome
from tailrace.broker.groups.share.heartbeat import ShareHeartbeat
from tailrace.broker.groups.share.share_state import ShareState
from tailrace.broker.groups.share_records import ShareChange, ShareEpochChanged
from tailrace.broker.groups.timers import Timers
from tailrace.broker.metadata.records import MetadataRecord, PartitionsAdded, TopicCreated, TopicDeleted
from tailrace.broker.metadata.state import MetadataCache
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

GROUPS_MAX = 100_000


class ClassicProtocol(Protocol):
    """A group that members of the classic protocol can join."""

    def join(self, joining: JoinRequest) -> ParkedJoin | Joined: ...

    def sync(
        self,
        identity: Identity,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
    ) -> ParkedSync | Synced: ...

    def heartbeat(self, identity: Identity, generation: int) -> None: ...

    def leave(self, identity: Identity) -> None: ...


class GroupTable:
    def __init__(
        self,
        broker: "Broker",
        timers: Timers,
        *,
        write: Callable[[str, Sequence[Change]], None],
        save: Callable[[str, GroupMetadataValue], None],
        now_ms: Callable[[], int],
        share_state: Callable[[], ShareState],
    ) -> None:
        """`write` appends changes and replays them, `save` a classic group; both raise NotSaved."""
        self.groups: dict[str, Group] = {}
        number = broker.configs.number
        self._metadata = broker.metadata
        self._write = write
        self._settings = GroupSettings(number("group.initial.rebalance.delay.ms"), number("group.max.size"))
        self._consumer_settings: MetadataCache[ConsumerSettings] = MetadataCache(broker.metadata)
        self._share_settings: MetadataCache[ShareSettings] = MetadataCache(broker.metadata)
        self._index = TopicIndex()
        self._catalog = BrokerCatalog(broker, self._resolved, now_ms)

        def random_id() -> str:
            return broker.random_bytes(16).hex()

        held = HeldBytes()
        self._ports = Ports(timers, held, save, random_id)
        self._consumer_ports = ConsumerPorts(
            timers, write, self._catalog, self.settings_of, now_ms, self._index, held, random_id, self._downgraded
        )
        self._share_ports = SharePorts(
            timers, write, self._catalog, self.share_settings_of, now_ms, self._index, held, share_state
        )
        broker.metadata_log.observers.append(self._metadata_changed)

    def settings_of(self, group_id: str) -> ConsumerSettings:
        """Returns the configs that apply to a consumer group."""
        return self._consumer_settings.get(group_id, lambda: self._make_settings(group_id))

    def share_settings_of(self, group_id: str) -> ShareSettings:
        """Returns the configs that apply to a share group."""

        def make() -> ShareSettings:
            overrides = self._metadata.group_overrides.get(group_id, {})
            return share_settings(overrides, self._metadata.configs)

        return self._share_settings.get(group_id, make)

    def _make_settings(self, group_id: str) -> ConsumerSettings:
        configs = self._metadata.configs
        own = GroupValues(self._metadata.group_overrides.get(group_id, {}), configs)
        return ConsumerSettings(
            session_timeout_ms=own.number("consumer.session.timeout.ms"),
            heartbeat_interval_ms=own.number("consumer.heartbeat.interval.ms"),
            assignment_interval_ms=own.number("consumer.assignment.interval.ms"),
            size_max=configs.number("group.consumer.max.size"),
            assignors=tuple(parts_of(configs.text("group.consumer.assignors"))),
            migration_policy=configs.text("group.consumer.migration.policy").lower(),
        )

    # Replay

    def any_of(self, group_id: str) -> Group:
        """Returns the group of that name, which is made if there is none."""
        group = self.groups.get(group_id)
        return self._classic_of(group_id) if group is None else group

    def _classic_of(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings, self._ports)
        return group

    def _consumer_of(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            group = self.groups[group_id] = ConsumerGroup(group_id, self._consumer_ports)
        return group

    def _share_of(self, group_id: str) -> ShareGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            group = self.groups[group_id] = ShareGroup(group_id, self._share_ports)
        return group

    def replay(self, change: GroupSaved | GroupRemoved | EpochChange) -> None:
        """Replays a record of a group. A record of one kind takes the place of a group of another kind."""
        match change:
            case GroupSaved(group_id, value):
                self._classic_of(group_id).replay(value)
            case GroupRemoved(group_id):
                if isinstance(self.groups.get(group_id), ClassicGroup):
                    del self.groups[group_id]
            case _ if isinstance(change, ShareChange):
                if change.value is not None or isinstance(self.groups.get(change.group), ShareGroup):
                    self._share_of(change.group).replay(change)
                    if isinstance(change, ShareEpochChanged) and change.value is None:
                        del self.groups[change.group]
            case _ if change.value is not None or isinstance(self.groups.get(change.group), ConsumerGroup):
                self._consumer_of(change.group).replay(change)
                if isinstance(change, GroupEpochChanged) and change.value is None:
                    del self.groups[change.group]

    # Members of the consumer protocol

    def beat(self, group_id: str, beat: Heartbeat) -> Outcome:
        """A member of the consumer protocol joins, stays or leaves. Raises Refused."""
        former = self.groups.get(group_id)
        if isinstance(former, ConsumerGroup):
            return former.beat(beat)
        if beat.epoch != JOINING_EPOCH or not (former is None or isinstance(former, ClassicGroup)):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id!r}")
        self._check_room(group_id)
        group = self.groups[group_id] = ConsumerGroup(group_id, self._consumer_ports)
        try:
            outcome = group.beat(beat, former)
        except Refused:
            del self.groups[group_id]
            if former is not None:
                self.groups[group_id] = former
            raise
        if former is not None and not former.is_empty:
            former.dissolve()
            group.resume()
        return outcome

    # Members of share groups

    def share_beat(self, group_id: str, beat: ShareHeartbeat) -> ShareOutcome:
        """A member of a share group joins, stays or leaves. Raises Refused."""
        is_new = group_id not in self.groups
        group = self.share_group(group_id, make=beat.epoch == JOINING_EPOCH)
        try:
            return group.beat(beat)
        except Refused:
            if is_new:
                del self.groups[group_id]
            raise

    def share_group(self, group_id: str, *, make: bool = False) -> ShareGroup:
        """Returns the share group of that name, which is made if there is none and `make`. Raises Refused."""
        group = self.groups.get(group_id)
        if group is None and make:
            self._check_room(group_id)
            return self._share_of(group_id)
        if not isinstance(group, ShareGroup):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, in_short(f"there is no share group {group_id!r}"))
        return group

    def _check_room(self, group_id: str) -> None:
        if group_id not in self.groups and len(self.groups) >= GROUPS_MAX:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there are {GROUPS_MAX} groups already")

    def _downgraded(self, group_id: str, members: Mapping[str, Member]) -> None:
        """All members speak the classic protocol: their group, which is a classic one now, rebalances."""
        protocols = {
            member_id: tuple((one.name, bytes(one.metadata)) for one in member.details.classic.protocols)
            for member_id, member in members.items()
            if member.details.classic is not None
        }
        self._classic_of(group_id).rebalance_with(protocols)

    # Members of the classic protocol

    def find(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def find_or_make(self, group_id: str) -> Group:
        self._check_room(group_id)
        return self.any_of(group_id)

    def for_join(self, group_id: str) -> ClassicProtocol:
        """Returns the group that a new member of the classic protocol joins. Raises Refused."""
        group = self.find_or_make(group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty:
            self._write(group_id, group.tombstones())
            group = self.find_or_make(group_id)
        return classic_protocol(group, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    # Topics that change

    def _metadata_changed(self, changes: Iterable[MetadataRecord]) -> None:
        """Lets the groups know that read topics which were created or deleted, or have more partitions."""
        concerned: set[str] = set()
        have_names_changed = False
        for change in changes:
            if isinstance(change, TopicCreated | TopicDeleted):
                have_names_changed = True
                concerned.update(self._index.readers(change.name))
            elif isinstance(change, PartitionsAdded):
                concerned.update(self._index.readers(self._catalog.name_of(change.topic_id) or ""))
        if have_names_changed:
            self._catalog.topics_changed()
            concerned.update(self._index.with_patterns())
        self._refresh(concerned)

    def _resolved(self, pattern: str) -> None:
        self._refresh(set(self._index.with_pattern(pattern)))

    def _refresh(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup | ShareGroup):
                group.refresh_soon()


def classic_protocol(group: Group, refusal: ErrorCode) -> ClassicProtocol:
    """Raises Refused for a group that members of the classic protocol cannot join."""
    if isinstance(group, ClassicGroup | ConsumerGroup):
        return group
    raise Refused(refusal, f"{group.group_id!r} is not a classic or consumer group")
