"""Backups of a broker's directory while transactions run: each is restored, and has all of a transaction or nothing."""

import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from brokers import LocalBroker, only_partition, produce_request
from compactions import compact
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from transactions import TransactionalProducer, check_replay, committed
from waits import until

from tailrace.backup.copy import Copied
from tailrace.backup.create import Creation, open_source
from tailrace.backup.decisions import Noted
from tailrace.backup.restore import restore
from tailrace.backup.store import Store, WritableStore
from tailrace.broker.metadata.internal_topics import read_batches
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.checkpoints import FORMAT_FILE, RESTORED_FILE
from tailrace.log.layout import names as log_names
from tailrace.log.log import Log
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tailrace.records.control import Marker
from tailrace.records.record import Record, encode_batch

BACKUPS = 50
PARTITIONS = 2
TOPICS = ("debits", "credits")
GROUP = "bookkeeping"


class Bookkeeper:
    """Writes one number to all partitions of two topics, and commits it as an offset, in one transaction after another.
    Some are aborted.
    """

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.committed = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Bookkeeper":
        self._producer.init_transactions(30)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()

    def _work(self) -> None:
        chance, number = random.Random(7), 0
        metadata = self._consumer.consumer_group_metadata()
        while not self._is_over.is_set():
            number += 1
            self._producer.begin_transaction()
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    self._producer.produce(topic, str(number).encode(), partition=partition)
            self._producer.send_offsets_to_transaction([TopicPartition("input", 0, number)], metadata, 30)
            if chance.random() < 0.2:
                self._producer.abort_transaction(30)
            else:
                self._producer.commit_transaction(30)
                self.committed = number


def committed_in(log: Log) -> list[int]:
    """The numbers that a reader of committed records finds, by the markers in the log."""
    pending: dict[int, list[int]] = {}
    found: list[int] = []
    for batch in read_batches(log):
        if batch.marker is not None:
            ended = pending.pop(batch.header.producer_id, [])
            found += ended if batch.marker is Marker.COMMIT else []
        else:
            pending.setdefault(batch.header.producer_id, []).extend(
                int(record.value or b"") for record in batch.records
            )
    assert not pending, "a transaction is still open"
    return found


def check(path: Path) -> int:
    """All partitions and the committed offset have the same transactions. Returns how many."""
    with LocalBroker(path) as broker:
        broker.tick(1_000)
        broker.run_jobs()
        lists = [committed_in(broker.log(topic, index)) for topic in TOPICS for index in range(PARTITIONS)]
        assert all(numbers == lists[0] for numbers in lists), [numbers[-3:] for numbers in lists]
        offset = broker.broker.groups.offsets.get(GROUP, "input", 0)
        assert (offset.offset if offset is not None else None) == (lists[0][-1] if lists[0] else None)
        return len(lists[0])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_backup_has_a_part_of_a_transaction(tmp_path: Path) -> None:
    data, kept = tmp_path / "data", tmp_path / "backups"
    with BrokerProcess(data) as broker:
        bootstrap = f"{broker.address[0]}:{broker.address[1]}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [NewTopic("input", 1), *(NewTopic(topic, PARTITIONS) for topic in TOPICS)]
        for made in admin.create_topics(topics).values():
            made.result(30)
        with Bookkeeper(bootstrap, "keeper") as keeper:
            until(lambda: keeper.committed > 5, 60)
            counts = []
            for _ in range(BACKUPS):
                back_up(data, kept)
                restore_last(kept, target := tmp_path / "restored")
                counts.append(check(target))
                shutil.rmtree(target)
    assert counts == sorted(counts)
    assert counts[-1] > counts[0] > 0, "nothing was written meanwhile"


class Interrupted(Creation):
    """A backup during which something happens, once: when all logs are noted, or when the transaction log is copied."""

    when_noted: list[Callable[[], None]]
    when_decided: list[Callable[[], None]]

    def _note_logs(self) -> dict[log_names.TopicPartition, Noted]:
        noted = super()._note_logs()
        while self.when_noted:
            self.when_noted.pop()()
        return noted

    def _add_decisions(self) -> None:
        super()._add_decisions()
        while self.when_decided:
            self.when_decided.pop()()


