"""Answers that come later: what a handler returns when it cannot answer at once.

The broker knows no loop and no thread. It returns a `Later`, and whoever serves connections is told when the answer is
there. The other way round the server tells the one who waits that its time is up (`expire`), that more requests stand
behind it (`hurry`), or that nobody wants the answer any more (`abandon`).
"""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

from tailrace.log.jobs import Job
from tailrace.log.layout.errors import LogError

Answer = TypeVar("Answer")
Other = TypeVar("Other")

StartJob = Callable[[Job, Callable[[], None]], None]
"""Runs a job in a thread, and calls the function on the broker's own thread when it has run."""

_PENDING = object()
STEPS_AT_ONCE = 200  # of work that is done in turns: each is to take a tenth of a millisecond at most, but rarely


class Later(Generic[Answer]):
    """Resolved once, by whoever owes the answer. `wait_ms` is how long the server waits before it calls `expire`;
    None is for ever.
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
    def of(cls, answer: Answer) -> "Later[Answer]":
        """One that is there already."""
        later: Later[Answer] = Later()
        later.resolve(answer)
        return later

    def resolve(self, answer: Answer) -> None:
        """Afterwards the one who waits has the answer. Only the first one counts."""
        if self._answer is _PENDING:
            self._answer = answer
            tell, self._tell = self._tell, None  # which leads back here where one answer rests on another
            if tell is not None:
                tell(answer)

    def when_resolved(self, tell: Callable[[Answer], None]) -> None:
        """`tell` is called with the answer, at once where it is there already."""
        if self._answer is _PENDING:
            self._tell = tell
        else:
            tell(cast(Answer, self._answer))

    def expire(self) -> None:
        """The time is up: answers with what there is, where that makes sense."""

    def hurry(self) -> None:
        """Somebody waits behind: answers with what there is, where that is as good as waiting."""

    def abandon(self) -> None:
        """Nobody wants the answer any more, nor is told of it. What was asked for still happens."""
        self._tell = None


class Relayed(Later[Other]):
    """An answer that rests on another one: whatever the server says of it goes on to that."""

    __slots__ = ("_first",)

    def __init__(self, first: Later[Any]) -> None:
        super().__init__(first.wait_ms)
        self._first = first

    def expire(self) -> None:
        self._first.expire()

    def hurry(self) -> None:
        self._first.hurry()

    def abandon(self) -> None:
        super().abandon()
        self._first.abandon()


class Chained(Relayed[Other]):
    """What `then` makes of another answer, once that is there."""

    __slots__ = ()

    def __init__(self, first: Later[Answer], then: Callable[[Answer], Other]) -> None:
        super().__init__(first)
        first.when_resolved(lambda answer: self.resolve(then(answer)))


class InTurns(Later[Answer]):
    """The answer that some work comes to. The work is a generator, which yields after each step; after some of them
    others have their turn.
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
    """A job that does nothing: by the time it is finished, others have had their turn."""

    def run(self) -> None:
        pass

    def finish(self) -> None:
        pass


Flushed = Later[LogError | None]
"""Resolved with None when what it stands for is on disk, or with the error that prevents it."""
