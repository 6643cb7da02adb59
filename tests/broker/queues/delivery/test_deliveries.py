"""Delay, expiry, order and priority, as members of a share group see them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from backlogs import noted
from brokers import LocalBroker, only_partition, produce_request
from queue_states import check_replay
from share_fetches import GROUP, Worker, begin_group, set_configs
from transactions import TransactionalProducer

from tailrace.broker.queues.delivery import screening
from tailrace.broker.queues.delivery.deliveries import InspectJob
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.records.compression import Codec
from tailrace.records.record import Record, encode_batch

SECOND = 1_000
HOUR = 3_600_000
Headers = dict[str, bytes]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        yield broker


def begin(broker: LocalBroker, *, group: dict[str, str] | None = None, partitions: int = 1, **topic: str) -> Worker:
    topic_id = broker.create_topic(partitions=partitions, **topic)
    begin_group(broker, topic_id, range(partitions), **(group or {}))
    return Worker(broker, topic_id, partitions=range(partitions))


def produce(
    broker: LocalBroker, *records: bytes | tuple[bytes, Headers] | tuple[bytes, bytes], age_ms: int = 0, **fields: Any
) -> None:
    """A batch of values, some with headers, or with a key before them."""
    made = []
    for n, one in enumerate(records):
        key, value, headers = _record(one)
        made.append(Record(n, broker.now_ms - age_ms, key, value, tuple(headers.items())))
    partition = fields.pop("partition", 0)
    request = produce_request(encode_batch(made, **fields), partition=partition)
    assert only_partition(broker.ask(request, 12)).error_code == 0


def _record(one: bytes | tuple[bytes, Headers] | tuple[bytes, bytes]) -> tuple[bytes | None, bytes, Headers]:
    if isinstance(one, bytes):
        return None, one, {}
    first, second = one
    return (None, first, second) if isinstance(second, dict) else (first, second, {})


def queue_of(broker: LocalBroker) -> QueuePartition:
    (queue,) = broker.broker.queues.all()
    return queue


def start_of(broker: LocalBroker) -> int:
    state = queue_of(broker).state
    assert state is not None
    return state.start_offset


# A delay of the topic


def test_a_delayed_record_is_delivered_when_it_is_due(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_delivery_delay_ms="5000")
    produce(broker, b"a")
    broker.tick(SECOND)
    produce(broker, b"b")
    assert worker.fetch().values == []
    broker.tick(3_999)
    assert worker.fetch().values == []
    broker.tick(1)
    assert worker.fetch().values == [b"a"]
    assert worker.fetch().values == []
    broker.tick(SECOND)
    assert worker.fetch().values == [b"b"]


def test_a_waiting_fetch_gets_a_delayed_record_when_it_is_due(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_delivery_delay_ms="5000")
    fetch = worker.begin_fetch(max_wait_ms=60_000)
    produce(broker, b"a")
    assert not fetch.is_answered
    broker.tick(4_999)
    assert not fetch.is_answered
    broker.tick(1)
    assert fetch.delivery.values == [b"a"]


def test_a_delayed_backlog_takes_no_memory(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_delivery_delay_ms="5000")
    for _ in range(50):
        produce(broker, b"a", b"b")
    assert worker.fetch().values == []
    state = queue_of(broker).state
    assert state is not None
    assert state.end_offset == 0
    broker.tick(5_000)
    assert len(worker.fetch().values) == 100


def test_a_record_of_the_future_holds_up_no_other(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_delivery_delay_ms="5000")
    produce(broker, b"future", age_ms=-HOUR // 2)
    produce(broker, b"now")
    broker.tick(5_000)
    assert worker.fetch().values == [b"now"]
    worker.accept(1)
    broker.tick(HOUR // 2)
    assert worker.fetch().values == [b"future"]


def test_consumer_groups_are_not_delayed(broker: LocalBroker) -> None:
    begin(broker, tailrace_delivery_delay_ms="5000")
    produce(broker, b"a")
    assert broker.values() == [b"a"]


# An expiry of the topic


def test_expired_records_are_a_recorded_loss(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_message_ttl_ms="5000")
    produce(broker, b"a", b"b")
    broker.tick(4_999)
    produce(broker, b"c")
    broker.tick(1)
    assert worker.fetch().values == [b"c"]
    assert start_of(broker) == 2
    (loss,) = [loss for loss in noted(broker) if loss.reason == "expired"]
    assert (loss.group, loss.first, loss.records) == (GROUP, 0, 2)
    assert queue_of(broker).outcomes.expired == 2
    check_replay(broker)


def test_a_record_that_is_held_does_not_expire(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_message_ttl_ms="5000")
    produce(broker, b"a", b"b")
    assert worker.fetch().values == [b"a", b"b"]
    broker.tick(10_000)
    assert worker.fetch().values == []
    worker.accept(0)
    worker.release(1)
    assert worker.fetch().values == [], "but it expires when it is released"
    assert start_of(broker) == 2
    assert queue_of(broker).outcomes.acknowledged == 1


def test_expired_records_become_dead_letters(broker: LocalBroker) -> None:
    broker.create_topic("dead", errors_deadletterqueue_group_enable="true")
    worker = begin(broker, group={"errors_deadletterqueue_topic_name": "dead"}, tailrace_message_ttl_ms="5000")
    produce(broker, b"a")
    broker.tick(5_000)
    assert worker.fetch().values == []
    broker.run_jobs()
    assert broker.values("dead") == [b"a"]
    assert not [loss for loss in noted(broker) if loss.reason == "expired"]
    assert start_of(broker) == 1


def test_a_large_expired_backlog_ends_in_many_looks(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_message_ttl_ms="5000")
    for _ in range(40):
        produce(broker, *(b"x" for _ in range(50)))
    broker.tick(5_000)
    produce(broker, b"live")
    assert worker.fetch(max_records=1).values == [b"live"]
    assert start_of(broker) == 2_000


def test_nothing_expires_by_a_clock_that_has_jumped(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_message_ttl_ms="5000")
    produce(broker, b"a")
    broker.tick()
    broker.jump(24 * HOUR)
    broker.tick()
    assert not broker.broker.clock.is_trusted
    assert worker.fetch().values == [b"a"]


# Headers


def test_records_come_when_their_headers_say(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_delay_headers="true")
    at = b"%d" % (broker.now_ms + 7_000)
    produce(broker, b"now", (b"later", {"x-delay-ms": b"3000"}), (b"at", {"x-deliver-at": at}), b"too")
    assert worker.fetch().offsets == [0, 3]
    broker.tick(2_999)
    assert worker.fetch().offsets == []
    broker.tick(51)
    assert worker.fetch().offsets == [1]
    broker.tick(4_000)
    assert worker.fetch().offsets == [2]


def test_a_restart_forgets_no_delay(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_delay_headers="true")
    produce(broker, (b"later", {"x-delay-ms": b"3000"}), b"now")
    assert worker.fetch().offsets == [1]
    worker.accept(1)
    broker.restart()
    broker.tick(1)
    worker = Worker(broker, worker.topic_id)
    assert worker.fetch().offsets == []
    broker.tick(3_050)
    assert worker.fetch().offsets == [0]


def test_records_expire_when_their_headers_say(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_ttl_headers="true")
    produce(broker, (b"a", {"x-ttl-ms": b"3000"}), b"b", (b"c", {"x-ttl-ms": b"9000"}))
    broker.tick(3_000)
    assert worker.fetch().offsets == [1, 2]
    worker.release(2)
    broker.tick(6_000)
    assert worker.fetch().offsets == []
    worker.accept(1)
    assert start_of(broker) == 3
    assert queue_of(broker).outcomes.expired == 2


def test_without_the_configs_headers_mean_nothing(broker: LocalBroker) -> None:
    worker = begin(broker)
    produce(broker, (b"a", {"x-delay-ms": b"3000", "x-expires-at": b"5"}))
    assert worker.fetch().offsets == [0]
    assert queue_of(broker).inspections is None


def test_no_more_records_are_parked_than_the_group_allows(broker: LocalBroker) -> None:
    worker = begin(broker, group={"tailrace_share_parked_max": "3"}, tailrace_delay_headers="true")
    for n in range(5):
        produce(broker, (b"%d" % n, {"x-delay-ms": b"3000"}))
    produce(broker, b"now")
    assert worker.fetch().values == []
    state = queue_of(broker).state
    assert state is not None
    assert state.parked == 3
    fetch = worker.begin_fetch(max_wait_ms=60_000)
    broker.tick(3_050)
    assert fetch.delivery.offsets == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_large_batch_is_decoded_in_a_job(broker: LocalBroker, codec: Codec) -> None:
    worker = begin(broker, tailrace_delay_headers="true")
    records: list[Any] = [b"%d" % n for n in range(screening.INLINE_RECORDS_MAX + 1)]
    records[5] = b"later", {"x-delay-ms": b"3000"}
    produce(broker, *records, codec=codec)
    produce(broker, b"behind")
    jobs = broker.hold(InspectJob)
    fetch = worker.begin_fetch(max_wait_ms=60_000, max_records=5_000)
    assert not fetch.is_answered
    other = Worker(broker, worker.topic_id, "other").fetch()
    assert other.offsets == [], "other fetches look past the share partition"
    ((job, finish),) = jobs
    job.run()
    finish()
    assert len(fetch.delivery.offsets) == screening.INLINE_RECORDS_MAX + 1
    assert 5 not in fetch.delivery.offsets


def test_a_batch_that_decompresses_to_much_is_decoded_in_a_job(broker: LocalBroker) -> None:
    worker = begin(broker, tailrace_delay_headers="true")
    produce(broker, bytes(screening.DECODED_BYTES_MAX), codec=Codec.ZSTD)
    jobs = broker.hold(InspectJob)
    fetch = worker.begin_fetch(max_wait_ms=60_000)
    ((job, finish),) = jobs
    job.run()
    finish()
    assert fetch.delivery.offsets == [0]


# The order of keys


def test_records_of_a_key_come_one_after_the_other(broker: LocalBroker) -> None:
    worker = begin(broker, group={"tailrace_share_order": "key"})
    produce(broker, (b"k", b"0"), (b"k", b"1"), (b"l", b"2"), b"3")
    produce(broker, (b"l", b"4"), (b"k", b"5"))
    other = Worker(broker, worker.topic_id, "other")
    assert worker.fetch().offsets == [0, 2, 3]
    assert other.fetch().offsets == []
    worker.accept(2)
    assert other.fetch().offsets == [4]
    worker.release(0)
    assert other.fetch().offsets == [0]
    other.accept(0)
    assert other.fetch().offsets == [1]
    other.reject(1)
    assert other.fetch().offsets == [5]


def test_a_key_waits_for_the_retry_of_its_record(broker: LocalBroker) -> None:
    worker = begin(
        broker,
        group={
            "tailrace_share_order": "key",
            "tailrace_share_retry_delay_ms": "5000",
            "tailrace_share_retry_jitter": "0",
        },
    )
    produce(broker, (b"k", b"0"), (b"k", b"1"))
    assert worker.fetch().offsets == [0]
    worker.release(0)
    assert worker.fetch().offsets == []
    broker.tick(5_000)
    assert worker.fetch().offsets == [0]
    worker.accept(0)
    assert worker.fetch().offsets == [1]


def test_markers_between_records_hold_up_no_key(broker: LocalBroker) -> None:
    worker = begin(broker, group={"tailrace_share_order": "key"})
    producer = TransactionalProducer(broker)
    for n in range(3):
        assert producer.produce(b"%d" % n).error_code == 0
        assert producer.commit().error_code == 0
        produce(broker, (b"k", b"x"))
        delivery = worker.fetch()
        assert delivery.values[-1] == b"x"
        worker.accept(*delivery.offsets)
    assert start_of(broker) == 9


def test_a_restart_keeps_the_order(broker: LocalBroker) -> None:
    worker = begin(
        broker,
        group={
            "tailrace_share_order": "key",
            "tailrace_share_retry_delay_ms": "5000",
            "tailrace_share_retry_jitter": "0",
        },
    )
    for n in range(10):
        produce(broker, (b"k", b"%d" % n))
    produce(broker, (b"l", b"other"))
    assert worker.fetch().offsets == [0, 10]
    worker.release(0)
    worker.accept(10)
    broker.kill()
    broker.tick(1)
    worker = Worker(broker, worker.topic_id)
    assert worker.fetch().offsets == [], "the first record of the key is parked"
    broker.tick(5_000)
    assert worker.fetch().offsets == [0]


def test_the_order_may_be_switched_on_and_off(broker: LocalBroker) -> None:
    worker = begin(broker)
    produce(broker, (b"k", b"0"), (b"k", b"1"))
    produce(broker, (b"k", b"2"), (b"k", b"3"))
    assert worker.fetch(max_records=1).offsets == [0, 1]
    set_configs(broker, tailrace_share_order="key")
    assert worker.fetch().offsets == []
    worker.accept(0)
    assert worker.fetch().offsets == []
    worker.accept(1)
    assert worker.fetch().offsets == [2]
    set_configs(broker, tailrace_share_order="none")
    assert worker.fetch().offsets == [3]


def test_a_backlog_is_read_in_order_whatever_the_size_of_its_batches(broker: LocalBroker) -> None:
    """Some are inspected at once, some in jobs."""
    worker = begin(broker, group={"tailrace_share_order": "key"})
    sizes = [1, 400, 3, 1_500, 700, 700, 2, 900]
    for size in sizes:
        produce(broker, *((b"%d" % (n % 50), b"x") for n in range(size)))
    held: list[int] = []
    done: dict[int, int] = {}
    keys = [n % 50 for size in sizes for n in range(size)]
    for _ in range(500):
        delivery = worker.fetch(max_records=20)
        held += delivery.offsets
        assert len({keys[offset] for offset in held}) == len(held)
        for offset in held:
            assert done.get(keys[offset], -1) < offset
            done[keys[offset]] = offset
        worker.accept(*held)
        held.clear()
        if start_of(broker) == len(keys):
            break
    assert start_of(broker) == len(keys)


def test_no_more_keys_are_known_than_memory_allows(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "KEYS_MAX", 10)
    worker = begin(broker, group={"tailrace_share_order": "key"})
    for n in range(30):
        produce(broker, (b"k", b"%d" % n))
    for n in range(30):
        assert worker.fetch().offsets == [n]
        state = queue_of(broker).state
        assert state is not None
        assert state.known_keys <= 11
        worker.accept(n)


# Priority


def test_lower_partitions_come_first(broker: LocalBroker) -> None:
    worker = begin(broker, partitions=3, tailrace_priority="partition")
    got: Sequence[bytes] = []
    for partition in (2, 1, 0):
        for n in range(4):
            produce(broker, b"%d-%d" % (partition, n), partition=partition)
    for _ in range(6):
        got = [*got, *worker.fetch(max_records=2).values]
    assert got == [b"%d-%d" % (partition, n) for partition in range(3) for n in range(4)]
