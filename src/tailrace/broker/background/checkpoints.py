"""Flushes logs after a while, checkpoints them, and saves recovery points, so that the next start is short.

every second     logs that have been dirty for a second are flushed
every minute     logs are checkpointed: their indexes and producer state are saved, so that recovery begins there
                 (`log.flush.offset.checkpoint.interval.ms`)
every 5 seconds, recovery points and start offsets of all logs are saved (`when_offsets_saved`)
and on demand
every 5 seconds  failed removals of logs are tried again
"""

import logging
from collections.abc import Iterable

from tailrace.broker.background.removals import remove_again
from tailrace.broker.core.delayed import Flushed, StartJob
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.errors import StorageError
from tailrace.log.log import Log

logger = logging.getLogger("tailrace.broker.background")

SAVE_OFFSETS_MS = 5_000
CHECKPOINTS_AT_ONCE = 8  # of logs that nobody waits for, with each tick; or one in a hundred of those that are due


class Checkpointer:
    def __init__(self, directory: DataDirectory, flushes: FlushQueue, start_job: StartJob, checkpoint_ms: int) -> None:
        self._directory = directory
        self._flushes = flushes
        self._start_job = start_job
        self._checkpoint_ms = checkpoint_ms
        self._checkpointed_ms: int | None = None
        self._due: list[Log] = []
        self._share = CHECKPOINTS_AT_ONCE
        self._saved_ms = 0
        self._waiting: list[Flushed] = []

    def tick(self, now_ms: int, steady_ms: int) -> None:
        self._flushes.tick(now_ms, steady_ms)
        if self._checkpointed_ms is None:
            self._checkpointed_ms = self._saved_ms = now_ms
        if not 0 <= now_ms - self._checkpointed_ms < self._checkpoint_ms:  # also where the clock was put back
            self._checkpointed_ms = now_ms
            self._due = [log for log in self._logs() if not log.is_saved]
            self._share = max(CHECKPOINTS_AT_ONCE, len(self._due) // 100)
        self._checkpoint()
        if not 0 <= now_ms - self._saved_ms < SAVE_OFFSETS_MS:
            self._saved_ms = now_ms
            if any(_is_worth_saving(log) for log in self._logs()):
                self._save_offsets()
            remove_again(self._directory, self._start_job)

    def _logs(self) -> Iterable[Log]:
        return self._directory.logs.values()

    def _checkpoint(self) -> None:
        """A few at a time: who waits for a flush would stand behind all of them."""
        due, self._due = self._due[: self._share], self._due[self._share :]
        for log in due:
            if not log.is_saved and log.refusal is None:
                self._flushes.request_checkpoint(log)

    def when_offsets_saved(self) -> Flushed:
        """Resolved when the start offsets as they are now are on disk."""
        saved = Flushed()
        self._waiting.append(saved)
        self._save_offsets()
        return saved

    def _save_offsets(self) -> None:
        if self._directory.saving_offsets is not None:
            return  # those who ask now are served by the next one
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


def _is_worth_saving(log: Log) -> bool:
    return bool(
        log.condemned
        or log.recovery_point != log.recovery_point_on_disk
        or log.compacted_to != log.compacted_to_on_disk
    )
