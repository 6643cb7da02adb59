"""Decides when a log begins a new segment: the active one would become too large, or too old, or its index is full."""

from contextlib import suppress
from typing import NamedTuple

from tailrace.log.disk.interface import name_of
from tailrace.log.files.index import POSITION_MAX, RELATIVE_OFFSET_MAX, least_size_of_full_index
from tailrace.log.layout.config import LogConfig
from tailrace.log.scan.scan import header_at
from tailrace.log.segment.segment import Segment
from tailrace.records.checksum import crc32c


class Room(NamedTuple):
    """How far the active segment can take appends without a check whether it is full or too old."""

    position: int
    offset: int
    until_ms: int


NO_ROOM_KNOWN = Room(-1, -1, -1)


class RollPolicy:
    """The policy of one log, as long as its config does not change."""

    def __init__(self, directory: str, config: LogConfig, active: Segment) -> None:
        self._name = name_of(directory)
        self._config = config
        interval_bytes = min(config.index_interval_bytes, active.interval_bytes)
        self._full_index_from = least_size_of_full_index(config.segment_index_bytes, interval_bytes)

    def is_due(self, active: Segment, size: int, last_offset: int, now_ms: int) -> bool:
        """Returns whether batches of `size` bytes, up to `last_offset`, go into a new segment. `active` must not be
        empty.
        """
        config, age_ms = self._config, age_of(active, now_ms)
        return (
            active.size + size > min(config.segment_bytes, POSITION_MAX)
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
            or age_ms > config.segment_ms
            or (config.segment_jitter_ms > 0 and self._is_early(active, age_ms))
            or (active.size >= self._full_index_from and active.has_full_index(config.segment_index_bytes))
        )

    def _is_early(self, active: Segment, age_ms: int) -> bool:
        """Returns whether the segment is older than this log's own limit: `segment.ms` less a fixed, pseudo-random part
        of `segment.jitter.ms`, so that logs that began together do not all roll at once.
        """
        name = f"{self._name}/{active.name}"
        sooner_ms = crc32c(name.encode()) % min(self._config.segment_jitter_ms, self._config.segment_ms)
        return age_ms > self._config.segment_ms - sooner_ms

    def room_in(self, active: Segment, now_ms: int) -> Room:
        """Returns what `active` has room for; `NO_ROOM_KNOWN` if each append has to be checked."""
        config = self._config
        if not 0 < active.size < self._full_index_from:
            return NO_ROOM_KNOWN
        sooner_ms = min(config.segment_jitter_ms, config.segment_ms)
        return Room(
            min(config.segment_bytes, POSITION_MAX, self._full_index_from),
            active.base_offset + RELATIVE_OFFSET_MAX,
            now_ms - age_of(active, now_ms) + config.segment_ms - sooner_ms,
        )


def age_of(active: Segment, now_ms: int) -> int:
    """Returns the age of the active segment's first batch, in milliseconds; 0 if it is empty. For a segment of an
    earlier process, the timestamp of the batch counts, if it is plausible.
    """
    if not active.size:
        return 0
    if active.first_append_ms is None:
        active.first_append_ms = now_ms
        with suppress(OSError):
            header = header_at(active.log, 0)
            if header is not None and header.max_timestamp >= 0:
                active.first_append_ms = min(now_ms, header.max_timestamp)
    return now_ms - active.first_append_ms
