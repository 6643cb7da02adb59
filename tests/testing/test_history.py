"""The checker of histories: each thing that can be wrong is found, and nothing else is."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.testing.history import History, Kind, Promise, Send, check

ORDERS = ("orders", 0)


def sent(history: History, value: bytes, offset: int | None = None, **fields: object) -> Send:
    """A send that is there in the end, and was acknowledged."""
    producer, promise = str(fields.get("producer", "p")), fields.get("promise", Promise.IDEMPOTENT)
    assert isinstance(promise, Promise)
    send = history.sends(producer, ORDERS, value, promise)
    if offset is not None:
        send.acknowledge(offset)
        history.finds(ORDERS, offset, value)
    return send


@pytest.fixture
def history() -> History:
    """Three messages of one producer, read by one reader."""
    history = History()
    for offset, value in enumerate((b"a", b"b", b"c")):
        sent(history, value, offset)
        history.reads("r", ORDERS, offset, value)
    return history


def kinds(history: History) -> list[Kind]:
    return sorted({anomaly.kind for anomaly in check(history)})


def test_nothing_is_wrong_with_a_good_history(history: History) -> None:
    assert check(history) == []
    assert check(History()) == []
    assert history.counts() == {"sent": 3, "acknowledged": 3, "read": 3, "found": 3}


def test_what_was_acknowledged_and_is_not_there_is_lost(history: History) -> None:
    history.sends("p", ORDERS, b"d").acknowledge(3)
    (anomaly,) = check(history)
    assert str(anomaly) == (
        "lost-write in ('orders', 0): b'd' of p, acknowledged at 3; there is nothing like it up to 3"
    )


def test_all_is_lost_of_a_partition_in_which_nothing_was_found() -> None:
    history = History()
    history.sends("p", ORDERS, b"a").acknowledge(0)
    assert kinds(history) == [Kind.LOST_WRITE]


def test_what_is_not_where_it_was_acknowledged_is_lost_there(history: History) -> None:
    history.sends("p", ORDERS, b"d").acknowledge(3)
    history.finds(ORDERS, 4, b"d")
    (anomaly,) = check(history)
    assert anomaly.kind == Kind.LOST_WRITE
    assert anomaly.text.endswith("there is the same at [4]")


def test_what_was_acknowledged_without_an_offset_must_be_somewhere(history: History) -> None:
    send = history.sends("p", ORDERS, b"d")
    send.acknowledge(None)
    assert kinds(history) == [Kind.LOST_WRITE]
    history.finds(ORDERS, 3, b"d")
    assert check(history) == []


def test_what_was_never_acknowledged_may_be_there_or_not(history: History) -> None:
    history.sends("p", ORDERS, b"d")
    history.sends("p", ORDERS, b"e")
    history.finds(ORDERS, 3, b"e")
    assert check(history) == []


def test_what_was_not_promised_to_be_kept_may_be_lost_and_its_offset_given_again(history: History) -> None:
    history.sends("q", ORDERS, b"d", Promise.NOTHING).acknowledge(3)
    sent(history, b"e", 3)
    assert check(history) == []


def test_a_message_that_is_there_twice_is_a_duplicate(history: History) -> None:
    sent(history, b"d", 3)
    history.finds(ORDERS, 4, b"d")
    assert kinds(history) == [Kind.DUPLICATE]


def test_a_duplicate_of_a_producer_that_was_not_promised_better_is_none(history: History) -> None:
    sent(history, b"d", 3, promise=Promise.KEPT)
    history.finds(ORDERS, 4, b"d")
    assert check(history) == []


def test_messages_in_another_order_than_their_producer_sent_them_in_are_found(history: History) -> None:
    later = history.sends("p", ORDERS, b"e")
    sent(history, b"d", 3)
    later.acknowledge(4)
    history.finds(ORDERS, 4, b"e")
    assert kinds(history) == [Kind.REORDERED]


def test_the_order_of_two_producers_does_not_matter(history: History) -> None:
    later = history.sends("q", ORDERS, b"e")
    sent(history, b"d", 3)
    later.acknowledge(4)
    history.finds(ORDERS, 4, b"e")
    assert check(history) == []


def test_one_offset_with_two_values_is_inconsistent(history: History) -> None:
    history.sends("p", ORDERS, b"d")
    history.reads("r2", ORDERS, 2, b"d")
    assert kinds(history) == [Kind.INCONSISTENT_OFFSETS, Kind.READ_THEN_GONE]


def test_one_offset_acknowledged_for_two_messages_is_inconsistent(history: History) -> None:
    history.sends("q", ORDERS, b"d").acknowledge(2)
    assert kinds(history) == [Kind.INCONSISTENT_OFFSETS, Kind.LOST_WRITE]


def test_what_a_reader_saw_and_is_not_there_is_gone(history: History) -> None:
    history.sends("p", ORDERS, b"d")
    history.reads("r", ORDERS, 3, b"d")
    (anomaly,) = check(history)
    assert str(anomaly) == "read-then-gone in ('orders', 0): r got b'd' at 3"


def test_what_was_deleted_is_not_missed(history: History) -> None:
    history = History()
    history.sends("p", ORDERS, b"a").acknowledge(0)
    history.sends("p", ORDERS, b"b").acknowledge(None)
    history.reads("r", ORDERS, 0, b"a")
    sent(history, b"c", 2)
    assert kinds(history) == [Kind.LOST_WRITE, Kind.READ_THEN_GONE]
    history.begins(ORDERS, 2)
    assert check(history) == []


def test_nothing_of_a_deleted_partition_is_missed(history: History) -> None:
    history.sends("p", ORDERS, b"d").acknowledge(3)
    history.deletes(ORDERS)
    history.deletes(("never", 0))
    assert check(history) == []


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_reader_that_is_sent_back_is_found(history: History, offset: int) -> None:
    history.reads("r", ORDERS, offset, (b"a", b"b", b"c")[offset])
    assert kinds(history) == [Kind.NONMONOTONIC_POLL]


def test_readers_do_not_count_together(history: History) -> None:
    history.reads("r2", ORDERS, 1, b"b")
    history.reads("r2", ORDERS, 2, b"c")
    assert check(history) == []


def test_a_reader_that_misses_something_is_found(history: History) -> None:
    history.reads("r2", ORDERS, 0, b"a")
    history.reads("r2", ORDERS, 2, b"c")
    assert kinds(history) == [Kind.POLL_SKIP]


def test_a_gap_in_the_log_is_no_miss(history: History) -> None:
    sent(history, b"d", 7)
    history.reads("r", ORDERS, 7, b"d")
    assert check(history) == []


def test_what_nobody_sent_is_found(history: History) -> None:
    history.finds(ORDERS, 3, b"x")
    assert kinds(history) == [Kind.NEVER_SENT]


def test_what_a_reader_got_and_nobody_sent_is_found(history: History) -> None:
    history.reads("r", ORDERS, 3, b"x")
    assert kinds(history) == [Kind.NEVER_SENT, Kind.READ_THEN_GONE]


def test_a_value_sent_twice_is_refused(history: History) -> None:
    history.sends("p", ORDERS, b"a")
    with pytest.raises(ValueError, match="same value twice"):
        check(history)


# A life of a log, made up: good by construction, then spoilt in one place.


class Life:
    """Producers send to a log, readers read it; some acknowledgements never come, some messages never arrive."""

    def __init__(self, seed: int, length: int) -> None:
        lot = random.Random(seed)
        self.lot = lot
        self.history = History()
        self.log: dict[int, bytes] = {}
        self.sends: list[Send] = []
        end = 0
        for number in range(length):
            producer, value = lot.choice("pqr"), b"%d" % number
            send = self.history.sends(producer, ORDERS, value)
            if lot.random() < 0.2:
                continue
            self.log[end] = value
            if lot.random() < 0.8:
                send.acknowledge(end)
                self.sends.append(send)
            end += 1 if lot.random() < 0.9 else lot.randint(2, 4)
        for reader in "xyz":
            first, last = sorted(lot.choices(range(end + 1), k=2))
            for offset in sorted(offset for offset in self.log if first <= offset < last):
                self.history.reads(reader, ORDERS, offset, self.log[offset])

    def check(self) -> list[Kind]:
        for offset in sorted(self.log):
            self.history.finds(ORDERS, offset, self.log[offset])
        return kinds(self.history)


lives = st.builds(Life, st.integers(0, 1 << 32), st.integers(0, 60))


@given(lives)
def test_nothing_is_wrong_with_any_good_history(life: Life) -> None:
    assert life.check() == []


@given(st.integers(0, 1 << 32))
def test_any_lost_message_is_found(seed: int) -> None:
    life = Life(seed, 40)
    lost = life.lot.choice(life.sends)
    assert lost.offset is not None
    del life.log[lost.offset]
    assert Kind.LOST_WRITE in life.check()


@given(st.integers(0, 1 << 32))
def test_any_two_messages_that_changed_places_are_found(seed: int) -> None:
    life = Life(seed, 40)
    first, second = life.lot.sample(life.sends, 2)
    assert first.offset is not None
    assert second.offset is not None
    life.log[first.offset], life.log[second.offset] = life.log[second.offset], life.log[first.offset]
    assert {Kind.LOST_WRITE, Kind.INCONSISTENT_OFFSETS} <= set(life.check())


@given(st.integers(0, 1 << 32))
def test_any_repeated_message_is_found(seed: int) -> None:
    life = Life(seed, 40)
    life.log[max(life.log) + 1] = life.lot.choice(life.sends).value
    assert Kind.DUPLICATE in life.check()
