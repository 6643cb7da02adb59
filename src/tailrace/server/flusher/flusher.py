"""Runs the broker's flushes: decides when one begins, and whether a thread, the system or the loop waits for the disk.

A journal write serves all logs that were appended to in a turn of the loop, and begins at its end. The loop itself
waits for it where the disk is quick (`pace`), and at once for a client that is alone. A flush of one log is the
system's (`linux_aio`), or a thread's.
"""

import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import partial
from os import sched_yield

from tailrace.broker.broker import Broker
from tailrace.log.flush.journal_write import JournalWriteJob
from tailrace.log.flush.queue import IN_FLIGHT_MAX, Job
from tailrace.log.log import Log
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
        """`on_flushed` is called after each flush, when the responses that waited for it have left."""
        self._loop = loop
        self._broker = broker
        self._counters = counters
        self._ready = ready
        self._on_flushed = on_flushed
        self.threads = Workers(loop, "flush", IN_FLIGHT_MAX)
        self._syncs = Syncs(loop)
        self._pace = DiskPace()
        self._requests_before = 0  # answered when the last journal write was
        self._are_ahead = False  # of their responses, the clients of the last journal write or flush that had any
        self._is_write_due = False
        self.loop_waited = False  # for the journal write whose responses leave now

    def open(self) -> None:
        """Lets the system sync by itself, where it can. That takes some milliseconds, so it is done after the start."""
        self._syncs.open()

    @property
    def is_idle(self) -> bool:
        return not (self._is_write_due or self.threads.under_way or self._syncs.under_way)

    def close(self) -> None:
        """Waits for the syncs of the system. The threads are the caller's to stop."""
        self._syncs.close()

    def start_flushes(self) -> None:
        """Begins all flushes that may run. All that is to be done after an append of a client's."""
        flushes = self._broker.flushes
        if flushes.has_journal_write and not self._is_write_due:
            self._is_write_due = True
            # at the end of this turn, with what others have sent in it
            self._loop.call_soon(self._let_clients_send if self._are_ahead else self._write_journal)
        while flushes.has_work and (job := flushes.next_of_one_log()) is not None:
            done = partial(self._flushed, job, time.perf_counter())
            if not self._syncs.start(job, done):
                self.threads.submit(job.run, done)

    def _let_clients_send(self) -> None:
        """Yields once, so that a pipelining client that is mid-send can get its request into this journal write: what
        it sends now is found by one more look at the sockets (not by asyncio's own loop, which looks after this
        callback).
        Where no process waits for the processor, this takes no time; where others do, a while, so it is not done for
        clients that wait for each response.
        """
        sched_yield()
        self._loop.call_soon(self._write_journal)

    def _write_journal(self) -> None:
        self._is_write_due = False
        if (job := self._broker.flushes.next_journal_write()) is None:
            self.start_flushes()
            return
        self._counters.commits += 1
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

    def write_at_once(self, log: Log, batch: memoryview) -> Callable[[], None] | None:
        """Writes a batch that was just appended to the journal, for a client that is alone, so that it would share the
        write with no other. Returns what is left to do; None where the disk is not quick, or failed: then the client
        has to wait for a flush.
        """
        if not self._is_disk_quick or (job := self._broker.flushes.journal_write_of(log, batch)) is None:
            return None
        started = time.perf_counter()
        job.run()
        finish = partial(self._written, job, time.perf_counter() - started)
        if job.error is not None:
            finish()
            return None
        return finish

    def _written(self, job: JournalWriteJob, seconds: float) -> None:
        self._pace.took(seconds)
        self._counters.commits += 1
        self._counters.flushed(seconds)
        self._broker.flushed(job)
        self._requests_before = self._counters.requests + 1  # with the one that is answered by it

    def served_elsewhere(self, requests: int) -> None:
        """So many of the requests that were counted have not taken the loop's time."""
        self._requests_before += requests

    @property
    def _is_disk_quick(self) -> bool:
        """And has nothing else of ours to do."""
        return self._pace.is_quick and not self.threads.under_way and not self._syncs.under_way

    def _has_time_for(self, job: JournalWriteJob) -> bool:
        """Whether the loop waits for the disk itself: where that is quick, and hardly any other request was served
        since the last time. To hand it over and back takes as long as the disk does.
        """
        others = self._counters.requests - self._requests_before
        return self._is_disk_quick and others < len(job.logs)

    def _flushed(self, job: Job | JournalWriteJob, started: float) -> None:
        """What waited for it is answered right here: another turn of the loop would only make it later. The next flush
        begins after that: the system's thread for it takes this processor first (`linux_aio`).
        """
        ended, answered = time.perf_counter(), self._counters.requests
        self._ready.hold()
        try:
            self._broker.flushed(job)
        finally:  # whatever has gone wrong: a response that does not leave now would stand in the way of all others
            clients = self._ready.answer_all()
            self._requests_before = self._counters.requests
            if served := self._requests_before - answered:  # none, where no client waited for the flush
                self._are_ahead = served > clients
        self._counters.flushed(ended - started)
        self._on_flushed()
