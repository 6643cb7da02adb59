"""Records the positions that groups have held, in `__tailrace_positions`: for `tailrace group … --at`.

    a group moves   an interval after its first new commit, one record has all of its offsets that have changed by then
    a pass          over all groups, at the start and twice in the time for which history is kept, some with each tick:
                    a complete record of each. So groups that do not move write nothing else, and the records that are
                    kept suffice to find every position in that time
    retention       deletes the history by age: whole segments, which are small

A kill loses the commits of one interval from the history; the pass of the next start has where they have led. The
format is in `facts/positions`.
"""

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import POSITIONS_TOPIC
from tailrace.broker.metadata.internal_topics import InternalTopic, batches_of
from tailrace.facts.positions import GroupPositions
from tailrace.log.layout.errors import LogError
from tailrace.records.record import Record

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.groups.records import OffsetCommitValue

logger = logging.getLogger("tailrace.broker.backlog")

PASSES = 2  # in the time for which history is kept
OFFSETS_AT_ONCE = 1000  # written per tick, if they are not of a single group
OFFSETS_OF_A_RECORD = 10_000  # less than a segment, however long the names of topics are
SEGMENT_BYTES = 4 << 20
BATCH_BYTES_MAX = SEGMENT_BYTES - (512 << 10)
RETRY_MS = 10_000

Place = tuple[str, int]


class GroupHistory:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._interval_ms = broker.configs.number("tailrace.group.history.interval.ms")
        self._kept_ms = broker.configs.number("tailrace.group.history.ms")
        self._topic = InternalTopic(broker, POSITIONS_TOPIC, 1, self._configs)
        self._moved: dict[str, set[Place]] = {}
        self._due: deque[tuple[int, str]] = deque()  # when to record a group that has moved, by the steady clock
        self._pass: deque[str] = deque()  # groups of which the current pass has still to write a complete record
        self._whole: set[str] = set()  # groups whose next record is complete, as the pass has found that they moved
        self._pass_began_ms: int | None = None  # by the clock of retention
        self._retry_ms = 0
        self._has_failed = False

    def _configs(self) -> Mapping[str, str]:
        """The topic's: history is needed from one pass before the time for which it is kept."""
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self._kept_ms + self._pass_ms + 2 * self._interval_ms),
            "retention.bytes": "-1",
            "segment.bytes": str(SEGMENT_BYTES),
            "segment.ms": str(max(1, self._kept_ms // 8)),
        }

    @property
    def _pass_ms(self) -> int:
        return self._kept_ms // PASSES

    def note_commit(
        self, group: str, topic: str, index: int, before: "OffsetCommitValue | None", now: "OffsetCommitValue | None"
    ) -> None:
        """An observer of commits."""
        if before is not None and now is not None and before.offset == now.offset:
            return
        moved = self._moved.get(group)
        if moved is None:
            moved = self._moved[group] = set()
            self._due.append((self._broker.timers.now + self._interval_ms, group))
        moved.add((topic, index))

    def tick(self, now_ms: int, steady_ms: int) -> None:
        if not self._broker.groups.is_loaded or steady_ms < self._retry_ms:
            return
        began_ms = self._pass_began_ms
        if began_ms is None or (not self._pass and not 0 <= now_ms - began_ms < self._pass_ms):
            self._begin_pass(now_ms)
        if self._pass or (self._due and self._due[0][0] <= steady_ms):
            self._record(now_ms, steady_ms)

    def _begin_pass(self, now_ms: int) -> None:
        if self._pass_began_ms is None:
            self._topic.configure(now_ms)
        self._pass_began_ms = now_ms
        self._pass = deque(group for group, _ in self._broker.groups.offsets.groups())

    def _record(self, now_ms: int, steady_ms: int) -> None:
        due, passed, found, count = list[str](), list[str](), list[GroupPositions](), 0
        while self._due and self._due[0][0] <= steady_ms and count < OFFSETS_AT_ONCE:
            _, group = self._due.popleft()
            due.append(group)
            found.append(self._positions(group, None if group in self._whole else self._moved[group], now_ms))
            count += found[-1].offset_count
        while self._pass and count < OFFSETS_AT_ONCE:
            group = self._pass.popleft()
            if group in self._moved:
                self._whole.add(group)  # its next record, which is due within an interval, is complete
            elif self._broker.groups.offsets.of_group(group):
                passed.append(group)
                found.append(self._positions(group, None, now_ms))
                count += found[-1].offset_count
        if self._append(found, now_ms):
            for group in due:
                del self._moved[group]
                self._whole.discard(group)
            return
        self._retry_ms = steady_ms + RETRY_MS
        self._due.extendleft((steady_ms, group) for group in reversed(due))
        self._pass.extendleft(reversed(passed))

    def _positions(self, group: str, moved: Iterable[Place] | None, now_ms: int) -> GroupPositions:
        """Returns what a group has committed in these partitions; in all of them for None."""
        all_of_it = self._broker.groups.offsets.of_group(group)
        if moved is None:
            moved = [(topic, index) for topic, partitions in all_of_it.items() for index in partitions]
        held, removed = dict[str, dict[int, int]](), dict[str, dict[int, int]]()
        for topic, index in moved:
            value = all_of_it.get(topic, {}).get(index)
            (removed if value is None else held).setdefault(topic, {})[index] = -1 if value is None else value.offset
        is_complete = sum(map(len, held.values())) == sum(map(len, all_of_it.values()))
        if not is_complete:
            for topic, partitions in removed.items():
                held.setdefault(topic, {}).update(partitions)
        return GroupPositions(group, now_ms, is_complete, held)

    def _append(self, found: Iterable[GroupPositions], now_ms: int) -> bool:
        parts = chain.from_iterable(one.parts(OFFSETS_OF_A_RECORD) for one in found)
        records = (Record(0, now_ms, key=one.key, value=one.encode()) for one in parts)
        try:
            for batch in batches_of(records, BATCH_BYTES_MAX):
                self._topic.append(batch, now_ms)
        except (LogError, Refused) as error:
            if not self._has_failed:
                logger.warning("cannot write to %s: %s. It is tried again", POSITIONS_TOPIC, error)
            self._has_failed = True
            return False
        self._has_failed = False
        return True
