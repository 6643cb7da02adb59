"""Runs the broker's flushes: decides when one begins, and whether a thread, the kernel or the loop waits for the disk.

A journal write covers all logs that were appended to in one turn of the loop, and begins at its end. If the disk is
fast (`pace`), the loop itself waits for the write, and starts it at once for a client that is alone. A flush of one log
is done by the kernel (`linux_aio`), or by a thread.
"""

import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import partial
from os import sched_yield

from tailrace.broker.broker import Broker
from tailrace.log.flush.journal_write import JournalWriteJob
from tailrace.log.flush.queue import IN_FLIGHT_MAX, Job
from tailrace.server.counters import Counters
from tailrace.server.flusher.linux_aio import Syncs
from tailrace.server.flusher.pace import DiskPace
from tailrace.server.net.ready import ReadyConnections
from tailrace.server.threads import Workers


class Flusher:
    """Used from the loop's thread alone."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        broker: Broker,
        counters: Counters,
        ready: ReadyConnections,
        on_flushed: Callable[[], None],
    ) -> None:
        """`on_flushed` is called after each flush, when the responses that waited for it have been sent."""
        self._loop = loop
        self._broker = broker
        self._counters = counters
        self._ready = ready
        self._on_flushed = on_flushed
        self.threads = Workers(loop, "flush", IN_FLIGHT_MAX)
        self._syncs = Syncs(loop)
        self._pace = DiskPace()
        self._requests_before = 0  # requests answered up to the last journal write
        self._are_ahead = False  # whether the clients of the last flush send ahead of their responses
        self._is_write_due = False
        self.loop_waited = False  # whether the loop waited for the journal write whose responses are sent now

    def open(self) -> None:
        """Enables asynchronous syncs where the system has them. Takes some milliseconds, so it runs after the start."""
        self._syncs.open()

    @property
    def is_idle(self) -> bool:
        return not (self._is_write_due or self.threads.under_way or self._syncs.under_way)

    def close(self) -> None:
        """Waits for asynchronous syncs. The caller stops the threads."""
        self._syncs.close()

    def start_flushes(self) -> None:
        """Begins all flushes that may run. Call it after a client's append."""
        flushes = self._broker.flushes
        if flushes.has_journal_write and not self._is_write_due:
            self._is_write_due = True
            # at the end of this turn, together with other clients' appends
            self._loop.call_soon(self._let_clients_send if self._are_ahead else self._write_journal)
        while flushes.has_work and (job := flushes.next_of_one_log()) is not None:
            done = partial(self._flushed, job, time.perf_counter())
            if not self._syncs.start(job, done):
                self.threads.submit(job.run, done)

    def write_journal_now(self) -> None:
        """Begins the journal write before the end of the turn, where the disk is quick: for a client that is alone, so
        that it would share the write with no other.
        """
        if self._broker.flushes.has_journal_write and not self._is_write_due and self._is_disk_quick:
            self._write_journal()

    def _let_clients_send(self) -> None:
        """Yields once, so that a pipelining client that is mid-send can get its request into this journal write. One
        more poll of the sockets finds that request (not asyncio's own poll, which comes after this callback). If no
        process waits for this processor, yielding takes no time. Otherwise it takes a while, so it is not done for
        clients that wait for each response.
        """
        sched_yield()
        self._loop.call_soon(self._write_journal)

    def _write_journal(self) -> None:
        self._is_write_due = False
        if (job := self._broker.flushes.next_journal_write()) is None:
            self.start_flushes()
            return
        self._counters.journal_writes += 1
        started = time.perf_counter()
        done = partial(self._flushed, job, started)
        if self._has_time_for(job):
            self._pace.time(job.run)
            self.loop_waited = True
            try:
                done()
            finally:
                self.loop_waited = False
        else:
            self.threads.submit(partial(self._pace.time, job.run), done)

    def served_elsewhere(self, requests: int) -> None:
        """Excludes requests that the helper process answered: they were counted but took no time of the loop."""
        self._requests_before += requests

    @property
    def _is_disk_quick(self) -> bool:
        """Whether the disk is fast, and has no other flush to do."""
        return self._pace.is_quick and not self.threads.under_way and not self._syncs.under_way

    def _has_time_for(self, job: JournalWriteJob) -> bool:
        """Whether the loop waits for the disk itself: if the disk is fast, and hardly any other request was served
        since the last write. Handing the write to a thread and back takes as long as the write.
        """
        others = self._counters.requests - self._requests_before
        return self._is_disk_quick and others < len(job.logs)

    def _flushed(self, job: Job | JournalWriteJob, started: float) -> None:
        """Sends the responses that waited for the flush right here: another turn of the loop would only delay them.
        Begins the next flush after that: the kernel's thread for it runs on this processor first (`linux_aio`).
        """
        ended, answered = time.perf_counter(), self._counters.requests
        self._ready.hold()
        try:
            self._broker.flushed(job)
        finally:  # even after an error: an unsent response would block all later ones
            clients = self._ready.answer_all()
            self._requests_before = self._counters.requests
            if served := self._requests_before - answered:  # zero if no client waited for the flush
                self._are_ahead = served > clients
        self._counters.flushed(ended - started)
        self._on_flushed()
