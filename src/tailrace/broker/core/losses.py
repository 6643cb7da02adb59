"""Lists known data loss: damaged ranges, gaps recorded by repairs, and offline logs. Logs it at the start."""

import logging
from collections.abc import Iterator

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.recorded_gaps import RecordedGap
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.errors import LogOffline

logger = logging.getLogger("tailrace.broker.core")

SAID_MAX = 10  # lines of each kind


def damaged_ranges(directory: DataDirectory) -> Iterator[DamagedRange]:
    """Yields the ranges that fetches are refused, found by a fetch, by the scrubber or at the start."""
    for partition, log in directory.logs.items():
        for bad in log.damage:
            if bad.last_offset >= log.start_offset:
                yield bad._replace(file=f"{partition}/{bad.file}")


def recorded_gaps(directory: DataDirectory) -> Iterator[tuple[str, RecordedGap]]:
    """Yields the gaps that fetches skip, with the names of their partitions."""
    for partition, log in directory.logs.items():
        for gap in log.recorded_gaps:
            if gap.last_offset + 1 >= log.start_offset:  # a gap just before the start means that the partition was lost
                yield str(partition), gap


def offline_logs(directory: DataDirectory) -> dict[str, LogOffline]:
    """Returns the partitions that take no appends until the broker is restarted, with the reason."""
    return {str(partition): log.offline for partition, log in directory.logs.items() if log.offline is not None}


def announce(directory: DataDirectory) -> None:
    """Logs the data loss known at the start, when most bytes have not been read yet."""
    _say(logging.ERROR, [str(error) for error in directory.unavailable.values()])
    _say(logging.ERROR, [str(bad) for bad in damaged_ranges(directory)])
    _say(logging.WARNING, [f"{partition}: {gap}" for partition, gap in recorded_gaps(directory)])


def _say(level: int, lines: list[str]) -> None:
    for line in lines[:SAID_MAX]:
        logger.log(level, "%s", line)
    if len(lines) > SAID_MAX:
        logger.log(level, "and %d more of these: tailrace log verify names them all", len(lines) - SAID_MAX)
