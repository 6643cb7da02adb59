"""Leader epochs against a plain list of which offset belongs to which epoch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.files.checkpoints import CorruptCheckpoint
from tailrace.log.files.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, EpochEnd, EpochStart, LeaderEpochs

LOG_END = 40
ASSIGNMENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, LOG_END)), max_size=8)


def assigned(assignments: list[tuple[int, int]]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, offset in assignments:
        epochs.assign(epoch, offset)
    return epochs


def epoch_of_each_offset(assignments: list[tuple[int, int]]) -> list[int | None]:
    """The epoch of every offset before LOG_END, found the slow way."""
    owners: list[int | None] = [None] * LOG_END
    latest = -1
    for epoch, offset in assignments:
        if epoch > latest:
            owners[offset:] = [epoch] * (LOG_END - offset)
            latest = epoch
    return owners


@given(ASSIGNMENTS)
def test_every_offset_belongs_to_the_last_epoch_that_was_assigned_over_it(assignments: list[tuple[int, int]]) -> None:
    epochs = assigned(assignments)
    owners = epoch_of_each_offset(assignments)
    for offset, owner in enumerate(owners):
        epoch, next_start = epochs.range_at(offset)
        assert epoch == owner
        end = LOG_END if next_start is None else next_start
        assert set(owners[offset:end]) <= {owner}
        assert next_start is None or next_start == LOG_END or owners[next_start] != owner


@given(ASSIGNMENTS)
def test_an_assignment_is_news_only_if_the_epoch_rises(assignments: list[tuple[int, int]]) -> None:
    epochs, latest = LeaderEpochs(), UNDEFINED_EPOCH
    for epoch, offset in assignments:
        before = list(epochs)
        assert epochs.assign(epoch, offset) == (epoch > latest)
        latest = max(latest, epoch)
        assert epochs.latest == latest
        if epoch < latest:
            assert list(epochs) == before


@given(ASSIGNMENTS, st.integers(-1, 14))
def test_an_epoch_ends_where_the_next_larger_one_begins(assignments: list[tuple[int, int]], epoch: int) -> None:
    epochs = assigned(assignments)
    starts = list(epochs)
    at_most = [start.epoch for start in starts if start.epoch <= epoch]
    above = [start.start_offset for start in starts if start.epoch > epoch]
    if epoch == UNDEFINED_EPOCH or not starts or epoch > starts[-1].epoch:
        expected = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
    else:
        expected = EpochEnd(at_most[-1] if at_most else epoch, above[0] if above else LOG_END)
    assert epochs.end_of(epoch, LOG_END) == expected


def test_the_end_of_an_epoch_is_answered_as_kafka_answers_it() -> None:
    epochs = LeaderEpochs([EpochStart(2, 10), EpochStart(5, 20)])
    assert epochs.end_of(5, 33) == (5, 33), "the latest ends with the log"
    assert epochs.end_of(4, 33) == epochs.end_of(2, 33) == (2, 20), "the largest not above it"
    assert epochs.end_of(1, 33) == (1, 10), "before the first, where the first begins"
    assert epochs.end_of(6, 33) == (UNDEFINED_EPOCH, UNDEFINED_OFFSET), "not known yet"
    assert LeaderEpochs().end_of(0, 33) == (UNDEFINED_EPOCH, UNDEFINED_OFFSET)


@given(ASSIGNMENTS, st.integers(0, LOG_END))
def test_a_truncation_forgets_epochs_that_begin_behind_it(assignments: list[tuple[int, int]], end: int) -> None:
    epochs = assigned(assignments)
    expected = [start for start in epochs if start.start_offset < end]
    epochs.truncate(end)
    assert list(epochs) == expected


def test_whoever_holds_the_epochs_sees_what_replaces_them() -> None:
    epochs, other = assigned([(0, 0)]), assigned([(3, 7), (4, 9)])
    epochs.replace(other)
    assert epochs == other
    other.assign(9, 9)
    assert epochs != other, "it is a copy"


def test_the_file_is_the_one_that_kafka_writes() -> None:
    assert assigned([(0, 0), (3, 1234)]).encode() == b"0\n2\n0 0\n3 1234\n"


@given(ASSIGNMENTS)
def test_epochs_come_back_as_they_were_encoded(assignments: list[tuple[int, int]]) -> None:
    epochs = assigned(assignments)
    assert LeaderEpochs.decode(epochs.encode()) == epochs


@given(ASSIGNMENTS)
def test_a_file_cut_at_any_byte_is_refused(assignments: list[tuple[int, int]]) -> None:
    data = assigned(assignments).encode()
    for size in range(len(data)):
        with pytest.raises(CorruptCheckpoint):
            LeaderEpochs.decode(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"1\n1\n0 0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0\n1 1\n",
        b"0\n1\n0\n",
        b"0\n1\n0 0 0\n",
        b"0\n1\nzero 0\n",
        b"0\none\n0 0\n",
        b"0\n2\n1 0\n0 5\n",
        b"0\n2\n0 0\n0 5\n",
        b"0\n2\n0 5\n1 5\n",
        b"0\n2\n0 5\n1 4\n",
        b"0\n1\n-1 0\n",
        b"0\n1\n0 -1\n",
        b"\xff\n1\n0 0\n",
        bytes(12),
    ],
    ids=lambda data: repr(data)[2:-1],
)
def test_a_file_that_cannot_be_right_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        LeaderEpochs.decode(data)
