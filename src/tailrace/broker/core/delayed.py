"""Delayed responses: what a handler returns when it cannot respond at once.

The broker has no event loop and no threads. It returns a `DelayedResponse`, and calls the server back when the response
is there. The server calls `expire` when the request's time is up, `hurry` when more requests are queued behind it, and
`abandon` when the client is gone.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar, cast

from tailrace.log.jobs import Job
from tailrace.log.layout.errors import LogError

Answer = TypeVar("Answer")
Other = TypeVar("Other")

StartJob = Callable[[Job, Callable[[], None]], None]
"""Runs a job in a thread, and calls the function on the broker's own thread when it has run."""

_PENDING = object()
STEPS_AT_ONCE = 200  # of incremental work: a step usually takes less than a tenth of a millisecond


class DelayedResponse(Generic[Answer]):
    """A response that is resolved once, later. `wait_ms` is how long the server waits before it calls `expire`; None is
    for ever.
    """

    __slots__ = ("_answer", "_tell", "wait_ms")

    def __init__(self, wait_ms: int | None = None) -> None:
        self.wait_ms = wait_ms
        self._answer: object = _PENDING
        self._tell: Callable[[Answer], None] | None = None

    @property
    def is_resolved(self) -> bool:
        return self._answer is not _PENDING

    @classmethod
    def of(cls, answer: Answer) -> "DelayedResponse[Answer]":
        """A response that is resolved already."""
        later: DelayedResponse[Answer] = DelayedResponse()
        later.resolve(answer)
        return later

    def resolve(self, answer: Answer) -> None:
        """Passes the response on to the callback of `when_resolved`. Only the first call counts."""
        if self._answer is _PENDING:
            self._answer = answer
            tell, self._tell = self._tell, None  # cleared first: the callback may call `resolve` again
            if tell is not None:
                tell(answer)

    def when_resolved(self, tell: Callable[[Answer], None]) -> None:
        """Calls `tell` with the response, at once if it is there already."""
        if self._answer is _PENDING:
            self._tell = tell
        else:
            tell(cast(Answer, self._answer))

    def expire(self) -> None:
        """The time is up: responds with what there is, where that makes sense."""

    def hurry(self) -> None:
        """More requests are queued behind: responds with what there is, where that is as good as waiting."""

    def abandon(self) -> None:
        """Drops the callback: the client is gone. The requested work still happens."""
        self._tell = None


class DependentResponse(DelayedResponse[Other]):
    """A response that depends on another one: passes `expire`, `hurry` and `abandon` on to it."""

    __slots__ = ("_first",)

    def __init__(self, first: DelayedResponse[Any]) -> None:
        super().__init__(first.wait_ms)
        self._first = first

    def expire(self) -> None:
        self._first.expire()

    def hurry(self) -> None:
        self._first.hurry()

    def abandon(self) -> None:
        super().abandon()
        self._first.abandon()


class MappedResponse(DependentResponse[Other]):
    """A response made by `then` from another one, once that is resolved."""

    __slots__ = ()

    def __init__(self, first: DelayedResponse[Answer], then: Callable[[Answer], Other]) -> None:
        super().__init__(first)
        first.when_resolved(lambda answer: self.resolve(then(answer)))


class WaitingResponse(DependentResponse[Answer]):
    """A response that waits, once it is there, for something else: `wait` calls what it is given when that is over."""

    __slots__ = ()

    def __init__(self, first: DelayedResponse[Answer], wait: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(first)
        first.when_resolved(lambda answer: wait(lambda: self.resolve(answer)))


class IncrementalResponse(DelayedResponse[Answer]):
    """The result of work that is done in increments. The work is a generator, which yields after each step; after some
    steps other work gets its turn.
    """

    __slots__ = ("_start_job", "_work")

    def __init__(self, work: Generator[None, None, Answer], start_job: StartJob) -> None:
        super().__init__()
        self._work = work
        self._start_job = start_job
        self._go_on()

    def _go_on(self) -> None:
        try:
            for _ in range(STEPS_AT_ONCE):
                next(self._work)
        except StopIteration as done:
            self.resolve(done.value)
            return
        self._start_job(Pause(), self._go_on)


class Pause:
    """A job that does nothing. While it runs, other work gets its turn."""

    def run(self) -> None:
        pass

    def finish(self) -> None:
        pass


Flushed = DelayedResponse[LogError | None]
"""Resolved with None when what it stands for is on disk, or with the error that prevents it."""


class FlushDependentResponse(DependentResponse[Answer]):
    """A response that is sent when all that it depends on, once it is known, is on disk. If a flush fails the process
    is about to stop, and the response is never sent.
    """

    __slots__ = ("_known", "_missing", "_unflushed")

    def __init__(self, first: DelayedResponse[Answer], unflushed: Callable[[], Sequence[Flushed]]) -> None:
        super().__init__(first)
        self._unflushed = unflushed
        self._missing = 0
        first.when_resolved(self._wait)

    def _wait(self, answer: Answer) -> None:
        waits = self._unflushed()
        self._known = answer
        self._missing = len(waits)
        if not waits:
            self.resolve(answer)
        for flushed in waits:
            flushed.when_resolved(self._is_flushed)

    def _is_flushed(self, error: LogError | None) -> None:
        self._missing -= error is None
        if not self._missing:
            self.resolve(self._known)
