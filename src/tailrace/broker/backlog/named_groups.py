"""Where the groups stand that a topic names in `tailrace.backlog.groups`, and whether they still count.

position   the offset that the group has committed; else its anchor; else 0, in a partition that came later
anchor     the end of the log when the topic named the group, or when the group's commit was deleted. It is kept in
           the metadata log (BacklogAnchored): a restart does not move it
live       a sign of the group is less than `tailrace.backlog.expiry.ms` old: a commit for the topic, a member, or
           that the topic named it
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.backlog.readers import BacklogReader
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.broker.metadata.config_changes import anchors_of
from tailrace.broker.metadata.records import BacklogAnchored
from tailrace.broker.metadata.state import MetadataCache

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

GROUPS_AT_ONCE = 500  # looked at for members, per tick: less than a microsecond each


class Standing(NamedTuple):
    """A named group in one partition: the first offset that it has not read, and whether it still counts."""

    group: str
    offset: int
    is_live: bool


class NamedGroups:
    def __init__(self, broker: "Broker", readers: Sequence[BacklogReader]) -> None:
        self._broker = broker
        self._readers = readers
        self._topics: MetadataCache[list[Topic]] = MetadataCache(broker.metadata)
        self._named: MetadataCache[set[tuple[bytes, str]]] = MetadataCache(broker.metadata)
        self._signs: dict[tuple[bytes, str], int] = {}  # the last one but members, by topic id and group
        self._members_at: dict[str, int] = {}  # when each group had a member last
        self._swept: set[tuple[bytes, str]] = set()  # named groups as of the last sweep
        self._to_look_at: list[str] = []

    def topics(self) -> list[Topic]:
        """The topics that name groups."""
        return self._topics.get(
            "named", lambda: [topic for topic in self._broker.metadata.topics.values() if topic.config.backlog.groups]
        )

    @property
    def are_known(self) -> bool:
        """Whether the positions of groups are known: not while groups are being read, nor if they cannot be."""
        return not self._broker.groups_are_loading and not self._broker.groups.has_failed

    def standings(self, partition: Partition, now_ms: int) -> list[Standing]:
        topic = partition.topic
        return [
            Standing(group, self.position(group, partition), self.is_live(group, topic, now_ms))
            for group in topic.config.backlog.groups
        ]

    def position(self, group: str, partition: Partition) -> int:
        topic = partition.topic
        for reader in self._readers:
            found = reader.position(group, topic.name, partition.index)
            if found is not None:
                return max(found.offset, partition.start_offset)
        anchors = topic.anchors.get(group)
        anchor = anchors.offsets.get(partition.index, 0) if anchors is not None else 0
        return max(anchor, partition.start_offset)

    def without_commit(self, partition: Partition) -> list[str]:
        """The groups that the topic names, and that have not committed in this partition. Positions must be known."""
        return [one for one in partition.topic.config.backlog.groups if not self._has_committed(one, partition)]

    # Expiry

    def is_live(self, group: str, topic: Topic, now_ms: int) -> bool:
        return now_ms - self.last_sign(group, topic, now_ms) <= topic.config.backlog.expiry_ms

    def last_sign(self, group: str, topic: Topic, now_ms: int) -> int:
        """Returns the time of the last sign of a group that the topic names. Positions must be known."""
        sign = self._signs.get((topic.topic_id, group))
        if sign is None:
            sign = self._signs[topic.topic_id, group] = self._sign_on_record(group, topic, now_ms)
        return min(max(sign, self._members_at.get(group, 0)), now_ms)

    def _sign_on_record(self, group: str, topic: Topic, now_ms: int) -> int:
        """Returns the last sign on record; now, if there is none."""
        signs = [topic.anchors[group].at_ms] if group in topic.anchors else []
        for reader in self._readers:
            signs += reader.commit_times(group, topic.name)
            signs += [now_ms] if reader.has_members(group) else []
        return min(max(signs, default=now_ms), now_ms)

    def committed(self, group: str, topic: Topic, at_ms: int) -> None:
        if group in topic.config.backlog.groups:
            self._signs[topic.topic_id, group] = at_ms

    def tick(self, now_ms: int) -> None:
        """Takes members as signs, of some groups with each tick, and forgets groups that are no longer named."""
        named = self._named.get("named", self._all_named)
        if named is not self._swept:
            self._swept = named
            self._forget_others(named)
        if not self._to_look_at:
            self._to_look_at = list(self._members_at)
        for group in self._to_look_at[-GROUPS_AT_ONCE:]:
            if any(reader.has_members(group) for reader in self._readers):
                self._members_at[group] = now_ms
        del self._to_look_at[-GROUPS_AT_ONCE:]

    def _forget_others(self, named: set[tuple[bytes, str]]) -> None:
        for gone in self._signs.keys() - named:
            del self._signs[gone]
        self._members_at = {group: self._members_at.get(group, 0) for _, group in named}
        self._to_look_at = []

    def _all_named(self) -> set[tuple[bytes, str]]:
        return {(topic.topic_id, group) for topic in self.topics() for group in topic.config.backlog.groups}

    # Deleted commits

    def before_removal(self, group: str, places: Iterable[tuple[str, int]], now_ms: int) -> None:
        """The commits of a group in these partitions are about to be deleted: notes new anchors. Raises StorageError,
        and then they must stay.
        """
        removed: dict[str, list[Partition]] = {}
        for name, index in places:
            partition = self._broker.partition(name, index)
            if partition is not None and group in partition.topic.config.backlog.groups:
                removed.setdefault(name, []).append(partition)
        changes = list(self._anchors(group, removed.values(), now_ms))
        if changes:
            self._broker.metadata_log.write(changes, now_ms)
        for change in changes:
            self._signs[change.topic_id, group] = now_ms

    def _anchors(self, group: str, removed: Iterable[list[Partition]], now_ms: int) -> Iterator[BacklogAnchored]:
        for partitions in removed:
            # A commit for an earlier topic of that name is no position here.
            own = [one for one in partitions if self._has_committed(group, one)]
            if own:
                yield anchors_of(own[0].topic, group, own, now_ms)

    def _has_committed(self, group: str, partition: Partition) -> bool:
        name, index = partition.topic.name, partition.index
        return any(reader.position(group, name, index) is not None for reader in self._readers)
