"""The transaction coordinator: all transactional ids of a broker. Decides, appends, replays, and responds when that is
flushed.

`state` decides. The changed transaction becomes a record, which is appended to the transaction log and replayed at
once, by the same function that replays the log at the start. A request that meets a transaction that is being completed
waits for its end (`ask`), instead of being refused at once.

Until the log has been read, and what the last run left open is ended (`orphans`), requests are refused with
COORDINATOR_LOAD_IN_PROGRESS (`begin`).
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import (
    Answer,
    DelayedResponse,
    FlushDependentResponse,
    Flushed,
    IncrementalResponse,
)
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.records import NotSaved
from tailrace.broker.groups.timers import Timer, Timers
from tailrace.broker.transactions import orphans, records, state
from tailrace.broker.transactions.completion import Completion
from tailrace.broker.transactions.log import TransactionLog
from tailrace.broker.transactions.markers import MarkerSearch, sought_markers
from tailrace.broker.transactions.records import TransactionSaved
from tailrace.broker.transactions.responses import CompletedResponse, ParkedResponse
from tailrace.broker.transactions.state import ProducerIdentity, State, Transaction
from tailrace.log.layout.errors import StorageError, without_frames
from tailrace.log.layout.names import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.records.record import Record
from tailrace.util.histogram import Histogram

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.transactions")

TRANSACTIONAL_IDS_MAX = 100_000
DUE_AT_ONCE = 100  # deadlines per turn of the loop
RETRY_MS = 1_000
DURATIONS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
TIMEOUT, EXPIRY, RETRY = "timeout", "expiry", "retry"  # kinds of deadlines

COMMITTED, ABORTED, TIMED_OUT, FENCED, ORPHANED = "committed", "aborted", "timed_out", "fenced", "orphaned"
RESULTS = (COMMITTED, ABORTED, TIMED_OUT, FENCED, ORPHANED)
UNKNOWN_TRANSACTIONS = Timer("", ORPHANED)


class TransactionCoordinator:
    def __init__(self, broker: "Broker") -> None:
        self.transactions: dict[str, Transaction] = {}
        self.states: Counter[State] = Counter()  # of all ids
        self._ids: dict[int, str] = {}  # by producer id
        self._open: dict[str, int] = {}  # those with an open transaction, and when it began
        self.timers = Timers()
        self.log = TransactionLog(broker)
        self.ended: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self.durations = Histogram(DURATIONS_S)  # of those that have ended
        self._broker = broker
        self._now_ms = 0
        self._completions: dict[str, Completion] = {}
        self._is_read = not any(self.log.logs)
        self._is_resuming = False
        self.is_loaded = True  # unless there is something to `load`
        self._failure: Exception | None = None
        self._timeout_max_ms = broker.configs.number("transaction.max.timeout.ms")
        self._expiration_ms = broker.configs.number("transactional.id.expiration.ms")

    # The clock, and the start

    def tell_time(self, now_ms: int, steady_ms: int) -> None:
        """Sets the time. `steady_ms` is of a clock that never jumps, and stops while the broker is held up."""
        self._now_ms = now_ms
        self.timers.now = max(self.timers.now, steady_ms)
        if self._is_read and not (self.is_loaded or self._is_resuming or self._failure):
            self._resume_with_groups()

    def advance(self) -> None:
        """Handles all deadlines that are due."""
        for transactional_id, kind, _ in islice(self.timers.due(), DUE_AT_ONCE):
            if kind == ORPHANED:
                IncrementalResponse(self._abort_unknown(), self._broker.start_job)
                continue
            current = self.transactions.get(transactional_id)
            if kind == RETRY and transactional_id in self._completions:
                self._retry(transactional_id)
            elif kind == TIMEOUT and current is not None and current.state is State.ONGOING:
                self._abort_timed_out(transactional_id, current)
            elif kind == EXPIRY and current is not None:
                self._expire(transactional_id, current)

    def begin(self, call: Call) -> None:
        """Checks that transactions can be served. Raises Refused until the log is read."""
        self.tell_time(call.now_ms, call.steady_ms)
        if self._failure is not None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"cannot read the transaction log: {self._failure}")
        if not self.is_loaded:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the transaction log is being read")

    def load(self) -> None:
        """Starts reading the log, and ends what the last run left; `begin` raises no error once that is done."""
        self.is_loaded = False
        if not self._is_read:
            self.log.read(self._replay, self._cannot_load)

    def _cannot_load(self, error: Exception) -> None:
        logger.error("cannot read the transaction log: %s. Transactions are unavailable until it is repaired", error)
        self._failure = without_frames(error)

    def _replay(self, last: Iterable[Record]) -> None:
        IncrementalResponse(self._replay_all(last), self._broker.start_job)

    def _replay_all(self, last: Iterable[Record]) -> Generator[None, None, None]:
        try:
            for record in last:
                if (saved := records.decode(record)) is not None:
                    self.replay(saved)
                yield
        except Exception as error:  # noqa: BLE001 - any error: a part of the transactions is worse than none
            self._cannot_load(error)
        else:
            self._is_read = True

    def _resume_with_groups(self) -> None:
        """Goes on once the groups are loaded: offsets of open transactions are among them."""
        groups = self._broker.groups
        if groups.has_failed:
            self._cannot_load(RuntimeError("the log of groups cannot be read, and has offsets of transactions"))
        elif not groups.is_loading:
            self._is_resuming = True
            self._look_for_markers()

    def _look_for_markers(self) -> None:
        """Looks, in a thread, for markers of decided transactions that are written already."""
        prepared = [(number, one) for number, one in self.transactions.items() if one.state.is_prepared]
        search = MarkerSearch([sought for one in prepared for sought in sought_markers(self._broker, *one)])

        def found() -> None:
            if search.error is not None:
                self._cannot_load(search.error)
                return
            marked: dict[str, set[TopicPartition]] = defaultdict(set)
            for one in search.found:
                marked[one.transactional_id].add(one.name)
            IncrementalResponse(self._resume(marked), self._broker.start_job)

        if search.has_work:
            self._broker.start_job(search, found)
        else:
            found()

    def _resume(self, marked: Mapping[str, Collection[TopicPartition]]) -> Generator[None, None, None]:
        """Begins to complete what is decided. If the directory was restored from a backup, that may lack some batches
        of the open transactions: these are aborted.
        """
        is_restored = self._broker.directory.is_restored
        try:
            for transactional_id, transaction in list(self.transactions.items()):
                result = ORPHANED if transaction.state is State.ONGOING else None
                if is_restored:
                    transaction = state.renew(transaction, self._next_producer_id, self._now_ms)
                    self.write(transactional_id, transaction)
                self._set_deadline(transactional_id, transaction)
                if transaction.state.is_prepared:
                    self._complete(transactional_id, transaction, result, marked.get(transactional_id, ()))
                yield
            if is_restored:
                yield from self._broker.groups.pull_back_offsets()
        except NotSaved as error:
            self._cannot_load(error)
            return
        self._when_all_tried(list(self._completions.values()))

    def _when_all_tried(self, completions: list[Completion]) -> None:
        """Ends the start when all decisions have had their markers appended."""
        missing = 1 + len(completions)

        def tried() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                IncrementalResponse(self._end_start(), self._broker.start_job)

        for completion in completions:
            completion.when_tried(tried)
        tried()

    def _end_start(self) -> Generator[None, None, None]:
        self._broker.directory.forget_restore()
        yield from self._abort_unknown()
        self.is_loaded = True

    def _abort_unknown(self) -> Generator[None, None, None]:
        outcome = yield from orphans.abort_unknown(self._broker, self._will_end, self._now_ms)
        self.ended[ORPHANED] += outcome.aborted
        if outcome.left:
            self.timers.set(UNKNOWN_TRANSACTIONS, RETRY_MS)

    def _will_end(self, producer: ProducerIdentity, partition: TopicPartition) -> bool:
        """Returns whether an open transaction of the producer with this partition is known here: open, or decided, and
        its marker still to be written.
        """
        transactional_id = self._ids.get(producer.producer_id, "")
        current, completion = self.transactions.get(transactional_id), self._completions.get(transactional_id)
        if completion is not None:
            return completion.lacks(partition)
        is_open = current is not None and current.state is State.ONGOING and current.epoch == producer.epoch
        return is_open and current is not None and partition in current.partitions

    # Replay

    def replay(self, saved: TransactionSaved) -> None:
        """Replays a record: the only way in which transactions change, while running and at the start."""
        before = self.transactions.pop(saved.transactional_id, None)
        if before is not None:
            self._ids.pop(before.producer_id, None)
            self._open.pop(saved.transactional_id, None)
            self.states[before.state] -= 1
        if (after := saved.transaction) is not None:
            self.transactions[saved.transactional_id] = after
            self._ids[after.producer_id] = saved.transactional_id
            self.states[after.state] += 1
            if after.state.is_open:
                self._open[saved.transactional_id] = after.started_ms

    @property
    def oldest_started_ms(self) -> int | None:
        """When the oldest open transaction began, by the wall clock; None if none is open."""
        return min(self._open.values(), default=None)

    def write(self, transactional_id: str, transaction: Transaction | None) -> None:
        """Appends the transaction, as it is to be, to the log, and replays it. Raises NotSaved."""
        saved = TransactionSaved(transactional_id, transaction)
        before = self.transactions.get(transactional_id)
        self.log.append(saved, self._now_ms)
        self.replay(saved)
        was_open = before is not None and before.state is State.ONGOING
        if transaction is None:
            return
        if transaction.state is not State.ONGOING or not was_open:  # its timeout counts from its first partition on
            self._set_deadline(transactional_id, transaction)

    def _set_deadline(self, transactional_id: str, transaction: Transaction) -> None:
        timeout, expiry = Timer(transactional_id, TIMEOUT), Timer(transactional_id, EXPIRY)
        if transaction.state is State.ONGOING:
            left_ms = transaction.started_ms + transaction.timeout_ms - self._now_ms
            self.timers.set(timeout, min(max(left_ms, 0), transaction.timeout_ms))
            self.timers.cancel(expiry)
        else:
            self.timers.cancel(timeout)
            idle_ms = max(self._now_ms - transaction.updated_ms, 0)
            self.timers.set(expiry, max(self._expiration_ms - idle_ms, 0))

    def _expire(self, transactional_id: str, current: Transaction) -> None:
        if transactional_id in self._completions or current.state is State.ONGOING:
            return
        try:
            self.write(transactional_id, None)
        except NotSaved:
            self.timers.set(Timer(transactional_id, EXPIRY), self._expiration_ms)

    # Requests

    def ask(
        self,
        transactional_id: str,
        call: Call,
        decide: Callable[[], Answer | DelayedResponse[Answer]],
        refuse: Callable[[Refused], Answer],
    ) -> Answer | DelayedResponse[Answer]:
        """Returns what `decide` returns, once it is on disk, or `refuse` of the error that it raises. While the
        transaction is being completed, `decide` is called again at its end.
        """
        try:
            self.begin(call)
            return self.when_safe(transactional_id, decide())
        except Refused as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return refuse(error)
            return ParkedResponse(self, transactional_id, decide, refuse)

    def completion_of(self, transactional_id: str) -> Completion | None:
        return self._completions.get(transactional_id)

    def when_all_safe(self, answer: DelayedResponse[Answer]) -> DelayedResponse[Answer]:
        """Returns the response, once all that it may say of any id is on disk."""
        return FlushDependentResponse(answer, self.log.unflushed)

    def when_safe(
        self, transactional_id: str, answer: Answer | DelayedResponse[Answer]
    ) -> Answer | DelayedResponse[Answer]:
        """Returns the response, once all that is known of the id is on disk."""
        if isinstance(answer, DelayedResponse):
            return answer  # it has waited for more than that
        waits = self.log.unflushed(transactional_id)
        return FlushDependentResponse(DelayedResponse.of(answer), lambda: waits) if waits else answer

    def begin_producer(self, transactional_id: str, given: ProducerIdentity, timeout_ms: int) -> ProducerIdentity:
        """A producer takes over the id. Raises Refused; if it has to wait, with CONCURRENT_TRANSACTIONS."""
        state.check_timeout(timeout_ms, self._timeout_max_ms)
        current = self.transactions.get(transactional_id)
        if current is None and len(self.transactions) >= TRANSACTIONAL_IDS_MAX:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there are {TRANSACTIONAL_IDS_MAX} transactional ids already"
            )
        decided = state.begin_producer(current, given, timeout_ms, self._next_producer_id, self._now_ms)
        self.write(transactional_id, decided)
        if decided.state.is_prepared:
            self._complete(transactional_id, decided, FENCED)
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the open transaction is being aborted")
        return ProducerIdentity(decided.producer_id, decided.epoch)

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[TopicPartition], version: int
    ) -> bool:
        """Adds partitions to the transaction. Returns whether that changes anything. Raises Refused."""
        current = self.transactions.get(transactional_id)
        decided = state.add_partitions(current, producer, partitions, version, self._now_ms)
        if decided is None:
            return False
        self.write(transactional_id, decided)
        return True

    def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, version: int
    ) -> "ProducerIdentity | DelayedResponse[ProducerIdentity]":
        """Commits or aborts. Returns the identity that the producer goes on with, once all markers are on disk."""
        current = self.transactions.get(transactional_id)
        decided = state.end(
            current,
            producer,
            commit=commit,
            version=version,
            next_id=self._next_producer_id,
            now_ms=self._now_ms,
        )
        if decided is None:
            assert current is not None
            return state.identity_of(current)
        self.write(transactional_id, decided)
        completion = self._complete(transactional_id, decided, COMMITTED if commit else ABORTED)
        return CompletedResponse(completion, state.identity_of(decided))

    def is_open(self, producer_id: int, partition: TopicPartition) -> bool:
        """Returns whether a transaction of the producer that has this partition is open, or being completed."""
        current = self.transactions.get(self._ids.get(producer_id, ""))
        return current is not None and partition in current.partitions

    def abort_of(self, producer: ProducerIdentity, partition: TopicPartition) -> Flushed | None:
        """Aborts the open transaction of a producer that has this partition, and fences the producer. Returns what has
        to be waited for; None if there is no such transaction. Raises Refused, also if it is one of a later epoch.
        """
        transactional_id = self._ids.get(producer.producer_id, "")
        current = self.transactions.get(transactional_id)
        if current is None or partition not in current.partitions:
            return None
        if current.state is State.ONGOING:
            if producer.epoch < current.epoch:
                raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, f"the producer is at epoch {current.epoch}")
            self._abort(transactional_id, current, FENCED)
        elif current.state.is_commit:
            raise Refused(ErrorCode.INVALID_TXN_STATE, f"the transaction of {transactional_id!r} is being committed")
        aborted = Flushed()
        if (completion := self._completions.get(transactional_id)) is not None:
            completion.then(lambda: aborted.resolve(None))
        else:
            aborted.resolve(None)
        return aborted

    def _abort(self, transactional_id: str, current: Transaction, result: str) -> None:
        """Raises NotSaved."""
        decided = state.abort(current, self._next_producer_id, self._now_ms)
        self.write(transactional_id, decided)
        self._complete(transactional_id, decided, result)

    def _abort_timed_out(self, transactional_id: str, current: Transaction) -> None:
        try:
            self._abort(transactional_id, current, TIMED_OUT)
        except NotSaved as error:
            logger.error("cannot abort the transaction of %r: %s. It is tried again", transactional_id, error)
            self.timers.set(Timer(transactional_id, TIMEOUT), RETRY_MS)
        else:
            logger.warning(
                "aborted the transaction of %r: it was open for longer than its timeout, %s ms. Its producer is fenced",
                transactional_id,
                current.timeout_ms,
            )

    def _next_producer_id(self) -> int:
        try:
            return self._broker.producer_ids.take(self._now_ms)
        except StorageError as error:
            raise NotSaved(str(error)) from error

    # Completion

    def _complete(
        self,
        transactional_id: str,
        decided: Transaction,
        result: str | None = None,
        marked: Collection[TopicPartition] = (),
    ) -> Completion:
        """Begins to carry out a decision. `result` is counted at its end; None, if an earlier start has counted it."""
        completion = Completion(
            self._broker,
            decided,
            self.log.leader_epoch(transactional_id),
            lambda: self._now_ms,
            partial(self._finish, transactional_id, result),
            lambda: self.timers.set(Timer(transactional_id, RETRY), RETRY_MS),
            marked,
        )
        self._completions[transactional_id] = completion
        completion.begin(self.log.unflushed(transactional_id))
        return completion

    def _retry(self, transactional_id: str) -> None:
        self._completions[transactional_id].write_markers()

    def _finish(self, transactional_id: str, result: str | None) -> None:
        """All markers are on disk. Complete need not be: if it is lost, the markers are written again."""
        completion = self._completions[transactional_id]
        try:
            self.write(transactional_id, state.complete(completion.transaction, self._now_ms))
        except NotSaved:
            self.timers.set(Timer(transactional_id, RETRY), RETRY_MS)
            return
        del self._completions[transactional_id]
        if result is not None:
            self.ended[result] += 1
            self.durations.add(max(self._now_ms - completion.transaction.started_ms, 0) / 1000)
        completion.finish()
