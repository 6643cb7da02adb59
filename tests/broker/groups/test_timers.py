"""Deadlines: each is due once, in its order, and not before; a model with a dictionary knows no more."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.broker.groups.timers import Timer, Timers

A, B, C = (Timer("billing", "session", name) for name in "abc")


def test_what_is_due_comes_in_its_order_and_once() -> None:
    timers = Timers()
    timers.set(A, 30)
    timers.set(B, 10)
    timers.set(C, 20)
    assert (len(timers), timers.next_deadline, list(timers.due())) == (3, 10, [])
    timers.now = 20
    assert list(timers.due()) == [B, C]
    assert list(timers.due()) == []
    assert (len(timers), timers.next_deadline) == (1, 30)


def test_only_the_last_time_that_was_set_counts() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.set(A, 30)
    timers.set(B, 30)
    timers.set(B, 10)
    timers.now = 10
    assert list(timers.due()) == [B]
    timers.now = 29
    assert list(timers.due()) == []
    timers.now = 30
    assert list(timers.due()) == [A]


def test_what_is_cancelled_is_never_due_and_can_be_set_again() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.cancel(A)
    timers.cancel(B)
    timers.now = 10
    assert list(timers.due()) == []
    timers.set(A, 0)
    assert list(timers.due()) == [A]
    assert timers.next_deadline is None


def test_what_is_put_off_or_cancelled_by_one_that_is_due_is_not_due_any_more() -> None:
    timers = Timers()
    for timer in (A, B, C):
        timers.set(timer, 10)
    timers.now = 10
    found = []
    for timer in timers.due():
        found.append(timer)
        timers.cancel(B)
        timers.set(C, 5)
    assert found == [A]
    timers.now = 15
    assert list(timers.due()) == [C]


def test_a_member_that_is_heard_of_a_thousand_times_has_one_place_in_the_queue() -> None:
    timers = Timers()
    for _ in range(1_000):
        timers.set(A, 10_000)
        timers.now += 10
    assert (len(timers), len(timers._queue)) == (1, 1)


class AgainstADictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.timers = Timers()
        self.deadlines: dict[Timer, int] = {}

    @rule(timer=st.sampled_from([A, B, C]), after_ms=st.integers(0, 9))
    def set(self, timer: Timer, after_ms: int) -> None:
        self.timers.set(timer, after_ms)
        self.deadlines[timer] = self.timers.now + after_ms

    @rule(timer=st.sampled_from([A, B, C]))
    def cancel(self, timer: Timer) -> None:
        self.timers.cancel(timer)
        self.deadlines.pop(timer, None)

    @rule(ms=st.integers(0, 9))
    def wait(self, ms: int) -> None:
        self.timers.now += ms
        due = [timer for timer, deadline in self.deadlines.items() if deadline <= self.timers.now]
        found = list(self.timers.due())
        assert sorted(found) == sorted(due)
        assert [self.deadlines[timer] for timer in found] == sorted(self.deadlines[timer] for timer in due)
        for timer in due:
            del self.deadlines[timer]

    @invariant()
    def nothing_is_missed(self) -> None:
        assert len(self.timers) == len(self.deadlines)
        if self.deadlines:
            assert self.timers.next_deadline is not None
            assert self.timers.next_deadline <= min(self.deadlines.values())


TestAgainstADictionary = AgainstADictionary.TestCase
