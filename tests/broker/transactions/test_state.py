"""The decisions on one transactional id, against a model of the table of Kafka 4.3 that was written without them.

Producers ask for whatever they like, under identities that are right, stale, invented, or of the producer id before;
timeouts, the end of the markers, and restarts come in between. Whatever the order: response and state are the model's,
and states follow each other as Kafka allows.
"""

from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.broker.core.errors import Refused
from tailrace.broker.transactions import state
from tailrace.broker.transactions.state import NO_IDENTITY, ProducerIdentity, State, Transaction
from tailrace.log.layout.names import TopicPartition
from tailrace.protocol.errors import ErrorCode

IPM, PF = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
CT, ITS = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
NAMES = [TopicPartition("orders", index) for index in range(3)]
LAST_EPOCH = 32766  # that a producer gets
ALLOWED_BEFORE = {
    "Empty": {"", "Empty", "CompleteCommit", "CompleteAbort"},
    "Ongoing": {"Ongoing", "Empty", "CompleteCommit", "CompleteAbort"},
    "PrepareCommit": {"Ongoing"},
    "PrepareAbort": {"Ongoing", "Empty", "CompleteCommit", "CompleteAbort"},
    "CompleteCommit": {"PrepareCommit"},
    "CompleteAbort": {"PrepareAbort"},
}


