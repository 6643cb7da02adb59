"""The cache of the indexes of sealed segments: one for all logs of a process. Used by any thread."""

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.log.segment.segment import Segment


class DerivedCache:
    """Bounds the indexes of sealed segments in memory, over all logs that share it. Drops the least recently used
    first.
    """

    def __init__(self, limit_bytes: int = 64 << 20) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._mutex = threading.Lock()
        self._segments: OrderedDict[Segment, int] = OrderedDict()

    def used(self, segment: "Segment", size: int) -> None:
        with self._mutex:
            self._bytes += size - self._segments.pop(segment, 0)
            self._segments[segment] = size
            while self._bytes > self._limit_bytes and len(self._segments) > 1:
                victim, victim_bytes = self._segments.popitem(last=False)
                self._bytes -= victim_bytes
                victim.forget_derived()

    def forget(self, segment: "Segment") -> None:
        with self._mutex:
            self._bytes -= self._segments.pop(segment, 0)
