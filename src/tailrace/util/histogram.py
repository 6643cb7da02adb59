"""A histogram of durations, as Prometheus reads it."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    __slots__ = ("_limits", "counts", "total")

    def __init__(self, limits: Sequence[float] = BUCKETS_S) -> None:
        self._limits = limits
        self.counts = [0] * (len(limits) + 1)
        self.total = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(self._limits, seconds)] += times
        self.total += seconds * times

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        count = 0
        separator = "," if labels else ""
        for limit, here in zip((*map(str, self._limits), "+Inf"), self.counts, strict=True):
            count += here
            yield f'{name}_bucket{{{labels}{separator}le="{limit}"}} {count}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.total:.6f}"
        yield f"{name}_count{braces} {count}"
