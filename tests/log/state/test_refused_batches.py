"""Refused batches: which sequence of an unknown producer is due, and for how long."""

import pytest
from batches import TIMESTAMP, header
from hypothesis import example, given
from hypothesis import strategies as st
from logs import DATA, memory_files

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.errors import OutOfOrderSequence
from tailrace.log.layout.names import TopicPartition
from tailrace.log.state.producer_state import ProducerState
from tailrace.log.state.refused_batches import REFUSED_BATCHES_MAX, REMEMBERED_MS, RefusedBatches
from tailrace.records.batch import BatchHeader, read_header
from tailrace.records.control import Marker, encode_marker

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
SEQUENCES = 1 << 31
IN_FLIGHT = 5


def produced(sequence: int, count: int = 1, epoch: int = 0) -> BatchHeader:
    return header(count, base_sequence=sequence, producer_id=1, producer_epoch=epoch)


def state_with(refused: RefusedBatches, partition: TopicPartition = ORDERS) -> ProducerState:
    state = ProducerState()
    state.refused = refused.of(partition)
    return state


def append(state: ProducerState, sent: BatchHeader) -> None:
    assert state.check(sent) is None
    state.replay(sent, None, -1)


def test_other_sequences_are_out_of_order_until_the_refused_one_is_appended() -> None:
    refused = RefusedBatches()
    state = state_with(refused)
    refused.remember(ORDERS, 1, 0, 0, steady_ms=0)
    for sequence in (1, 2, 1):
        with pytest.raises(OutOfOrderSequence, match=f"sent sequence {sequence} but 0 is due"):
            state.check(produced(sequence))
    assert state.check(produced(0)) is None
    assert len(refused) == 1, "checking changes nothing"
    append(state, produced(0))
    assert len(refused) == 0
    append(state, produced(1))


def test_other_partitions_producers_and_epochs_are_not_affected() -> None:
    refused = RefusedBatches()
    refused.remember(ORDERS, 1, 5, 0, steady_ms=0)
    append(state_with(refused, OTHER), produced(3, epoch=5))
    assert state_with(refused).check(header(1, base_sequence=3, producer_id=2, producer_epoch=5)) is None
    assert len(refused) == 1
    append(state_with(refused), produced(3, epoch=6))
    assert len(refused) == 0, "a newer epoch begins anew"


def test_a_transaction_marker_is_appended_and_forgets_the_refused_batch() -> None:
    refused = RefusedBatches()
    state = state_with(refused)
    refused.remember(ORDERS, 1, 0, 0, steady_ms=0)
    marker = read_header(encode_marker(Marker.ABORT, 1, 0, 3, TIMESTAMP))
    assert state.check(marker) is None
    state.replay(marker, Marker.ABORT, 3)
    assert len(refused) == 0


@pytest.mark.parametrize(
    ("sequences", "due"),
    [([7, 8], 7), ([8, 7], 7), ([SEQUENCES - 1, 0], SEQUENCES - 1), ([0, SEQUENCES - 1], SEQUENCES - 1), ([3, 3], 3)],
)
def test_the_earliest_of_several_refused_batches_is_due(sequences: list[int], due: int) -> None:
    refused = RefusedBatches()
    for sequence in sequences:
        refused.remember(ORDERS, 1, 0, sequence, steady_ms=0)
    assert refused.due(ORDERS, 1, 0) == due
    assert len(refused) == 1


def test_a_refused_batch_of_a_newer_epoch_replaces_one_of_an_older_epoch_only() -> None:
    refused = RefusedBatches()
    for epoch, sequence in ((1, 9), (2, 40), (1, 3)):
        refused.remember(ORDERS, 1, epoch, sequence, steady_ms=0)
    assert (refused.due(ORDERS, 1, 1), refused.due(ORDERS, 1, 2)) == (None, 40)


