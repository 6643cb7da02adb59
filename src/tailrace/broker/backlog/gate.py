"""The gate of producers: slows or refuses appends while a named group is too far behind. Asked before each append.

The backlog of the worst named group that still counts, as a share of the limits of the topic, is the *fill* of a
partition:

    state      fill                      an append is
    open       below 80 %                taken
    delaying   80 % to 100 %             taken, and its response delayed (`backpressure`); taken (`reject`)
    refusing   from 100 % on, until      refused with NOT_ENOUGH_REPLICAS, which clients send again by themselves. With
               below 90 %, for 1 s at    `acks=0` there is no way to refuse it: it is taken, and the connection is not
               least                     read for a second

The delay grows with the square of the share of the last 20 % that is used: 1 s at 100 %.
"""

import logging
from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING

from tailrace.broker.backlog.measure import Backlog, Samples
from tailrace.broker.backlog.named_groups import NamedGroups
from tailrace.broker.configs.registry import BacklogConfig, BacklogPolicy
from tailrace.broker.core.api import Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.log.log import Log
from tailrace.log.retention import facts_of
from tailrace.protocol.errors import ErrorCode
from tailrace.util.sizes import shown

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.backlog")

DELAYS_FROM = 0.8
REFUSES_FROM = 1.0
REOPENS_BELOW = 0.9
REFUSES_MS_MIN = 1_000
DELAY_MS_MAX = 1_000
GATES_AT_ONCE = 200  # looked at per tick: some 5 µs each


class GateState(IntEnum):
    OPEN = 0
    DELAYING = 1
    REFUSING = 2


class Gate:
    """The state machine of one partition. Pure."""

    __slots__ = ("_since_ms", "state")

    def __init__(self) -> None:
        self.state = GateState.OPEN
        self._since_ms = 0

    def update(self, fill: float, steady_ms: int) -> GateState:
        if self.state is GateState.REFUSING:
            if fill >= REOPENS_BELOW or steady_ms - self._since_ms < REFUSES_MS_MIN:
                return self.state
        elif fill >= REFUSES_FROM:
            self._since_ms = steady_ms
            self.state = GateState.REFUSING
            return self.state
        self.state = GateState.DELAYING if fill >= DELAYS_FROM else GateState.OPEN
        return self.state


def delay_ms(fill: float) -> int:
    """Returns how long the response to an append is delayed that finds this fill."""
    over = (fill - DELAYS_FROM) / (REFUSES_FROM - DELAYS_FROM)
    return round(DELAY_MS_MAX * min(1.0, over) ** 2) if over > 0 else 0


class PartitionGate:
    """The gate of one partition, with what it measures."""

    __slots__ = ("backlog", "fill", "gate", "group", "partition", "samples")

    def __init__(self, partition: Partition, samples: Samples) -> None:
        self.partition = partition
        self.samples = samples
        self.gate = Gate()
        self.fill = 0.0
        self.group = ""  # the worst one
        self.backlog = Backlog()  # of that group

    def measure(self, groups: NamedGroups, now_ms: int) -> None:
        config = self.partition.topic.config.backlog
        self.fill, self.group, self.backlog = 0.0, config.groups[0], Backlog()
        for standing in groups.standings(self.partition, now_ms):
            backlog = self.samples.behind(standing.offset, now_ms) if standing.is_live else Backlog()
            fill = backlog.fill(config.bytes_max, config.age_ms_max)
            if fill > self.fill:
                self.fill, self.group, self.backlog = fill, standing.group, backlog


