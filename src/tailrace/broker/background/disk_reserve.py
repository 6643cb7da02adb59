"""The disk reserve: refuses clients' appends while less than the reserve is free, until half as much more is.

How much is free is asked in a thread, with each tick: the answer may take long, and then the last one counts. A
refusal is a KAFKA_STORAGE_ERROR, as when a write finds the disk full: clients try again by themselves. Everything else
goes on, out of the reserve: reads, commits, deletions, metadata. What appends to internal topics does not ask here.
"""

import logging

from tailrace.broker.core.delayed import StartJob
from tailrace.broker.core.errors import Refused
from tailrace.broker.metadata.state import Metadata, MetadataCache
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import Space
from tailrace.log.layout.errors import without_frames
from tailrace.protocol.errors import ErrorCode

logger = logging.getLogger("tailrace.broker.background")

RESERVE_BYTES_MAX = 1 << 30  # unless it is told otherwise
RESERVE_SHARE = 20  # one part in so many of the disk


class DiskReserve:
    def __init__(self, directory: DataDirectory, metadata: Metadata, start_job: StartJob) -> None:
        self.is_low = False
        self.found: Space | None = None  # not known before the first answer
        self.refused = 0
        self._directory = directory
        self._configs: MetadataCache[int] = MetadataCache(metadata)
        self._numbers = metadata.configs.number
        self._start_job = start_job
        self._is_asking = False
        self._cannot_tell = False

    @property
    def reserve(self) -> int:
        """As the configs say now."""
        told = self._configs.get("reserve", lambda: self._numbers("tailrace.disk.reserve.bytes"))
        if told >= 0:
            return told
        return min(RESERVE_BYTES_MAX, self.found.total // RESERVE_SHARE) if self.found is not None else 0

    @property
    def disk_bytes(self) -> int | None:
        return self.found.total if self.found is not None else None

    def tick(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        job = FreeSpaceJob(self._directory)
        self._start_job(job, lambda: self._told(job))

    def _told(self, job: "FreeSpaceJob") -> None:
        self._is_asking = False
        if job.found is not None:
            self.found, self._cannot_tell = job.found, False
            self._decide(job.found.free)
        elif not self._cannot_tell:
            self._cannot_tell = True
            logger.warning("nobody knows how much of the disk is free: %s", job.error)

    def _decide(self, free: int) -> None:
        reserve = self.reserve
        if not self.is_low and free < reserve:
            self.is_low = True
            logger.error("%s", self._message())
        elif self.is_low and free >= _enough(reserve):
            self.is_low = False
            logger.warning("%s of the disk are free again: producers are served", shown(free))

    def refusal(self) -> Refused:
        """What a client is told whose append is not taken."""
        self.refused += 1
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, self._message())

    def _message(self) -> str:
        assert self.found is not None
        reserve = self.reserve
        return (
            f"the disk is nearly full: {shown(self.found.free)} are free, and tailrace.disk.reserve.bytes keeps "
            f"{shown(reserve)}. Producers are refused until {shown(_enough(reserve))} are free: delete topics or "
            "records, shorten retention, or make room on the disk"
        )


def _enough(reserve: int) -> int:
    return reserve + reserve // 2


def shown(size: int) -> str:
    """For people: 1.5 GiB."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


class FreeSpaceJob:
    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self.found: Space | None = None
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            self.found = self._directory.free_space()
        except OSError as error:
            self.error = without_frames(error)

    def finish(self) -> None:
        pass
