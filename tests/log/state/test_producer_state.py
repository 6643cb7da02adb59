"""What a log lets its producers do: each sequence once and in order, and transactions one way or the other."""

from typing import Any

import pytest
from batches import TIMESTAMP, header
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.files.index import AbortedTransaction
from tailrace.log.layout.errors import InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from tailrace.log.state.producer_state import OpenTransaction, ProducerState, decode_snapshot, encode_snapshot
from tailrace.records.batch import NO_SEQUENCE, BatchHeader, read_header
from tailrace.records.control import Marker, encode_marker

SEQUENCE_MAX = (1 << 31) - 1
BATCHES_KEPT = 5  # what a client has in flight at most


class Partition:
    """A state, and the offsets of a log that it could belong to."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.end = 0

    def send(self, sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0, **options: Any) -> range | None:
        """Appends a batch if the state allows it, and says where it lies; None where it is a repetition."""
        sent = produced(count, self.end, sequence, producer=producer, epoch=epoch, **options)
        if self.state.check(sent) is not None:
            return None
        self.append(sent)
        return range(sent.base_offset, sent.next_offset)

    def append(self, sent: BatchHeader) -> None:
        self.state.replay(sent, None, -1)
        self.end = sent.next_offset

    def mark(self, kind: Marker, *, producer: int = 1, epoch: int = 0) -> AbortedTransaction | None:
        """Ends the producer's transaction; gives what goes into the index."""
        marker = read_header(encode_marker(kind, producer, epoch, 3, TIMESTAMP, base_offset=self.end))
        assert self.state.check(marker) is None
        aborted = self.state.replay(marker, kind, 3)
        self.end = marker.next_offset
        return aborted

    @property
    def stable(self) -> int:
        """The last stable offset when all is flushed."""
        return self.state.last_stable_offset(self.end)


def produced(
    count: int, offset: int, sequence: int, *, producer: int = 1, epoch: int = 0, **options: Any
) -> BatchHeader:
    return header(
        count, base_offset=offset, base_sequence=sequence, producer_id=producer, producer_epoch=epoch, **options
    )


# Sequences


def test_batches_without_a_producer_are_always_allowed_and_leave_nothing_behind() -> None:
    state = ProducerState()
    for _ in range(3):
        assert state.check(header(2)) is None
        assert state.replay(header(2), None, -1) is None
    assert state.producers == {}


def test_sequences_in_order_are_appended() -> None:
    partition = Partition()
    assert [partition.send(0, 3), partition.send(3, 1), partition.send(4, 2)] == [range(3), range(3, 4), range(4, 6)]


def test_checking_changes_nothing() -> None:
    partition = Partition()
    partition.send(0, 3)
    for _ in range(2):
        assert partition.state.check(produced(2, 3, 3)) is None


@given(st.lists(st.integers(1, 4), min_size=1, max_size=9), st.integers(0, SEQUENCE_MAX))
def test_the_last_five_batches_are_recognised_and_no_others(counts: list[int], first_sequence: int) -> None:
    partition, sent, sequence = Partition(), [], first_sequence
    for count in counts:
        sent.append((sequence, count, partition.send(sequence, count)))
        sequence = (sequence + count) & SEQUENCE_MAX
    for base, count, where in sent[-BATCHES_KEPT:]:
        original = partition.state.check(produced(count, partition.end, base))
        assert original is not None
        assert where == range(original.base_offset, original.last_offset + 1)
    for base, count, _ in sent[:-BATCHES_KEPT]:
        with pytest.raises(OutOfOrderSequence):
            partition.state.check(produced(count, partition.end, base))


def test_a_batch_that_overlaps_an_earlier_one_is_no_repetition() -> None:
    partition = Partition()
    partition.send(0, 3)
    partition.send(3, 3)
    for sequence, count in [(0, 2), (1, 2), (0, 6), (2, 4), (3, 4)]:
        with pytest.raises(OutOfOrderSequence):
            partition.send(sequence, count)


@pytest.mark.parametrize("sequence", [0, 2, 4, 100, SEQUENCE_MAX])
def test_a_gap_is_refused_and_the_sequence_that_was_due_still_is(sequence: int) -> None:
    partition = Partition()
    partition.send(0, 2)
    partition.send(2, 1)
    with pytest.raises(OutOfOrderSequence, match="but 3 is due"):
        partition.send(sequence, 5)
    assert partition.send(3) == range(3, 4)


