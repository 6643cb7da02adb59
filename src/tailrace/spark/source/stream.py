"""Plans a stream of micro-batches, in a process of the driver that lives as long as the query.

    initial     where a new query begins. Spark asks more than once, so it is remembered; and the first `next_end`
                answers with just that, so that an empty batch 0 writes it down. Likewise for partitions that come
                later: first their beginning is written down, and then they are read
    next_end    where the next batch ends: as far as the limit lets it; at the end of all it waits for more, half a
                second, and so it does where there is less than `minOffsetsPerTrigger`. Its start is the end of the
                last batch that is done: that is what the group commits
    begin       where the partitions of a batch are read from

Whatever is missing on the way is a loss (`losses.py`).
"""

import math
import time
from contextlib import suppress

from tailrace.client import groups
from tailrace.client.cluster.cluster import Cluster, cluster_for
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import OffsetOutOfRange
from tailrace.client.long_poll import wait_for_more
from tailrace.client.offsets import earliest, latest
from tailrace.client.options import Isolation
from tailrace.spark.source.bounds import Topics, begin_of, ids_of, partitions_of, start_of, topics_of
from tailrace.spark.source.losses import LOST_END, Loss, meet
from tailrace.spark.source.options import SourceOptions
from tailrace.spark.source.positions import Offsets, Positions, limited

WAIT_S = 0.5

COMMIT_AGAIN_S = 3600.0  # Kafka forgets offsets of a group that is idle for long, a week unless it is told otherwise

Json = dict[str, dict[str, int]]


class TriggerDelay:
    """Whether a micro-batch starts now or waits for more: `minOffsetsPerTrigger` and `maxTriggerDelay`. The first
    micro-batch of a run never waits, as with Spark's connector.
    """

    def __init__(self, offsets_min: int | None, delay_s_max: float) -> None:
        self._offsets_min = offsets_min
        self._delay_s_max = delay_s_max
        self._started_at = -math.inf  # the last micro-batch

    def remaining(self, new: int, now: float) -> float:
        """Returns for how many seconds a micro-batch with so many new offsets may wait; 0 starts it."""
        wait = self._started_at + self._delay_s_max - now
        if new and self._offsets_min is not None and new < self._offsets_min and wait > 0:
            return wait
        if new:
            self._started_at = now
        return 0.0


