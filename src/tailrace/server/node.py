"""A node: a broker on its data directory, its threads, and the sockets that its clients connect to.

    start   opens the directory (recovery, where it is needed), binds, listens
    run     nothing: everything happens on the loop, in callbacks
    stop    accepts no more connections, answers waiting requests, finishes those in flight, flushes all logs, and marks
            the stop as clean

An error after which the broker cannot keep its promises (the metadata log cannot be flushed) ends the process at once:
`failed` is set, and the stop is not marked as clean.
"""

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from tailrace.broker.apis.registry import APIS
from tailrace.broker.broker import Broker
from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.core.api import FRAME_BYTES_MAX, Endpoint
from tailrace.broker.core.delayed import Pause
from tailrace.broker.startup import open_broker
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import Files
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.jobs import Job as AnyJob
from tailrace.server.flusher.flusher import Flusher
from tailrace.server.handoff.handoff import CatchUpHandOff
from tailrace.server.handoff.helper_process import HelperProcess
from tailrace.server.metrics import Metrics
from tailrace.server.net.admission import Admission
from tailrace.server.net.busy_poll import BusyPoll
from tailrace.server.net.connection import Connection
from tailrace.server.net.frames import SharedBuffers
from tailrace.server.net.limits import Budget
from tailrace.server.net.listener import Listener, bind
from tailrace.server.net.ready import ReadyConnections
from tailrace.server.preload import Preload
from tailrace.server.settings import Listen
from tailrace.server.threads import Workers

logger = logging.getLogger("tailrace.server")

READ_THREADS = 4
SEND_THREADS = 16
JOB_THREADS = 6  # for jobs of the broker; one may run a compaction, and one a scrub
SETTLED_S = 0.5  # after the start, the broker does work that the first acknowledgement did not need
HEARTBEAT_S = 0.25
STALL_S = 0.1
ANSWERS_S = 2.0  # for requests in flight at a stop; then connections are closed
JOBS_S = 5.0
CHILDREN = "children"  # what connections of child processes count for, instead of an address: they take no one's place
CHILDREN_MAX = 64


