"""A broker whose small disk is filled by somebody else: producers are told to try again, nothing is lost or corrupt,
and it goes on by itself when there is room.

The disk is a file system of its own, in memory. Needs root.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.clients.confluent import ConfluentClient
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from crash.clients import COMMON
from crash.victims import Victim, a_small_disk, kept_on_failure
from raw_client import RawClient
from waits import until

from tailrace.protocol.errors import ErrorCode

pytestmark = pytest.mark.timeout(120)

DISK_BYTES = 64 << 20
VALUE = b"x" * 8000
LARGE = b"x" * 500_000  # finds no room in a few pages that may be left


class Filler:
    """Somebody else's file on the same disk."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk
        self._path = disk / "filler"

    def fill(self, leave: int) -> None:
        """Fills the disk until at most so much is free."""
        with self._path.open("ab") as file, contextlib.suppress(OSError):
            while (free := self.free) > leave:
                file.write(bytes(min(1 << 20, free - leave)))
                file.flush()

    @property
    def free(self) -> int:
        found = os.statvfs(self._disk)
        return found.f_bavail * found.f_frsize

    def remove(self) -> None:
        self._path.unlink()


class Sender:
    """An idempotent producer that tries for as long as it takes, and what became of its messages."""

    def __init__(self, broker: Victim) -> None:
        self._producer = Producer(COMMON | {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        self._sent = 0
        self.codes: list[int] = []

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce("orders", b"%d " % self._sent + VALUE, partition=0, on_delivery=self._answered)
            self._sent += 1
        self._producer.poll(0)

    def _answered(self, error: KafkaError | None, _: Message) -> None:
        self.codes.append(error.code() if error is not None else KafkaError.NO_ERROR)

    def poll(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._producer.poll(0.1)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0
        assert self.codes == [KafkaError.NO_ERROR] * self._sent


@contextlib.contextmanager
def a_broker(path: Path, **settings: str) -> Iterator[tuple[Victim, Filler, Sender]]:
    with a_small_disk(path / "disk", DISK_BYTES) as disk:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        broker = Victim(path / "broker", data=disk / "data", settings=named)
        with kept_on_failure(broker, "full"):
            broker.start()
            client = ConfluentClient(broker.bootstrap)
            client.create_topic("orders")
            client.close()
            sender = Sender(broker)
            sender.send(50)
            sender.finish()
            yield broker, Filler(disk), sender
            assert "Traceback" not in broker.ever_said


def refusal(broker: Victim) -> tuple[int, str]:
    with RawClient(broker.address) as client:
        answer = client.produce(LARGE)
        return answer.error_code, answer.error_message or ""


def read_all(broker: Victim, count: int) -> list[int]:
    client = ConfluentClient(broker.bootstrap)
    with contextlib.closing(client), client.consumer("orders") as consumer:
        return [int(each.message.value.split()[0]) for each in consumer.take(count)]


def commit(broker: Victim, offset: int) -> None:
    consumer = Consumer(COMMON | {"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    try:
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
        (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=20)
        assert found.offset == offset
    finally:
        consumer.close()


def test_producers_retry_below_the_disk_reserve_while_everything_else_continues(tmp_path: Path) -> None:
    with a_broker(tmp_path) as (broker, filler, sender):
        filler.fill(leave=1 << 20)  # the reserve is a twentieth of the disk, 3.2 MiB
        until(lambda: "the disk is nearly full" in broker.ever_said)
        code, message = refusal(broker)
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert re.search(r"\d [KM]iB are free, .* keeps 3.2 MiB", message)
        sender.send(50)
        sender.poll(1)
        assert len(sender.codes) == 50, "it is neither told yes nor no"
        assert read_all(broker, 50) == list(range(50))
        commit(broker, 7)
        assert broker.ever_said.count("the disk is nearly full") == 1
        filler.remove()
        sender.finish()
        assert read_all(broker, 100) == list(range(100)), "none is lost, and none twice"
        assert "free again" in broker.ever_said
        broker.stop()
        broker.verify()


@pytest.mark.parametrize("seconds", [1, pytest.param(7, marks=pytest.mark.crash)])  # then offsets are to be saved, too
def test_on_a_disk_that_is_full_to_the_last_byte_it_is_the_same_but_for_commits(tmp_path: Path, seconds: int) -> None:
    with a_broker(tmp_path, tailrace_disk_reserve_bytes="0", log_segment_bytes=str(1 << 20)) as (
        broker,
        filler,
        sender,
    ):
        commit(broker, 3)
        filler.fill(leave=0)
        code, message = refusal(broker)
        assert (code, "no space left" in message) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
        sender.send(200)  # more than fits into the segment: it rolls, when it can
        sender.poll(seconds)
        assert read_all(broker, 50) == list(range(50))
        with contextlib.suppress(KafkaException):  # if it goes into a page that is there, it is taken
            commit(broker, 4)
        filler.remove()
        sender.finish()
        assert read_all(broker, 250) == list(range(250)), "none is lost, and none twice"
        commit(broker, 5)
        broker.stop()
        broker.verify()


def test_produce_reports_that_the_disk_of_the_broker_is_full(tmp_path: Path) -> None:
    with a_broker(tmp_path, tailrace_disk_reserve_bytes="0") as (broker, filler, _):
        filler.fill(leave=0)
        command = [sys.executable, "-m", "tailrace", "produce", "orders", "-b", broker.bootstrap, "--timeout", "5"]
        ended = subprocess.run(command, input=LARGE + b"\n", capture_output=True, timeout=60)
        assert "its disk is full or has failed (KAFKA_STORAGE_ERROR)" in ended.stderr.decode()
        assert ended.returncode == 1
        filler.remove()
        broker.stop()


@pytest.mark.crash
def test_a_broker_that_is_stopped_on_a_full_disk_is_whole_when_there_is_room(tmp_path: Path) -> None:
    with a_broker(tmp_path, tailrace_disk_reserve_bytes="0") as (broker, filler, sender):
        filler.fill(leave=0)
        sender.send(20)
        sender.poll(1)
        broker.kill()
        filler.remove()
        broker.start()
        sender.finish()
        assert read_all(broker, 70) == list(range(70))
        broker.stop()
        broker.verify()


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_broker_starts_read_only_on_a_full_disk_and_goes_on_when_there_is_room(
    tmp_path: Path, is_clean: bool
) -> None:
    with a_broker(tmp_path, tailrace_disk_reserve_bytes="0") as (broker, filler, sender):
        commit(broker, 3)
        broker.stop() if is_clean else broker.kill()
        filler.fill(leave=0)
        broker.start()
        assert ("so the broker starts read-only" in broker.ever_said) is not is_clean
        code, message = refusal(broker)
        assert (code, "no space left" in message) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
        assert read_all(broker, 50) == list(range(50))
        sender.send(50)
        sender.poll(1)
        broker.kill()  # and once more
        broker.start()
        assert read_all(broker, 50) == list(range(50))
        filler.remove()
        sender.finish()
        assert read_all(broker, 100) == list(range(100)), "none is lost, and none twice"
        commit(broker, 5)
        broker.kill_and_start()
        assert read_all(broker, 100) == list(range(100))
        broker.stop()
        broker.verify()


@pytest.mark.crash
def test_expired_segments_make_room_before_anybody_is_refused(tmp_path: Path) -> None:
    budget = str(24 << 20)
    with a_broker(tmp_path, tailrace_disk_budget_bytes=budget, log_segment_bytes=str(1 << 20)) as (broker, _, sender):
        for _ in range(8):
            sender.send(1000)  # all of it would fill the disk
            sender.poll(0.5)
        sender.finish()
        until(lambda: sum(path.stat().st_size for path in broker.data.glob("orders-0/*.log")) <= 25 << 20)
        assert "nearly full" not in broker.ever_said
        assert "(budget)" in broker.ever_said
        broker.stop()
        broker.verify()