class Code(Exception):
    """A request is refused."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


def refuse_if(condition: bool, code: ErrorCode) -> None:
    if condition:
        raise Code(code)


@dataclass
class Model:
    """A transactional id, as the table describes it."""

    pid: int = -1
    prev_pid: int = -1
    next_pid: int = -1
    ep: int = -1
    last_ep: int = -1
    timeout_ms: int = 0
    state: str = ""  # none
    partitions: set[TopicPartition] = field(default_factory=set)
    start_ms: int = -1
    update_ms: int = -1
    client_tv: int = 0

    def _to(self, state: str, now_ms: int, **changes: Any) -> None:
        assert self.state in ALLOWED_BEFORE[state], (self.state, state)
        # Kafka takes the clock as it is; here the time of a decision is one of its own, by which its markers are known.
        self.update_ms = max(now_ms, self.update_ms + state.startswith("Prepare"))
        self.prev_pid, self.state = self.pid, state
        for name, value in changes.items():
            setattr(self, name, value)

    @property
    def is_pending(self) -> bool:
        return self.state in ("PrepareCommit", "PrepareAbort")

    @property
    def is_complete(self) -> bool:
        return self.state in ("CompleteCommit", "CompleteAbort")

    def init_producer_id(self, pid: int, ep: int, timeout_ms: int, new_pid: int, now_ms: int) -> Any:
        """The identity for the producer; None where its transaction is being aborted first."""
        is_given = ep != -1
        if not self.state:
            self.pid = new_pid
            self._to("Empty", now_ms, ep=0, timeout_ms=timeout_ms)
            return self.pid, self.ep
        refuse_if(is_given and pid != self.pid and not (pid == self.prev_pid and ep >= LAST_EPOCH), PF)
        refuse_if(self.is_pending, CT)
        if self.state == "Ongoing":
            # Kafka aborts here for a stale epoch, too, and fences it when it comes again: here a producer that was
            # fenced already cannot abort the transaction of the one after it.
            refuse_if(is_given and (pid, ep) != (self.pid, self.ep), PF)
            self.fence(new_pid, now_ms)
            return None
        nothing_open = {"partitions": set(), "start_ms": -1, "next_pid": -1, "client_tv": 0, "timeout_ms": timeout_ms}
        if self.ep >= LAST_EPOCH and (not is_given or ep == self.ep):
            self._to("Empty", now_ms, pid=new_pid, last_ep=ep, ep=0, **nothing_open)
        elif not is_given or ep == self.ep:
            self._to("Empty", now_ms, last_ep=ep, ep=self.ep + 1, **nothing_open)
        else:
            refuse_if(ep != self.last_ep, PF)
            self._to("Empty", now_ms, **nothing_open)
        return self.pid, self.ep

    def fence(self, new_pid: int, now_ms: int) -> None:
        assert self.state == "Ongoing"
        rotates = self.client_tv == 2 and self.ep >= LAST_EPOCH
        self._to("PrepareAbort", now_ms, ep=self.ep + 1, last_ep=-1, next_pid=new_pid if rotates else -1)

    def add_partitions(self, pid: int, ep: int, names: set[TopicPartition], client_tv: int, now_ms: int) -> None:
        refuse_if(not self.state, IPM)
        refuse_if(self.is_pending, CT)
        refuse_if(pid != self.pid, IPM)
        refuse_if(ep != self.ep or ep > LAST_EPOCH, PF)  # beyond it no producer has been given an epoch
        if self.state != "Ongoing":
            self._to("Ongoing", now_ms, partitions=names, start_ms=now_ms, client_tv=client_tv)
        elif names - self.partitions:
            self._to("Ongoing", now_ms, partitions=self.partitions | names, client_tv=client_tv)

    def end_txn(self, pid: int, ep: int, commit: bool, client_tv: int, new_pid: int, now_ms: int) -> tuple[int, int]:
        """The identity that the producer goes on with."""
        refuse_if(not self.state, IPM)
        if client_tv == 2:
            return self._end_txn_v2(pid, ep, commit, new_pid, now_ms)
        refuse_if(pid != self.pid, IPM)
        refuse_if(ep != self.ep, PF)
        decided, done = ("PrepareCommit", "CompleteCommit") if commit else ("PrepareAbort", "CompleteAbort")
        refuse_if(self.state == decided, CT)
        refuse_if(self.state not in ("Ongoing", done), ITS)
        if self.state == "Ongoing":
            self._to(decided, now_ms, client_tv=0)
        return self.pid, self.ep

    def _end_txn_v2(self, pid: int, ep: int, commit: bool, new_pid: int, now_ms: int) -> tuple[int, int]:
        refuse_if(self.is_pending, CT)
        is_overflow_retry = pid == self.prev_pid and ep == LAST_EPOCH and self.ep == 0 and self.is_complete
        refuse_if(pid != self.pid and not is_overflow_retry, IPM)
        refuse_if(not is_overflow_retry and self.ep > LAST_EPOCH, PF)
        if is_overflow_retry or (self.is_complete and pid == self.pid and ep == self.ep - 1):
            refuse_if(self.state != ("CompleteCommit" if commit else "CompleteAbort"), ITS)
            return self.pid, self.ep
        refuse_if(ep != self.ep, PF)
        if self.state != "Ongoing":
            refuse_if(commit, ITS)
            self.partitions, self.start_ms = set(), now_ms
        self._to(
            "PrepareCommit" if commit else "PrepareAbort",
            now_ms,
            last_ep=self.ep,
            ep=self.ep + 1,
            next_pid=new_pid if self.ep >= LAST_EPOCH else -1,
            client_tv=2,
        )
        return (self.next_pid, 0) if self.next_pid != -1 else (self.pid, self.ep)

    def markers_written(self, now_ms: int) -> None:
        self._to("CompleteCommit" if self.state == "PrepareCommit" else "CompleteAbort", now_ms, partitions=set())
        if self.next_pid != -1:
            self.pid, self.ep, self.next_pid = self.next_pid, 0, -1

    def expire(self) -> None:
        assert self.state in ("Empty", "CompleteCommit", "CompleteAbort")
        self.__init__()  # type: ignore[misc]

    def as_transaction(self) -> Transaction | None:
        if not self.state:
            return None
        return Transaction(
            self.pid,
            self.ep,
            self.timeout_ms,
            next(one for one in State if one.label == self.state),
            frozenset(self.partitions),
            self.update_ms,
            self.start_ms,
            self.prev_pid,
            self.next_pid,
            self.client_tv,
            self.last_ep,
        )


IDENTITIES = (
    "own",
    "own",
    "own",
    "own",
    "epoch before",
    "epoch after",
    "pid before",
    "last of pid before",
    "other",
    "-",
)


class Decisions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.current: Transaction | None = None
        self.now_ms = 1_000_000
        self.ids = count(100)

    @initialize(epoch=st.sampled_from([-1, 0, LAST_EPOCH - 2, LAST_EPOCH - 1, LAST_EPOCH]))
    def a_producer_has_had_many_epochs(self, epoch: int) -> None:
        if epoch < 0:
            return
        self.model = Model(99, 99, -1, epoch, -1, 60_000, "Empty", update_ms=self.now_ms)
        self.current = self.model.as_transaction()

    def identity(self, kind: str) -> ProducerIdentity:
        pid, ep, before = self.model.pid, self.model.ep, self.model.prev_pid
        return {
            "own": ProducerIdentity(pid, ep),
            "epoch before": ProducerIdentity(pid, max(ep - 1, 0)),
            "epoch after": ProducerIdentity(pid, ep + 1),
            "pid before": ProducerIdentity(before, ep),
            "last of pid before": ProducerIdentity(before, LAST_EPOCH),
            "other": ProducerIdentity(7, 0),
            "-": NO_IDENTITY,
        }[kind]

    def check(self, expect: Any, decide: Any) -> None:
        """Both decide alike. `expect` changes the model, `decide` returns the answer and the new state, or None if
        that is as it was. Both get the producer id that is next.
        """
        self.now_ms += 1
        new_pid, before = next(self.ids), replace(self.model, partitions=set(self.model.partitions))
        try:
            expected = expect(new_pid)
        except Code as refused:
            expected = refused.code
            assert self.model == before
        try:
            answer, changed = decide(new_pid)
        except Refused as refused:
            answer, changed = refused.code, None
        assert answer == expected
        if changed is not None:
            self.current = changed

    @rule(kind=st.sampled_from(IDENTITIES), timeout_ms=st.sampled_from([1, 60_000]))
    def init_producer_id(self, kind: str, timeout_ms: int) -> None:
        given = self.identity(kind)

        def decide(new_pid: int) -> Any:
            changed = state.begin_producer(self.current, given, timeout_ms, lambda: new_pid, self.now_ms)
            return None if changed.state.is_prepared else (changed.producer_id, changed.epoch), changed

        self.check(lambda new_pid: self.model.init_producer_id(*given, timeout_ms, new_pid, self.now_ms), decide)

    @rule(
        kind=st.sampled_from(IDENTITIES),
        names=st.sets(st.sampled_from(NAMES), min_size=1),
        client_tv=st.sampled_from([0, 2]),
    )
    def add_partitions(self, kind: str, names: set[TopicPartition], client_tv: int) -> None:
        producer = self.identity(kind)

        def decide(new_pid: int) -> Any:
            return None, state.add_partitions(self.current, producer, names, client_tv, self.now_ms)

        self.check(
            lambda _: self.model.add_partitions(*producer, set(names), client_tv, self.now_ms),
            decide,
        )

    @rule(kind=st.sampled_from(IDENTITIES), commit=st.booleans(), client_tv=st.sampled_from([0, 2, 2]))
    def end_txn(self, kind: str, commit: bool, client_tv: int) -> None:
        producer = self.identity(kind)

        def decide(new_pid: int) -> Any:
            changed = state.end(
                self.current,
                producer,
                commit=commit,
                version=client_tv,
                next_id=lambda: new_pid,
                now_ms=self.now_ms,
            )
            now = changed or self.current
            assert now is not None
            return tuple(state.identity_of(now)), changed

        self.check(lambda new_pid: self.model.end_txn(*producer, commit, client_tv, new_pid, self.now_ms), decide)

    @precondition(lambda self: self.model.state == "Ongoing")
    @rule()
    def the_timeout_ends(self) -> None:
        current = self.current
        assert current is not None
        self.check(
            lambda new_pid: self.model.fence(new_pid, self.now_ms),
            lambda new_pid: (None, state.abort(current, lambda: new_pid, self.now_ms)),
        )

    @precondition(lambda self: self.model.is_pending)
    @rule()
    def all_markers_are_written(self) -> None:
        current = self.current
        assert current is not None
        self.check(
            lambda _: self.model.markers_written(self.now_ms), lambda _: (None, state.complete(current, self.now_ms))
        )

    @precondition(lambda self: self.model.state and self.model.state != "Ongoing" and not self.model.is_pending)
    @rule(is_long=st.sampled_from([False] * 7 + [True]))
    def nothing_happens_for_a_week(self, is_long: bool) -> None:
        if is_long:
            self.model.expire()
            self.current = None

    @rule()
    def the_clock_is_set_back(self) -> None:
        self.now_ms -= 1_000

    @rule()
    def the_broker_restarts(self) -> None:
        self.model.last_ep = -1
        if self.current is not None:
            self.current = self.current._replace(last_epoch=-1)

    @invariant()
    def the_state_is_that_of_the_model(self) -> None:
        assert self.current == self.model.as_transaction()

    @invariant()
    def no_producer_gets_an_epoch_after_the_last(self) -> None:
        """32767 is for the markers of a transaction that is being ended, and for one that a fence has ended."""
        assert self.model.ep <= LAST_EPOCH or self.model.is_pending or self.model.state == "CompleteAbort"
        if self.current is not None and self.current.state is not State.COMPLETE_ABORT:
            assert state.identity_of(self.current).epoch <= LAST_EPOCH or self.current.state is State.PREPARE_ABORT


Decisions.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestDecisions = Decisions.TestCase


@pytest.mark.parametrize(("timeout_ms", "is_valid"), [(-1, False), (0, False), (1, True), (900, True), (901, False)])
def test_a_timeout_is_one_millisecond_to_the_greatest_allowed(timeout_ms: int, is_valid: bool) -> None:
    if is_valid:
        state.check_timeout(timeout_ms, 900)
        return
    with pytest.raises(Refused) as found:
        state.check_timeout(timeout_ms, 900)
    assert found.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_transaction_has_ten_thousand_partitions_at_most() -> None:
    current = Transaction(1, 0, 60_000)
    names = [TopicPartition("orders", index) for index in range(state.PARTITIONS_MAX + 1)]
    full = state.add_partitions(current, ProducerIdentity(1, 0), names[:-1], 0, 5)
    assert full is not None
    assert len(full.partitions) == 10_000
    assert state.add_partitions(full, ProducerIdentity(1, 0), names[:7], 0, 6) is None
    for known, wanted in ((full, names[-1:]), (current, names)):
        with pytest.raises(Refused) as found:
            state.add_partitions(known, ProducerIdentity(1, 0), wanted, 0, 6)
        assert found.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("one", [one for one in State if one is not State.DEAD])
def test_after_a_restore_an_id_gets_a_producer_id_that_no_log_has(one: State, version: int) -> None:
    current = Transaction(1, 7, 60_000, one, version=version)
    renewed = state.renew(current, lambda: 2, 5)
    if one is State.ONGOING:
        assert (renewed.state, renewed.producer_id, renewed.epoch) == (State.PREPARE_ABORT, 1, LAST_EPOCH + 1)
    elif one.is_prepared:
        assert renewed == current._replace(next_producer_id=2), "its markers are those that were decided"
    assert state.renew(renewed, lambda: 2, 5) == renewed or not renewed.state.is_prepared
    assert state.identity_of(renewed) == (2, 0)
    if renewed.state.is_prepared:
        assert state.identity_of(state.complete(renewed, 6)) == (2, 0)


@pytest.mark.parametrize("one", State)
def test_states_have_the_names_that_kafka_shows(one: State) -> None:
    labels = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"]
    assert one.label == labels[one]
