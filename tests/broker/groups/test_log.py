"""The log of groups: how it comes into being, what is written to it, and what is read of it at the start."""

from typing import Any

import pytest
from brokers import LocalBroker
from group_requests import BILLING, Consumer, broker_for_groups, commit, commit_request, share
from logs import DATA, memory_files

from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.groups.records import GroupSaved, OffsetCommitted, OffsetCommitValue, decode, encode_offset
from tailrace.broker.metadata.internal_topics import LastRecordsJob
from tailrace.protocol.errors import ErrorCode
from tailrace.records.batch import split
from tailrace.records.compression import Codec
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import decode_records, encode_batch


def batches(broker: LocalBroker) -> list[list[Any]]:
    """What each batch of the log says."""
    piece = broker.log(OFFSETS_TOPIC).read(0, 1 << 24)
    if piece is None:
        return []
    with piece:
        data = piece.read()
    return [[decode(record) for record in decode_records(data, position)] for position, _ in split(data)]


def last(broker: LocalBroker) -> dict[bytes, Any]:
    job = LastRecordsJob([broker.log(OFFSETS_TOPIC)])
    job.run()
    assert job.error is None
    return {key: decode(record) for key, record in job.last.items()}


@pytest.mark.parametrize("count", [1, 50])
def test_the_topic_comes_into_being_with_the_first_record_and_is_compacted(count: int) -> None:
    configs = {"offsets.topic.num.partitions": str(count)}
    with broker_for_groups(DATA, configs, files=memory_files()) as broker:
        broker.create_topic()
        assert OFFSETS_TOPIC not in broker.broker.metadata.topics
        commit(broker, 5)
        topic = broker.broker.metadata.topics[OFFSETS_TOPIC]
        assert (topic.partition_count, topic.is_internal) == (count, True)
        assert topic.overrides == {"cleanup.policy": "compact", "segment.bytes": "104857600"}


def test_a_request_is_one_batch() -> None:
    with broker_for_groups(DATA, files=memory_files()) as broker:
        broker.create_topic(partitions=3)
        broker.ask(commit_request({("orders", n): n for n in range(3)}), 9)
        (made,) = batches(broker)
        assert [(one.topic, one.partition, one.value.offset) for one in made] == [("orders", n, n) for n in range(3)]


def test_joins_and_heartbeats_write_nothing() -> None:
    with broker_for_groups(DATA, files=memory_files()) as broker:
        broker.create_topic()
        commit(broker, 5, group="other")
        a, b = Consumer(broker, "a"), Consumer(broker, "b")
        a.enter()
        b.enter()
        a.join()
        a.heartbeat()
        b.sync()
        assert len(batches(broker)) == 1
        a.sync({})
        (saved,) = batches(broker)[1]
        assert isinstance(saved, GroupSaved)
        assert (saved.group, saved.value.generation, saved.value.leader) == (BILLING, 2, a.member_id)
        assert saved.value.current_state_timestamp == broker.now_ms


def test_nobody_else_writes_to_it() -> None:
    with broker_for_groups(DATA, files=memory_files()) as broker:
        broker.create_topic()
        commit(broker, 5)
        assert broker.produce(b"a", topic=OFFSETS_TOPIC).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert len(batches(broker)) == 1


def test_of_each_key_the_last_record_is_read_and_none_of_what_was_taken_back() -> None:
    with broker_for_groups(DATA, files=memory_files()) as broker:
        broker.create_topic()
        for offset in (3, 5):
            commit(broker, offset)
        (a,) = share(Consumer(broker, "a", group="left"))
        a.leave()
        log = broker.log(OFFSETS_TOPIC)
        for value in (OffsetCommitValue(offset=9), None):
            log.append(encode_batch([encode_offset("gone", "orders", 0, value, 1)]), broker.now_ms)
        log.append(encode_marker(Marker.ABORT, 1, 0, 0, broker.now_ms), broker.now_ms)
        log.flush()
        committed, left = sorted(last(broker).values(), key=lambda one: one.group)
        assert isinstance(committed, OffsetCommitted)
        assert (committed.group, committed.value.offset) == (BILLING, 5)
        assert (left.group, left.value.members, left.value.generation) == ("left", [], 2)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_batches_are_read(codec: Codec) -> None:
    """Kafka writes them where `offsets.topic.compression.codec` says so."""
    with broker_for_groups(DATA, files=memory_files()) as broker:
        broker.create_topic()
        commit(broker, 5, group="other")
        record = encode_offset(BILLING, "orders", 0, OffsetCommitValue(offset=9), 1)
        log = broker.log(OFFSETS_TOPIC)
        log.append(encode_batch([record], codec=codec), broker.now_ms)
        log.flush()
        assert {one.group: one.value.offset for one in last(broker).values()} == {"other": 5, BILLING: 9}