def restored_after(
    tmp_path: Path,
    broker: LocalBroker,
    when_decided: Callable[[], None] | None = None,
    when_noted: Callable[[], None] | None = None,
) -> LocalBroker:
    """The first start of a directory restored from a backup of `broker`, during which that goes on."""
    files = OperatingSystemFiles()
    store = WritableStore(files, str(tmp_path / "kept"))
    creation = Interrupted(open_source(files, broker.path), store, Copied(), now_ms=lambda: broker.now_ms)
    creation.when_decided = [when_decided] if when_decided is not None else []
    creation.when_noted = [when_noted] if when_noted is not None else []
    creation.run()
    store.close()
    restore_last(tmp_path / "kept", tmp_path / "restored")
    started = LocalBroker(tmp_path / "restored")
    started.tick()
    return started


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "complete"])
def test_producers_go_on_behind_batches_that_a_backup_has_of_their_future(
    tmp_path: Path, version: int, is_open: bool
) -> None:
    """The logs have later batches of the producer than the transaction log knows of. New ones must not be taken for
    those, and not be fenced by them.
    """
    with LocalBroker(tmp_path / "data") as broker:
        broker.create_topic(partitions=4)
        producer = TransactionalProducer(broker, version=version)
        for partition in range(4):
            assert producer.produce(b"before", partition=partition).error_code == 0
        assert producer.commit().error_code == 0
        if is_open:
            producer.produce(b"open")

        def go_on() -> None:
            for partition in range(1, 3):
                TransactionalProducer(broker, version=version).produce(b"lost", partition=partition)
                goes_on = TransactionalProducer(broker, version=version)
                goes_on.produce(b"lost", partition=partition)
                goes_on.commit()
            TransactionalProducer(broker, version=version).produce(b"lost", partition=3)

        with restored_after(tmp_path, broker, go_on) as restored:
            stale = TransactionalProducer(restored, version=version, begins=False)
            stale.identity = producer.identity
            assert stale.commit().error_code != 0, "what it has committed since may be lost"
            again = TransactionalProducer(restored, version=version)
            for partition in range(4):
                assert again.produce(b"new", partition=partition).error_code == 0
            assert again.commit().error_code == 0
            for partition in range(4):
                assert committed(restored, partition) == [b"before", b"new"]
            check_replay(restored)
            restored.restart()
            restored.tick()
            kept = TransactionalProducer(restored, version=version)
            assert kept.identity[0] == again.identity[0], "only the first start gives new producer ids"


def test_an_offset_that_was_committed_behind_the_end_of_a_log_is_pulled_back(tmp_path: Path) -> None:
    """Or else the consumer skips what is appended next."""
    with LocalBroker(tmp_path / "data") as broker:
        broker.create_topic()
        producer = TransactionalProducer(broker)
        producer.produce(b"a")
        producer.commit()
        assert commit_offset(broker, broker.log().end_offset) == 0

        def go_on() -> None:
            producer.produce(b"b")
            producer.commit()
            broker.produce(b"c")
            assert commit_offset(broker, broker.log().end_offset) == 0

        with restored_after(tmp_path, broker, go_on) as restored:
            found = restored.broker.groups.offsets.get("billing", "orders", 0)
            assert found is not None
            assert (found.offset, broker.log().end_offset) == (3, 5), "behind the open transaction"


def test_an_abort_that_is_no_decision_ends_no_log(tmp_path: Path) -> None:
    """An operator, or a start, aborts what the coordinator does not know. Decided transactions may lie behind that."""
    with LocalBroker(tmp_path / "data") as broker:
        broker.create_topic(partitions=2)
        producer = TransactionalProducer(broker)
        for partition in (0, 1):
            producer.produce(b"before", partition=partition)
        producer.commit()

        def go_on() -> None:
            abort(broker, 77)
            for partition in (0, 1):
                producer.produce(b"a", partition=partition)
            producer.commit()

        with restored_after(tmp_path, broker, when_noted=go_on) as restored:
            assert [committed(restored, partition) for partition in (0, 1)] == [[b"before", b"a"]] * 2


def abort(broker: LocalBroker, producer_id: int) -> None:
    """Writes a marker to the second partition, as an operator does."""
    topics = [WritableTxnMarkerTopic(name="orders", partition_indexes=[1])]
    marker = WritableTxnMarker(
        producer_id=producer_id, producer_epoch=0, transaction_result=False, coordinator_epoch=0, topics=topics
    )
    answer = broker.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers[0].topics[0].partitions[0]
    assert answer.error_code == 0


