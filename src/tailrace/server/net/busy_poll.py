"""Busy polling for a client that sends its next request right after each response.

Waking a sleeping loop, usually on another processor, takes longer than answering a small request. So while exactly one
client sends one request after the other, the loop polls for the next one without going to sleep, for 0.1 ms at most:
some times that client's socket alone, which is fastest, and then all sockets. Polling stops when requests come later,
or other clients send some; it begins again after several requests that came soon. On a busy machine, the kernel wakes
the client on the broker's processor, expecting the broker to sleep. So the broker yields the processor once per
response, unless the next request has come before that. All other work keeps its turns. While a request is in flight,
such as one that waits for the disk, there is nothing to poll for: polling continues after its response.
"""

import time
from asyncio import AbstractEventLoop
from os import sched_yield
from typing import Protocol

SOON_S = 0.000_150  # from a response to the next request, including the wake-up
BUSY_POLL_S = 0.000_100
SOON_REQUESTS_MIN = 4  # requests that came soon, before polling begins
PAUSE_REQUESTS = 64  # requests before polling may begin again
LOOKS_AT_CLIENT = 16  # polls of the client per poll of all sockets: some 30 µs
SOON_REQUESTS_MAX = 8  # upper bound of the count: so many late requests end polling


class Client(Protocol):
    def look(self) -> bool:
        """Handles what has arrived, if anything. Returns True if something has, or a request is in flight."""


class BusyPoll:
    __slots__ = ("_answered_at", "_client", "_gave_way", "_is_awake", "_loop", "_soon")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._client: Client | None = None
        self._answered_at = 0.0
        self._soon = 0  # count of requests that came soon, lately
        self._is_awake = False
        self._gave_way = False  # yielded since the last response

    def is_alone_with(self, client: Client) -> bool:
        """Whether this client sends one request after the other, and hardly any other client sends."""
        return self._soon >= SOON_REQUESTS_MIN and client is self._client

    def answered(self, client: Client, started: float, ended: float) -> None:
        """Notes that a request of this client was begun and answered at these times, by the performance counter."""
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
        """Notes that the client is gone."""
        if client is self._client:
            self._client = None

    def disturbed(self) -> None:
        """Notes that there is other work, or other processes may need the processor: polling pauses for a while."""
        self._soon = -PAUSE_REQUESTS

    def _look(self) -> None:
        """Polls the client for a while, and schedules the next poll of all sockets while the pause is short."""
        self._is_awake = False
        client = self._client
        if client is None or self._soon <= 0 or time.perf_counter() - self._answered_at >= BUSY_POLL_S:
            return
        for _ in range(LOOKS_AT_CLIENT):
            if client.look():
                return
            if not self._gave_way:
                self._gave_way = True
                sched_yield()  # the client may be waiting for this processor
        self._stay_awake()
