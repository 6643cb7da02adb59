"""One queue: a member of its share group, in a thread of its own, and the leases that it has given.

All requests for the queue share this member: those that wait for messages wait here, and cost no connection. A lease
ends at its time, whatever the lock behind it; the lock is taken for LOCK_MARGIN_MS longer, so that the message is not
delivered again before. When the gateway ends, however it does, so do the member's connections, and the brokers release
what it holds.
"""

import asyncio
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tailrace.client.errors import ClientError
from tailrace.client.share.acknowledgements import Outcome, SharePartition
from tailrace.client.share.consumer import ShareConsumer
from tailrace.client.share.deliveries import Delivery
from tailrace.client.share.holdings import Result
from tailrace.gateway.queues.lease_ids import LeaseIds

LOCK_MARGIN_MS = 1_000
LOCK_MS_MAX = 3_600_000  # that a broker grants
FETCH_S = 0.1  # a request that does not wait has this time for its messages to come
JOIN_S = 10.0  # and the first ones of a queue have this time for the member to join its group
SPARE_S = 1.0  # messages that came too late for their request are kept for the next one for so long
IDLE_S = 60.0
STEP_S = 5.0
OUTDATED_MAX = 1000  # entries of leases that have ended, beside those of others
FETCH_MAX = 1000  # messages that are asked for at once
CLOSE_S = 3.0

Place = tuple[SharePartition, int]


class Leased(NamedTuple):
    lease: str
    delivery: Delivery
    expires_ms: int  # since 1970


class Failed(NamedTuple):
    lease: str
    reason: str  # "expired", or "unknown"


class Settled(NamedTuple):
    done: int
    failed: list[Failed]


class Action(NamedTuple):
    """What becomes of leases. RENEW extends them by `seconds`; a RELEASE delays their messages by as much."""

    outcome: Outcome
    seconds: int = 0


@dataclass(slots=True, eq=False)
class Waiting:
    """A request for messages. `is_gone` once nothing waits for the response any more."""

    records_max: int
    lease_ms: int
    came: float
    deadline: float
    answer: "asyncio.Future[list[Leased]]"
    is_gone: bool = False


@dataclass(slots=True, eq=False)
class Settling:
    """A request about leases; `missing` are those for which the broker has not answered yet."""

    leases: Sequence[str]
    action: Action
    answer: "asyncio.Future[Settled]"
    done: int = 0
    failed: list[Failed] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Lease:
    lease: str
    delivery: Delivery
    expires: float
    settling: Settling | None = None
    sent: float = 0.0  # when that was