class Node:
    def __init__(
        self,
        data: str,
        listen: list[Listen],
        configs: dict[str, str] | None = None,
        *,
        files: Files | None = None,
    ) -> None:
        """Raises InvalidConfig."""
        self.data = os.path.abspath(data)  # the path in DescribeLogDirs
        self.configs = BrokerConfigs(configs)
        self.metrics = Metrics(self)
        self.listeners: list[Listener] = []
        self.connections: dict[Connection, str] = {}
        self.buffers = SharedBuffers()
        self.write_timeout_s = self.configs.number("tailrace.write.timeout.ms") / 1000
        self._files = files or OperatingSystemFiles()
        self._listen = listen
        self._by_host: dict[str, int] = {}
        self._admission = Admission(self.configs)
        idle_ms = self.configs.number("connections.max.idle.ms")
        self._idle_s = idle_ms / 1000 if idle_ms >= 0 else math.inf
        self._frame_bytes_max = self.configs.number("socket.request.max.bytes")
        self._heartbeat: asyncio.TimerHandle | None = None
        self._alarm: asyncio.TimerHandle | None = None  # for the next deadline of a group
        self._alarm_ms = 0
        self._quotas_seen = 0  # revision of the quotas
        self._stalled_s = 0.0
        self._stall_seen_at = 0.0
        self._beat_due = math.inf
        self._looked_at = self._looked_before = 0.0  # times of the last two checks for reset connections
        self.is_stopping = False
        self._is_finishing = False  # set at the end of a stop

    # Start and stop

    async def start(self) -> None:
        """Starts serving clients. Raises what opening the directory raises, and OSError if an address is in use."""
        self.loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[Exception] = self.loop.create_future()
        self.readers = Workers(self.loop, "read", READ_THREADS)
        self.senders = Workers(self.loop, "send", SEND_THREADS)
        self.busy_poll = BusyPoll(self.loop)
        self.jobs = Workers(self.loop, "job", JOB_THREADS)
        self.ready = ReadyConnections(self.loop)
        self.budget = Budget(self.loop, self.configs.number("tailrace.inflight.bytes"), self.write_timeout_s)
        for name, reason in self.configs.ignored.items():
            logger.warning("%s has no effect: %s", name, reason)
        with ExitStack() as undo:  # bound first: if an address is in use, no directory is created
            bound = [(sock, one.advertised) for one in self._listen for sock in bind(one.host, one.port, undo)]
            self._show_places(bound)
            self._open()
            undo.callback(self.directory.abandon)
            self.flusher = Flusher(self.loop, self.broker, self.metrics, self.ready, self.pump)
            helper = HelperProcess(self.loop, self.readers)
            self.handoff = CatchUpHandOff(self.loop, helper, self.metrics, self.flusher.served_elsewhere)
            for sock, advertised in bound:
                self.listeners.append(Listener(self, sock, advertised))
                undo.callback(self.listeners[-1].close)
            undo.pop_all()
        self._preload = Preload(self.loop)
        self._set_heartbeat()
        self._set_alarm()
        self._settling = self.loop.call_later(SETTLED_S, self.flusher.open)

    def _show_places(self, bound: list[tuple[socket.socket, Endpoint | None]]) -> None:
        """Shows in DescribeConfigs where clients connect, and where logs are."""
        listeners = [f"PLAINTEXT://{Endpoint(*sock.getsockname()[:2])}" for sock, _ in bound]
        told = [f"PLAINTEXT://{advertised}" for _, advertised in bound if advertised is not None]
        self.configs.at_start["listeners"] = ",".join(listeners)
        self.configs.at_start["advertised.listeners"] = ",".join(dict.fromkeys(told)) or ",".join(listeners)
        self.configs.at_start.update(dict.fromkeys(("log.dir", "log.dirs"), self.data))

    def _open(self) -> None:
        self.directory = DataDirectory(self._files, self.data)
        try:
            self.broker: Broker = open_broker(
                self.directory, self.configs, now_ms(), start_job=self.start_job, random_bytes=os.urandom
            )
        except BaseException:
            self.directory.abandon()
            raise

    async def stop(self) -> None:
        """Stops. On return, everything is on disk, the stop is clean, and nothing of the node is left."""
        self.is_stopping = True
        self.broker.compactor.stop()
        for listener in self.listeners:
            listener.close()
        for connection in list(self.connections):
            connection.hurry()
        await self._wait_until(lambda: all(one.owes_nothing for one in self.connections), ANSWERS_S)
        for connection in list(self.connections):
            connection.close()
        for timer in (self._heartbeat, self._alarm, self._settling):
            if timer is not None:
                timer.cancel()
        self._preload.stop()
        self.broker.ledger.close(now_ms())
        self.pump()
        workers = (self.flusher.threads, self.readers, self.senders, self.jobs)
        await self._wait_until(lambda: self.flusher.is_idle and not any(one.under_way for one in workers), JOBS_S)
        self.broker.recompressor.give_up()
        self.handoff.stop()
        self.flusher.close()
        self._is_finishing = True
        await _finish(workers)
        self.directory.close(self.steady_ms())

    async def _wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> None:
        deadline = self.loop.time() + timeout_s
        while not is_so() and self.loop.time() < deadline:  # noqa: ASYNC110 - only at the end of a node
            await asyncio.sleep(0.005)

    def fail(self, error: Exception) -> None:
        """Ends the process at once, because the broker cannot keep its promises any more."""
        if not self.failed.done():
            self.failed.set_result(error)

    # Connections

    def has_room_for(self, host: str) -> bool:
        private = self._by_host.get(CHILDREN, 0)
        if host == CHILDREN:
            return not self.is_stopping and private < CHILDREN_MAX
        return not self.is_stopping and self._admission.has_room(
            host, of_all=len(self.connections) - private, of_host=self._by_host.get(host, 0)
        )

    def wait_to_accept_s(self) -> float:
        """How long no more connections are accepted; 0 for no pause."""
        return self._admission.wait_s(self.loop.time())

    def connection_wait_ms(self, host: str) -> int:
        """0 if the quota of the address allows one more connection."""
        quotas = self.broker.quotas
        is_limited = bool(quotas.quotas.values) and host != CHILDREN
        return quotas.connect(host, self.loop.time()) if is_limited else 0

    def opened(self, connection: Connection, host: str) -> None:
        self.connections[connection] = host
        self._by_host[host] = self._by_host.get(host, 0) + 1
        self.metrics.connections_opened += 1

    def closed(self, connection: Connection) -> None:
        self.busy_poll.forget(connection)
        host = self.connections.pop(connection, None)
        if host is not None:
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]

    def frame_bytes_max(self, api_key: int) -> int:
        api = APIS.get(api_key)
        return min(api.frame_bytes_max if api is not None else FRAME_BYTES_MAX, self._frame_bytes_max)

    # Jobs

    def start_job(self, job: AnyJob, finish: Callable[[], object]) -> None:
        """Runs a job in a thread. A job that yields between steps ends at a stop: the next start continues it."""
        if not (self._is_finishing and isinstance(job, Pause)):
            self.jobs.submit(job.run, partial(self._finished, finish))

    def _finished(self, finish: Callable[[], object]) -> None:
        finish()
        self.pump()

    def pump(self) -> None:
        """Begins all flushes that may run, and checks what is due. Called after everything that may have written: so
        this also notices an internal topic that refused a write.
        """
        if (error := self.broker.failure) is not None:
            self.fail(error)
        self._set_alarm()
        self.flusher.start_flushes()

    # The clock

    def steady_ms(self) -> int:
        """A clock that does not advance while the loop is held up: deadlines of clients move by as much. The first call
        after a stall subtracts it, because requests may come before the next heartbeat.
        """
        now = self.loop.time()
        lag = now - max(self._beat_due, self._stall_seen_at)
        if lag > STALL_S:
            self._stalled_s += lag
            self._stall_seen_at = now
        return int((now - self._stalled_s) * 1000)

    def _set_alarm(self) -> None:
        deadline = self.broker.next_deadline
        if deadline is None or self.is_stopping or (self._alarm is not None and self._alarm_ms <= deadline):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = deadline
        due = self.loop.time() + max(0, deadline - self.steady_ms()) / 1000
        self._alarm = self.loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        try:
            self.broker.advance(now_ms(), self.steady_ms())
        except Exception:
            logger.exception("unexpected error in work that was due by the clock")
        self.pump()

    def _beat(self) -> None:
        now = self.loop.time()
        self.metrics.loop_lag(max(0.0, now - self._beat_due))
        try:
            self._tick()
            self.pump()
            self._end_throttles_of_changed_quotas()
            self._close_reset()
            self._close_silent(now)
            self.handoff.look_after(now)
        except Exception:  # the next heartbeat must come, whatever has failed
            logger.exception("unexpected error in a heartbeat")
        self._set_heartbeat()

    def _tick(self) -> None:
        try:
            self.broker.tick(now_ms(), self.steady_ms())
        except Exception:  # what it has begun must still be flushed
            logger.exception("unexpected error in the broker's part of a heartbeat")

    def _set_heartbeat(self) -> None:
        self._beat_due = self.loop.time() + HEARTBEAT_S
        self._heartbeat = self.loop.call_at(self._beat_due, self._beat)

    def _end_throttles_of_changed_quotas(self) -> None:
        """Ends throttles of quotas that have changed. A client that still exceeds a quota is throttled again soon."""
        revision = self.broker.metadata.quotas.revision
        if revision != self._quotas_seen:
            self._quotas_seen = revision
            for throttle in [one.throttle for one in self.connections]:
                if throttle.is_on and throttle.revision != revision:
                    throttle.end()

    def _close_reset(self) -> None:
        """Closes connections that were reset. uvloop reports a reset only once, and stops watching the socket: a
        connection with unread data then hears nothing more. Each is checked once, when it falls silent.
        """
        before, self._looked_at = self._looked_at, self.loop.time()
        for connection in [one for one in self.connections if self._looked_before < one.active_at <= before]:
            if connection.is_reset:
                connection.fail(ConnectionResetError())
        self._looked_before = before

    def _close_silent(self, now: float) -> None:
        """Closes silent connections. A client may be silent for long between two requests, but not in the middle of
        one. A throttled client is not read, so its silence means nothing: it stays if its socket is open.
        """
        patience_s = min(self._idle_s, self.write_timeout_s)
        for connection in [one for one in self.connections if now - one.active_at > patience_s]:
            silent_s = now - connection.active_at
            if connection.throttle.is_on:
                is_over = connection.is_hung_up
            else:
                is_over = connection.is_amid_request or silent_s > self._idle_s
            if connection.owes_nothing and is_over:
                connection.close()


async def _finish(workers: Sequence[Workers]) -> None:
    """Waits until all submitted work is done and its results are handled, including work that these submit."""
    while True:
        for one in workers:
            one.stop()
        await asyncio.sleep(0)
        if not any(one.is_at_work for one in workers):
            return


def now_ms() -> int:
    return int(time.time() * 1000)
