"""The flush queue: which caller waits for which offset to be on disk, and which log is flushed next.

An fsync costs the same for one record as for ten thousand. So callers register the offset that they wait for
(`when_flushed`) and continue; one flush of the log serves all callers that have registered by then, and callers that
register while it runs are served by the next one.

    a log has one flush at a time, a disk a few jobs at a time
    with a journal, small ranges that callers wait for are written there instead, of all logs at once; the logs' files
    are flushed later, before that part of the journal is reused
    a log that has rolled is checkpointed: its flush is followed by a save, which no caller waits for
    a log with `dirty_bytes_max` unflushed bytes, or dirty for `dirty_ms_max`, is flushed without a request; sooner if
    its own config says so
    on an error, all callers get it, and the log stays offline; if the disk is full, the flush is retried

Uses no threads and no clock: the owner takes jobs from the queue (`next_job`), runs them in any thread, and returns
them (`finished`). See `log/jobs.py` for the three steps of a job.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from tailrace.log.files.journal_file import size_of_journal_write
from tailrace.log.flush.journal import Journal
from tailrace.log.flush.journal_write import JOURNAL_WRITE_BYTES_TARGET as JOURNAL_WRITE_BYTES_TARGET
from tailrace.log.flush.journal_write import JOURNAL_WRITE_LOGS_MAX
from tailrace.log.flush.journal_write import JournalWriteJob as JournalWriteJob
from tailrace.log.flush.journal_write import bytes_to_journal as bytes_to_journal
from tailrace.log.jobs import FlushJob, SaveJob
from tailrace.log.layout.errors import LogError, LogOffline, LogRemoved, OutOfSpace
from tailrace.log.log import Log

logger = logging.getLogger("tailrace.log.flush")

Job = FlushJob | SaveJob
Notify = Callable[[LogError | None], None]

IN_FLIGHT_MAX = 8
DIRTY_BYTES_MAX = 32 << 20
DIRTY_MS_MAX = 1000


class Waiters:
    """The callers that wait for one log, ordered by offset; in the order of their calls for equal offsets."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Notify]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int, notify: Notify) -> None:
        heappush(self._heap, (offset, next(self._numbers), notify))

    def take(self, up_to: float) -> list[Notify]:
        taken = []
        while self._heap and self._heap[0][0] <= up_to:
            taken.append(heappop(self._heap)[2])
        return taken


