"""A transaction that is open for fifteen minutes, the most that a producer may ask for by default, beside others that
go on: it holds back the compaction of its partition, and consumers of committed records there, and nothing else.
"""

from pathlib import Path

from broker.background.test_compaction import BACKOFF_MS, Passes, put, seal, values
from brokers import LocalBroker, only_partition
from transactions import TransactionalProducer, check_replay, committed, known, last_stable_offset

from tailrace.broker.transactions.state import State
from tailrace.records.record import Record, encode_batch

MINUTE_MS = 60_000
MINUTES = 15
HELD, FREE = 0, 1  # partitions of a compacted topic


def put_in_transaction(producer: TransactionalProducer, partition: int, key: bytes, value: bytes) -> None:
    record = Record(0, producer.broker.now_ms, key, value)
    request = producer.produce_request(b"", partition=partition)
    sequence = producer.sequences["orders", partition] - 1  # type: ignore[index]
    producer_id, epoch = producer.identity
    request.topic_data[0].partition_data[0].records = encode_batch(
        [record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    assert only_partition(producer.broker.ask(request, 12)).error_code == 0


def test_a_transaction_of_fifteen_minutes_holds_compaction_back_and_nothing_else(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        Passes(broker)
        broker.create_topic(partitions=2, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        broker.create_topic("plain", retention_ms=str(3 * MINUTE_MS), segment_ms=str(MINUTE_MS))
        for partition in (HELD, FREE):
            put(broker, (b"a", b"old"), partition=partition)
            put(broker, (b"a", b"new"), partition=partition)
            seal(broker, partition=partition)
        long = TransactionalProducer(broker, "long", timeout_ms=MINUTES * MINUTE_MS)
        put_in_transaction(long, HELD, b"long", b"long")
        assert long.produce(b"long", topic="plain").error_code == 0
        first_offset = broker.log(index=HELD).end_offset - 1

        short = TransactionalProducer(broker, "short")
        for minute in range(1, MINUTES):
            for partition in (HELD, FREE):
                put_in_transaction(short, partition, b"b", b"%d" % minute)
            assert short.commit_offset(minute) == 0
            assert short.commit().error_code == 0, "others commit"
            assert broker.produce(b"%d" % minute, topic="plain").error_code == 0
            for partition in (HELD, FREE):
                seal(broker, partition=partition)
            broker.tick(MINUTE_MS)
            broker.tick(0)
        broker.tick(MINUTE_MS - 1)
        assert known(broker, "long").state is State.ONGOING
        last = b"%d" % (MINUTES - 1)
        passed = [b"%d" % minute for minute in range(1, MINUTES)]
        assert values(broker, partition=FREE) == [b"new", last]
        assert committed(broker, FREE)[-1] == last
        assert values(broker, partition=HELD) == [b"new", b"long", *passed], "compacted up to the transaction"
        assert last_stable_offset(broker, HELD) == first_offset
        behind = broker.log(index=HELD).end_offset - 2  # and a marker
        assert broker.values(partition=HELD, offset=behind)[0] == last, "consumers of uncommitted records read on"
        assert broker.log("plain").start_offset > 0, "retention goes on"

        broker.tick(1)
        assert known(broker, "long").state is State.COMPLETE_ABORT
        assert last_stable_offset(broker, HELD) == broker.log(index=HELD).end_offset
        seal(broker, partition=HELD)
        for _ in range(3):
            broker.tick(BACKOFF_MS)
        assert values(broker, partition=HELD) == [b"new", last]
        check_replay(broker)
