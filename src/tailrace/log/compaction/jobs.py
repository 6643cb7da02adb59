"""The jobs of one compaction pass of a log: steps that wait for a disk or for the child process (see `log/jobs.py`).

    NextGroup   starts the pass on its first run; waits for the next new segment
    SwapJob     replaces the old segments by the new one
    EndPass     stops the process and removes its unfinished files

Groups are swapped in order, the oldest first: a tombstone is never removed, and gets no delete horizon, while an older
value of its key can still be read. If one swap fails, the pass ends and the compacted offset stays where it was; the
next pass repeats the work.
"""

import logging
from collections.abc import Callable
from contextlib import suppress

from tailrace.log.compaction.child_process import ChildPass, Pass
from tailrace.log.compaction.filter import LastOfProducer
from tailrace.log.compaction.messages import CleanedGroup, CleanerSettings, PassFailed, PassMessage, PassSpec
from tailrace.log.compaction.plan import Cleanable
from tailrace.log.files.swap_file import Swap, announce, carry_out, remove_unwanted
from tailrace.log.jobs import LogJob
from tailrace.log.layout.errors import LogError, StorageError
from tailrace.log.log import Log
from tailrace.log.segment.segment import Segment

logger = logging.getLogger("tailrace.log.compaction")

BeginPass = Callable[[PassSpec], Pass]


class Compaction:
    """One pass over one log. It belongs to the log's owner; only `next_group` runs in other threads."""

    def __init__(
        self,
        log: Log,
        plan: Cleanable,
        now_ms: int,
        settings: CleanerSettings | None = None,
        begin_pass: BeginPass = ChildPass,
    ) -> None:
        self.log = log
        self._config = log.config
        self._plan = plan
        self._now_ms = now_ms
        self._settings = settings or CleanerSettings()
        self._begin_pass = begin_pass
        self._pass: Pass | None = None
        self.is_stopped = False

    def stop(self) -> None:
        """Stops the pass: the job that waits for it fails soon."""
        self.is_stopped = True
        if self._pass is not None:
            self._pass.stop()

    def next_group(self) -> PassMessage | None:
        """Returns the next message of the pass, or None if nothing is old enough to be compacted."""
        try:
            if self._pass is None:
                spec = self._spec()
                if spec is None:
                    return None
                self._pass = self._begin_pass(spec)
            if self.is_stopped:  # perhaps before there was a process to stop
                self._pass.stop()
            return self._pass.next()
        except (LogError, OSError) as error:
            return PassFailed(str(error))

    def _spec(self) -> PassSpec | None:
        plan = self._old_enough()
        if not plan.segments or (self._plan.dirty_bytes and not plan.dirty_bytes):
            return None
        log, config = self.log, self._config
        first = plan.segments[0].base_offset
        return PassSpec(
            directory=log.directory,
            segments=[(segment.base_offset, segment.size) for segment in plan.segments],
            end=plan.end,
            first_dirty=max(first, min(plan.first_dirty, plan.end)),
            now_ms=self._now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            index_interval_bytes=config.index_interval_bytes,
            settings=self._settings,
            aborted=log.aborted_transactions(first, plan.end),
            producers=self._producers(),
        )

    def _old_enough(self) -> Cleanable:
        """Limits the plan to the segments before the first record that is younger than `min.compaction.lag.ms`."""
        lag_ms = self._config.min_compaction_lag_ms
        if lag_ms > 0:
            dirty = self._plan.dirty_segments
            for number, segment in enumerate(dirty):
                if segment.derived().max_timestamp > self._now_ms - lag_ms:
                    return self._plan.before(len(self._plan.segments) - len(dirty) + number)
        return self._plan

    def _producers(self) -> dict[int, LastOfProducer]:
        """Returns the producers as they are now. One that appends later has its last batch behind this pass."""
        known = list(self.log.producers.producers.items())
        return {
            number: LastOfProducer(batches[-1].last_offset if (batches := list(one.batches)) else -1, one.epoch)
            for number, one in known
        }

    def begin_swap(self, group: CleanedGroup) -> "SwapJob | None":
        """Returns None, and stops the pass, if the segments are no longer those that the pass has read."""
        wanted = {segment.base_offset: segment for segment in self._plan.segments}
        old = [wanted[base] for base in group.bases]
        segments = self.log.segments
        if self.log.is_removed or self.log.refusal is not None or old[0] not in segments:
            return None
        first = segments.index(old[0])
        if list(segments[first : first + len(old)]) != old:
            return None
        return SwapJob(self.log, group, old)

    def end(self) -> None:
        """Ends the process and removes its unfinished files. Waits for the disk: call it in a thread."""
        if self._pass is not None:
            self._pass.close()
        if self.log.is_removed:
            return
        with suppress(OSError):  # the next start removes it
            remove_unwanted(self.log.files, self.log.directory)


class NextGroup:
    def __init__(self, compaction: Compaction) -> None:
        self._compaction = compaction
        self._message: PassMessage | None = PassFailed("unexpected error in the compaction job; see the log")

    def run(self) -> None:
        self._message = self._compaction.next_group()

    def finish(self) -> PassMessage | None:
        return self._message


class EndPass:
    def __init__(self, compaction: Compaction) -> None:
        self._compaction = compaction

    def run(self) -> None:
        self._compaction.end()

    def finish(self) -> None:
        pass


class SwapJob(LogJob):
    """Replaces old segments by a new one. On return from `finish`, new readers find the new segment; readers of the old
    ones can still read those to their end.
    """

    def __init__(self, log: Log, group: CleanedGroup, old: list[Segment]) -> None:
        super().__init__(log)
        self._group = group
        self._old = old
        self._held: list[Segment] = []
        self._is_announced = False
        assert log.replacing is None
        log.replacing = self

    def _work(self) -> None:
        files, directory, group = self.log.files, self.log.directory, self._group
        for segment in self._old:
            # Their file names are about to belong to new files, which readers of the old segments must not open.
            segment.hold()
            self._held.append(segment)
        swap = Swap(group.base_offset, tuple(group.bases[1:]), tuple(group.suffixes))
        announce(files, directory, swap)
        self._is_announced = True
        files.sync_directory(directory)
        carry_out(files, directory, swap)

    def finish(self) -> None:
        """Raises StorageError if the disk refused. Raises LogOffline if it refused midway: the next start completes the
        swap, and until then the old segments are read.
        """
        log, error = self.log, self.failure
        log.replacing = None
        if log.is_removed:
            self._let_go()
        elif error is None:
            log.replace_segments(self._old, log.new_segment(self._group.base_offset, self._group.size))
            self._let_go()
        elif self._is_announced:
            log.is_half_replaced = True
            raise log.take_offline("cannot replace segments by compacted ones", error) from error
        else:
            self._let_go()
            raise StorageError(f"cannot replace segments of {log.directory} by compacted ones", error) from error

    def _let_go(self) -> None:
        for segment in self._held:
            segment.let_go()