def test_sequences_wrap_to_zero_after_the_largest() -> None:
    partition = Partition()
    partition.send(SEQUENCE_MAX - 1, 2)
    with pytest.raises(OutOfOrderSequence, match="but 0 is due"):
        partition.send(1)
    assert partition.send(0) == range(2, 3)


def test_a_batch_that_wraps_inside_is_followed_and_recognised() -> None:
    partition = Partition()
    partition.send(SEQUENCE_MAX - 1, 5)
    assert partition.send(SEQUENCE_MAX - 1, 5) is None
    assert partition.send(3) == range(5, 6)


@pytest.mark.parametrize("sequence", [0, 17, SEQUENCE_MAX])
def test_a_producer_not_known_here_may_begin_anywhere(sequence: int) -> None:
    partition = Partition()
    assert partition.send(sequence) == range(1)
    with pytest.raises(OutOfOrderSequence):
        partition.send((sequence + 2) & SEQUENCE_MAX)


def test_producers_do_not_concern_each_other() -> None:
    partition = Partition()
    for sequence in range(3):
        for producer in (1, 2, 3):
            assert partition.send(sequence, producer=producer) is not None
    assert partition.send(2, producer=2) is None


# Epochs


def test_an_older_instance_of_a_producer_is_refused_even_with_a_repetition() -> None:
    partition = Partition()
    partition.send(0, epoch=4)
    for sequence in (0, 1):
        with pytest.raises(InvalidProducerEpoch, match="is at epoch 4, the batch has 3"):
            partition.send(sequence, epoch=3)


def test_a_newer_instance_begins_at_zero() -> None:
    partition = Partition()
    partition.send(0, 3, epoch=4)
    for sequence in (1, 3):
        with pytest.raises(OutOfOrderSequence, match="but 0 is due"):
            partition.send(sequence, epoch=5)
    assert partition.send(0, epoch=5) == range(3, 4)
    assert partition.send(1, epoch=5) == range(4, 5)
    with pytest.raises(InvalidProducerEpoch):
        partition.send(3, epoch=4)


def test_a_newer_instance_repeats_nothing_of_the_older_one() -> None:
    partition = Partition()
    partition.send(0, epoch=0)
    assert partition.send(0, epoch=1) == range(1, 2)
    assert partition.send(0, epoch=1) is None
    assert len(partition.state.producers[1].batches) == 1


def test_a_marker_of_an_older_instance_is_refused() -> None:
    partition = Partition()
    partition.send(0, epoch=4, transactional=True)
    with pytest.raises(InvalidProducerEpoch):
        partition.mark(Marker.ABORT, epoch=3)


def test_a_marker_with_a_newer_epoch_fences_the_producer() -> None:
    partition = Partition()
    partition.send(0, epoch=4, transactional=True)
    assert partition.mark(Marker.ABORT, epoch=5) is not None
    with pytest.raises(InvalidProducerEpoch):
        partition.send(1, epoch=4, transactional=True)
    assert partition.send(0, epoch=5) is not None


def test_a_marker_takes_no_sequence_and_does_not_push_batches_out() -> None:
    partition = Partition()
    for sequence in range(BATCHES_KEPT):
        partition.send(sequence, transactional=True)
    for _ in range(BATCHES_KEPT):
        partition.mark(Marker.COMMIT)
    assert partition.send(0, transactional=True) is None
    assert partition.send(BATCHES_KEPT, transactional=True) is not None


# Transactions


def test_a_transaction_holds_the_last_stable_offset_until_its_marker() -> None:
    partition = Partition()
    partition.append(header(4))
    partition.send(0, 2, transactional=True)
    partition.send(2, 2, transactional=True)
    partition.append(header(1, base_offset=partition.end))
    assert (partition.end, partition.stable) == (9, 4)
    assert partition.mark(Marker.COMMIT) is None
    assert partition.stable == 10


def test_an_aborted_transaction_is_given_to_the_index() -> None:
    partition = Partition()
    partition.append(header(4))
    partition.send(0, 2, producer=7, transactional=True)
    assert partition.mark(Marker.ABORT, producer=7) == AbortedTransaction(7, 4, 6, 7)
    assert partition.stable == 7


