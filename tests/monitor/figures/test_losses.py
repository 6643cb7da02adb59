"""The entries of the loss ledger, joined to what each group has missed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.facts.losses import Loss, LossKind, LossReason
from tailrace.monitor.figures.losses import join


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


@settings(max_examples=200)
@given(st.data())
def test_the_joined_ledger_is_exactly_what_a_group_never_read(data: st.DataObject) -> None:
    """A model of one group and one log: cuts, commits, and what was gone before it was committed."""
    start, position, end = 0, 0, 100
    entries: list[Loss] = []
    lost: set[int] = set()
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()) and start < end:
            before = data.draw(st.integers(start + 1, end))
            entries.append(entry("cut", start, before - 1))
            if start <= position < before:
                entries.append(entry("missed", position, before - 1, "slow"))
            lost |= {offset for offset in range(start, before) if offset >= position}
            start = before
        else:
            now = data.draw(st.integers(position, end))
            if now < start:  # late, of what it had still read
                lost -= set(range(position, now))
            if position < start <= now:
                entries.append(entry("resumed", position, start - 1, "slow", None))
            position = now
    found = {offset for loss in join(entries) for offset in range(loss.first, loss.last + 1)}
    if position < start:  # it may still commit what it has read of the range: the missed entry says from where it fell
        assert lost <= found
    else:
        assert found == lost
