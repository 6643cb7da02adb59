"""The gateway's metrics, in Prometheus' text format. The broker shows them on its own page, if it has started it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from tailrace.util.histogram import Histogram

DURATIONS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # by method, route and status
        self.durations: dict[str, Histogram] = defaultdict(lambda: Histogram(DURATIONS_S))  # by route
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a figure that is looked up when the page is written."""
        self._gauges[name] = text, value

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests[method, route, status] += 1
        self.durations[route].add(seconds)

    def page(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        name = "tailrace_http_requests_total"
        yield from _head(name, "counter", "HTTP requests, by method, route and status.")
        for (method, route, status), count in sorted(self.requests.items()):
            yield f'{name}{{method="{method}",route="{route}",status="{status}"}} {count}'
        name = "tailrace_http_request_duration_seconds"
        yield from _head(name, "histogram", "From the head of an HTTP request to its response, waiting included.")
        for route, histogram in sorted(self.durations.items()):
            yield from histogram.lines(name, f'route="{route}"')
        for name, (text, value) in self._gauges.items():
            yield from _head(name, "gauge", text)
            yield f"{name} {value():g}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
