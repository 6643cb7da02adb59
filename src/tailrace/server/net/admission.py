"""Limits connections: their total, per address and per second. All limits can change at run time."""

from tailrace.broker.configs.keys import limits_by_address
from tailrace.broker.configs.registry import BrokerConfigs

WINDOW_S = 1.0


class Admission:
    def __init__(self, configs: BrokerConfigs) -> None:
        self._configs = configs
        self._window_ends = 0.0
        self._accepted = 0  # in the current second

    def has_room(self, host: str, *, of_all: int, of_host: int) -> bool:
        """Whether the connection from `host` that was just accepted may stay."""
        self._accepted += 1
        return of_all < self._configs.number("max.connections") and of_host < self._limit_of(host)

    def _limit_of(self, host: str) -> int:
        own = limits_by_address(self._configs.text("max.connections.per.ip.overrides")).get(host)
        return self._configs.number("max.connections.per.ip") if own is None else own

    def wait_s(self, now: float) -> float:
        """How long to wait before the next connection is accepted."""
        if now >= self._window_ends:
            self._window_ends = now + WINDOW_S
            self._accepted = 0
        if self._accepted >= self._configs.number("max.connection.creation.rate"):
            return self._window_ends - now
        return 0.0
