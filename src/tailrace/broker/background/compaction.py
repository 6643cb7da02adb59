"""Decides which log is compacted next, and drives one compaction pass at a time (`log/compaction`).

Each tick looks at a limited number of logs, so that ten thousand of them cost a tick no more than a few. Of the logs
that are due, the one with the largest share of new bytes is next:

    due      more than `min.cleanable.dirty.ratio` of it is new, or it has a record older than
             `max.compaction.lag.ms`, or a delete horizon has passed since it was last compacted
    then     the next log is chosen at once; if none was due, after `log.cleaner.backoff.ms`

A log whose pass has failed is skipped for a while, and a damaged one for as long as this process runs: either is logged
once. The metadata log is never compacted. No pass begins while the wall clock is not trusted (`wall_clock`). A pass
needs disk space before it frees some, and never takes it from the disk reserve: it begins if a new segment fits, and is
stopped when the disk has no more room than that.
"""

import logging
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from tailrace.broker.core.topics import METADATA_TOPIC
from tailrace.log.compaction.child_process import ChildPass
from tailrace.log.compaction.jobs import BeginPass, Compaction, EndPass, NextGroup, SwapJob
from tailrace.log.compaction.messages import CleanedGroup, CleanerSettings, PassFailed, PassResult
from tailrace.log.compaction.plan import Cleanable, cleanable
from tailrace.log.layout.errors import LogError, LogOffline, StorageError
from tailrace.log.log import Log

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.background")

LOOKED_AT_ONCE = 200  # logs per tick
LEFT_ALONE_MIN_MS = 1000  # after a failed pass; doubles each time
LEFT_ALONE_MAX_MS = 10 * 60_000
_FOR_GOOD = 1 << 62
_LAG_MAX = (1 << 63) - 1


class CompactionCounters:
    """Totals over the passes of this process."""

    def __init__(self) -> None:
        self.passes = 0
        self.failures = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.keys = 0
        self.unreadable = 0
        self.seconds = 0.0
        self.dirty_ratio_max = 0.0
        self.peak_memory_bytes = 0

    def add(self, result: PassResult) -> None:
        self.passes += 1
        self.bytes_read += result.bytes_read
        self.bytes_written += result.bytes_written
        self.keys += result.keys
        self.unreadable += result.unreadable
        self.seconds += result.seconds
        self.peak_memory_bytes = result.peak_memory_bytes


class Candidate(NamedTuple):
    ratio: float
    log: Log
    plan: Cleanable


