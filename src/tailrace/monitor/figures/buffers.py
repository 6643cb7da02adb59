"""For how many seconds of messages there is room: per topic by its retention, per disk by what is free. Pure.

    topic  the least of its partitions: retention.ms, or the time in which retention.bytes are written
    disk   free bytes without the reserve, and the closed segments that retention may delete, at the rate of all logs

`today` is at the average rate of ten minutes, `full` at the largest minute's average of the last hour.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.monitor.figures.forecast import NEVER
from tailrace.monitor.figures.snapshot import DiskState, LogState, Snapshot

RESERVE_BYTES, RESERVE_SHARE = 1 << 30, 0.05  # the broker's default: the smaller of both


class Buffer(NamedTuple):
    """None: for ever, or unknown."""

    today: float | None
    full: float | None


class WriteRates(NamedTuple):
    """Bytes per second of one partition."""

    today: float
    full: float


NO_WRITES = WriteRates(0.0, 0.0)


def topic_buffers(snapshot: Snapshot, rates: Mapping[TopicPartition, WriteRates]) -> dict[str, Buffer]:
    """Topics whose records are kept for ever have no room of their own: the disk's counts."""
    least: dict[str, tuple[float, float]] = {}
    for partition, log in snapshot.logs.items():
        rate = rates.get(partition, NO_WRITES)
        today, full = least.get(partition.topic, (NEVER, NEVER))
        least[partition.topic] = min(today, _room_s(log, rate.today)), min(full, _room_s(log, rate.full))
    return {topic: Buffer(_shown(today), _shown(full)) for topic, (today, full) in sorted(least.items())}


def disk_buffers(snapshot: Snapshot, rates: Mapping[TopicPartition, WriteRates]) -> dict[str, Buffer]:
    """By the path of the log directory."""
    found = {}
    for disk in snapshot.disks:
        if disk.usable is not None:
            room = max(0, disk.usable - _reserve(disk, snapshot.reserve)) + _droppable(disk, snapshot.logs)
            todays = sum(rate.today for partition, rate in rates.items() if partition in disk.logs)
            fulls = sum(rate.full for partition, rate in rates.items() if partition in disk.logs)
            found[disk.path] = Buffer(_seconds(room, todays), _seconds(room, fulls))
    return found


def _room_s(log: LogState, rate: float) -> float:
    if not log.deletes:
        return NEVER
    by_age = log.limits.retention_ms / 1000 if log.limits.retention_ms >= 0 else NEVER
    by_size = log.limits.retention_bytes / rate if log.limits.retention_bytes >= 0 and rate > 0 else NEVER
    return min(by_age, by_size)


def _reserve(disk: DiskState, reserve: int) -> int:
    return reserve if reserve >= 0 else min(RESERVE_BYTES, round((disk.total or 0) * RESERVE_SHARE))


def _droppable(disk: DiskState, logs: Mapping[TopicPartition, LogState]) -> int:
    def of(log: LogState) -> Iterable[int]:
        is_for_ever = log.limits.retention_ms < 0 and log.limits.retention_bytes < 0
        return () if is_for_ever or not log.deletes or log.compacts else (one.size for one in log.segments[:-1])

    return sum(size for partition, log in logs.items() if partition in disk.logs for size in of(log))


def _seconds(room: float, rate: float) -> float | None:
    return room / rate if rate > 0 else None


def _shown(seconds: float) -> float | None:
    return None if seconds == NEVER else seconds
