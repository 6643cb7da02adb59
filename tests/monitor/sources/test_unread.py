"""The first record that a group has not read, in batches as a broker keeps them."""

from typing import Any

import pytest

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.produce import Producer
from tailrace.monitor.figures.snapshot import Unread
from tailrace.monitor.sources.connection import connect
from tailrace.monitor.sources.unread import Fetched, UnreadRecords, _Search
from tailrace.records.compression import Codec
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, encode_batch
from tailrace.testing import Broker

T = 1_700_000_000_000


def batch(base: int, offsets: list[int], last: int, **more: Any) -> bytes:
    records = [Record(offset, T + offset, None, b"x") for offset in offsets]
    return bytes(encode_batch(records, base_offset=base, last_offset_delta=last - base, **more))


def settled(search: _Search, *responses: bytes) -> dict[int, Unread | None]:
    found: dict[int, Unread | None] = {}
    for response in responses:
        search.next()
        found.update(search.take(Fetched(memoryview(response), 1000)))
    return found


def test_offsets_that_compaction_removed_are_passed_over() -> None:
    log = batch(0, [1, 4], 9, codec=Codec.GZIP) + batch(10, [], 19) + batch(20, [25], 29)
    found = settled(_Search([0, 2, 5, 26], 30), log)
    assert found == {0: Unread(1, T + 1), 2: Unread(4, T + 4), 5: Unread(25, T + 25), 26: None}


def test_a_search_goes_on_behind_the_last_batch_of_a_response() -> None:
    search = _Search([5], 30)
    assert settled(search, batch(0, [1, 4], 9) + batch(10, [], 19)) == {}
    assert search.next().offset == 20
    assert settled(search, batch(20, [25], 29)) == {5: Unread(25, T + 25)}
    assert not search.open


def test_a_batch_that_was_cut_short_is_asked_for_whole() -> None:
    log = batch(0, list(range(1000)), 999)
    search = _Search([3], 1000)
    search._max_bytes = 100
    assert settled(search, log[:100]) == {}
    assert search.next().max_bytes == len(log)
    assert settled(search, log) == {3: Unread(3, T + 3)}


def test_the_age_of_a_record_that_does_not_come_is_unknown() -> None:
    assert settled(_Search([3], 10), *[b""] * 4) == {3: Unread(3, None)}


def test_control_batches_are_no_records() -> None:
    marker = bytes(encode_marker(Marker.COMMIT, 7, 0, 0, T, base_offset=5))
    assert settled(_Search([5], 6), marker) == {5: None}
    assert settled(_Search([5], 7), marker + batch(6, [6], 6)) == {5: Unread(6, T + 6)}


def transactional(base: int, producer: int) -> bytes:
    return batch(base, [base], base, producer_id=producer, producer_epoch=0, transactional=True)


def test_records_of_aborted_transactions_are_passed_over() -> None:
    log = transactional(0, 7) + transactional(1, 8)
    log += bytes(encode_marker(Marker.ABORT, 7, 0, 0, T, base_offset=2))
    log += bytes(encode_marker(Marker.COMMIT, 8, 0, 0, T, base_offset=3))
    log += transactional(4, 7)
    search = _Search([0, 2, 4], 5)
    found = dict(search.take(Fetched(memoryview(log), 5, [(7, 0)])))
    assert found == {0: Unread(1, T + 1), 2: Unread(4, T + 4), 4: Unread(4, T + 4)}
    only_aborted = transactional(0, 7) + bytes(encode_marker(Marker.ABORT, 7, 0, 0, T, base_offset=1))
    assert dict(_Search([0], 2).take(Fetched(memoryview(only_aborted), 2, [(7, 0)]))) == {0: None}


def test_records_of_an_open_transaction_are_not_waited_for() -> None:
    search = _Search([3, 5, 9], 10)
    assert dict(search.take(Fetched(memoryview(batch(3, [3, 4], 4)), 5))) == {3: Unread(3, T + 3)}
    assert dict(search.take(Fetched(memoryview(b""), 5))) == {5: None, 9: None}


def test_groups_that_stand_still_cost_no_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those close together share one."""
    rounds = []
    told = _Search.next
    monkeypatch.setattr(_Search, "next", lambda search: rounds.append(search) or told(search))
    with Broker() as broker:
        broker.create_topic("orders")
        cluster = connect({"bootstrap.servers": broker.bootstrap})
        where = TopicPartition("orders", 0)
        Producer(cluster).send({where: bytearray(batch(0, list(range(100)), 99))})
        unread = UnreadRecords(cluster)
        positions = {(where, offset): 100 for offset in range(0, 100, 10)}
        found = unread.find(positions)
        assert found == {(where, offset): Unread(offset, T + offset) for offset in range(0, 100, 10)}
        assert len(rounds) == 1
        assert unread.find(positions) == found
        assert len(rounds) == 1
        assert unread.find({(where, 11): 100}) == {(where, 11): Unread(11, T + 11)}
        assert len(rounds) == 2
        cluster.close()