def test_a_topic_that_is_created_anew_meanwhile_ends_at_its_own_markers(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        broker.create_topic()
        broker.create_topic("others")
        producer = TransactionalProducer(broker)
        for _ in range(5):
            producer.produce(b"before")
        producer.commit()

        def go_on() -> None:
            broker.delete_topic()
            broker.create_topic()
            for topic in ("orders", "others"):
                producer.produce(b"a", topic=topic)
            producer.commit()

        with restored_after(tmp_path, broker, go_on) as restored:
            assert [committed(restored, topic=topic) for topic in ("orders", "others")] == [[], []]


def test_transactions_of_the_first_producer_are_not_torn(tmp_path: Path) -> None:
    """The transaction log is created while the backup is made, and so are the logs of the topic."""
    with LocalBroker(tmp_path / "data") as broker:
        broker.create_topic(partitions=2)

        def go_on() -> None:
            producer = TransactionalProducer(broker)
            for partition in (0, 1):
                producer.produce(b"a", partition=partition)
            producer.commit_offset(1)
            producer.commit()

        with restored_after(tmp_path, broker, when_noted=go_on) as restored:
            assert [committed(restored, partition) for partition in (0, 1)] == [[b"a"], [b"a"]]
            offset = restored.broker.groups.offsets.get("billing", "orders", 0)
            assert offset is not None
            assert offset.offset == 1
            assert (tmp_path / "restored" / FORMAT_FILE).read_text() == "3\n", "older releases refuse it"


def test_a_log_is_not_cut_behind_what_it_was_compacted_with(tmp_path: Path) -> None:
    """Or else the backup had neither the new record nor the one that it replaces."""
    with LocalBroker(tmp_path / "data") as broker:
        broker.create_topic(partitions=2)
        producer = TransactionalProducer(broker)
        put(producer, b"old")
        producer.commit()

        def go_on() -> None:
            put(producer, b"new")
            producer.commit()
            log = broker.log()
            log.roll()
            broker.broker.flushes.request_checkpoint(log)
            broker.run_jobs()
            broker.broker.checkpointer.when_offsets_saved()
            broker.run_jobs()
            assert compact(log, broker.now_ms) is not None
            assert committed(broker) == [b"new"]

        with restored_after(tmp_path, broker, go_on) as restored:
            assert committed(restored) == [b"new"]


def put(producer: TransactionalProducer, value: bytes) -> None:
    """Produces a record with a key, always the same."""
    producer_id, epoch = producer.identity
    records = [Record(0, producer.broker.now_ms, b"key", value)]
    data = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    request = produce_request(data)
    request.transactional_id = producer.transactional_id
    assert only_partition(producer.broker.ask(request, 12)).error_code == 0


def commit_offset(broker: LocalBroker, offset: int) -> int:
    wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="orders", partitions=[wanted])]
    request = OffsetCommitRequest(group_id="billing", generation_id_or_member_epoch=-1, member_id="", topics=topics)
    return int(only_partition(broker.ask(request, 8)).error_code)


def back_up(data: Path, kept: Path) -> None:
    files = OperatingSystemFiles()
    store = WritableStore(files, str(kept))
    try:
        source = open_source(files, str(data))
        Creation(source, store, Copied(), now_ms=lambda: time.time_ns() // 1_000_000).run()
    finally:
        store.close()


def restore_last(kept: Path, target: Path) -> None:
    store = Store(OperatingSystemFiles(), str(kept))
    restore(store, store.latest(), str(target), Copied())


def test_a_restore_ends_with_the_first_start_also_where_no_transaction_was_in_the_backup(tmp_path: Path) -> None:
    """Or else a later start takes an open transaction for one that a backup has cut short."""
    with LocalBroker(tmp_path / "data") as broker:
        broker.create_topic()
        broker.produce(b"a")
        back_up(tmp_path / "data", tmp_path / "kept")
    restore_last(tmp_path / "kept", tmp_path / "restored")
    assert (tmp_path / "restored" / RESTORED_FILE).exists()
    with LocalBroker(tmp_path / "restored") as broker:
        assert not (tmp_path / "restored" / RESTORED_FILE).exists()
        producer = TransactionalProducer(broker)
        producer.produce(b"b")
        broker.restart()
        assert producer.commit().error_code == ErrorCode.NONE
        assert committed(broker) == [b"a", b"b"]
