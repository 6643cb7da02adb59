"""Busy polling for a client that sends its next request as soon as it is answered.

A loop that goes to sleep has to be woken, on another processor as a rule, which takes longer than to answer a small
request. So while one client sends one request after the other, and no other sends any, the loop looks for the next
one without going to sleep, for a tenth of a millisecond at most: some times at that client, which is quickest, and then
at everybody. Where it does not come so soon, or others come in between, that ends; it begins again after some that did.
Where the machine is busy, the kernel wakes the client on the processor of who has answered it, in the belief that he is
about to sleep: so the processor is given up once for each answer, where the next request has not come before that.
Everything else has its turns as always. While a request is under way, as one that waits for the disk, there is nothing
to look for: that goes on when it is answered.
"""

import time
from asyncio import AbstractEventLoop
from os import sched_yield
from typing import Protocol

SOON_S = 0.000_150  # from an answer to the next request, with the time that waking up takes
BUSY_POLL_S = 0.000_100
SOON_REQUESTS_MIN = 4  # requests that came soon, before it is worth it
PAUSE_REQUESTS = 64  # requests
LOOKS_AT_CLIENT = 16  # at the client, for each at everybody: some 30 µs
SOON_REQUESTS_MAX = 8  # of them are remembered: so many may come late before it is forgotten


class Client(Protocol):
    def look(self) -> bool:
        """Handles what has arrived, if anything has. True where something has, or is under way."""


class BusyPoll:
    __slots__ = ("_answered_at", "_client", "_gave_way", "_is_awake", "_loop", "_soon")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._client: Client | None = None
        self._answered_at = 0.0
        self._soon = 0  # how many have come soon, lately
        self._is_awake = False
        self._gave_way = False  # since the last answer

    def is_alone_with(self, client: Client) -> bool:
        """Whether it is this client that sends one request after the other, and hardly anybody else any."""
        return self._soon >= SOON_REQUESTS_MIN and client is self._client

    def answered(self, client: Client, started: float, ended: float) -> None:
        """A request of this client was begun and answered at these times, by the performance counter."""
        is_soon = client is self._client and started - self._answered_at < SOON_S
        self._client, self._answered_at, self._gave_way = client, ended, False
        if is_soon:
            self._soon = min(self._soon + 1, SOON_REQUESTS_MAX)
        elif self._soon > 0:
            self._soon = max(self._soon - 2, 0)
        if self._soon >= SOON_REQUESTS_MIN:
            self._stay_awake()

    def _stay_awake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._look)

    def forget(self, client: Client) -> None:
        """The client is gone."""
        if client is self._client:
            self._client = None

    def disturbed(self) -> None:
        """There is other work, and others may need the processor: it is not worth it for a while."""
        self._soon = -PAUSE_REQUESTS

    def _look(self) -> None:
        """Called again after a look at what has arrived for others; or, where something has come, with its answer."""
        self._is_awake = False
        client = self._client
        if client is None or self._soon <= 0 or time.perf_counter() - self._answered_at >= BUSY_POLL_S:
            return
        for _ in range(LOOKS_AT_CLIENT):
            if client.look():
                return
            if not self._gave_way:
                self._gave_way = True
                sched_yield()  # the client may be waiting for this very processor
        self._stay_awake()
