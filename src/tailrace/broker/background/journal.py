"""Decides whether there is a journal: one found at the start is used; else one is created once it would help.

Creating a journal takes time and disk space, so a broker whose clients do not wait for the disk has none.
"""

import logging

from tailrace.broker.core.delayed import StartJob
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.journal_file import BYTES_MIN
from tailrace.log.flush.journal import MakeJournalJob
from tailrace.log.flush.queue import FlushQueue

logger = logging.getLogger("tailrace.broker.background")

SMALL_FLUSHES = 16  # flushes that a client waited for, before a journal is created


class JournalSetup:
    def __init__(self, directory: DataDirectory, flushes: FlushQueue, start_job: StartJob, size: int) -> None:
        self._directory = directory
        self._flushes = flushes
        self._start_job = start_job
        self._size = max(size, BYTES_MIN) if size else 0
        flushes.journal = directory.use_journal(self._size)
        self._may_make = size > 0 and flushes.journal is None  # only once: a failed attempt may have left its file

    def tick(self) -> None:
        if self._may_make and self._flushes.small_flushes >= SMALL_FLUSHES:
            self._may_make = False
            job = self._directory.begin_make_journal(self._size)
            self._start_job(job, lambda: self._made(job))

    def _made(self, job: MakeJournalJob) -> None:
        if job.journal is None:
            logger.warning("cannot create the journal: %s. Partitions are synced one by one", job.error)
        self._directory.journal = self._flushes.journal = job.journal