class FlushQueue:
    def __init__(
        self,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        dirty_bytes_max: int = DIRTY_BYTES_MAX,
        dirty_ms_max: int = DIRTY_MS_MAX,
    ) -> None:
        self.journal: Journal | None = None
        self.small_flushes = 0  # flushes that a journal could have taken
        self.found_no_room: Callable[[Log], None] = lambda log: None  # called after a flush for which there is no room
        self._to_journal: dict[Log, None] = {}
        self._is_journal_busy = False
        self._in_flight_max = in_flight_max
        self._dirty_bytes_max = dirty_bytes_max
        self._dirty_ms_max = dirty_ms_max
        self._wanted: deque[Log] = deque()
        self._is_wanted: set[Log] = set()
        self._in_flight = 0
        self._saves: deque[SaveJob] = deque()
        self._was_flush = False
        self._waiters: dict[Log, Waiters] = {}
        self._checkpoints: set[Log] = set()
        self._now_ms = 0
        self._steady_ms: int | None = None  # unknown before the first tick that has it
        self._dirty_since: OrderedDict[Log, int] = OrderedDict()  # the log that is dirty for longest first
        self._due_early: dict[Log, int] = {}  # the dirty logs with a shorter limit, and their deadline

    def when_flushed(self, log: Log, offset: int, notify: Notify) -> None:
        """Calls `notify` once everything below `offset` is on disk, with None, or with the error that prevents it.
        Calls it at once if that is already known.
        """
        if log.high_watermark >= offset:
            notify(None)
        elif (refusal := log.refusal) is not None:
            notify(refusal)
        else:
            waiters = self._waiters.get(log)
            if waiters is None:
                waiters = self._waiters[log] = Waiters()
            waiters.add(offset, notify)
            if log.flushing is None or log.flushing.target < offset:
                self.request(log)

    def appended(self, log: Log, now_ms: int) -> None:
        """Must be called after every append: limits how long, and how much of, a log stays unflushed."""
        self._now_ms = now_ms
        if log not in self._dirty_since:
            self._dirty_since[log] = now_ms
            if log.config.flush_ms < self._dirty_ms_max:
                self._due_early[log] = now_ms + log.config.flush_ms
        dirty_bytes, dirty_records = log.unflushed.written
        too_dirty = dirty_bytes >= self._dirty_bytes_max or dirty_records >= log.config.flush_messages
        if too_dirty or (log.wants_checkpoint and log.is_idle):
            self._request_flush(log)

    def request(self, log: Log) -> None:
        """Requests that everything appended to the log before now be made durable and visible to readers."""
        is_small = bytes_to_journal(log) > 0
        if is_small and self.journal is not None:
            self._to_journal[log] = None
        else:
            self.small_flushes += is_small
            self._request_flush(log)

    def _request_flush(self, log: Log) -> None:
        """Requests a flush of the log: one that begins later than now, so that it covers everything appended before."""
        if log not in self._is_wanted:
            self._is_wanted.add(log)
            self._wanted.append(log)

    def request_checkpoint(self, log: Log) -> None:
        """Requests a flush of the log that also saves its indexes, so that recovery can begin behind it."""
        self._checkpoints.add(log)
        self._request_flush(log)

    def tick(self, now_ms: int, steady_ms: int | None = None) -> None:
        """Must be called regularly: requests a flush of each log that was dirty for too long. With `steady_ms`, of a
        clock that does not jump, checkpoints also forget idle producers.
        """
        self._now_ms = now_ms
        self._steady_ms = steady_ms
        for log, since in self._dirty_since.items():
            if 0 <= now_ms - since < self._dirty_ms_max:  # a negative age: the clock was set back
                break
            self._request_flush(log)
        for log, due_ms in self._due_early.items():
            if now_ms >= due_ms or now_ms < due_ms - log.config.flush_ms:
                self._request_flush(log)

    def forget(self, log: Log) -> None:
        """Drops a removed log; its callers get LogRemoved. A job of the log that is under way may still be returned."""
        self._clean(log)
        self._checkpoints.discard(log)
        self._to_journal.pop(log, None)
        if log in self._is_wanted:
            self._is_wanted.discard(log)
            self._wanted.remove(log)
        for save in [save for save in self._saves if save.log is log]:
            self._saves.remove(save)
            save.finish()
        self._answer(log, LogRemoved(log.directory))

    def _clean(self, log: Log) -> None:
        self._dirty_since.pop(log, None)
        self._due_early.pop(log, None)

    def next_job(self) -> Job | JournalWriteJob | None:
        """Returns the next job of any kind, or None if none may run now."""
        return self.next_journal_write() or self.next_of_one_log()

    @property
    def has_work(self) -> bool:
        """Whether `next_of_one_log` may return a job."""
        return bool(self._wanted or self._saves)

    def next_of_one_log(self) -> Job | None:
        """Returns the next job of a single log. Flushes and saves take turns, so that neither starves."""
        if self._in_flight >= self._in_flight_max:
            return None
        job = self._next_save() or self._next_flush() if self._was_flush else self._next_flush() or self._next_save()
        self._was_flush = isinstance(job, FlushJob)
        self._in_flight += job is not None
        return job

    def _next_save(self) -> SaveJob | None:
        return self._saves.popleft() if self._saves else None

    def _next_flush(self) -> FlushJob | None:
        for _ in range(len(self._wanted)):
            log = self._wanted.popleft()
            if log.flushing is not None:
                self._wanted.append(log)  # it must wait for the flush under way, which need not be this queue's
                continue
            self._is_wanted.discard(log)
            if (job := self._begin(log)) is not None:
                return job
        return None

    def _begin(self, log: Log) -> FlushJob | None:
        self._clean(log)
        try:
            if (log.wants_checkpoint or log in self._checkpoints) and log.is_idle:
                self._checkpoints.discard(log)
                return log.begin_checkpoint(self._steady_ms)
            job = log.begin_flush()
        except LogError as error:  # offline, or closed since the request
            self._answer(log, error)
            return None
        if job is None:
            self._answer(log, None)
        return job

    @property
    def has_journal_write(self) -> bool:
        """Whether `next_journal_write` may return a job."""
        return bool(self._to_journal) and not self._is_journal_busy

    def next_journal_write(self) -> JournalWriteJob | None:
        """Returns a journal write of all ranges that callers wait for by now and that fit into the journal. There is
        one at a time; a range that does not fit, or has grown too large meanwhile, is flushed.
        """
        journal = self.journal
        if journal is None or not self.has_journal_write:
            return None
        logs: list[Log] = []
        names = data = 0
        while self._to_journal and len(logs) < JOURNAL_WRITE_LOGS_MAX and data < JOURNAL_WRITE_BYTES_TARGET:
            log = next(iter(self._to_journal))  # the log that waits for longest
            del self._to_journal[log]
            if size := bytes_to_journal(log):
                logs.append(log)
                names, data = names + len(log.name), data + size
            elif log.high_watermark < log.end_offset:
                self._request_flush(log)
        if not logs:
            return None
        if (job := self._begin_journal_write(journal, logs, names, data)) is None:
            if journal.is_stuck:
                logs += self._give_up_journal("an offline partition needs its contents")
            for log in logs:
                self._request_flush(log)
        return job

    def _begin_journal_write(self, journal: Journal, logs: list[Log], names: int, data: int) -> JournalWriteJob | None:
        """Returns None if there is no room for it."""
        if not journal.make_room(size_of_journal_write(len(logs), names, data)):
            return None
        for log in journal.take_overdue():
            self._request_flush(log)
        self._is_journal_busy = True
        return JournalWriteJob(journal, logs)

    def _journal_written(self, job: JournalWriteJob) -> None:
        self._is_journal_busy = False
        left_out = job.finish()
        if job.error is not None:
            left_out += self._give_up_journal(f"cannot write it: {job.error}")
        for log in left_out:
            self._request_flush(log)
        for log in job.logs:
            if not log.is_removed:
                self._dirty_since.setdefault(log, self._now_ms)
            self._answer(log, None)

    def _give_up_journal(self, reason: str) -> list[Log]:
        """Stops using the journal. Returns the logs that must be flushed to their own files now."""
        logger.error("the journal is disabled until the next start: %s", reason)
        self.journal = None
        waiting, self._to_journal = list(self._to_journal), {}
        return waiting

    def finished(self, job: Job | JournalWriteJob) -> None:
        """Takes back a job that was run. On return, all callers that it served were notified, and the log may be
        flushed again.
        """
        if isinstance(job, JournalWriteJob):
            self._journal_written(job)
            return
        self._in_flight -= 1
        if isinstance(job, SaveJob):
            job.finish()
            if job.log in self._checkpoints or job.log.wants_checkpoint:
                self._request_flush(job.log)  # requested while this one was under way
            return
        try:
            save = job.finish()
        except OutOfSpace as error:  # the callers go on waiting: it is retried later
            logger.warning("%s", error)
            self._dirty_since.setdefault(job.log, self._now_ms)
            self.found_no_room(job.log)
        except LogOffline as error:
            self._answer(job.log, error)
        else:
            self._answer(job.log, None)
            if save is not None:
                self._saves.append(save)

    def _answer(self, log: Log, error: LogError | None) -> None:
        waiters = self._waiters.get(log)
        if waiters is None:
            return
        for notify in waiters.take(float("inf") if error else log.high_watermark):
            try:
                notify(error)
            except Exception:
                logger.exception("unexpected error in a callback for a flush of %s", log.directory)
        if not waiters:
            self._waiters.pop(log, None)

    def run_all(self) -> None:
        """Runs all due jobs in this thread, for callers that may wait for a disk."""
        while (job := self.next_job()) is not None:
            job.run()
            self.finished(job)
