"""Topics as the metadata log describes them: names, ids, partitions and configs.

Three kinds of topics belong to tailrace itself:

    state         what the broker is rebuilt from (`INTERNAL_TOPICS` of `log/layout/names`): without it no start. And
                  the state of share groups: without it, these are unavailable
    broker-owned  these, and what the broker publishes: clients may read them, and change nothing
    service       what our child processes and command line publish: clients may write to them, too, and retention
                  applies. Patterns match no topic of these kinds

A name that older releases gave to any topic (`RESERVED_LATE`) may be that of a user's own: then it stays one.
"""

import re
from typing import NamedTuple

from tailrace.broker.configs.registry import BrokerConfigs, TopicConfig, topic_config
from tailrace.broker.core.partition import Partition
from tailrace.log.layout.names import INTERNAL_TOPICS

METADATA_TOPIC = "__tailrace_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
LOSSES_TOPIC = "__tailrace_losses"
SEGMENTS_TOPIC = "__tailrace_segments"
POSITIONS_TOPIC = "__tailrace_positions"
LAG_TOPIC = "__tailrace_lag"
ALERTS_TOPIC = "__tailrace_alerts"
IDEMPOTENCY_TOPIC = "__tailrace_idempotency"

BROKER_OWNED_TOPICS = INTERNAL_TOPICS | {SHARE_STATE_TOPIC, LOSSES_TOPIC, SEGMENTS_TOPIC, POSITIONS_TOPIC}
RESERVED_LATE = frozenset({SHARE_STATE_TOPIC})
SERVICE_TOPICS = frozenset({LAG_TOPIC, ALERTS_TOPIC, IDEMPOTENCY_TOPIC})
NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 100_000  # of one topic: a request for more is a mistake

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def why_not_a_name(name: str) -> str | None:
    """Returns what is wrong with a topic name, or None."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"{name!r} is not a valid topic name"
    if len(name) > NAME_LENGTH_MAX:
        return f"a topic name has at most {NAME_LENGTH_MAX} characters; this one has {len(name)}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"{name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def as_metric(name: str) -> str:
    """Returns the topic's name as it appears in metric names. No two topics may share one."""
    return name.replace(".", "_")


class Anchors(NamedTuple):
    """Where a named group stands while it has no commit, by partition, and when that was noted last."""

    at_ms: int
    offsets: dict[int, int]


class Topic:
    """A topic. It is cheap until one of its partitions is used: only then is a Partition created."""

    __slots__ = (
        "_partitions",
        "anchors",
        "config",
        "fragments",
        "holds_state",
        "is_followed",
        "is_internal",
        "is_shown_as_internal",
        "must_be_writable",
        "name",
        "overrides",
        "partition_count",
        "topic_id",
    )

    def __init__(
        self,
        topic_id: bytes,
        name: str,
        partition_count: int,
        broker: BrokerConfigs,
        *,
        is_created_by_broker: bool = False,
    ) -> None:
        self.topic_id = topic_id
        self.name = name
        self.partition_count = partition_count
        self.is_internal = name in BROKER_OWNED_TOPICS and (is_created_by_broker or name not in RESERVED_LATE)
        self.holds_state = self.is_internal and (name in INTERNAL_TOPICS or name == SHARE_STATE_TOPIC)
        self.must_be_writable = self.holds_state or name == LOSSES_TOPIC  # without it the broker can promise nothing
        self.is_followed = False  # from another broker, which decides its transactions
        self.is_shown_as_internal = self.is_internal or name in SERVICE_TOPICS
        self.overrides: dict[str, str] = {}
        self.config: TopicConfig = topic_config(self.overrides, broker)
        self.fragments: dict[int, bytes] = {}  # encoded for Metadata responses, by version
        self.anchors: dict[str, Anchors] = {}  # of the groups in tailrace.backlog.groups
        self._partitions: dict[int, Partition] = {}

    def partition(self, index: int) -> Partition | None:
        """None where the topic has no such partition."""
        found = self._partitions.get(index)
        if found is None and 0 <= index < self.partition_count:
            found = self._partitions[index] = Partition(self, index)
        return found

    def peek(self, index: int) -> Partition | None:
        """Returns the partition if it has been used since the start, else None."""
        return self._partitions.get(index)

    @property
    def touched(self) -> list[Partition]:
        """The partitions that have been used since the start."""
        return list(self._partitions.values())

    def add_partitions(self, partition_count: int) -> None:
        self.partition_count = partition_count
        self.fragments.clear()

    def anchor(self, group: str, at_ms: int, offsets: dict[int, int]) -> None:
        before = self.anchors.get(group)
        self.anchors[group] = Anchors(at_ms, {**(before.offsets if before is not None else {}), **offsets})

    def forget_anchors(self) -> None:
        """Drops those of groups that the topic no longer names."""
        if self.anchors:
            named = self.config.backlog.groups
            self.anchors = {group: anchors for group, anchors in self.anchors.items() if group in named}

    def configure(self, broker: BrokerConfigs) -> None:
        """Applies the current configs to the topic and to its logs."""
        self.config = topic_config(self.overrides, broker)
        for partition in self._partitions.values():
            if partition.log is not None:
                partition.log.configure(self.config.log)
