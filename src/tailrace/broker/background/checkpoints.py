"""Flushes logs after a while, checkpoints them, and saves recovery points, so that the next start is short.

every second     logs that have been dirty for a second are flushed
every minute     logs are checkpointed: their indexes and producer state are saved, so that recovery begins there
                 (`log.flush.offset.checkpoint.interval.ms`)
every 5 seconds, recovery points and start offsets of all logs are saved (`when_offsets_saved`), once the loss
and on demand    ledger is on disk: with them the files of deleted records go
every 5 seconds  failed removals of logs are tried again
"""

import logging
from collections.abc import Callable, Iterable

from tailrace.broker.background.removals import remove_again
from tailrace.broker.core.delayed import Flushed, StartJob
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.errors import LogError, StorageError
from tailrace.log.log import Log

logger = logging.getLogger("tailrace.broker.background")

SAVE_OFFSETS_MS = 5_000
CHECKPOINTS_AT_ONCE = 8  # background flushes per tick; or one in a hundred of the logs that are due


class Checkpointer:
    def __init__(
        self,
        directory: DataDirectory,
        flushes: FlushQueue,
        start_job: StartJob,
        checkpoint_ms: int,
        when_losses_flushed: Callable[[], Flushed | None] = lambda: None,
    ) -> None:
        """`when_losses_flushed` returns None if all noted losses are on disk, else what to wait for."""
        self._directory = directory
        self._flushes = flushes
        self._start_job = start_job
        self._checkpoint_ms = checkpoint_ms
        self._checkpointed_ms: int | None = None
        self._due: list[Log] = []
        self._share = CHECKPOINTS_AT_ONCE
        self._saved_ms = 0
        self._waiting: list[Flushed] = []
        self._when_losses_flushed = when_losses_flushed
        self._is_waiting_for_losses = False

    def tick(self, now_ms: int, steady_ms: int) -> None:
        self._flushes.tick(now_ms, steady_ms)
        if self._checkpointed_ms is None:
            self._checkpointed_ms = self._saved_ms = now_ms
        if not 0 <= now_ms - self._checkpointed_ms < self._checkpoint_ms:  # also if the clock was set back
            self._checkpointed_ms = now_ms
            self._due = [log for log in self._logs() if not log.is_saved]
            self._share = max(CHECKPOINTS_AT_ONCE, len(self._due) // 100)
        self._checkpoint()
        if not 0 <= now_ms - self._saved_ms < SAVE_OFFSETS_MS:
            self._saved_ms = now_ms
            if any(_is_worth_saving(log) for log in self._logs()):
                self._save_offsets()
            if self._when_losses_flushed() is None:  # a removal saves the start offsets of all logs
                remove_again(self._directory, self._start_job)

    def _logs(self) -> Iterable[Log]:
        return self._directory.logs.values()

    def _checkpoint(self) -> None:
        """Checkpoints a few logs at a time: a flush that a client waits for would be queued behind all of them."""
        due, self._due = self._due[: self._share], self._due[self._share :]
        for log in due:
            if not log.is_saved and log.refusal is None:
                self._flushes.request_checkpoint(log)

    def when_offsets_saved(self) -> Flushed:
        """Returns a response that is resolved when the current start offsets are on disk."""
        saved = Flushed()
        self._waiting.append(saved)
        self._save_offsets()
        return saved

    def _save_offsets(self) -> None:
        if self._directory.saving_offsets is not None or self._is_waiting_for_losses:
            return  # callers from now on wait for the next one
        if (flushed := self._when_losses_flushed()) is not None:
            self._is_waiting_for_losses = True
            flushed.when_resolved(self._losses_are_flushed)
            return
        job = self._directory.begin_save_offsets()
        waiting, self._waiting = self._waiting, []

        def finish() -> None:
            error: StorageError | None = None
            try:
                job.finish()
            except StorageError as refused:
                error = refused
                logger.error("%s", error)
            for saved in waiting:
                saved.resolve(error)
            if self._waiting:
                self._save_offsets()

        self._start_job(job, finish)

    def _losses_are_flushed(self, error: LogError | None) -> None:
        self._is_waiting_for_losses = False
        if error is None:
            self._save_offsets()
            return
        waiting, self._waiting = self._waiting, []
        for saved in waiting:
            saved.resolve(error)


def _is_worth_saving(log: Log) -> bool:
    return bool(
        log.condemned
        or log.recovery_point != log.recovery_point_on_disk
        or log.compacted_to != log.compacted_to_on_disk
    )
