"""The requests in flight on a connection, their responses, and their deadlines.

One timer serves them all. It fires at the earliest deadline and is then set to the next one; a request that is answered
before its deadline, as nearly all are, leaves it unchanged.
"""

import math
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterable
from typing import Any, cast

from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.fetch.reads import release_records
from tailrace.protocol import codec
from tailrace.protocol.frame import RequestHeader, response_header
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.protocol.messages.share_fetch import ShareFetchResponse
from tailrace.server.net.chunks import ResponseChunk, length_of

GATHERED_BYTES = 64 << 10  # of responses for one system call

_EARLY_S = 0.001  # the loop counts milliseconds
_WITH_RECORDS = FetchResponse, ShareFetchResponse


def ignore(*_: Any) -> None:
    """Replaces a callback to a closed connection, so that the two form no reference cycle."""


class Pending:
    """A request in flight, with its position in the queue; or several that are answered together."""

    __slots__ = ("answer", "deadline", "header", "is_answered", "is_hurried", "later", "requests", "started")

    def __init__(self, header: RequestHeader, started: float, requests: int = 1) -> None:
        self.header = header
        self.started = started
        self.requests = requests
        self.answer: Any = None
        self.is_answered = False
        self.is_hurried = False
        self.later: DelayedResponse[Any] | None = None
        self.deadline = math.inf  # by the loop's clock

    def hurry(self) -> None:
        """Makes a Fetch read what is available, which may be a lot. Only the first call has an effect."""
        if self.later is not None and not self.is_hurried:
            self.is_hurried = True
            self.later.hurry()

    def abandon(self) -> None:
        """Drops the response and everything held for it, because the client is gone."""
        if self.later is not None:
            later, self.later = self.later, None
            later.abandon()
        elif isinstance(self.answer, _WITH_RECORDS):
            release_records(self.answer)

    def encode(self) -> list[ResponseChunk]:
        """Returns the chunks of the response, which must be known."""
        if isinstance(self.answer, bytes):
            return [self.answer]  # encoded by the fast path
        header = self.header
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        if not isinstance(self.answer, _WITH_RECORDS):
            body = codec.encode(self.answer, header.api_version)
            before = (len(head) + len(body)).to_bytes(4) + head
            return [before + body] if len(body) <= GATHERED_BYTES else [before, body]  # a large one is not copied again
        chunks = cast(list[ResponseChunk], codec.encode_parts(self.answer, header.api_version))  # slices of the log
        length = len(head) + sum(map(length_of, chunks))
        return [length.to_bytes(4) + head, *chunks]


class Deadlines:
    """The deadlines of one connection. `on_due` is called for each request whose deadline has passed."""

    __slots__ = ("_due_at", "_loop", "_on_due", "_pending", "_timer")

    def __init__(self, loop: AbstractEventLoop, pending: Iterable[Pending], on_due: Callable[[Pending], None]) -> None:
        self._loop = loop
        self._pending = pending
        self._on_due = on_due
        self._timer: TimerHandle | None = None
        self._due_at = 0.0

    def watch(self, pending: Pending, wait_ms: int) -> None:
        """Sets the deadline of `pending`, which is in the queue."""
        pending.deadline = self._loop.time() + wait_ms / 1000
        if self._timer is None or pending.deadline < self._due_at:
            self._set(pending.deadline)

    def _set(self, deadline: float) -> None:
        self.cancel()
        self._due_at = deadline
        self._timer = self._loop.call_at(deadline, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time() + _EARLY_S
        for pending in [one for one in self._pending if one.later is not None and one.deadline <= now]:
            pending.deadline = math.inf  # only once: the request may go on waiting
            self._on_due(pending)
        earliest = min((one.deadline for one in self._pending if one.later is not None), default=math.inf)
        if earliest < math.inf:
            self._set(earliest)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Cancels the timer, and drops the reference to the connection, which owns this."""
        self.cancel()
        self._on_due = ignore