def test_a_refused_batch_is_forgotten_ten_minutes_after_the_last_refusal() -> None:
    refused = RefusedBatches()
    refused.remember(ORDERS, 1, 0, 0, steady_ms=0)
    refused.remember(OTHER, 1, 0, 0, steady_ms=1)
    refused.remember(ORDERS, 1, 0, 1, steady_ms=2)
    refused.expire(REMEMBERED_MS)
    assert len(refused) == 2
    refused.expire(REMEMBERED_MS + 1)
    assert (refused.due(OTHER, 1, 0), refused.due(ORDERS, 1, 0)) == (None, 0)
    refused.expire(REMEMBERED_MS + 2)
    assert len(refused) == 0
    assert refused.dropped == 0
    assert REMEMBERED_MS == 10 * 60 * 1000


def test_the_oldest_refused_batch_is_dropped_and_counted_when_there_are_too_many() -> None:
    refused = RefusedBatches()
    for producer_id in range(REFUSED_BATCHES_MAX):
        refused.remember(ORDERS, producer_id, 0, 0, steady_ms=0)
    refused.remember(ORDERS, 0, 0, 1, steady_ms=1)  # so that producer 1 is the oldest
    assert (len(refused), refused.dropped) == (10_000, 0)
    refused.remember(ORDERS, REFUSED_BATCHES_MAX, 0, 0, steady_ms=1)
    assert (len(refused), refused.dropped) == (10_000, 1)
    assert [refused.due(ORDERS, producer_id, 0) for producer_id in (0, 1, 2)] == [0, None, 0]


def test_a_truncated_log_keeps_the_refused_batches() -> None:
    log = DataDirectory(memory_files(), DATA).create(ORDERS)
    refused = RefusedBatches()
    log.producers.refused = refused.of(ORDERS)
    refused.remember(ORDERS, 1, 0, 0, steady_ms=0)
    log.truncate(0)
    with pytest.raises(OutOfOrderSequence):
        log.producers.check(produced(1))


class Client:
    """An idempotent producer as the clients in use are: sends what is not acknowledged again, in order."""

    def __init__(self, first: int, sizes: list[int]) -> None:
        self.unacknowledged: list[BatchHeader] = []
        for size in sizes:
            self.unacknowledged.append(produced(first, size))
            first = (first + size) % SEQUENCES

    def send(self, state: ProducerState, refused: RefusedBatches, refusals: list[bool]) -> list[int]:
        """Sends what may be in flight; each batch may be refused. Returns the sequences that were appended."""
        appended, failed = [], []
        in_flight = self.unacknowledged[:IN_FLIGHT]
        for number, sent in enumerate(in_flight):
            try:
                if refusals and refusals[number % len(refusals)]:
                    if not state.touch(1):
                        refused.remember(ORDERS, 1, 0, sent.base_sequence, steady_ms=0)
                    failed.append(sent)
                elif state.check(sent) is None:
                    state.replay(sent, None, -1)
                    appended.append(sent.base_sequence)
            except OutOfOrderSequence:
                failed.append(sent)
        self.unacknowledged[:IN_FLIGHT] = failed
        return appended


@given(
    first=st.sampled_from([0, 1, 1000, SEQUENCES - 1, SEQUENCES - 3, SEQUENCES // 2 - 2]),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    rounds=st.lists(st.lists(st.booleans(), max_size=IN_FLIGHT), max_size=6),
)
@example(first=0, sizes=[1, 1], rounds=[[True, False]])
def test_whatever_is_refused_batches_are_appended_in_order_without_a_gap(
    first: int, sizes: list[int], rounds: list[list[bool]]
) -> None:
    refused, client = RefusedBatches(), Client(first, sizes)
    state = state_with(refused)
    expected = [sent.base_sequence for sent in client.unacknowledged]
    appended: list[int] = []
    for refusals in rounds:
        appended += client.send(state, refused, refusals)
        assert appended == expected[: len(appended)]
        assert len(refused) <= 1
    while client.unacknowledged:
        progress = client.send(state, refused, [])
        assert progress, "what is sent again in order is accepted"
        appended += progress
    assert appended == expected
    assert len(refused) == 0
