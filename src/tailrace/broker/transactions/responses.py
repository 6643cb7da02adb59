"""Responses that wait for the end of a transaction: that of EndTxn, and those of requests that met it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.broker.core.delayed import Answer, DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.transactions.completion import Completion
from tailrace.broker.transactions.state import ProducerIdentity
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.broker.transactions.coordinator import TransactionCoordinator

COMPLETION_WAIT_MS = 5_000  # for the end of the transaction before
END_WAIT_MS = 30_000  # for the end of the transaction itself; clients wait 30 s by default


class CompletedResponse(DelayedResponse[ProducerIdentity]):
    """The end of a transaction: resolved when it is complete; after END_WAIT_MS, once it is decided."""

    __slots__ = ("_completion", "_identity")

    def __init__(self, completion: Completion, identity: ProducerIdentity) -> None:
        super().__init__(END_WAIT_MS)
        self._completion = completion
        self._identity = identity
        if completion.is_finished:
            self.resolve(identity)
        else:
            completion.then(lambda: self.resolve(identity))

    def expire(self) -> None:
        if self._completion.is_decided:
            self.resolve(self._identity)


class ParkedResponse(DelayedResponse[Answer]):
    """A request that waits for the end of the transaction before, and is then decided again. After COMPLETION_WAIT_MS
    it is refused with CONCURRENT_TRANSACTIONS.
    """

    __slots__ = ("_coordinator", "_decide", "_decided", "_refuse", "_transactional_id")

    def __init__(
        self,
        coordinator: "TransactionCoordinator",
        transactional_id: str,
        decide: Callable[[], Answer | DelayedResponse[Answer]],
        refuse: Callable[[Refused], Answer],
    ) -> None:
        super().__init__(COMPLETION_WAIT_MS)
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._decide = decide
        self._refuse = refuse
        self._decided: DelayedResponse[Answer] | None = None
        self._wait()

    def _wait(self) -> None:
        completion = self._coordinator.completion_of(self._transactional_id)
        if completion is None:
            self._go_on()
        else:
            completion.then(self._go_on)

    def _go_on(self) -> None:
        if self.is_resolved:
            return
        try:
            answer = self._coordinator.when_safe(self._transactional_id, self._decide())
        except Refused as error:
            is_concurrent = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            if is_concurrent and (completion := self._coordinator.completion_of(self._transactional_id)) is not None:
                completion.then(self._go_on)
            else:
                self.resolve(self._refuse(error))
            return
        self._decided = answer if isinstance(answer, DelayedResponse) else DelayedResponse.of(answer)
        self._decided.when_resolved(self.resolve)

    def expire(self) -> None:
        if self._decided is not None:
            self._decided.expire()
        elif not self.is_resolved:
            if (completion := self._coordinator.completion_of(self._transactional_id)) is not None:
                completion.forget(self._go_on)
            error = Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before is still being completed")
            self.resolve(self._refuse(error))

    def abandon(self) -> None:
        """Decides nothing any more: the client is gone, and may have asked again over another connection."""
        super().abandon()
        self.expire()
