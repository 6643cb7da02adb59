"""For how many seconds of messages there is room."""

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.facts.segments import SegmentFact
from tailrace.monitor.figures.buffers import Buffer, WriteRates, disk_buffers, topic_buffers
from tailrace.monitor.figures.forecast import Limits
from tailrace.monitor.figures.snapshot import TAILRACE, DiskState, LogState, Snapshot

ONE, TWO, KEPT = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("kept", 0)
SEGMENTS = (SegmentFact(0, 10, 700, 0), SegmentFact(10, 20, 300, 0))
LOGS = {
    ONE: LogState(0, 20, 1000, SEGMENTS, Limits(retention_ms=60_000, retention_bytes=5000)),
    TWO: LogState(0, 20, 1000, SEGMENTS, Limits(retention_ms=60_000, retention_bytes=5000)),
    KEPT: LogState(0, 20, 1000, SEGMENTS, Limits()),
}
RATES = {ONE: WriteRates(10, 100), TWO: WriteRates(200, 250), KEPT: WriteRates(40, 50)}


def snapshot(*disks: DiskState) -> Snapshot:
    return Snapshot(0, TAILRACE, {}, LOGS, {}, None, disks)


def test_the_partition_with_the_least_room_counts_for_a_topic() -> None:
    assert topic_buffers(snapshot(), RATES) == {"orders": Buffer(25, 20), "kept": Buffer(None, None)}
    assert topic_buffers(snapshot(), {})["orders"] == Buffer(60, 60)


def test_a_disk_has_what_is_free_and_what_retention_may_delete() -> None:
    disk = DiskState("/data", 100_000, 2_350, frozenset(LOGS))
    assert disk_buffers(snapshot(disk)._replace(reserve=1_000), RATES) == {"/data": Buffer(11, 6.875)}
    assert disk_buffers(snapshot(disk), RATES) == {"/data": Buffer(15, 9.375)}, "another Kafka has no reserve"
    assert disk_buffers(snapshot(disk), {}) == {"/data": Buffer(None, None)}
    unknown = DiskState("/data", None, None, frozenset(LOGS))
    assert disk_buffers(snapshot(unknown), RATES) == {}