class Gates:
    def __init__(self, broker: "Broker", groups: NamedGroups) -> None:
        self._broker = broker
        self._groups = groups
        self._gates: dict[Partition, PartitionGate] = {}
        self._looked_at = 0  # revision of the metadata at which gates were looked through
        self._refusing: dict[Topic, dict[Partition, None]] = {}
        self._to_open: list[Partition] = []  # of these, some with each tick
        self.delayed: Counter[str] = Counter()  # appends whose response was delayed, by topic
        self.refused: Counter[str] = Counter()  # by topic

    # Appends. The topic has a policy that limits producers.

    def admit(self, partition: Partition, log: Log, call: Call, *, may_refuse: bool) -> int:
        """Returns for how many milliseconds the response to an append has to wait. Raises Refused."""
        if not self._groups.are_known:
            return 0
        found, config = self._gate(partition, log, call.now_ms), partition.topic.config.backlog
        self._update(found, call.now_ms, call.steady_ms)
        name = partition.topic.name
        if found.gate.state is GateState.REFUSING:
            if may_refuse:
                self.refused[name] += 1
                raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, _refusal(found, config))
            self.delayed[name] += 1
            return DELAY_MS_MAX
        if config.policy is not BacklogPolicy.BACKPRESSURE or found.gate.state is GateState.OPEN:
            return 0
        self.delayed[name] += 1
        return delay_ms(found.fill)

    def appended(self, partition: Partition, base_offset: int, next_offset: int, size: int, now_ms: int) -> None:
        """Notes an append. Must be called for every one, or later backlogs are too small."""
        found = self._gates.get(partition)
        if found is not None:
            found.samples.appended(base_offset, next_offset, size, now_ms, partition.start_offset)

    def _gate(self, partition: Partition, log: Log, now_ms: int) -> PartitionGate:
        found = self._gates.get(partition)
        if found is None:
            found = self._gates[partition] = PartitionGate(partition, samples_of(log, now_ms))
        return found

    def _update(self, found: PartitionGate, now_ms: int, steady_ms: int) -> None:
        before = found.gate.state
        found.measure(self._groups, now_ms)
        now = found.gate.update(found.fill, steady_ms)
        if now is not before and GateState.REFUSING in (before, now):
            self._refuses(found, is_refusing=now is GateState.REFUSING)

    def _refuses(self, found: PartitionGate, *, is_refusing: bool) -> None:
        """Notes that a partition begins or stops refusing. Logs the first of a topic, and the last."""
        topic, partition = found.partition.topic, found.partition
        refusing = self._refusing.setdefault(topic, {})
        if is_refusing:
            refusing[partition] = None
            if len(refusing) == 1:
                logger.warning("producers to %s are refused: %s", topic.name, _refusal(found, topic.config.backlog))
            return
        refusing.pop(partition, None)
        if not refusing:
            del self._refusing[topic]
            if self._is_current(topic):
                why = f"the named groups have caught up on {partition.name}"
            else:
                why = "its backlog policy no longer limits them"
            logger.warning("producers to %s are accepted again: %s", topic.name, why)

    # The clock

    def tick(self, now_ms: int, steady_ms: int) -> None:
        """Opens gates also where no producer asks."""
        if not self._to_open:
            self._to_open = [partition for refusing in self._refusing.values() for partition in refusing]
        for partition in self._to_open[-GATES_AT_ONCE:]:
            found = self._gates.get(partition)
            if found is not None and self._is_current(partition.topic) and partition.log is not None:
                self._update(found, now_ms, steady_ms)
        del self._to_open[-GATES_AT_ONCE:]
        if self._looked_at != self._broker.metadata.revision:
            self._looked_at = self._broker.metadata.revision
            self._drop_needless()

    def _drop_needless(self) -> None:
        """Drops the gates of topics that are gone, or no longer limit producers."""
        for partition in [partition for partition in self._gates if not self._is_current(partition.topic)]:
            found = self._gates.pop(partition)
            if found.gate.state is GateState.REFUSING:
                self._refuses(found, is_refusing=False)

    def _is_current(self, topic: Topic) -> bool:
        return topic.config.backlog.limits_producers and self._broker.metadata.topics.get(topic.name) is topic

    def forget(self, topic: Topic) -> None:
        """The topic was deleted."""
        self.delayed.pop(topic.name, None)
        self.refused.pop(topic.name, None)
        for partition in self._refusing.pop(topic, ()):
            del self._gates[partition]

    # What metrics show

    def state(self, topic: Topic, group: str, now_ms: int) -> GateState:
        """Returns the state of a named group, in its worst partition: of `hold`, how near its limits are."""
        config, worst = topic.config.backlog, GateState.OPEN
        if not self._groups.is_live(group, topic, now_ms):
            return worst
        for partition in topic.touched:
            if partition.log is None:
                continue
            found = self._gates.get(partition)
            if found is not None and found.gate.state is GateState.REFUSING and found.group == group:
                return GateState.REFUSING
            position = self._groups.position(group, partition)
            if position >= partition.end_offset:
                continue  # most are such, and samples of the others take a while
            samples = found.samples if found is not None else samples_of(partition.log, now_ms)
            fill = samples.behind(position, now_ms).fill(config.bytes_max, config.age_ms_max)
            if fill >= REFUSES_FROM:
                return GateState.REFUSING
            if fill >= DELAYS_FROM:
                worst = GateState.DELAYING
        return worst


def samples_of(log: Log, now_ms: int) -> Samples:
    """Returns samples of what the log has, from memory alone."""
    is_only = len(log.segments) == 1  # of a sealed one the first timestamp is not in memory
    begun_ms = now_ms - log.age_of_active_segment(now_ms) if is_only else None
    return Samples.of_segments(facts_of(log), begun_ms, now_ms)


def _refusal(found: PartitionGate, config: BacklogConfig) -> str:
    backlog, limits = found.backlog, []
    if config.bytes_max >= 0:
        limits.append(f"is {shown(backlog.bytes)}, limit {shown(config.bytes_max)}")
    if config.age_ms_max >= 0:
        limits.append(f"is {backlog.age_ms / 1000:.0f} s old, limit {config.age_ms_max / 1000:.0f} s")
    return (
        f"backlog of group {found.group} on {found.partition.name} {' and '.join(limits)}: appends are refused until "
        f"it is below {REOPENS_BELOW:.0%}. Let the group catch up, or change tailrace.backlog.policy of the topic"
    )