class Queue:
    """Used from the loop's thread. `_run` and what it calls is the queue's own thread."""

    def __init__(
        self, name: str, consumer: ShareConsumer, *, is_tailrace: bool, when_closed: Callable[["Queue"], None]
    ) -> None:
        self.is_tailrace = is_tailrace
        self.ids = LeaseIds()
        self.leases = 0  # how many it has given that have not ended
        self._consumer = consumer
        self._when_closed = when_closed
        self._loop = asyncio.get_running_loop()
        self._commands: deque[Waiting | Settling] = deque()
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_stopping = False
        self._waiting: deque[Waiting] = deque()
        self._leases: dict[str, _Lease] = {}
        self._by_place: dict[Place, _Lease] = {}
        self._expiry: list[tuple[float, str]] = []
        self._used = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, command: Waiting | Settling) -> bool:
        """Returns False if the queue is closed."""
        with self._lock:
            if self._is_closed:
                return False
            self._commands.append(command)
        self._consumer.wake()
        return True

    def wake(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._consumer.wake()

    def stop(self) -> None:
        """Ends it soon, with all of its leases. `join` waits for that."""
        self._is_stopping = True
        self.wake()

    def join(self) -> None:
        self._thread.join(2 * CLOSE_S)

    # The thread

    def _run(self) -> None:
        error: Exception | None = None
        try:
            while not (self._is_stopping or self._close_if_idle()):
                self._step()
        except Exception as raised:  # noqa: BLE001 - for the requests to tell
            error = raised
        with self._lock:
            self._is_closed = True
            commands = [*self._waiting, *self._commands]
        self._consumer.close(CLOSE_S)
        settling = {one.settling for one in self._leases.values() if one.settling is not None}
        for command in (*commands, *settling):
            self._fail(command, error)
        self._call(lambda: self._when_closed(self))

    def _close_if_idle(self) -> bool:
        is_idle = not (self._waiting or self._leases) and time.monotonic() - self._used > IDLE_S
        with self._lock:
            self._is_closed = is_idle and not self._commands
            return self._is_closed

    def _step(self) -> None:
        now = time.monotonic()
        self._take_commands(now)
        self._expire(now)
        self._take_results()
        waiting = self._alive(now)
        until = min([now + STEP_S, *(self._deadline_of(one) for one in waiting), *(at for at, _ in self._expiry[:1])])
        wait_s = max(0.0, until - now)
        if waiting:
            of_first = [one for one in waiting if one.lease_ms == waiting[0].lease_ms]
            wanted = min(FETCH_MAX, sum(one.records_max for one in of_first))
            self._give(self._consumer.poll(wanted, wait_s, lock_ms=self._lock_ms(waiting[0].lease_ms)))
        else:
            spare = self._consumer.ready
            self._consumer.poll(0, min(wait_s, SPARE_S) if spare else wait_s)
            if spare and time.monotonic() - self._used > SPARE_S:
                for delivery in self._consumer.poll(spare, 0):
                    self._consumer.acknowledge(delivery, Outcome.RELEASE)
        self._take_results()
        self.leases = len(self._leases)

    def _take_commands(self, now: float) -> None:
        while self._commands:
            command = self._commands.popleft()
            self._used = now
            if isinstance(command, Waiting):
                self._waiting.append(command)
            else:
                self._settle(command, now)

    # Messages for those who wait

    def _deadline_of(self, waiting: Waiting) -> float:
        return max(waiting.deadline, waiting.came + (FETCH_S if self._consumer.has_session else JOIN_S))

    def _alive(self, now: float) -> list[Waiting]:
        """Answers those whose time is over, and returns the others."""
        kept: deque[Waiting] = deque()
        for one in self._waiting:
            if one.is_gone:
                continue
            if now < self._deadline_of(one):
                kept.append(one)
            elif self._consumer.trouble is not None:
                self._fail(one, self._consumer.trouble)
            else:
                self._answer(one, [])
        self._waiting = kept
        return list(kept)

    def _lock_ms(self, lease_ms: int) -> int | None:
        return min(lease_ms + LOCK_MARGIN_MS, LOCK_MS_MAX) if self.is_tailrace else None

    def _give(self, deliveries: list[Delivery]) -> None:
        """Gives messages to the requests in their order. One that got any waits for no more."""
        left = deque(deliveries)
        self._used = time.monotonic()
        while left:
            one = self._waiting.popleft() if self._waiting else None
            if one is None:  # more than was asked for
                self._consumer.acknowledge(left.popleft(), Outcome.RELEASE)
                continue
            if not one.is_gone:
                count = min(one.records_max, len(left))
                self._answer(one, [self._lease(left.popleft(), one.lease_ms) for _ in range(count)])

    def _lease(self, delivery: Delivery, lease_ms: int) -> Leased:
        now = time.monotonic()
        ends = self._consumer.lock_ends(delivery)
        expires = now + lease_ms / 1000 if self.is_tailrace else ends
        if ends < expires:  # it was locked for an earlier request, for less
            self._consumer.renew(delivery, lock_ms=self._lock_ms(lease_ms))
        name = self.ids.new(delivery.at.partition, delivery.offset, delivery.attempt)
        before = self._by_place.get(_place(delivery))
        if before is not None:
            self._end(before)
        lease = self._leases[name] = self._by_place[_place(delivery)] = _Lease(name, delivery, expires)
        self._look_at(lease)
        return Leased(name, delivery, round((time.time() + expires - now) * 1000))

    def _look_at(self, lease: _Lease) -> None:
        heapq.heappush(self._expiry, (lease.expires, lease.lease))
        if len(self._expiry) > OUTDATED_MAX + 2 * len(self._leases):
            self._expiry = [(one.expires, one.lease) for one in self._leases.values()]
            heapq.heapify(self._expiry)

    def _expire(self, now: float) -> None:
        while self._expiry and self._expiry[0][0] <= now:
            expires, name = heapq.heappop(self._expiry)
            lease = self._leases.get(name)
            if lease is None or lease.settling is not None or lease.expires != expires:
                continue
            self._end(lease)
            self._consumer.acknowledge(lease.delivery, Outcome.RELEASE)

    def _end(self, lease: _Lease) -> None:
        self._leases.pop(lease.lease, None)
        if self._by_place.get(_place(lease.delivery)) is lease:
            del self._by_place[_place(lease.delivery)]
        if (settling := lease.settling) is not None:
            self._resolve(settling, lease.lease, is_done=False)

    # What becomes of leases

    def _settle(self, settling: Settling, now: float) -> None:
        outcome, seconds = settling.action
        for name in settling.leases:
            lease = self._leases.get(name)
            if lease is None or lease.settling is not None or now >= lease.expires:
                settling.failed.append(self._failed(name))
                continue
            lease.settling, lease.sent = settling, now
            settling.missing.add(name)
            if outcome is Outcome.RENEW:
                self._consumer.renew(lease.delivery, lock_ms=self._lock_ms(seconds * 1000))
            else:
                self._consumer.acknowledge(lease.delivery, outcome, delay_ms=seconds * 1000 or None)
        if not settling.missing:
            self._finish(settling)

    def _failed(self, name: str) -> Failed:
        return Failed(name, "expired" if self.ids.is_known(name) else "unknown")

    def _take_results(self) -> None:
        for result in self._consumer.results():
            self._take_result(result)

    def _take_result(self, result: Result) -> None:
        lease = self._by_place.get(_place(result.delivery))
        if lease is None or lease.delivery is not result.delivery:
            return
        settling = lease.settling
        if result.error is None and result.outcome is Outcome.RENEW:
            if settling is not None and settling.action.outcome is Outcome.RENEW:
                lease.settling = None
                seconds = settling.action.seconds
                ends = self._consumer.lock_ends(lease.delivery)
                lease.expires = lease.sent + seconds if self.is_tailrace else ends
                self._look_at(lease)
                self._resolve(settling, lease.lease, is_done=True)
            return
        lease.settling = None
        self._end(lease)
        if settling is not None:
            self._resolve(settling, lease.lease, is_done=result.error is None)

    def _resolve(self, settling: Settling, name: str, *, is_done: bool) -> None:
        settling.missing.discard(name)
        if is_done:
            settling.done += 1
        else:
            settling.failed.append(Failed(name, "expired"))
        if not settling.missing:
            self._finish(settling)

    def _finish(self, settling: Settling) -> None:
        settled = Settled(settling.done, settling.failed)

        def answer() -> None:
            if not settling.answer.done():
                settling.answer.set_result(settled)

        self._call(answer)

    # To the loop

    def _answer(self, waiting: Waiting, leased: list[Leased]) -> None:
        def answer() -> None:
            if not waiting.answer.done():
                waiting.answer.set_result(leased)
            elif leased:  # the client has gone meanwhile
                names = [one.lease for one in leased]
                self.submit(Settling(names, Action(Outcome.RELEASE), self._loop.create_future()))

        self._call(answer)

    def _fail(self, command: Waiting | Settling, error: Exception | None) -> None:
        if isinstance(command, Waiting) and error is None:
            self._answer(command, [])
        elif isinstance(command, Settling) and (error is None or isinstance(error, ClientError)):
            command.failed += [self._failed(name) for name in command.missing or command.leases]
            self._finish(command)
        elif error is not None:
            answer, raised = command.answer, error
            self._call(lambda: answer.done() or answer.set_exception(raised))

    def _call(self, call: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the gateway has ended
            return


def _place(delivery: Delivery) -> Place:
    return delivery.partition, delivery.offset
