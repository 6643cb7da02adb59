"""The demo counts, and its verdict is what `make demo` ends with: so what it counts as a loss is tested."""

import pytest

from demo.ledger import Ledger


def ledger_of(acknowledged: int, read: list[int], sent: int | None = None) -> Ledger:
    """Orders 0, 1, 2 … were acknowledged, each at the offset of its number; these were read."""
    ledger = Ledger()
    ledger.sent = acknowledged if sent is None else sent
    for event in range(acknowledged):
        ledger.was_acknowledged(event, event)
    for event in read:
        ledger.was_read(event, event)
    return ledger


def test_all_that_was_acknowledged_was_read_once_and_in_order() -> None:
    verdict = ledger_of(4, [0, 1, 2, 3]).verdict()
    assert verdict.is_good
    assert (verdict.acknowledged, verdict.read, verdict.lost, verdict.duplicated) == (4, 4, 0, 0)


@pytest.mark.parametrize(
    ("read", "lost", "duplicated", "is_in_order"),
    [
        ([0, 1, 3], 1, 0, True),  # a hole
        ([0, 1], 2, 0, True),  # the end is missing
        ([], 4, 0, True),
        ([0, 1, 1, 2, 3], 0, 1, False),
        ([0, 1, 2, 3, 0, 1], 0, 2, False),
        ([0, 2, 1, 3], 0, 0, False),
    ],
)
def test_what_is_lost_doubled_or_out_of_order_is_not_good(
    read: list[int], lost: int, duplicated: int, is_in_order: bool
) -> None:
    verdict = ledger_of(4, read).verdict()
    assert not verdict.is_good
    assert (verdict.lost, verdict.duplicated, verdict.is_in_order) == (lost, duplicated, is_in_order)


def test_a_loss_and_a_duplicate_do_not_make_up_for_each_other() -> None:
    verdict = ledger_of(4, [0, 1, 1, 3]).verdict()
    assert verdict.read == verdict.acknowledged
    assert (verdict.lost, verdict.duplicated) == (1, 1)
    assert not verdict.is_good


def test_an_order_at_another_offset_than_was_promised_is_not_good() -> None:
    ledger = ledger_of(2, [0])
    ledger.was_read(1, 5)
    assert ledger.verdict().misplaced == 1
    assert not ledger.verdict().is_good


def test_an_order_that_nobody_has_sent_is_not_good() -> None:
    verdict = ledger_of(2, [0, 1, 7]).verdict()
    assert verdict.unknown == 1
    assert not verdict.is_good


def test_an_order_that_was_not_acknowledged_is_not_good() -> None:
    ledger = ledger_of(2, [0, 1])
    ledger.has_failed("timed out")
    assert not ledger.verdict().is_good


def test_nothing_at_all_is_not_good() -> None:
    assert not Ledger().verdict().is_good