class Compactor:
    def __init__(self, broker: "Broker", begin_pass: BeginPass = ChildPass) -> None:
        self._broker = broker
        self.begin_pass = begin_pass
        self._is_enabled = broker.configs.flag("log.cleaner.enable")
        self.counted = CompactionCounters()
        self._under_way: Compaction | None = None
        self._to_look_at: list[Log] = []
        self._best: Candidate | None = None
        self._ratio_max = 0.0
        self._is_held_back = False
        self._next_round_ms = 0
        self._now_ms = 0
        self._left_alone: WeakKeyDictionary[Log, int] = WeakKeyDictionary()  # skipped until
        self._failures: WeakKeyDictionary[Log, int] = WeakKeyDictionary()  # in a row
        self._horizons: WeakKeyDictionary[Log, int] = WeakKeyDictionary()  # the next delete horizon

    @property
    def _backoff_ms(self) -> int:
        return self._broker.configs.number("log.cleaner.backoff.ms")

    def _settings(self) -> CleanerSettings:
        """Returns the current settings, for one pass."""
        configs = self._broker.configs
        rate = configs.ratio("log.cleaner.io.max.bytes.per.second")
        return CleanerSettings(
            dedupe_buffer_bytes=configs.number("log.cleaner.dedupe.buffer.size"),
            load_factor=max(0.01, configs.ratio("log.cleaner.io.buffer.load.factor")),
            io_bytes_per_second=rate if 0 < rate < 1e18 else 0,
        )

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None

    def stop(self) -> None:
        """Begins no more passes, and soon cancels the one in progress."""
        self._is_enabled = False
        if self._under_way is not None:
            self._under_way.stop()

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._next_round_ms = min(self._next_round_ms, now_ms + self._backoff_ms)  # the clock may have been set back
        if self._under_way is not None:
            if not self._under_way.is_stopped:
                self._stop_if_unwanted(self._under_way)
        elif self._may_begin():
            self._look()

    def _may_begin(self) -> bool:
        """Whether a pass may begin. With a clock that is ahead, it would delete tombstones too early."""
        is_due = self._is_enabled and self._now_ms >= self._next_round_ms
        return is_due and self._broker.clock.is_trusted and not self._broker.disk_reserve.is_low

    def _stop_if_unwanted(self, compaction: Compaction) -> None:
        if compaction.log.is_removed:
            compaction.stop()
        elif self._broker.disk_reserve.is_low:
            logger.warning("%s is not compacted for a while: the disk is nearly full", compaction.log.directory)
            self._left_alone[compaction.log] = self._now_ms + LEFT_ALONE_MAX_MS
            compaction.stop()

    # Choosing a log

    def _look(self) -> None:
        if not self._to_look_at:
            self._to_look_at = list(self._broker.directory.logs.values())
            self._best, self._ratio_max, self._is_held_back = None, 0.0, False
        here, self._to_look_at = self._to_look_at[:LOOKED_AT_ONCE], self._to_look_at[LOOKED_AT_ONCE:]
        for log in here:
            self._look_at(log)
        if self._to_look_at:
            return
        self.counted.dirty_ratio_max = self._ratio_max
        if self._is_held_back:
            self._broker.checkpointer.when_offsets_saved()
        best, self._best = self._best, None
        if best is None:
            self._next_round_ms = self._now_ms + self._backoff_ms
        else:
            self._begin(best)

    def _look_at(self, log: Log) -> None:
        partition = self._broker.partition_of(log)
        if partition is None or not partition.topic.config.needs_keys or partition.topic.name == METADATA_TOPIC:
            return
        if log.refusal is not None or self._is_left_alone(log):
            return
        self._roll_if_old(log)
        plan = cleanable(log.view, log.compacted_to, log.recovery_point_on_disk)
        self._is_held_back |= plan.end < log.end_of_sealed and log.recovery_point_on_disk < log.recovery_point
        ratio = plan.ratio
        self._ratio_max = max(self._ratio_max, ratio)
        is_best = self._best is None or ratio > self._best.ratio
        if is_best and self._is_due(log, plan) and self._has_room_for(log, plan):
            self._best = Candidate(ratio, log, plan)

    def _is_left_alone(self, log: Log) -> bool:
        until = self._left_alone.get(log, 0)
        if until <= self._now_ms:
            return False
        if until != _FOR_GOOD:  # the clock may have been set back
            self._left_alone[log] = min(until, self._now_ms + max(LEFT_ALONE_MAX_MS, self._backoff_ms))
        return True

    def _is_due(self, log: Log, plan: Cleanable) -> bool:
        if self._horizons.get(log, _FOR_GOOD) <= self._now_ms and plan.segments:
            return True
        if not plan.dirty_bytes:
            return False
        return plan.ratio > log.config.min_cleanable_dirty_ratio or self._is_too_old(log, plan)

    def _has_room_for(self, log: Log, plan: Cleanable) -> bool:
        """Whether a new segment fits beside the old ones without using the reserve."""
        space = self._broker.disk_reserve
        written = min(log.config.segment_bytes, plan.clean_bytes + plan.dirty_bytes)
        return space.found is None or space.found.free >= space.reserve + written

    def _is_too_old(self, log: Log, plan: Cleanable) -> bool:
        """Whether a new segment is older than the log allows. A segment of an earlier process counts as too old."""
        lag_ms = log.config.max_compaction_lag_ms
        if lag_ms == _LAG_MAX:
            return False
        return any(
            segment.first_append_ms is None or self._now_ms - segment.first_append_ms > lag_ms
            for segment in plan.dirty_segments
        )

    def _roll_if_old(self, log: Log) -> None:
        """Seals the active segment if it is too old: only sealed segments are compacted."""
        lag_ms = log.config.max_compaction_lag_ms
        if lag_ms != _LAG_MAX and log.age_of_active_segment(self._now_ms) > lag_ms:
            try:
                log.roll()
            except LogError as error:
                logger.warning("cannot roll %s for compaction: %s", log.directory, error)
            else:
                self._broker.flushes.request_checkpoint(log)

    # One pass

    def _begin(self, candidate: Candidate) -> None:
        log, plan = candidate.log, candidate.plan
        self._under_way = Compaction(log, plan, self._now_ms, self._settings(), self.begin_pass)
        self._step(self._under_way)

    def _step(self, compaction: Compaction) -> None:
        job = NextGroup(compaction)
        self._broker.start_job(job, lambda: self._stepped(compaction, job))

    def _stepped(self, compaction: Compaction, job: NextGroup) -> None:
        said = job.finish()
        if isinstance(said, CleanedGroup):
            self._swap(compaction, said)
            return
        if isinstance(said, PassResult):
            self._done(compaction.log, said)
        elif isinstance(said, PassFailed):
            self._failed(compaction, said)
        else:
            self._left_alone[compaction.log] = self._now_ms + self._backoff_ms
        self._end(compaction)

    def _swap(self, compaction: Compaction, group: CleanedGroup) -> None:
        swap = None if compaction.is_stopped else compaction.begin_swap(group)
        if swap is None:  # some of these segments were deleted meanwhile, or the log was
            self._end(compaction)
        else:
            self._broker.start_job(swap, lambda: self._swapped(compaction, swap))

    def _swapped(self, compaction: Compaction, swap: SwapJob) -> None:
        try:
            swap.finish()
        except StorageError as error:
            self._failed(compaction, PassFailed(str(error)), is_logged=isinstance(error, LogOffline))
            self._broker.notice(compaction.log)
            self._end(compaction)
        else:
            if self._broker.partition_of(compaction.log) is not None:
                self._broker.sizes.measure(compaction.log)
            self._step(compaction)

    def _done(self, log: Log, result: PassResult) -> None:
        log.compacted_to = max(log.compacted_to, result.end)
        self._failures.pop(log, None)
        self._horizons.pop(log, None)
        if result.next_horizon_ms is not None:
            self._horizons[log] = result.next_horizon_ms
        self.counted.add(result)
        logger.info(
            "compacted %s to offset %d: %d keys, %d bytes read, %d written, in %.1f s",
            log.directory, result.end, result.keys, result.bytes_read, result.bytes_written, result.seconds,
        )  # fmt: skip

    def _failed(self, compaction: Compaction, failure: PassFailed, *, is_logged: bool = False) -> None:
        log = compaction.log
        if compaction.is_stopped or log.is_removed:
            return
        self.counted.failures += 1
        in_a_row = self._failures[log] = self._failures.get(log, 0) + 1
        alone_ms = min(LEFT_ALONE_MAX_MS, LEFT_ALONE_MIN_MS << min(in_a_row, 20))
        self._left_alone[log] = _FOR_GOOD if failure.is_damage else self._now_ms + alone_ms
        until = "until it is repaired" if failure.is_damage else "for a while"
        if not is_logged:
            logger.error("%s is not compacted %s: %s", log.directory, until, failure.reason)
        if failure.is_damage:
            self._tell_of_damage(log, failure)

    def _tell_of_damage(self, log: Log, failure: PassFailed) -> None:
        """Passes corruption that a pass has found to the scrubber, which verifies it and marks it for readers."""
        partition = self._broker.partition_of(log)
        if partition is not None:
            for segment in log.sealed_segments:
                if segment.base_offset == failure.damaged_base:
                    self._broker.scrubber.look_at(partition.name, log, segment)

    def _end(self, compaction: Compaction) -> None:
        job = EndPass(compaction)

        def finish() -> None:
            self._under_way = None
            self._next_round_ms = 0

        self._broker.start_job(job, finish)
