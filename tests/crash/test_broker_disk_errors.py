"""A running broker whose disk fails: the partition that it concerns says so, the others go on, nothing acknowledged is
lost.

The faults are real system calls that come back with an error, by strace. What a failure of each call means to a log is
in test_disk_errors.py; here it is what a client is told.
"""

from pathlib import Path

import pytest
from compat.clients.confluent import ConfluentClient
from compat.contract import Refused
from confluent_kafka import KafkaError, Message, Producer
from crash.clients import COMMON
from crash.victims import Victim, faulty, kept_on_failure, needs_strace

pytestmark = [needs_strace, pytest.mark.timeout(120)]

each_call = pytest.mark.parametrize("call", ["fdatasync", pytest.param("pwrite64", marks=pytest.mark.crash)])
SEGMENT = f"{0:020d}.log"
SOME = [b"%d" % number for number in range(20)]


class Sender:
    """A producer that is told of every error at once, and what was acknowledged to it."""

    def __init__(self, broker: Victim) -> None:
        self._producer = Producer(
            COMMON | {"bootstrap.servers": broker.bootstrap, "acks": "all", "retries": 0, "message.timeout.ms": 5_000}
        )
        self.acknowledged: dict[int, list[bytes]] = {0: [], 1: []}

    def send(self, partition: int, *values: bytes) -> set[int]:
        """The codes of the answers."""
        codes: set[int] = set()

        def answered(error: KafkaError | None, message: Message) -> None:
            codes.add(error.code() if error is not None else KafkaError.NO_ERROR)
            if error is None:
                self.acknowledged[partition].append(message.value() or b"")

        for value in values:
            self._producer.produce("orders", value, partition=partition, on_delivery=answered)
        assert self._producer.flush(30) == 0
        return codes


def check_all_there(broker: Victim, sender: Sender) -> None:
    client = ConfluentClient(broker.bootstrap)
    for partition, acknowledged in sender.acknowledged.items():
        end = client.offset("orders", "latest", partition=partition)
        assert end is not None
        with client.consumer("orders", partitions=[partition]) as consumer:
            found = [each.message.value for each in consumer.take(end)]
        assert [value for value in found if value in acknowledged] == acknowledged
    client.close()


@each_call
def test_a_partition_that_cannot_be_written_refuses_until_the_next_start_alone(tmp_path: Path, call: str) -> None:
    broker = Victim(tmp_path / "broker")
    with kept_on_failure(broker, call):
        broker.start()
        client, sender = ConfluentClient(broker.bootstrap), Sender(broker)
        client.create_topic("orders", partitions=2)
        assert sender.send(0, *SOME) == sender.send(1, *SOME) == {KafkaError.NO_ERROR}
        with faulty(broker, call, "error=EIO", of=broker.data / "orders-0" / SEGMENT):
            assert sender.send(0, b"refused") == {KafkaError.KAFKA_STORAGE_ERROR}
            assert sender.send(1, b"taken") == {KafkaError.NO_ERROR}
        assert sender.send(0, b"refused again") == {KafkaError.KAFKA_STORAGE_ERROR}, "it tried again"
        assert sender.send(1, b"taken as well") == {KafkaError.NO_ERROR}
        with client.consumer("orders") as consumer:
            assert [each.message.value for each in consumer.take(len(SOME))] == SOME, "reads go on"
        broker.stop()
        broker.start()
        check_all_there(broker, sender)
        assert sender.send(0, b"taken again") == {KafkaError.NO_ERROR}
        check_all_there(broker, sender)
        broker.kill()
        broker.verify()
        assert "Traceback" not in broker.ever_said


def test_a_full_disk_refuses_what_it_has_no_room_for_and_goes_on_when_it_has(tmp_path: Path) -> None:
    broker = Victim(tmp_path / "broker")
    with kept_on_failure(broker, "full"):
        broker.start()
        client, sender = ConfluentClient(broker.bootstrap), Sender(broker)
        client.create_topic("orders", partitions=2)
        assert sender.send(0, *SOME) == {KafkaError.NO_ERROR}
        with faulty(broker, "pwrite64", "error=ENOSPC", of=broker.data / "orders-0" / SEGMENT):
            assert sender.send(0, b"refused") == {KafkaError.KAFKA_STORAGE_ERROR}
            assert sender.send(1, b"taken") == {KafkaError.NO_ERROR}
        assert sender.send(0, b"taken, now that there is room") == {KafkaError.NO_ERROR}
        check_all_there(broker, sender)
        broker.kill()
        broker.verify()


@each_call
def test_a_broker_whose_metadata_cannot_be_written_promises_nothing_any_more(tmp_path: Path, call: str) -> None:
    broker = Victim(tmp_path / "broker")
    with kept_on_failure(broker, call):
        broker.start()
        client, sender = ConfluentClient(broker.bootstrap), Sender(broker)
        client.create_topic("orders", partitions=2)
        assert sender.send(0, *SOME) == {KafkaError.NO_ERROR}
        before = len(broker.ever_said)
        with faulty(broker, call, "error=EIO", of=broker.data / "__tailrace_metadata-0" / SEGMENT):
            with pytest.raises(Refused):
                client.create_topic("never")
            assert broker.ended_with(within=20) == 1
        said = broker.ever_said[before:]
        assert "__tailrace_metadata-0" in said
        assert "the broker stops" in said
        assert "Traceback" not in said
        broker.start()
        check_all_there(broker, sender)
        ConfluentClient(broker.bootstrap).create_topic("another")
        broker.kill()
        broker.verify()
