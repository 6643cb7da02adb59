"""Snapshots of producers: nothing is lost, nothing damaged is believed, and Kafka's own are read."""

import struct
from collections import deque

import pytest
from batches import flip
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.state.producer_state import (
    BATCHES_KEPT,
    NO_OFFSET,
    CorruptSnapshot,
    ProducedBatch,
    Producer,
    ProducerState,
    decode_snapshot,
    encode_snapshot,
)
from tailrace.records.checksum import crc32c

INT16, INT32, INT64 = (st.integers(0, (1 << bits) - 1) for bits in (15, 31, 63))
TIMESTAMPS = st.just(-1) | INT64
BATCHES = st.lists(st.builds(ProducedBatch, INT32, INT64, INT32, TIMESTAMPS), max_size=BATCHES_KEPT)
PRODUCERS = st.dictionaries(
    INT64,
    st.builds(
        Producer,
        epoch=INT16,
        coordinator_epoch=st.just(-1) | INT32,
        transaction_start=st.just(NO_OFFSET) | INT64,
        last_timestamp=TIMESTAMPS,
        batches=BATCHES.map(lambda batches: deque(batches, maxlen=BATCHES_KEPT)),
    ),
    max_size=4,
)


def some_producers() -> dict[int, Producer]:
    five = deque([ProducedBatch(9 + n, 100 + 10 * n, 4, 1000 + n) for n in range(5)], maxlen=BATCHES_KEPT)
    return {
        4711: Producer(3, coordinator_epoch=2, transaction_start=-1, last_timestamp=2000, batches=five),
        4712: Producer(0, coordinator_epoch=-1, transaction_start=120, last_timestamp=1500),
    }


@given(PRODUCERS)
def test_producers_come_back_as_they_were_encoded(producers: dict[int, Producer]) -> None:
    decoded = decode_snapshot(encode_snapshot(ProducerState(producers)))
    assert decoded.producers == producers
    assert list(decoded.producers) == list(producers), "in the same order, so that a second snapshot is the same"
    assert all(producer.batches.maxlen == BATCHES_KEPT for producer in decoded.producers.values())


@given(PRODUCERS, st.integers(0, (1 << 63) - 1))
def test_open_transactions_still_hold_the_last_stable_offset(producers: dict[int, Producer], flushed: int) -> None:
    decoded = decode_snapshot(encode_snapshot(ProducerState(producers)))
    starts = [p.transaction_start for p in producers.values() if p.transaction_start != NO_OFFSET]
    assert decoded.last_stable_offset(flushed) == min([*starts, flushed])


@pytest.mark.parametrize("producers", [some_producers(), {}], ids=["some", "none"])
def test_a_snapshot_cut_at_any_byte_is_refused(producers: dict[int, Producer]) -> None:
    data = encode_snapshot(ProducerState(producers))
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data[:size])


@pytest.mark.parametrize("producers", [some_producers(), {}], ids=["some", "none"])
def test_a_snapshot_with_a_flipped_bit_is_refused(producers: dict[int, Producer]) -> None:
    data = encode_snapshot(ProducerState(producers))
    for bit in range(8 * len(data)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(flip(data, bit))


@given(st.binary(max_size=100))
def test_bytes_that_are_no_snapshot_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(data)


def sealed(body: bytes) -> bytes:
    return struct.pack(">hI", 1, crc32c(body)) + body


def kafka_entry(producer_id: int, sequence: int, offset: int, delta: int, start: int) -> bytes:
    return struct.pack(">qhiqiqiq", producer_id, 3, sequence, offset, delta, 2000, 7, start)


def test_a_snapshot_of_kafka_s_own_is_read() -> None:
    entries = [kafka_entry(4711, 49, 149, 4, -1), kafka_entry(4712, -1, -1, 0, 77)]
    state = decode_snapshot(sealed(struct.pack(">i", 2) + b"".join(entries)))
    assert state.producers == {
        4711: Producer(3, 7, -1, 2000, batches=deque([ProducedBatch(49, 149, 4, 2000)])),
        4712: Producer(3, 7, 77, 2000),
    }
    assert state.last_stable_offset(1000) == 77


def test_an_empty_snapshot_of_kafka_s_own_is_read() -> None:
    assert decode_snapshot(sealed(struct.pack(">i", 0))).producers == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        struct.pack(">i", 1),
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        struct.pack(">i", 1) + kafka_entry(1, 0, 0, 0, -1)[:-1],
        struct.pack(">i", 1) + kafka_entry(1, 0, 0, 0, -1) + bytes(3),
        struct.pack(">i", 1) + kafka_entry(1, 0, 0, 0, -1) + struct.pack(">Bq", 4, 0) + bytes(24),
    ],
    ids=["nothing", "no entry", "count below zero", "count too large", "entry cut", "extension cut", "batches cut"],
)
def test_an_intact_snapshot_that_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(sealed(body))


def test_a_snapshot_of_another_version_is_refused() -> None:
    data = bytearray(encode_snapshot(ProducerState(some_producers())))
    data[1] = 2
    with pytest.raises(CorruptSnapshot, match="version 2"):
        decode_snapshot(bytes(data))
