"""A partition and one reader on a virtual clock: what is written, read, rolled and deleted, second by second."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.facts.segments import SegmentFact
from tailrace.monitor.figures.forecast import Forecast, Limits, Walk

RECORD_BYTES = 100


@dataclass
class World:
    """Retention as the broker has it: whole segments from the front, when it looks, each `tick_s`. `write` and `read`
    give records per second at a time.
    """

    write: Callable[[int], int]
    read: Callable[[int], int]
    retention_ms: int = -1
    retention_bytes: int = -1
    segment_bytes: int = 100_000
    tick_s: int = 300
    now: int = 1_000_000
    position: int = 0
    lost_at: int | None = None
    segments: list[SegmentFact] = field(default_factory=list)
    began: int = 1_000_000
    active_since: int = 1_000_000_000

    def __post_init__(self) -> None:
        self.segments = [SegmentFact(0, 0, 0, None)]

    @property
    def end(self) -> int:
        return self.segments[-1].next

    def step(self) -> None:
        """One second."""
        for _ in range(count := self.write(self.now)):
            if self.segments[-1].size >= self.segment_bytes:
                self.segments.append(SegmentFact(self.end, self.end, 0, None))
                self.active_since = self.now * 1000
            last = self.segments[-1]
            room = max(1, (self.segment_bytes - last.size) // RECORD_BYTES)
            taken = min(count, room)
            grown = last.size + taken * RECORD_BYTES
            self.segments[-1] = SegmentFact(last.base, last.next + taken, grown, self.now * 1000)
            count -= taken
            if not count:
                break
        self.position = min(self.end, self.position + self.read(self.now))
        self.now += 1
        if (self.now - self.began) % self.tick_s == 0:
            self._delete()

    def _delete(self) -> None:
        while len(self.segments) > 1 and self._may_go():
            if self.position < self.segments[0].next and self.lost_at is None:
                self.lost_at = self.now
            del self.segments[0]

    def _may_go(self) -> bool:
        first = self.segments[0]
        left = sum(segment.size for segment in self.segments) - first.size
        if 0 <= self.retention_bytes <= left:
            return True
        return 0 <= self.retention_ms < self.now * 1000 - (first.newest or 0)

    def run_until_lost(self, seconds: int) -> None:
        until = self.now + seconds
        while self.lost_at is None and self.now < until:
            self.step()

    def limits(self) -> Limits:
        return Limits(
            self.retention_ms,
            self.retention_bytes,
            self.segment_bytes,
            tick_ms=self.tick_s * 1000,
            tick_at=self.began * 1000,
            active_since=self.active_since,
        )

    def forecast(self, write: float, read: float, *, rounded: bool = True) -> Forecast:
        walk = Walk(self.segments, self.limits(), write, write * RECORD_BYTES, self.now * 1000)
        return walk.forecast(self.position, read, rounded=rounded)
