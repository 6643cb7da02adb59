"""Backups of a broker's directory while transactions run: each is restored, and has all of a transaction or nothing."""

import random
import shutil
import threading
import time
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from brokers import LocalBroker
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waits import until

from tailrace.backup.copy import Copied
from tailrace.backup.create import Creation, open_source
from tailrace.backup.restore import restore
from tailrace.backup.store import Store, WritableStore
from tailrace.broker.metadata.internal_topics import read_batches
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.log import Log
from tailrace.records.control import Marker

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
