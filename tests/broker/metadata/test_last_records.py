"""The last record of each key of a log with transactions: what a start of the broker finds in an internal topic."""

from typing import NamedTuple

import pytest
from compactions import compact
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import DATA, ORDERS, memory_files

from tailrace.broker.metadata.internal_topics import (
    LastRecords,
    LastRecordsJob,
    ReadBatch,
    append_records,
    read_batches,
    records_of,
)
from tailrace.log.compaction.messages import PassResult
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.config import LogConfig
from tailrace.log.log import Log
from tailrace.records.batch import NO_PRODUCER, NO_SEQUENCE, read_header
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, decode_records, encode_batch

PLAIN = NO_PRODUCER
ABORT, COMMIT = Marker.ABORT, Marker.COMMIT


class Wrote(NamedTuple):
    """A batch: of a producer's transaction, or of none."""

    producer: int
    pairs: tuple[tuple[bytes, bytes | None], ...]


class Ended(NamedTuple):
    producer: int
    marker: Marker


Step = Wrote | Ended


def write(producer: int, **values: bytes | None) -> Wrote:
    return Wrote(producer, tuple((key.encode(), value) for key, value in values.items()))


producers = st.integers(1, 3)
pairs = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.none() | st.binary(max_size=3)), min_size=1, max_size=5
)
writes = st.builds(Wrote, producers | st.just(PLAIN), pairs.map(tuple))
steps_of_a_log = st.lists(writes | st.builds(Ended, producers, st.sampled_from(Marker)), max_size=30)


def encoded(step: Step, base_offset: int) -> bytearray:
    if isinstance(step, Ended):
        return encode_marker(step.marker, step.producer, 0, 7, 1000, base_offset=base_offset)
    records = [Record(base_offset + n, 1000, key, value) for n, (key, value) in enumerate(step.pairs)]
    is_transactional = step.producer != PLAIN
    return encode_batch(
        records,
        base_offset=base_offset,
        producer_id=step.producer,
        producer_epoch=0 if is_transactional else -1,
        transactional=is_transactional,
    )


def found_in(steps: list[Step]) -> LastRecords:
    found, offset = LastRecords(), 0
    for step in steps:
        data = encoded(step, offset)
        header = read_header(data)
        if isinstance(step, Ended):
            found.add(ReadBatch(header, [], step.marker))
        else:
            found.add(ReadBatch(header, decode_records(data), None))
        offset = header.next_offset
    return found


def expected_of(steps: list[Step]) -> dict[bytes, tuple[int, bytes]]:
    """Of all records that count, whether plain or of a committed transaction, the one with the highest offset."""
    highest: dict[bytes, tuple[int, bytes | None]] = {}
    offset = 0
    for number, step in enumerate(steps):
        if isinstance(step, Ended):
            offset += 1
            continue
        ends = (one.marker for one in steps[number:] if isinstance(one, Ended) and one.producer == step.producer)
        counts = step.producer == PLAIN or next(ends, ABORT) is COMMIT
        for key, value in step.pairs:
            if counts:
                highest[key] = max(highest.get(key, (-1, None)), (offset, value), key=lambda one: one[0])
            offset += 1
    return {key: (offset, value) for key, (offset, value) in highest.items() if value is not None}


def contents(last: dict[bytes, Record]) -> dict[bytes, tuple[int, bytes]]:
    return {key: (record.offset, record.value or b"") for key, record in last.items()}


@settings(max_examples=500)
@given(steps_of_a_log)
def test_the_record_with_the_highest_offset_counts_of_those_that_are_committed(steps: list[Step]) -> None:
    found = found_in(steps)
    assert contents(found.last) == expected_of(steps)
    undecided = [producer for producer, pending in found.pending.items() if pending.records]
    for marker in Marker:  # whatever comes of the others
        ends = [Ended(producer, marker) for producer in undecided]
        assert contents(found_in([*steps, *ends]).last) == expected_of([*steps, *ends])


def test_records_of_a_transaction_count_from_its_marker_on() -> None:
    begun: list[Step] = [write(PLAIN, a=b"0", b=b"1"), write(1, a=b"2"), write(1, a=b"3", c=b"4")]
    assert contents(found_in(begun).last) == {b"a": (0, b"0"), b"b": (1, b"1")}
    assert contents(found_in([*begun, Ended(1, ABORT)]).last) == {b"a": (0, b"0"), b"b": (1, b"1")}
    committed = found_in([*begun, Ended(1, COMMIT)])
    assert contents(committed.last) == {b"b": (1, b"1"), b"a": (3, b"3"), b"c": (4, b"4")}
    assert list(committed.last) == [b"b", b"a", b"c"], "in the order in which they began to count"
    assert committed.pending == {}


