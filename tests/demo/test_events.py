"""Act two's book says what live and replay must come to: so what it expects, and what it calls a loss, is tested."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.events import MALFORMED, ORDER, PATIENCE_MS, VIEW, WINDOW_MS, Book, Counts, Event, compare, total

EVENTS = st.builds(Event, st.sampled_from([VIEW, ORDER]), st.integers(0, 20 * WINDOW_MS), st.integers(0, 9999))


@given(st.lists(EVENTS), st.lists(EVENTS), st.integers(0, 10))
def test_every_event_is_in_one_place(in_time: list[Event], late: list[Event], malformed: int) -> None:
    book = Book(malformed=malformed)
    for event in in_time:
        book.note(event)
    for event in late:
        book.note(event, is_late=True)
    assert book.sent == len(in_time) + len(late) + malformed
    assert total(book.replayed()) == len(in_time) + len(late)
    assert book.live().keys() <= book.in_time.keys()
    assert sum(one.cents for one in book.replayed().values()) == sum(
        event.cents for event in [*in_time, *late] if event.kind == ORDER
    )


def test_live_has_a_window_once_the_watermark_is_at_its_end() -> None:
    book = Book()
    book.note(Event(VIEW, 0))
    book.note(Event(VIEW, WINDOW_MS + PATIENCE_MS - 1))
    assert not book.live()
    book.note(Event(ORDER, WINDOW_MS + PATIENCE_MS, cents=5))
    assert book.live() == {0: Counts(views=1)}


def test_what_is_late_is_for_the_replay_alone() -> None:
    book = Book()
    book.note(Event(VIEW, 0))
    book.note(Event(VIEW, 10 * WINDOW_MS))
    book.note(Event(ORDER, 1, cents=7), is_late=True)
    assert book.live()[0] == Counts(views=1)
    assert book.replayed()[0] == Counts(views=1, orders=1, cents=7)


def test_the_same_on_both_sides_is_right() -> None:
    verdict = compare({0: Counts(2, 1)}, {0: Counts(2, 1)})
    assert verdict.is_right
    assert (verdict.counted, verdict.lost, verdict.doubled) == (3, 0, 0)


@pytest.mark.parametrize(
    ("found", "lost", "doubled"),
    [
        ({0: Counts(2, 1)}, 3, 0),  # a window is missing
        ({0: Counts(1, 2), 4000: Counts(3, 0)}, 1, 1),  # one too few here does not make up for one too many there
        ({0: Counts(2, 1), 4000: Counts(6, 0)}, 0, 3),  # a window came twice
        ({0: Counts(2, 1), 4000: Counts(3, 0), 8000: Counts(1, 0)}, 0, 1),  # one that nobody sent
        ({0: Counts(2, 1, cents=1), 4000: Counts(3, 0)}, 0, 0),  # money
        ({}, 6, 0),
    ],
)
def test_anything_else_is_not(found: dict[int, Counts], lost: int, doubled: int) -> None:
    verdict = compare({0: Counts(2, 1), 4000: Counts(3, 0)}, found)
    assert not verdict.is_right
    assert (verdict.lost, verdict.doubled) == (lost, doubled)


def test_nothing_at_all_is_not_right() -> None:
    assert not compare({}, {}).is_right


@given(EVENTS)
def test_an_event_is_one_object_and_a_malformed_one_is_not(event: Event) -> None:
    said = json.loads(event.value())
    assert said["kind"] == event.kind
    assert ("amount" in said) == (event.kind == ORDER)
    for spoil in MALFORMED:
        assert not _is_right(spoil(event.value()))


def _is_right(value: bytes) -> bool:
    try:
        said = json.loads(value)
    except ValueError:  # also of bytes that are no text
        return False
    return isinstance(said, dict) and not said["at"].startswith("not")
