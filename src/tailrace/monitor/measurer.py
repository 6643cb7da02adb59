"""Measures a cluster once in an interval: lag from snapshots, losses from the ledger, and buffers from rates."""

import time

from tailrace.client.cluster.cluster import Cluster
from tailrace.facts import losses
from tailrace.facts.losses import Loss
from tailrace.monitor.alerts.rules import HoldLimits, Measurement
from tailrace.monitor.figures.buffers import disk_buffers, topic_buffers
from tailrace.monitor.figures.lag import LagTracker
from tailrace.monitor.figures.losses import LossJoin
from tailrace.monitor.figures.snapshot import Snapshot
from tailrace.monitor.sources.published import LOSSES_TOPIC, TopicReader, decoded
from tailrace.monitor.sources.tailrace_facts import facts_about

SEPARATE_MS = 3_600_000  # longer than a loss is one that alerts are about


class Measurer:
    def __init__(self, cluster: Cluster, stopped_ms: int, *, samples_only: bool = False) -> None:
        self._facts = facts_about(cluster)
        self._tracker = LagTracker(stopped_ms, samples_only=samples_only)
        self._ledger = TopicReader(cluster, LOSSES_TOPIC)
        self._join = LossJoin(SEPARATE_MS)
        self._losses: list[Loss] = []

    def measure(self) -> Measurement:
        """Raises ClientError."""
        began = time.monotonic()
        snapshot = self._facts.snapshot()
        groups = self._tracker.observe(snapshot)
        rates = self._tracker.write_rates(snapshot.logs)
        self._read_ledger()
        return Measurement(
            at=snapshot.at,
            groups=groups,
            losses=self._losses,
            holds=_holds(snapshot),
            ends={(where.topic, where.partition): (log.start, log.end) for where, log in snapshot.logs.items()},
            topic_buffers=topic_buffers(snapshot, rates),
            disk_buffers=disk_buffers(snapshot, rates),
            source=snapshot.source,
            seconds=time.monotonic() - began,
        )

    def _read_ledger(self) -> None:
        has_more = False
        for entry in decoded(self._ledger.read(), losses.decode):
            if self._ledger.has_begun_anew:
                self._join, self._ledger.has_begun_anew = LossJoin(SEPARATE_MS), False
            self._join.take(entry)
            has_more = True
        if has_more:
            self._losses = self._join.losses()


def _holds(snapshot: Snapshot) -> dict[tuple[str, int], HoldLimits]:
    return {
        (where.topic, where.partition): HoldLimits(log.hold.size, log.hold.ms, log.hold_groups, log.hold.refuses)
        for where, log in snapshot.logs.items()
        if log.hold is not None
    }
