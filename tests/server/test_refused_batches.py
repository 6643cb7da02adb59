"""A real idempotent producer whose first batch is refused while later ones are in flight."""

from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

import pytest
from brokers import fetch_request, from_offset, only_partition, values_of
from confluent_kafka import KafkaError, Message, Producer
from nodes import RunningNode
from raw_client import RawClient

from tailrace.log.disk.interface import Space
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.testing.faulty_files import FaultyFiles

MESSAGES = 20
FLUSH_S = 60


def refuse_by_reserve(node: RunningNode, files: FaultyFiles) -> None:
    """The disk is below its reserve until the broker has refused one batch."""
    space = node.node.broker.disk_reserve
    refusal = space.refusal

    def refuse_once() -> Exception:
        error = refusal()
        files.space_left = None
        space.is_low = False
        return error

    space.refusal = refuse_once  # type: ignore[method-assign,assignment]
    files.space_left = Space(0, 1 << 40)
    node.until(lambda: space.is_low)


def refuse_by_full_disk(node: RunningNode, files: FaultyFiles) -> None:
    """The file system refuses one write to the partition's log."""
    files.fail("write_at", ENOSPC, name=".log")


def refuse_by_new_log(node: RunningNode, files: FaultyFiles) -> None:
    """The file system refuses to make the partition's directory, once."""
    files.fail("make_directory", ENOSPC, name="orders-0")


@pytest.mark.parametrize("refuse", [refuse_by_reserve, refuse_by_full_disk, refuse_by_new_log])
def test_a_message_reported_as_delivered_is_stored_once_at_its_offset(
    tmp_path: Path, refuse: Callable[[RunningNode, FaultyFiles], None]
) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    delivered: dict[bytes, int] = {}
    failed: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            delivered[message.value() or b""] = message.offset() or 0

    with RunningNode(tmp_path, files=files) as node, RawClient(node.address) as reader:
        node.create_topic()
        reader.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)  # reserves ids on disk
        refuse(node, files)
        host, port = node.address
        producer = Producer(
            {
                "bootstrap.servers": f"{host}:{port}",
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "linger.ms": 0,
                "on_delivery": report,
            }
        )
        for number in range(MESSAGES):
            producer.produce("orders", b"%d" % number, partition=0)
        assert producer.flush(FLUSH_S) == 0
        stored = values_of(only_partition(reader.ask(fetch_request(from_offset(0)), 12)))
        assert failed == []
        assert stored == [b"%d" % number for number in range(MESSAGES)]
        assert delivered == {value: offset for offset, value in enumerate(stored)}
