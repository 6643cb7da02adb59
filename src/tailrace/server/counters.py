"""Counts and times what the server does. Counting is a few additions on the hot path; `metrics` renders the figures."""

from tailrace.util.histogram import Histogram


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