def test_the_last_stable_offset_is_held_until_the_marker_is_flushed() -> None:
    partition = Partition()
    partition.send(0, 2, transactional=True)
    partition.mark(Marker.COMMIT)
    partition.append(header(3, base_offset=partition.end))
    assert [partition.state.last_stable_offset(flushed) for flushed in range(6)] == [0, 0, 0, 3, 4, 5]


def test_records_that_are_not_flushed_are_not_stable() -> None:
    partition = Partition()
    partition.append(header(4))
    partition.send(0, 2, transactional=True)
    assert [partition.state.last_stable_offset(flushed) for flushed in range(7)] == [0, 1, 2, 3, 4, 4, 4]


def test_of_several_transactions_the_oldest_open_one_counts() -> None:
    partition = Partition()
    for producer in (1, 2, 3):
        partition.send(0, producer=producer, transactional=True)
    assert partition.stable == 0
    assert partition.mark(Marker.ABORT, producer=2) == AbortedTransaction(2, 1, 3, 0)
    assert partition.stable == 0
    partition.mark(Marker.COMMIT, producer=1)
    assert partition.stable == 2
    assert partition.mark(Marker.ABORT, producer=3) == AbortedTransaction(3, 2, 5, 6)
    assert partition.stable == 6


def test_of_several_markers_each_counts_when_it_is_flushed() -> None:
    partition = Partition()
    for producer in (1, 2):
        partition.send(0, producer=producer, transactional=True)
    partition.mark(Marker.COMMIT, producer=2)  # at 2
    partition.mark(Marker.COMMIT, producer=1)  # at 3
    assert [partition.state.last_stable_offset(flushed) for flushed in range(5)] == [0, 0, 0, 0, 4]


def test_a_producer_has_one_transaction_after_the_other() -> None:
    partition = Partition()
    partition.send(0, transactional=True)
    assert partition.mark(Marker.ABORT) == AbortedTransaction(1, 0, 1, 2)
    partition.send(1, transactional=True)
    assert partition.stable == 2
    assert partition.mark(Marker.ABORT) == AbortedTransaction(1, 2, 3, 4)


def test_batches_without_a_sequence_are_accepted_one_after_the_other() -> None:
    """Offsets in a transaction: the broker appends them."""
    partition = Partition()
    for _ in range(BATCHES_KEPT + 2):
        assert partition.send(NO_SEQUENCE, 2, transactional=True) is not None
    assert partition.stable == 0
    partition.mark(Marker.COMMIT)
    assert partition.send(NO_SEQUENCE, transactional=True) is not None
    assert partition.send(0, transactional=True) is not None, "they take no sequence"
    assert partition.send(NO_SEQUENCE, transactional=True) is not None
    assert partition.send(1, transactional=True) is not None


def test_a_batch_without_a_sequence_of_an_older_instance_is_refused() -> None:
    partition = Partition()
    partition.send(NO_SEQUENCE, epoch=4, transactional=True)
    with pytest.raises(InvalidProducerEpoch):
        partition.send(NO_SEQUENCE, epoch=3, transactional=True)
    assert partition.send(NO_SEQUENCE, epoch=5, transactional=True) is not None


@pytest.mark.parametrize("sequence", [1, NO_SEQUENCE])
def test_a_batch_outside_the_open_transaction_is_refused_until_the_marker(sequence: int) -> None:
    partition = Partition()
    partition.send(0, transactional=True)
    with pytest.raises(InvalidTransactionState, match="producer 1 has an open transaction"):
        partition.send(sequence)
    assert partition.send(0, producer=2) is not None, "other producers are not affected"
    partition.mark(Marker.ABORT)
    assert partition.send(sequence) is not None


def test_duplicates_and_gaps_are_reported_before_the_state_of_the_transaction() -> None:
    partition = Partition()
    partition.send(0)
    partition.send(1, transactional=True)
    assert partition.send(0) is None, "a duplicate from before the transaction"
    with pytest.raises(OutOfOrderSequence):
        partition.send(5)
    with pytest.raises(InvalidTransactionState):
        partition.send(0, epoch=1)
    assert partition.send(0, epoch=1, transactional=True) is not None


