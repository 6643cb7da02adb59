"""Counts and times what the server does. Counting is a few additions on the hot path; `metrics` renders the figures."""

from bisect import bisect_left
from collections.abc import Iterator

BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += times
        self.total += seconds * times

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        count = 0
        separator = "," if labels else ""
        for limit, here in zip((*map(str, BUCKETS_S), "+Inf"), self.counts, strict=True):
            count += here
            yield f'{name}_bucket{{{labels}{separator}le="{limit}"}} {count}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.total:.6f}"
        yield f"{name}_count{braces} {count}"


class Counters:
    def __init__(self) -> None:
        self.requests = 0  # that have responses
        self.journal_writes = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_opened = 0
        self.requests_by_api: dict[int, Histogram] = {}
        self.flushes = Histogram()
        self.loop_lags = Histogram()

    def answered(self, api_key: int, seconds: float, requests: int = 1) -> None:
        self.requests += requests
        histogram = self.requests_by_api.get(api_key)
        if histogram is None:
            histogram = self.requests_by_api[api_key] = Histogram()
        histogram.add(seconds, requests)

    def flushed(self, seconds: float) -> None:
        self.flushes.add(seconds)

    def loop_lag(self, seconds: float) -> None:
        self.loop_lags.add(seconds)
