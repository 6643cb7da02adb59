"""Where a share group begins a partition that it has not read before: `share.auto.offset.reset`."""

import logging

from tailrace.broker.configs.share import ShareSettings
from tailrace.broker.core.partition import Partition
from tailrace.log.layout.errors import LogError

logger = logging.getLogger("tailrace.broker.queues")


def known_start(partition: Partition, settings: ShareSettings) -> int | None:
    """Returns the offset; None if that takes a search in the log, which may wait for a disk."""
    if settings.offset_reset.from_earliest:
        return partition.start_offset
    if settings.offset_reset.age_ms is None or partition.log is None:
        return _end_of(partition, settings)
    return None


def _end_of(partition: Partition, settings: ShareSettings) -> int:
    return partition.last_stable_offset if settings.reads_committed else partition.high_watermark


class FindStartJob:
    """A job that searches a log for its first record that is young enough."""

    def __init__(self, partition: Partition, settings: ShareSettings, now_ms: int) -> None:
        self.offset = _end_of(partition, settings)
        self._log = partition.log
        self._timestamp = now_ms - (settings.offset_reset.age_ms or 0)

    def run(self) -> None:
        if self._log is None:
            return
        try:
            found = self._log.find_time(self._timestamp)
        except LogError as error:
            self.offset = int(self._log.start_offset)  # rather too much than too little
            logger.warning("cannot search %s by time: %s. A queue begins at its start", self._log.directory, error)
        else:
            if found is not None:
                self.offset = found.offset

    def finish(self) -> None:
        pass