def test_a_transaction_is_open_under_one_epoch() -> None:
    partition = Partition()
    assert not partition.state.has_open_transaction(1, 4)
    partition.send(0, epoch=4)
    assert not partition.state.has_open_transaction(1, 4)
    partition.send(1, epoch=4, transactional=True)
    assert [partition.state.has_open_transaction(1, epoch) for epoch in (3, 4, 5)] == [False, True, False]
    assert not partition.state.has_open_transaction(2, 4)
    partition.mark(Marker.COMMIT, epoch=5)
    assert not any(partition.state.has_open_transaction(1, epoch) for epoch in (4, 5))


def test_only_a_transactional_batch_continues_a_transaction() -> None:
    partition = Partition()
    first, later = produced(1, 0, 0, transactional=True), produced(1, 1, 1, transactional=True)
    assert not partition.state.continues_transaction(first)
    partition.append(first)
    assert partition.state.continues_transaction(later)
    assert not partition.state.continues_transaction(produced(1, 1, 1))
    assert not partition.state.continues_transaction(produced(1, 1, 0, epoch=1, transactional=True))
    assert not partition.state.continues_transaction(produced(1, 1, 1, producer=2, transactional=True))
    assert not partition.state.continues_transaction(header(1))


@pytest.mark.parametrize("kind", list(Marker))
def test_a_marker_without_a_transaction_decides_nothing(kind: Marker) -> None:
    partition = Partition()
    assert partition.mark(kind) is None
    assert partition.stable == partition.end == 1
    assert partition.send(0) is not None


def test_a_control_record_of_another_kind_ends_no_transaction() -> None:
    partition = Partition()
    partition.send(0, transactional=True)
    other = read_header(encode_marker(Marker.COMMIT, 1, 0, 0, TIMESTAMP, base_offset=partition.end))
    assert partition.state.replay(other, None, -1) is None
    assert partition.state.last_stable_offset(other.next_offset) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["send", "commit", "abort", "flush"])), max_size=40))
def test_stable_is_whatever_lies_before_every_transaction_not_decided_on_disk(steps: list[tuple[int, str]]) -> None:
    partition, sequences, flushed = Partition(), [0] * 4, 0
    undecided: dict[int, int] = {}  # producer: first offset
    decided: list[tuple[int, int]] = []  # first offset, offset of the marker
    for producer, step in steps:
        if step == "send":
            where = partition.send(sequences[producer], producer=producer, transactional=True)
            assert where is not None
            sequences[producer] += 1
            undecided.setdefault(producer, where.start)
        elif step == "flush":
            flushed = partition.end
        else:
            aborted = partition.mark(Marker[step.upper()], producer=producer)
            first = undecided.pop(producer, None)
            if first is not None:
                decided.append((first, partition.end - 1))
            assert (aborted is not None) == (first is not None and step == "abort")
        still_open = [OpenTransaction(producer, 0, first) for producer, first in undecided.items()]
        assert partition.state.open_transactions() == still_open
        assert decode_snapshot(encode_snapshot(partition.state)).open_transactions() == still_open
        held = [*undecided.values(), *(first for first, marker in decided if marker >= flushed)]
        assert partition.state.last_stable_offset(flushed) == min([*held, flushed])


# Forgetting


def test_producers_that_were_idle_too_long_are_forgotten_and_may_begin_anew() -> None:
    partition = Partition()
    partition.send(0, producer=1, timestamp=1000)
    partition.send(0, producer=2, timestamp=2000)
    partition.state.expire(5000, after_ms=100)  # the first time their clock begins to count: records may be of any age
    assert set(partition.state.producers) == {1, 2}
    partition.send(1, producer=2, timestamp=2000)
    partition.state.expire(5090, after_ms=100)
    partition.state.expire(5101, after_ms=100)
    assert set(partition.state.producers) == {2}
    assert partition.send(55, producer=1) is not None


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    partition = Partition()
    partition.send(0, transactional=True, timestamp=1000)
    partition.state.expire(1000, after_ms=1)
    partition.state.expire(2000, after_ms=1)
    assert partition.stable == 0
    assert partition.mark(Marker.ABORT) == AbortedTransaction(1, 0, 1, 2)
    partition.state.expire(3000, after_ms=1)
    partition.state.expire(4000, after_ms=1)
    assert partition.state.producers == {}
    assert partition.stable == 2
