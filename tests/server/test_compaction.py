"""A node that is compacting a log: it stops at once, cleanly, and leaves no process behind."""

import subprocess
from pathlib import Path

from nodes import RunningNode

from tailrace.log.compaction.child_process import ChildPass
from tailrace.log.layout.names import CLEANED
from tailrace.records.record import Record, encode_batch


def test_a_node_that_is_stopped_during_a_pass_stops_cleanly_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    slow = {"log.cleaner.io.max.bytes.per.second": "1000", "log.cleaner.backoff.ms": "50"}
    with RunningNode(tmp_path, slow) as node:
        node.create_topic("orders", cleanup_policy="compact")
        node.on_loop(lambda: fill(node))
        node.until(lambda: child_of(node) is not None, 30)
        child = child_of(node)
        assert child is not None
        assert child.poll() is None
    assert child.poll() is not None
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert not [path for path in (tmp_path / "orders-0").iterdir() if path.name.endswith(CLEANED)]


def child_of(node: RunningNode) -> "subprocess.Popen[str] | None":
    under_way = node.node.broker.compactor._under_way
    found = under_way._pass if under_way is not None else None
    return found._process if isinstance(found, ChildPass) else None


def fill(node: RunningNode) -> None:
    broker = node.node.broker
    partition = broker.partition("orders", 0)
    assert partition is not None
    log = broker.log_for_append(partition)
    for _ in range(3):
        log.append(encode_batch([Record(0, 1, b"key", b"x" * 100_000)]), 1)
    log.roll()
    broker.flushes.request_checkpoint(log)
    node.node.pump()
