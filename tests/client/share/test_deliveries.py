"""The acquired records in a response: what is delivered, and what is settled without."""

import pytest
from client.conftest import a_batch

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.share.acknowledgements import Acknowledgement, Outcome, SharePartition
from tailrace.client.share.deliveries import Acquired, read_acquired
from tailrace.protocol.messages.share_fetch import AcquiredRecords, PartitionData
from tailrace.records.record import Record, encode_batch

AT, PARTITION = TopicPartition("orders", 0), SharePartition(b"i" * 16, 0)


def acquired(records: bytes, *ranges: tuple[int, int, int]) -> Acquired:
    """Ranges: first, last, delivery count."""
    found = [AcquiredRecords(first_offset=a, last_offset=b, delivery_count=n) for a, b, n in ranges]
    return read_acquired(PartitionData(records=records, acquired_records=found), AT, PARTITION)


def delivered(found: Acquired) -> list[tuple[int, bytes | None, int]]:
    return [(one.offset, one.record.value, one.attempt) for one in found.deliveries]


def settled(outcome: Outcome, first: int, last: int) -> Acknowledgement:
    return Acknowledgement(PARTITION, first, last, outcome)


def test_only_acquired_records_are_delivered_each_with_its_attempt() -> None:
    batches = a_batch(b"0", b"1", b"2", b"3") + a_batch(b"4", b"5", base_offset=4)
    found = acquired(bytes(batches), (1, 2, 1), (5, 5, 3))
    assert delivered(found) == [(1, b"1", 1), (2, b"2", 1), (5, b"5", 3)]
    assert not found.settled
    assert not found.damage


def test_an_empty_response_delivers_nothing() -> None:
    assert acquired(b"") == Acquired([], [], [])


def test_offsets_without_a_record_are_gaps() -> None:
    compacted = encode_batch([Record(0, 0, None, b"0"), Record(3, 0, None, b"3")], last_offset_delta=4)
    marker = a_batch(b"marker", base_offset=5, control=True)
    later = a_batch(b"8", base_offset=8)
    found = acquired(bytes(compacted + marker + later), (0, 8, 1))
    assert [offset for offset, _, _ in delivered(found)] == [0, 3, 8]
    assert found.settled == [settled(Outcome.GAP, 1, 2), settled(Outcome.GAP, 4, 7)]


def test_records_that_did_not_come_are_released() -> None:
    found = acquired(bytes(a_batch(b"0", b"1")), (0, 3, 1))
    assert [offset for offset, _, _ in delivered(found)] == [0, 1]
    assert found.settled == [settled(Outcome.RELEASE, 2, 3)]
    assert acquired(b"", (0, 3, 1)).settled == [settled(Outcome.RELEASE, 0, 3)]


def test_a_batch_that_cannot_be_read_is_rejected_and_the_others_are_delivered() -> None:
    broken = a_batch(b"0", b"1")
    broken[-1] ^= 1
    found = acquired(bytes(broken + a_batch(b"2", base_offset=2)), (0, 2, 1))
    assert delivered(found) == [(2, b"2", 1)]
    assert found.settled == [settled(Outcome.REJECT, 0, 1)]
    assert "CRC" in str(found.damage[0])


@pytest.mark.parametrize(
    "records", [b"nonsense" * 20, bytes(a_batch(b"6", base_offset=6) + a_batch(b"5", base_offset=5))]
)
def test_records_that_are_no_batches_are_released(records: bytes) -> None:
    found = acquired(records, (5, 7, 1))
    assert not found.deliveries
    assert found.settled == [settled(Outcome.RELEASE, 5, 7)]
    assert found.damage


def test_a_truncated_batch_is_released() -> None:
    whole = bytes(a_batch(b"0"))
    found = acquired(whole + bytes(a_batch(b"1", base_offset=1))[:-3], (0, 1, 1))
    assert delivered(found) == [(0, b"0", 1)]
    assert found.settled == [settled(Outcome.RELEASE, 1, 1)]
