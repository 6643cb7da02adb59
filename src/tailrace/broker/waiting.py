"""Answers that come later: what a handler returns when it cannot answer at once.

The broker knows no loop and no thread. It returns a `Later`, and whoever serves connections is told when the answer is
there. The other way round the server tells the one who waits that its time is up (`expire`), that more requests stand
behind it (`hurry`), or that nobody wants the answer any more (`abandon`).
"""

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from tailrace.log.errors import LogError

Answer = TypeVar("Answer")
Other = TypeVar("Other")

_PENDING = object()


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

    def resolve(self, answer: Answer) -> None:
        """Afterwards the one who waits has the answer. Only the first one counts."""
        if self._answer is _PENDING:
            self._answer = answer
            if self._tell is not None:
                self._tell(answer)

    def when_resolved(self, tell: Callable[[Answer], None]) -> None:
        """`tell` is called with the answer, at once where it is there already."""
        self._tell = tell
        if self._answer is not _PENDING:
            tell(cast(Answer, self._answer))

    def expire(self) -> None:
        """The time is up: answers with what there is, where that makes sense."""

    def hurry(self) -> None:
        """Somebody waits behind: answers with what there is, where that is as good as waiting."""

    def abandon(self) -> None:
        """Nobody wants the answer any more. What was asked for still happens."""


class Chained(Later[Other]):
    """What `then` makes of another answer, once that is there."""

    __slots__ = ("_first",)

    def __init__(self, first: Later[Answer], then: Callable[[Answer], Other]) -> None:
        super().__init__(first.wait_ms)
        self._first = first
        first.when_resolved(lambda answer: self.resolve(then(answer)))

    def expire(self) -> None:
        self._first.expire()

    def hurry(self) -> None:
        self._first.hurry()

    def abandon(self) -> None:
        self._first.abandon()


Flushed = Later[LogError | None]
"""Resolved with None when what it stands for is on disk, or with the error that prevents it."""
