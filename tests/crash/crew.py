"""Workers of a share group that work on through everything that happens to their broker.

Each takes messages, finishes most of them, releases some, and now and then holds one for longer than its lock, or
disconnects with messages in hand. What a worker was told is so:

    a message whose acceptance was answered is never delivered again to a fetch that was sent later
    in the end the group has nothing left, and every message that was acknowledged to its producer has been accepted;
    of some the answer was lost with the broker
"""

import contextlib
import random
import threading
import time
from typing import Any

from brokers import a_batch, only_partition, produce_request
from raw_client import RawClient
from share_fetches import Delivery, acks_of

from tailrace.broker.metadata.config_changes import Operation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.protocol.messages.share_acknowledge import ACCEPT, RELEASE
from tailrace.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from tailrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

TOPIC, GROUP = "images", "thumbnails"
PARTITIONS = 2
LOCK_MS = 1_000
SETTINGS = {
    "group.share.max.delivery.count.limit": "25",
    "group.share.assignment.interval.ms": "0",
    "tailrace.monitor.enable": "false",
}
GROUP_CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.delivery.count.limit": "25",
}
GROUP_RESOURCE = 32
LOST = (ConnectionError, TimeoutError, OSError)

Place = tuple[int, int]  # a partition and an offset


class Crew:
    def __init__(self, address: tuple[str, int], seed: int, workers: int = 8) -> None:
        self.address = address
        self.lock = threading.Lock()
        self.sent: set[Place] = set()
        self.accepted: dict[Place, float] = {}  # since when, by the monotonic clock
        self.unanswered: set[Place] = set()  # acceptances
        self.deliveries = 0
        self.trouble: list[str] = []
        self.is_over = threading.Event()
        self.has_fed = threading.Event()
        self.topic_id = b""
        self._threads = [threading.Thread(target=self._feed, daemon=True, args=(random.Random(seed),))]
        for number in range(workers):
            worker = Worker(self, f"worker {number}", random.Random(f"{seed} {number}"))
            self._threads.append(threading.Thread(target=worker.run, daemon=True))

    def set_up(self) -> None:
        with RawClient(self.address) as client:
            topics = [CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)]
            client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
            configs = [
                AlterableConfig(name=name, config_operation=Operation.SET, value=value)
                for name, value in GROUP_CONFIGS.items()
            ]
            resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=configs)
            (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
            assert answer.error_code == 0, answer
            found = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
            self.topic_id = found.topics[0].topic_id

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def finished(self) -> int:
        with self.lock:
            return len(self.accepted)

    @property
    def left(self) -> set[Place]:
        with self.lock:
            return self.sent - self.accepted.keys() - self.unanswered

    def backlog(self) -> int:
        """How many messages the group has left; -1 while the broker does not know yet."""
        group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        with RawClient(self.address) as client:
            (found,) = client.ask(DescribeShareGroupOffsetsRequest(groups=[group]), 1).groups
        if found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return -1
        assert found.error_code == ErrorCode.NONE, found
        return sum(one.lag for topic in found.topics for one in topic.partitions)

    def end(self, within_s: float = 60) -> None:
        """Waits until all messages are finished."""
        self.has_fed.set()
        self._threads[0].join(30)
        deadline = time.monotonic() + within_s
        while self.backlog() and not self.trouble and time.monotonic() < deadline:
            time.sleep(0.05)
        backlog = self.backlog()
        self.stop()
        assert not self.trouble, self.trouble[:5]
        assert not backlog, f"{backlog} messages are not finished"
        assert not self.left, f"{len(self.left)} messages were never accepted: {sorted(self.left)[:5]}"

    def stop(self) -> None:
        self.has_fed.set()
        self.is_over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(30)
                assert not thread.is_alive(), f"{thread.name} hangs"

    def _feed(self, lot: random.Random) -> None:
        while not self.has_fed.is_set():
            with contextlib.suppress(*LOST), RawClient(self.address) as client:
                while not self.has_fed.is_set():
                    self._produce(client, lot.randrange(PARTITIONS), lot.randint(1, 20))
                    time.sleep(0.002)
            time.sleep(0.02)

    def _produce(self, client: RawClient, partition: int, count: int) -> None:
        data = a_batch(*(b"x" * 100 for _ in range(count)), now_ms=int(time.time() * 1000))
        answer = only_partition(client.ask(produce_request(data, TOPIC, partition, acks=-1), 12))
        if answer.error_code == ErrorCode.NONE:
            with self.lock:
                self.sent.update((partition, answer.base_offset + n) for n in range(count))


class Worker:
    def __init__(self, crew: Crew, name: str, lot: random.Random) -> None:
        self._crew = crew
        self._name = name
        self._lot = lot

    def run(self) -> None:
        while not self._crew.is_over.is_set():
            try:
                with RawClient(self._crew.address) as client:
                    self._work(client)
            except LOST:
                time.sleep(0.02)
            except Exception as error:  # noqa: BLE001 - whatever it is, the test must know
                self._crew.trouble.append(f"{self._name}: {error!r}")
                return

    def _join(self, client: RawClient) -> bool:
        beat = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=self._name, member_epoch=0, subscribed_topic_names=[TOPIC]
        )
        return client.ask(beat, 1).error_code == ErrorCode.NONE

    def _work(self, client: RawClient) -> None:
        """Works until the connection or the session is lost, or it gives them up."""
        while not self._join(client):
            time.sleep(0.02)
        epoch, said = 0, dict[Place, int]()
        while not self._crew.is_over.is_set():
            sent_at = time.monotonic()
            accepted = {place for place, kind in said.items() if kind == ACCEPT}
            with self._crew.lock:
                new = accepted - self._crew.unanswered
                self._crew.unanswered |= new
            delivery = Delivery(client.ask(self._fetch(epoch, said), 2))
            with self._crew.lock:
                self._crew.unanswered -= new
            if delivery.error_code:
                assert delivery.error_code.retriable or epoch > 0, delivery.response
                return
            self._note_outcomes(delivery, said)
            epoch += 1
            held = self._take(delivery, sent_at)
            if held and self._lot.random() < 0.02:
                return  # with messages in hand
            if held and self._lot.random() < 0.01:
                time.sleep(1.5 * LOCK_MS / 1000)
            said = {place: RELEASE if self._lot.random() < 0.1 else ACCEPT for place in held}

    def _fetch(self, epoch: int, said: dict[Place, int]) -> ShareFetchRequest:
        topic_id = self._crew.topic_id
        named: dict[tuple[bytes, int], Any] = {(topic_id, index): [] for index in range(PARTITIONS) if epoch == 0}
        for (index, offset), kind in sorted(said.items()):
            named.setdefault((topic_id, index), []).append((offset, offset, [kind]))
        return ShareFetchRequest(
            group_id=GROUP,
            member_id=self._name,
            share_session_epoch=epoch,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=self._lot.choice([1, 5, 50]),
            share_acquire_mode=self._lot.randint(0, 1),
            topics=acks_of(named, FetchTopic, FetchPartition),
        )

    def _note_outcomes(self, delivery: Delivery, said: dict[Place, int]) -> None:
        now = time.monotonic()
        codes = {index: one.acknowledge_error_code for (_, index), one in delivery.partitions.items()}
        with self._crew.lock:
            for (index, offset), kind in said.items():
                if kind == ACCEPT and codes.get(index) == ErrorCode.NONE:
                    self._crew.accepted.setdefault((index, offset), now)

    def _take(self, delivery: Delivery, sent_at: float) -> list[Place]:
        held = []
        with self._crew.lock:
            for (_, index), one in delivery.partitions.items():
                for batch in one.acquired_records:
                    held += [(index, offset) for offset in range(batch.first_offset, batch.last_offset + 1)]
            self._crew.deliveries += len(held)
            again = [place for place in held if self._crew.accepted.get(place, sent_at) < sent_at]
        if again:
            self._crew.trouble.append(f"{self._name} was given {again[:3]}, which were finished")
        return held
