"""Backlog policies: all that a topic's `tailrace.backlog.*` configs bring about."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.backlog.delayed_acks import DelayedAcks
from tailrace.broker.backlog.gate import Gates
from tailrace.broker.backlog.holds import Holds
from tailrace.broker.backlog.named_groups import NamedGroups
from tailrace.broker.backlog.readers import BacklogReader

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


class BacklogPolicies:
    def __init__(self, broker: "Broker", readers: Sequence[BacklogReader]) -> None:
        self.groups = NamedGroups(broker, readers)
        self.holds = Holds(self.groups)
        self.gates = Gates(broker, self.groups)
        self.acks = DelayedAcks()

    def tick(self, now_ms: int, steady_ms: int) -> None:
        self.groups.tick(now_ms)
        self.gates.tick(now_ms, steady_ms)