def test_in_a_transaction_too_a_key_is_where_its_last_record_is() -> None:
    """As after a compaction, which removes the first one."""
    found = found_in([write(1, a=b"0"), write(1, b=b"1"), write(1, a=b"2"), Ended(1, COMMIT)])
    assert list(found.last) == [b"b", b"a"]


def test_a_plain_record_behind_one_of_a_transaction_wins() -> None:
    found = found_in([write(1, a=b"0"), write(PLAIN, a=b"1"), Ended(1, COMMIT)])
    assert contents(found.last) == {b"a": (1, b"1")}


def test_of_two_transactions_the_later_record_wins_whichever_ends_first() -> None:
    begun: list[Step] = [write(1, a=b"0"), write(2, a=b"1")]
    for first, second in ((1, 2), (2, 1)):
        found = found_in([*begun, Ended(first, COMMIT), Ended(second, COMMIT)])
        assert contents(found.last) == {b"a": (1, b"1")}


def test_a_removed_key_does_not_come_back_with_the_commit_of_an_earlier_record() -> None:
    found = found_in([write(1, a=b"0", b=b"1"), write(PLAIN, a=None)])
    assert {record.key for record in found.pending[1].records.values()} == {b"b"}
    found = found_in([write(1, a=b"0", b=b"1"), write(PLAIN, a=None), write(1, a=b"3"), Ended(1, COMMIT)])
    assert contents(found.last) == {b"b": (1, b"1"), b"a": (3, b"3")}


# In a log


def read(log: Log) -> LastRecordsJob:
    job = LastRecordsJob([log])
    job.run()
    assert job.error is None
    return job


def undecided(job: LastRecordsJob) -> dict[int, list[Record]]:
    return {of.producer_id: of.records for of in job.undecided}


@settings(max_examples=150)
@given(steps_of_a_log, st.integers(1, 30))
def test_a_start_finds_the_same_before_and_after_a_compaction(steps: list[Step], cut: int) -> None:
    config = LogConfig(segment_bytes=400, index_interval_bytes=100, delete_retention_ms=1000)
    directory = DataDirectory(memory_files(), DATA, config)
    log = directory.create(ORDERS)
    for number, step in enumerate(steps):
        log.append(encoded(step, log.end_offset), 1000)
        if number == cut:
            directory.checkpoint(1000)
            assert isinstance(compact(log, 1000), PassResult | None)
    directory.checkpoint(1000)
    before = read(log)
    assert contents(before.last) == expected_of(steps)
    for now in (2000, 4000, 6000):  # markers and tombstones go some passes later
        assert isinstance(compact(log, now), PassResult | None)
        after = read(log)
        assert list(after.last.items()) == list(before.last.items())
        assert undecided(after) == undecided(before)


def test_undecided_records_come_with_their_log_producer_and_epoch() -> None:
    directory = DataDirectory(memory_files(), DATA)
    log = directory.create(ORDERS)
    for epoch, value in ((3, b"0"), (4, b"1")):
        data = encode_batch([Record(0, 1000, b"a", value)], producer_id=5, producer_epoch=epoch, transactional=True)
        log.append(data, 1000)
    log.flush()
    (found,) = read(log).undecided
    assert (found.log, found.producer_id, found.producer_epoch) == (log, 5, 4)
    assert [(record.offset, record.value) for record in found.records] == [(1, b"1")]


def test_batches_are_read_with_their_headers_and_markers() -> None:
    directory = DataDirectory(memory_files(), DATA)
    log = directory.create(ORDERS)
    assert append_records(log, [Record(0, 1000, b"a", b"0"), Record(0, 1000, b"b", b"1")], 1000) == 0
    assert append_records(log, [Record(0, 1000, b"a", b"2")], 1000) == 2
    log.append(encoded(write(1, a=b"3"), 3), 1000)
    for marker in (COMMIT, ABORT):
        log.append(encoded(Ended(1, marker), 0), 1000)
    log.flush()
    found = list(read_batches(log))
    assert [(one.header.base_offset, one.header.producer_id, one.marker) for one in found] == [
        (0, PLAIN, None),
        (2, PLAIN, None),
        (3, 1, None),
        (4, 1, COMMIT),
        (5, 1, ABORT),
    ]
    assert [[record.value for record in one.records] for one in found] == [[b"0", b"1"], [b"2"], [b"3"], [], []]
    assert [record.value for record in records_of(log)] == [b"0", b"1", b"2", b"3"]
    assert [one.header.base_offset for one in read_batches(log, from_offset=3)] == [3, 4, 5]
    assert found[2].header.base_sequence == NO_SEQUENCE


@pytest.mark.parametrize("key", [None, b""])
def test_records_without_a_key_have_the_same_key(key: bytes | None) -> None:
    found = LastRecords()
    for offset in range(2):
        data = encode_batch([Record(offset, 1000, key, b"%d" % offset)], base_offset=offset)
        found.add(ReadBatch(read_header(data), decode_records(data), None))
    assert contents(found.last) == {b"": (1, b"1")}
