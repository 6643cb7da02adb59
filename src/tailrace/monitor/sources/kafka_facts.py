"""Facts about any Kafka, by requests that every broker answers: groups, commits, bounds, sizes, configs.

Segments are not known: what follows from them is an estimate.
"""

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.client import groups as client_groups
from tailrace.client.admin.configs import configs_of_topics
from tailrace.client.admin.log_dirs import LogDir, log_dirs
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import NO_LEADER, Topic, TopicPartition
from tailrace.client.errors import NotOffered, Refused
from tailrace.client.offsets import readable_bounds
from tailrace.client.options import Isolation
from tailrace.monitor.figures.forecast import Hold, Limits
from tailrace.monitor.figures.snapshot import KAFKA, DiskState, GroupState, LogState, Position, Snapshot
from tailrace.monitor.sources.unread import UnreadRecords

CONFIGS_S = 60.0  # for so long configs of topics are not asked for again
STATES_SINCE = 4  # the version of ListGroups that has the state of groups
NO_MEMBERS = ("Empty", "Dead")
TOPIC_CONFIGS = ("cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "segment.ms")
OUR_CONFIGS = tuple(f"tailrace.backlog.{name}" for name in ("policy", "groups", "bytes", "ms", "expiry.ms"))


class TopicConfigs(NamedTuple):
    """What decides when records of a topic go, and for which groups they are held."""

    deletes: bool
    compacts: bool
    limits: Limits
    hold: Hold | None
    hold_groups: frozenset[str]
    hold_expiry_ms: int


class KafkaFacts:
    """Takes snapshots of a cluster. `group` restricts them to one group, `topics` to some topics."""

    source = KAFKA

    def __init__(self, cluster: Cluster, *, group: str | None = None, topics: Iterable[str] = ()) -> None:
        self.cluster = cluster
        self._group = group
        self._topics = frozenset(topics)
        self._unread = UnreadRecords(cluster)
        self._configs: dict[str, TopicConfigs] = {}
        self._configs_until = 0.0
        self.group_names: set[str] = set()  # all, as of the last snapshot

    def snapshot(self) -> Snapshot:
        groups = self._groups()
        topics = self.cluster.all_topics()
        wanted = self._partitions(topics, groups)
        bounds = readable_bounds(self.cluster, wanted, Isolation.READ_UNCOMMITTED)
        at = time.time_ns() // 1_000_000
        dirs = self._log_dirs()
        sizes = {partition: size for one in dirs for partition, size in one.sizes.items()}
        configs = self._configs_of({partition.topic for partition in wanted})
        logs = {
            partition: self._log(*found, sizes.get(partition), configs.get(partition.topic))
            for partition, found in bounds.items()
        }
        disks = tuple(DiskState(one.path, one.total, one.usable, frozenset(one.sizes)) for one in dirs)
        snapshot = self.refined(Snapshot(at, self.source, groups, logs, {}, None, disks), topics)
        return snapshot._replace(unread=self._unread.find(_unread_positions(groups, logs)))

    def refined(self, snapshot: Snapshot, topics: Mapping[str, Topic]) -> Snapshot:
        """Adds what only some brokers publish."""
        return snapshot

    # Groups

    def _groups(self) -> dict[str, GroupState]:
        listed = client_groups.listed(self.cluster, STATES_SINCE)
        self.group_names = {one.group_id for found in listed.values() for one in found}
        states: dict[str, GroupState] = {}
        for address, found in listed.items():
            has_members = {
                one.group_id: one.group_state not in NO_MEMBERS
                for one in found
                if self._group in (None, one.group_id) and one.group_type.lower() != "share"
            }
            for group, committed in client_groups.committed_by(self.cluster, address, sorted(has_members)).items():
                if self._topics:
                    committed = {one: offset for one, offset in committed.items() if one.topic in self._topics}
                states[group] = GroupState(has_members[group], committed)
        return states

    def _partitions(self, topics: Mapping[str, Topic], groups: Mapping[str, GroupState]) -> list[TopicPartition]:
        """Those of all topics that are not internal, and those that groups read."""
        read = {partition for state in groups.values() for partition in state.committed}
        return [
            partition
            for topic in topics.values()
            for partition in topic.partitions
            if topic.leaders[partition.partition] != NO_LEADER
            and (partition in read or not (topic.is_internal or topic.name.startswith("__")))
        ]

    # Logs

    def _log_dirs(self) -> list[LogDir]:
        try:
            return log_dirs(self.cluster)
        except (NotOffered, Refused):
            return []  # sizes stay unknown

    def _configs_of(self, topics: set[str]) -> dict[str, TopicConfigs]:
        if time.monotonic() >= self._configs_until:
            self._configs, self._configs_until = {}, time.monotonic() + CONFIGS_S
        missing = topics - self._configs.keys()
        if missing:
            try:
                found = configs_of_topics(self.cluster, missing, (*TOPIC_CONFIGS, *OUR_CONFIGS))
            except (NotOffered, Refused):
                found = {}
            self._configs.update((topic, _parsed(configs)) for topic, configs in found.items())
        return self._configs

    @staticmethod
    def _log(start: int, end: int, size: int | None, configs: TopicConfigs | None) -> LogState:
        if configs is None:
            return LogState(start, end, size)
        return LogState(
            start,
            end,
            size,
            limits=configs.limits,
            deletes=configs.deletes,
            compacts=configs.compacts,
            hold=configs.hold,
            hold_groups=configs.hold_groups,
            hold_expiry_ms=configs.hold_expiry_ms,
        )


def _unread_positions(groups: Mapping[str, GroupState], logs: Mapping[TopicPartition, LogState]) -> dict[Position, int]:
    """The positions of groups that are not at the end, with the end."""
    found: dict[Position, int] = {}
    for state in groups.values():
        for partition, committed in state.committed.items():
            log = logs.get(partition)
            if log is not None and (position := max(committed, log.start)) < log.end:
                found[partition, position] = log.end
    return found


def _parsed(configs: Mapping[str, str | None]) -> TopicConfigs:
    policies = (configs.get("cleanup.policy") or "delete").replace(" ", "").split(",")
    default = Limits()
    limits = Limits(
        _number(configs, "retention.ms", default.retention_ms),
        _number(configs, "retention.bytes", default.retention_bytes),
        _number(configs, "segment.bytes", default.segment_bytes),
        _number(configs, "segment.ms", default.segment_ms),
    )
    policy = configs.get("tailrace.backlog.policy") or "drop"
    size, ms = _number(configs, "tailrace.backlog.bytes", -1), _number(configs, "tailrace.backlog.ms", -1)
    return TopicConfigs(
        deletes="delete" in policies,
        compacts="compact" in policies,
        limits=limits,
        hold=hold_of(policy, size, ms),
        hold_groups=frozenset(filter(None, (configs.get("tailrace.backlog.groups") or "").replace(" ", "").split(","))),
        hold_expiry_ms=_number(configs, "tailrace.backlog.expiry.ms", -1),
    )


def hold_of(policy: str, size: int, ms: int) -> Hold | None:
    return None if policy == "drop" else Hold(size, ms, refuses=policy != "hold")


def _number(configs: Mapping[str, str | None], name: str, default: int) -> int:
    value = configs.get(name)
    return int(value) if value is not None else default
