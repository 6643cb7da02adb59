"""The jobs of one compaction pass of a log: steps that wait for a disk or for the child process (see `log/jobs.py`).

    NextGroup   starts the pass, at first; then waits for its next new segment
    SwapJob     that takes the place of the old ones
    EndPass     the process is gone, and so is what it left half done

Groups take their places in order, the oldest first: a tombstone never goes, nor gets its delete horizon, while an older
value of its key is still to be read. If one cannot, the pass ends there and the log counts as compacted as far as it
was before; the next pass does it again.
"""

import logging
from collections.abc import Callable
from contextlib import suppress

from tailrace.log.compaction.child_process import ChildPass, Pass
from tailrace.log.compaction.filter import LastOfProducer
from tailrace.log.compaction.messages import CleanedGroup, CleanerSettings, PassFailed, PassSpec, Said
from tailrace.log.compaction.plan import Cleanable
from tailrace.log.files.swap_file import Swap, announce, carry_out, remove_unwanted
from tailrace.log.jobs import LogJob
from tailrace.log.layout.errors import LogError, StorageError
from tailrace.log.log import Log
from tailrace.log.segment.segment import Segment

logger = logging.getLogger("tailrace.log.compaction")

BeginPass = Callable[[PassSpec], Pass]


class Compaction:
    """One pass over one log, from its plan on. Owned by the log's owner; `next_group` alone runs in threads."""

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
        """Afterwards the pass comes to nothing: whoever waits for it is told soon."""
        self.is_stopped = True
        if self._pass is not None:
            self._pass.stop()

    def next_group(self) -> Said | None:
        """None where nothing is old enough to be compacted."""
        try:
            if self._pass is None:
                spec = self._spec()
                if spec is None:
                    return None
                self._pass = self._begin_pass(spec)
            if self.is_stopped:  # perhaps before there was anything to stop
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
        """Up to the first segment that has a record younger than `min.compaction.lag.ms`."""
        lag_ms = self._config.min_compaction_lag_ms
        if lag_ms > 0:
            dirty = self._plan.dirty_segments
            for number, segment in enumerate(dirty):
                if segment.derived().max_timestamp > self._now_ms - lag_ms:
                    return self._plan.before(len(self._plan.segments) - len(dirty) + number)
        return self._plan

    def _producers(self) -> dict[int, LastOfProducer]:
        """As they are now. Whoever appends meanwhile has its last batch elsewhere by then."""
        known = list(self.log.producers.producers.items())
        return {
            number: LastOfProducer(batches[-1].last_offset if (batches := list(one.batches)) else -1, one.epoch)
            for number, one in known
        }

    def begin_swap(self, group: CleanedGroup) -> "SwapJob | None":
        """None where the segments are not those that the pass has read: then it comes to nothing."""
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
        """For a thread: afterwards no process is left, nor what it has left half done."""
        if self._pass is not None:
            self._pass.close()
        if self.log.is_removed:
            return
        with suppress(OSError):  # the next start removes it
            remove_unwanted(self.log.files, self.log.directory)


class NextGroup:
    def __init__(self, compaction: Compaction) -> None:
        self._compaction = compaction
        self._said: Said | None = PassFailed("it failed in a way that nobody foresaw")

    def run(self) -> None:
        self._said = self._compaction.next_group()

    def finish(self) -> Said | None:
        return self._said


class EndPass:
    def __init__(self, compaction: Compaction) -> None:
        self._compaction = compaction

    def run(self) -> None:
        self._compaction.end()

    def finish(self) -> None:
        pass


class SwapJob(LogJob):
    """Afterwards readers find the new segment in the place of the old ones. Who reads those reads them to their end."""

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
            # Their names are others' in a moment: whoever still reads them must not open those.
            segment.hold()
            self._held.append(segment)
        swap = Swap(group.base_offset, tuple(group.bases[1:]), tuple(group.suffixes))
        announce(files, directory, swap)
        self._is_announced = True
        files.sync_directory(directory)
        carry_out(files, directory, swap)

    def finish(self) -> None:
        """Raises StorageError where the disk refused; LogOffline where that was in the middle: the next start does the
        rest, and until then the old segments are read.
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
            raise log.take_offline("compacted segments could not be put in their place", error) from error
        else:
            self._let_go()
            raise StorageError(
                f"compacted segments of {log.directory} could not be put in their place", error
            ) from error

    def _let_go(self) -> None:
        for segment in self._held:
            segment.let_go()
