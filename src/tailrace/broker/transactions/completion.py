"""Carries out the decision on a transaction: waits until it is on disk, and then appends a marker to each partition.

When the markers are on disk, too, the coordinator is called back. A marker that cannot be written now, because the disk
is full or the partition is offline, is tried again until it can; a partition that was deleted needs none.
"""

import logging
from collections.abc import Callable, Collection, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING

from tailrace.broker.core.delayed import Flushed, IncrementalResponse
from tailrace.broker.core.errors import Refused, code_of
from tailrace.broker.transactions.markers import append_marker
from tailrace.broker.transactions.state import ProducerIdentity, Transaction
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.records.control import Marker

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.transactions")


class Completion:
    """The completion of one transaction. `retry_later` is called when some markers could not be written. `marked` are
    partitions that have their marker already.
    """

    def __init__(
        self,
        broker: "Broker",
        transaction: Transaction,
        coordinator_epoch: int,
        now_ms: Callable[[], int],
        written: Callable[[], None],
        retry_later: Callable[[], None],
        marked: Collection[TopicPartition] = (),
    ) -> None:
        self.is_decided = False  # the decision is on disk
        self.is_finished = False
        self.transaction = transaction
        self._broker = broker
        self._producer = ProducerIdentity(transaction.producer_id, transaction.epoch)
        self._marker = Marker.COMMIT if transaction.state.is_commit else Marker.ABORT
        self._coordinator_epoch = coordinator_epoch
        self._now_ms = now_ms
        self._written = written
        self._retry_later = retry_later
        self._missing = set(transaction.partitions).difference(marked)  # whose marker is not on disk
        self._unflushed = 0
        self._waiting: dict[Callable[[], None], None] = {}  # a dict, for its order
        self._tried: list[Callable[[], None]] | None = []  # None: each partition that takes a marker has had one

    def then(self, notify: Callable[[], None]) -> None:
        """Calls `notify` when the transaction is complete, unless it is forgotten before."""
        self._waiting[notify] = None

    def forget(self, notify: Callable[[], None]) -> None:
        """Its request was answered: a completion may last as long as a partition is offline."""
        self._waiting.pop(notify, None)

    def lacks(self, partition: TopicPartition) -> bool:
        """Returns whether the marker of a partition is not on disk yet."""
        return partition in self._missing

    def when_tried(self, notify: Callable[[], None]) -> None:
        """Calls `notify` when a marker has been appended to each partition that takes one now."""
        if self._tried is None:
            notify()
        else:
            self._tried.append(notify)

    def begin(self, decision: Iterable[Flushed]) -> None:
        """Begins once the decision is on disk. If a flush of it fails, the process is about to stop."""
        waits = list(decision)
        missing = len(waits)

        def is_flushed(error: LogError | None) -> None:
            nonlocal missing
            missing -= error is None
            if not missing:
                self._decided()

        if not waits:
            self._decided()
        for flushed in waits:
            flushed.when_resolved(is_flushed)

    def _decided(self) -> None:
        self.is_decided = True
        self.write_markers()

    def write_markers(self) -> None:
        """Appends the markers that are missing, some at a time, so that other requests get their turn."""
        IncrementalResponse(self._write(), self._broker.start_job)

    def _write(self) -> Generator[None, None, None]:
        self._unflushed = 1  # until all are appended
        for name in sorted(self._missing):
            try:
                self._write_one(name)
            except (LogError, Refused) as error:
                self._could_not_write(name, error)
            yield
        tried, self._tried = self._tried or [], None
        for notify in tried:
            notify()
        self._is_flushed(None, None)

    def _write_one(self, name: TopicPartition) -> None:
        partition = self._broker.partition(*name)
        if partition is not None and partition.unavailable is not None:
            raise partition.unavailable.again()
        if partition is None or partition.log is None:  # deleted, or never written to
            self._missing.discard(name)
            return
        decided_ms, now_ms = self.transaction.updated_ms, self._now_ms()
        append_marker(
            self._broker, partition, self._producer, self._marker, self._coordinator_epoch, decided_ms, now_ms
        )
        self._unflushed += 1
        self._broker.when_flushed(partition).when_resolved(partial(self._is_flushed, name))

    def _could_not_write(self, name: TopicPartition, error: LogError | Refused) -> None:
        if code_of(error) is ErrorCode.INVALID_PRODUCER_EPOCH:
            logger.warning("no transaction marker is written to %s: an operator has ended it there: %s", name, error)
            self._missing.discard(name)
        elif self._tried is not None:  # once: it is tried again every second
            logger.error("cannot write a transaction marker to %s: %s. It is tried again until it can", name, error)

    def _is_flushed(self, name: TopicPartition | None, error: LogError | None) -> None:
        if name is not None and (error is None or self._is_gone(name)):
            self._missing.discard(name)
        self._unflushed -= 1
        if self._unflushed:
            return
        if self._missing:
            self._retry_later()
        else:
            self._written()

    def _is_gone(self, name: TopicPartition) -> bool:
        partition = self._broker.partition(*name)
        return partition is None or partition.log is None

    def finish(self) -> None:
        """Notifies all that wait: the transaction is complete."""
        self.is_finished = True
        waiting, self._waiting = self._waiting, {}
        for notify in waiting:
            notify()
