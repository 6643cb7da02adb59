"""Answers that come later: each is told once, and what is asked of it reaches the one who owes it."""

import weakref

import pytest

from tailrace.broker.core.delayed import DelayedResponse, MappedResponse


class Asked(DelayedResponse[int]):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__(250)
        self.told: list[str] = []

    def expire(self) -> None:
        self.told.append("expire")

    def hurry(self) -> None:
        self.told.append("hurry")

    def abandon(self) -> None:
        self.told.append("abandon")


def test_the_answer_is_told_when_it_comes() -> None:
    later: DelayedResponse[int] = DelayedResponse()
    answers: list[int] = []
    later.when_resolved(answers.append)
    assert not later.is_resolved
    later.resolve(7)
    assert (answers, later.is_resolved) == ([7], True)


class Watched(MappedResponse[int]):
    """One that a weak reference can point to."""


@pytest.mark.parametrize("is_abandoned", [False, True])
def test_an_answer_that_is_told_or_abandoned_forms_no_cycle_with_the_one_it_rests_on(is_abandoned: bool) -> None:
    first: DelayedResponse[int] = DelayedResponse()
    chained = Watched(first, lambda answer: answer)
    chained.when_resolved(lambda _: None)
    if is_abandoned:
        chained.abandon()
    else:
        first.resolve(7)
    gone = weakref.ref(chained)
    del chained
    assert gone() is None


def test_who_asks_late_is_told_at_once() -> None:
    later: DelayedResponse[int] = DelayedResponse()
    later.resolve(7)
    answers: list[int] = []
    later.when_resolved(answers.append)
    assert answers == [7]


def test_only_the_first_answer_counts() -> None:
    later: DelayedResponse[int] = DelayedResponse()
    answers: list[int] = []
    later.when_resolved(answers.append)
    later.resolve(1)
    later.resolve(2)
    assert answers == [1]


def test_none_is_an_answer() -> None:
    later: DelayedResponse[None] = DelayedResponse()
    answers: list[None] = []
    later.when_resolved(answers.append)
    later.resolve(None)
    later.resolve(None)
    assert answers == [None]


@pytest.mark.parametrize("is_early", [False, True])
def test_a_chain_makes_something_of_the_answer(is_early: bool) -> None:
    first = Asked()
    if is_early:
        first.resolve(20)
    chained = MappedResponse(first, lambda number: str(number + 1))
    answers: list[str] = []
    chained.when_resolved(answers.append)
    first.resolve(20)
    assert (answers, chained.wait_ms) == (["21"], 250)


def test_a_chain_passes_on_what_it_is_told() -> None:
    first = Asked()
    chained = MappedResponse(first, str)
    chained.hurry()
    chained.expire()
    chained.abandon()
    assert first.told == ["hurry", "expire", "abandon"]