class StreamPlan:
    """Plans the micro-batches of a stream, without Spark."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.newest: Positions | None = None  # the ends, as they were seen last
        self._initial: Positions | None = None
        self._is_pinned = False
        self._committed: Positions | None = None
        self._committed_at = 0.0
        self._up_to: Positions | None = None  # where an AvailableNow ends
        self._delay = TriggerDelay(options.min_offsets_per_trigger, options.max_trigger_delay_s)

    @property
    def _cluster(self) -> Cluster:
        return cluster_for(self.options.client)

    def initial(self) -> Positions:
        if self._initial is None:
            self._initial = start_of(self._cluster, self.options, topics_of(self._cluster, self.options))
        return self._initial

    def prepare_for_available_now(self) -> None:
        self._up_to = self._ends(topics_of(self._cluster, self.options, missing_ok=True))

    def next_end(self, start: Positions, limit: int | None) -> Positions:
        topics = topics_of(self._cluster, self.options, missing_ok=True)
        there = self._without_gone(start, topics)
        self._commit(there)
        if not self._is_pinned and start == self._initial:
            self._is_pinned = True
            return start
        ends = self._ends(topics) if self._up_to is None else _of_topics_there(self._up_to, topics)
        if new := [place for place in ends.offsets if place not in there.offsets]:
            return self._pin(new, start, there, topics)
        if self._up_to is None and not _has_more(there, ends):
            ends = self._wait(there, topics, ends)
        self.newest = ends
        reached = self._without_lost_ends(there, ends)
        if self._up_to is None and self._is_delayed(there, reached, topics):
            return Positions(there.offsets, dict(there.topic_ids) | ids_of(topics))
        if limit is not None:
            reached = limited(there.offsets, reached, limit)
        return Positions(dict(there.offsets) | reached, dict(there.topic_ids) | ids_of(topics))

    def begin(self, start: Positions, end: Positions) -> Positions:
        self._is_pinned = True  # a batch that is planned is written down
        return begin_of(self._cluster, self.options, start, end)

    # Topics

    def _without_gone(self, start: Positions, topics: Topics) -> Positions:
        """Returns the positions in topics that still exist. A topic that was deleted, or created again, is a loss."""
        losses, offsets = [], {}
        for place, at in start.offsets.items():
            topic, known = topics.get(place.topic), start.topic_ids.get(place.topic)
            if topic is None or place.partition not in topic.leaders:
                losses.append(Loss(place, at, None, "the topic, or this partition of it, is gone"))
            elif known is not None and topic.has_id and topic.topic_id != known:
                losses.append(Loss(place, at, None, "the topic was deleted, and made again under its name"))
            else:
                offsets[place] = at
        meet(losses, self.options)
        kept = {place.topic for place in offsets}
        return Positions(offsets, {name: found for name, found in start.topic_ids.items() if name in kept})

    def _pin(self, new: list[TopicPartition], start: Positions, there: Positions, topics: Topics) -> Positions:
        """Partitions that are new are first written down where they begin."""
        firsts = earliest(self._cluster, new)
        known = {place.topic for place in start.offsets}
        losses = [
            Loss(place, 0, first, "they were deleted before this query has seen the partition")
            for place, first in firsts.items()
            if first > 0 and place.topic in known
        ]
        meet(losses, self.options)
        return Positions(dict(there.offsets) | firsts, dict(there.topic_ids) | ids_of(topics))

    # Ends

    def _ends(self, topics: Topics) -> Positions:
        return Positions(latest(self._cluster, partitions_of(topics, self.options)), ids_of(topics))

    def _without_lost_ends(self, start: Positions, ends: Positions) -> dict[TopicPartition, int]:
        """A log that ends before where we are has lost its end, or is another one; only what is committed may end
        before, where it was not asked for before.
        """
        behind = [place for place, end in ends.offsets.items() if end < start.offsets[place]]
        written = latest(self._cluster, behind, isolation=Isolation.READ_UNCOMMITTED) if behind else {}
        losses = [
            Loss(place, end, start.offsets[place], LOST_END)
            for place, end in written.items()
            if end < start.offsets[place]
        ]
        meet(losses, self.options)
        lost = {loss.place: loss.start for loss in losses}
        return {place: max(end, start.offsets[place]) for place, end in ends.offsets.items()} | lost

    def _is_delayed(self, start: Positions, reached: Offsets, topics: Topics) -> bool:
        """Whether the batch is not large enough yet. If so, this waits for more."""
        new = sum(end - start.offsets[place] for place, end in reached.items())
        remaining = self._delay.remaining(new, time.monotonic())
        if remaining:
            self._wait(Positions(reached), topics, Positions(reached), min(WAIT_S, remaining))
        return remaining > 0

    def _wait(self, start: Positions, topics: Topics, ends: Positions, timeout_s: float = WAIT_S) -> Positions:
        positions = {place: min(start.offsets[place], end) for place, end in ends.offsets.items()}
        if not positions:
            time.sleep(timeout_s)  # a pattern that matches nothing yet
            return ends
        try:
            found = wait_for_more(self._cluster, positions, timeout_s, topic_ids=ids_of(topics))
        except OffsetOutOfRange:
            return ends  # said when the batch is planned
        return Positions(dict(ends.offsets) | found, ends.topic_ids)

    # What others see

    def _commit(self, done: Positions) -> None:
        """Commits the positions for the group, as consumers do; less often if nothing is new."""
        group, now = self.options.group, time.monotonic()
        is_known = done == self._committed and now < self._committed_at + COMMIT_AGAIN_S
        if group is None or not done.offsets or is_known:
            return
        self._show_reading(done)
        groups.commit(self._cluster, group, done.offsets)
        self._committed, self._committed_at = done, now

    def _show_reading(self, done: Positions) -> None:
        """Fetches at the ends of these partitions, which returns nothing. A broker of ours takes a client that commits,
        and does not fetch, for one that moves the group past records unread (`tailrace lag --losses`). Executors have
        read them, over connections that may be closed for long.
        """
        ends = latest(self._cluster, done.offsets)
        with suppress(OffsetOutOfRange):  # a log that has lost its end is found out when the batch is planned
            wait_for_more(self._cluster, ends, 0.0, topic_ids=done.topic_ids)


def _of_topics_there(ends: Positions, topics: Topics) -> Positions:
    """Without the ends of topics, and of partitions, that are gone or others by now."""
    ids = ids_of(topics)
    kept = {
        place: end
        for place, end in ends.offsets.items()
        if place.topic in topics
        and place.partition in topics[place.topic].leaders
        and ids.get(place.topic) == ends.topic_ids.get(place.topic)
    }
    return Positions(kept, ends.topic_ids)


def _has_more(start: Positions, ends: Positions) -> bool:
    return any(end != start.offsets.get(place) for place, end in ends.offsets.items())
