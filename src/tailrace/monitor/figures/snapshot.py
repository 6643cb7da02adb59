"""What is known about a cluster at one moment: groups, logs, disks. Values only; two modules of facts make them.

kafka_facts     any Kafka: bounds, sizes and configs by requests; segments are not known
tailrace_facts  ours: in addition the segments that the broker publishes, its ticks, holds and budget
"""

from collections.abc import Mapping
from typing import NamedTuple

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.facts.segments import SegmentFact
from tailrace.monitor.figures.forecast import Budget, Hold, Limits

TAILRACE, KAFKA = "tailrace", "kafka"


class GroupState(NamedTuple):
    has_members: bool
    committed: Mapping[TopicPartition, int]


class LogState(NamedTuple):
    """One partition. `segments` are empty where they are not known, and `size` is None where it is not told. `hold` is
    for the groups in `hold_groups`, each until `hold_expiry_ms` after its last sign, of which `hold_signs` has those
    that are known; `deletes` is false where retention leaves the log alone.
    """

    start: int
    end: int
    size: int | None
    segments: tuple[SegmentFact, ...] = ()
    limits: Limits = Limits()
    deletes: bool = True
    compacts: bool = False
    hold: Hold | None = None
    hold_groups: frozenset[str] = frozenset()
    hold_expiry_ms: int = -1
    hold_signs: Mapping[str, int] = {}

    @property
    def record_bytes(self) -> float:
        """Bytes per offset, on average."""
        return self.size / (self.end - self.start) if self.size and self.end > self.start else 0.0


class DiskState(NamedTuple):
    """A log directory; `usable` is what the file system has left, None where it is not told."""

    path: str
    total: int | None
    usable: int | None
    logs: frozenset[TopicPartition] = frozenset()


class Unread(NamedTuple):
    """The first record that a group at a position has not read; no record where only control batches are left."""

    offset: int
    timestamp: int | None


Position = tuple[TopicPartition, int]


class Snapshot(NamedTuple):
    """`unread` has the positions that are not at the end; None where there is no record up to the end. `reserve` is how
    many bytes of a disk producers cannot fill, -1 for the broker's default.
    """

    at: int
    source: str
    groups: Mapping[str, GroupState]
    logs: Mapping[TopicPartition, LogState]
    unread: Mapping[Position, Unread | None]
    budget: Budget | None = None
    disks: tuple[DiskState, ...] = ()
    reserve: int = 0
