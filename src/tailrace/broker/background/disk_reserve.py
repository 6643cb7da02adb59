"""The disk reserve: refuses clients' appends while less than the reserve is free, until 1.5 times the reserve is free.

With each tick a thread determines the free space; if that takes long, the last result counts. An append is refused with
KAFKA_STORAGE_ERROR, as when a write finds the disk full: clients retry by themselves. Everything else continues, using
the reserve: reads, commits, deletions, metadata. Appends to internal topics are not checked here.
"""

import logging

from tailrace.broker.core.delayed import StartJob
from tailrace.broker.core.errors import Refused
from tailrace.broker.metadata.state import Metadata, MetadataCache
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import Space
from tailrace.log.layout.errors import without_frames
from tailrace.protocol.errors import ErrorCode
from tailrace.util.sizes import shown

logger = logging.getLogger("tailrace.broker.background")

RESERVE_BYTES_MAX = 1 << 30  # unless it is configured
RESERVE_SHARE = 20  # 1/20 of the disk


class DiskReserve:
    def __init__(self, directory: DataDirectory, metadata: Metadata, start_job: StartJob) -> None:
        self.is_low = False
        self.found: Space | None = None  # unknown before the first result
        self.refused = 0
        self._directory = directory
        self._configs: MetadataCache[int] = MetadataCache(metadata)
        self._numbers = metadata.configs.number
        self._start_job = start_job
        self._is_asking = False
        self._cannot_tell = False

    @property
    def reserve(self) -> int:
        """Returns the reserve by the current configs."""
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
            logger.warning("cannot determine free disk space: %s", job.error)

    def _decide(self, free: int) -> None:
        reserve = self.reserve
        if not self.is_low and free < reserve:
            self.is_low = True
            logger.error("%s", self._message())
        elif self.is_low and free >= _enough(reserve):
            self.is_low = False
            logger.warning("%s of disk space are free again: appends are accepted", shown(free))

    def refusal(self) -> Refused:
        """Returns the error for a client whose append is refused."""
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
