"""The entries of the loss ledger, joined to what each group has missed."""

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.facts.losses import Loss, LossKind, LossReason
from tailrace.monitor.figures.losses import LossJoin, join


def entry(kind: str, first: int, last: int, group: str = "", reason: str | None = "age", at: int = 0) -> Loss:
    why = LossReason(reason) if reason else None
    return Loss(LossKind(kind), "orders", "id", 0, first, last, last + 1 - first, True, at, why, group, 10)


def short(losses: list[Loss]) -> list[tuple[str, int, int, str | None]]:
    return [(loss.group, loss.first, loss.last, loss.reason) for loss in losses]


def test_what_a_fallen_group_goes_on_missing_follows_from_later_cuts() -> None:
    entries = [
        entry("cut", 0, 9),
        entry("missed", 4, 9, "slow"),
        entry("cut", 10, 19, reason="size"),
        entry("cut", 20, 29, reason="size"),
    ]
    (first, second) = join(entries)
    assert short([first, second]) == [("slow", 4, 9, "age"), ("slow", 10, 29, "size")]
    assert second.records == 20


def test_a_group_that_resumes_misses_nothing_more_and_what_it_had_read_is_not_missed() -> None:
    entries = [
        entry("cut", 0, 9),
        entry("missed", 4, 9, "slow"),
        entry("cut", 10, 19),
        entry("resumed", 6, 19, "slow", None),
        entry("cut", 20, 29),
    ]
    assert short(join(entries)) == [("slow", 6, 19, "age")]


def test_an_entry_that_was_repeated_after_a_crash_counts_once() -> None:
    cut, missed = entry("cut", 0, 9), entry("missed", 4, 9, "slow")
    assert short(join([cut, missed, cut, missed, entry("cut", 0, 11)])) == [("slow", 4, 11, "age")]


def test_a_note_of_several_batches_counts_once_and_only_with_its_cut() -> None:
    """The cut is in the last batch: a crash before it leaves entries of a deletion that was not made."""
    cut_short = entry("missed", 4, 9, "slow", at=1)
    assert join([cut_short]) == []
    assert short(join([cut_short, entry("missed", 4, 9, "slow", at=2), entry("cut", 0, 9, at=2)])) == [
        ("slow", 4, 9, "age")
    ]
    assert join([cut_short, entry("cut", 0, 9, at=2)]) == [], "it has moved on before the deletion was made"


def test_a_group_that_moves_to_before_the_start_misses_what_earlier_deletions_took() -> None:
    entries = [
        entry("cut", 0, 9),
        entry("cut", 10, 19, reason="size"),
        entry("missed", 4, 19, "back", None, at=7),
        entry("cut", 20, 29, reason="size", at=8),
    ]
    assert short(join(entries)) == [("back", 4, 9, "age"), ("back", 10, 29, "size")]
    assert {loss.at for loss in join(entries)} == {7, 8}


def test_deletions_that_no_group_has_missed_take_no_memory() -> None:
    joined = LossJoin()
    for number in range(100):
        joined.take(entry("cut", number, number))
    before = len(pickle.dumps(joined))
    for number in range(100, 10_000):
        joined.take(entry("cut", number, number, at=number))
    assert len(pickle.dumps(joined)) < 2 * before
    joined.take(entry("missed", 50, 9_999, "back", None))
    assert short(joined.losses()) == [("back", 50, 9_999, "age")]


def test_a_group_that_always_falls_behind_takes_no_memory_where_old_losses_are_added_up() -> None:
    entries = []
    for at in range(2_000):
        start = 10 * at
        entries += [
            entry("cut", start, start + 9, at=at),
            entry("missed", start + 4, start + 9, "slow", at=at),
            entry("resumed", start + 5, start + 9, "slow", None, at),
            entry("skipped", start + 5, start + 5, "moved", "reset_forward", at),
        ]
    joined, sizes = LossJoin(separate_ms=100), []
    for number, one in enumerate(entries):
        joined.take(one)
        if number % 4_000 == 3_999:
            sizes.append(len(pickle.dumps(joined)))
    assert sizes[1] < 1.1 * sizes[0]
    found = joined.losses()
    assert len(found) < 210
    for group, count in (("slow", 5), ("moved", 1)):
        of_group = [loss for loss in found if loss.group == group]
        assert sum(loss.records for loss in of_group) == sum(
            loss.records for loss in join(entries) if loss.group == group
        )
        assert sum(loss.records for loss in of_group if loss.at >= 1_950) >= 50 * count, "the last ones are separate"
        assert max(loss.at for loss in of_group) == 1_999


def test_a_group_that_skips_the_same_messages_again_loses_them_once() -> None:
    entries = [entry("skipped", 3, 7, "moved", "reset_forward"), entry("skipped", 3, 9, "moved", "reset_forward")]
    (loss,) = join(entries)
    assert (loss.first, loss.last, loss.records) == (3, 9, 7)


def test_skipped_ranges_stand_by_themselves() -> None:
    entries = [entry("skipped", 3, 7, "moved", "reset_forward"), entry("skipped", 8, 9, "moved", "group_deleted")]
    assert short(join(entries)) == [("moved", 3, 7, "reset_forward"), ("moved", 8, 9, "group_deleted")]


def test_a_group_that_lost_its_offset_and_began_anew_does_not_miss_what_came_between() -> None:
    entries = [
        entry("cut", 0, 9),
        entry("missed", 4, 9, "slow"),
        entry("cut", 10, 29),  # the offset of the group had expired, and it has committed 25 since
        entry("missed", 25, 29, "slow"),
    ]
    assert short(join(entries))[-1] == ("slow", 25, 29, "age")
    assert sum(loss.records for loss in join(entries)) < 30


@settings(max_examples=300)
@given(st.data())
def test_the_joined_ledger_is_exactly_what_a_group_never_read(data: st.DataObject) -> None:
    """A model of one group and one log: cuts, commits in both directions, and what was gone before it was committed."""
    start, position, end = 0, 0, 100
    entries: list[Loss] = []
    lost: set[int] = set()  # for good
    fell_from = 0  # where the group stood when it was overtaken, or went back to
    for at in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()) and start < end:
            before = data.draw(st.integers(start + 1, end))
            cut = [entry("cut", start, before - 1, at=at)]
            if start <= position < before:
                cut.append(entry("missed", position, before - 1, "slow", at=at))
                fell_from = position
            entries += data.draw(st.permutations(cut))  # several batches
            start = before
        else:
            now = data.draw(st.integers(0, end))
            if position < start <= now:
                entries.append(entry("resumed", position, start - 1, "slow", None, at))
                lost |= set(range(position, start))
            elif now < start and now < position:
                entries.append(entry("missed", now, start - 1, "slow", None, at))
                fell_from = now
            position = now
    losses = join(entries)
    found = [offset for loss in losses for offset in range(loss.first, loss.last + 1)]
    assert len(set(found)) == len(found) == sum(loss.records for loss in losses)
    if position < start:  # it may still commit what it has read of the range: the missed entry says from where it fell
        lost |= set(range(fell_from, start))
    assert set(found) == lost
