"""Records of the transaction log are Kafka's, byte for byte; the expected bytes were made from Kafka's schemas."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.transactions.records import TransactionSaved, UnreadableTransaction, by_topic, decode, encode
from tailrace.broker.transactions.state import NO_EPOCH, State, Transaction
from tailrace.log.layout.names import TopicPartition
from tailrace.records.record import Record

KEY = bytes.fromhex("0000 0002 7478")
EMPTY = Transaction(7, 0, 60_000, State.EMPTY, updated_ms=1000, previous_producer_id=7)
ONGOING = EMPTY._replace(
    state=State.ONGOING,
    partitions=frozenset({TopicPartition("t", 0), TopicPartition("t", 1)}),
    started_ms=900,
    version=2,
)
COMMITTED = ONGOING._replace(state=State.COMPLETE_COMMIT, epoch=1, partitions=frozenset(), updated_ms=1100)
EMPTY_BYTES = "0001 0000000000000007 0000 0000ea60 00 00 00000000000003e8 ffffffffffffffff 01 0008 0000000000000007"
ONGOING_BYTES = (
    "0001 0000000000000007 0000 0000ea60 01 02 0274 03 00000000 00000001 00 00000000000003e8 0000000000000384"
    "02 0008 0000000000000007 0202 0002"
)
COMMITTED_BYTES = (
    "0001 0000000000000007 0001 0000ea60 04 01 000000000000044c 0000000000000384 02 0008 0000000000000007 0202 0002"
)


@pytest.mark.parametrize(
    ("transaction", "expected"),
    [(EMPTY, EMPTY_BYTES), (ONGOING, ONGOING_BYTES), (COMMITTED, COMMITTED_BYTES)],
    ids=["empty", "ongoing", "committed"],
)
def test_a_record_has_the_bytes_that_kafka_writes(transaction: Transaction, expected: str) -> None:
    record = encode(TransactionSaved("tx", transaction), 5)
    assert (record.key, record.timestamp) == (KEY, 5)
    assert record.value is not None
    assert record.value.hex() == bytes.fromhex(expected).hex()
    assert decode(record) == TransactionSaved("tx", transaction)


def test_an_expired_id_is_a_record_without_a_value() -> None:
    record = encode(TransactionSaved("tx", None), 5)
    assert (record.key, record.value) == (KEY, None)
    assert decode(record) == TransactionSaved("tx", None)


def test_a_completed_transaction_has_no_partitions_and_an_empty_one_none_at_all() -> None:
    """Kafka reads both, and writes an empty list or null."""
    saved = decode(Record(0, 0, KEY, bytes.fromhex(COMMITTED_BYTES)))
    assert saved is not None
    assert saved.transaction is not None
    assert saved.transaction.partitions == frozenset()
    partitions_at = 2 + 8 + 2 + 4 + 1
    for transaction, number in ((EMPTY, 0), (COMMITTED, 1)):
        assert (encode(TransactionSaved("tx", transaction), 0).value or b"")[partitions_at] == number


def older(status: int = 1, topics: bytes = bytes.fromhex("00000001 0001 74 00000002 00000000 00000001")) -> bytes:
    """A value of version 0, as Kafka wrote it up to its release 3."""
    return struct.pack(">hqhib", 0, 7, 0, 60_000, status) + topics + struct.pack(">qq", 1000, 900)


def test_a_value_of_the_older_version_is_read() -> None:
    expected = ONGOING._replace(previous_producer_id=-1, version=0)
    assert decode(Record(0, 0, KEY, older())) == TransactionSaved("tx", expected)
    empty = decode(Record(0, 0, KEY, older(0, bytes.fromhex("ffffffff"))))
    assert empty is not None
    assert empty.transaction is not None
    assert (empty.transaction.state, empty.transaction.partitions) == (State.EMPTY, frozenset())


def test_the_tag_of_the_next_epoch_is_read_over() -> None:
    """Tag 3 is for transactions that a coordinator elsewhere decides; Kafka 4.3 does not write it."""
    value = bytes.fromhex(EMPTY_BYTES.replace("01 0008", "02 0008") + "03 02 0005")
    assert decode(Record(0, 0, KEY, value)) == TransactionSaved("tx", EMPTY)


def test_a_dead_transaction_counts_as_expired() -> None:
    assert decode(Record(0, 0, KEY, older(6, bytes(4)))) == TransactionSaved("tx", None)


def test_a_record_of_another_kind_is_passed_over() -> None:
    assert decode(Record(0, 0, struct.pack(">hh", 1, 2) + b"tx", b"?")) is None


UNREADABLE: dict[str, tuple[bytes | None, bytes | None]] = {
    "no key": (None, b""),
    "half a key": (KEY[:-1], bytes.fromhex(EMPTY_BYTES)),
    "no version": (KEY, b""),
    "a newer version": (KEY, b"\0\2" + bytes.fromhex(EMPTY_BYTES)[2:]),
    "half a value": (KEY, bytes.fromhex(ONGOING_BYTES)[:30]),
    "an unknown state": (KEY, older(8, bytes(4))),
    "a negative state": (KEY, older(-1, bytes(4))),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_record_that_cannot_be_read_is_named_by_its_offset(case: str) -> None:
    key, value = UNREADABLE[case]
    with pytest.raises(UnreadableTransaction, match="record 41 of the transaction log"):
        decode(Record(41, 0, key, value))


def transactions() -> st.SearchStrategy[Transaction]:
    int64, int16 = st.integers(-1, 2**63 - 1), st.integers(0, 2**15 - 1)
    names = st.builds(TopicPartition, st.text("abé", min_size=1, max_size=3), st.integers(0, 2**31 - 1))
    return st.builds(
        Transaction,
        producer_id=int64,
        epoch=int16,
        timeout_ms=st.integers(1, 2**31 - 1),
        state=st.sampled_from([state for state in State if state is not State.DEAD]),
        partitions=st.frozensets(names, max_size=8),
        updated_ms=int64,
        started_ms=int64,
        previous_producer_id=int64,
        next_producer_id=int64,
        version=st.integers(0, 2),
        last_epoch=st.just(NO_EPOCH),  # is not in the log
    )


@given(st.text(max_size=20), transactions())
def test_a_record_that_is_read_says_what_was_written(transactional_id: str, transaction: Transaction) -> None:
    if transaction.state is State.EMPTY:
        transaction = transaction._replace(partitions=frozenset())
    saved = TransactionSaved(transactional_id, transaction)
    assert decode(encode(saved, 0)) == saved


@given(st.binary(max_size=60), st.binary(max_size=120) | st.none())
def test_arbitrary_bytes_are_read_or_refused(key: bytes, value: bytes | None) -> None:
    outcomes: Any = []
    try:
        outcomes.append(decode(Record(0, 0, key, value)))
    except UnreadableTransaction as error:
        outcomes.append(error)
    assert outcomes


def test_partitions_are_listed_by_topic_in_order() -> None:
    listed = by_topic(TopicPartition(topic, index) for topic, index in [("b", 2), ("a", 1), ("b", 0), ("a", 3)])
    assert [(one.topic, one.partition_ids) for one in listed] == [("a", [1, 3]), ("b", [0, 2])]
