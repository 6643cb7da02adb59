"""What clients do over their open connections, as far as it tells whether a group was moved past records unread.

A client is known by its client id, because it fetches over one connection, and commits over another. Each connection
has a `ClientConnection`, which lives as long as it is open:

    fetches        the partitions that the client fetches over it. The fast path repeats what the slow path has noted
    out of range   the partitions of which the client has been sent OFFSET_OUT_OF_RANGE, and from which offset it read
    latest         if the client then asks for the latest offset, it goes on there: a reset, noted with its client
    when closed    what has to be done when the connection is closed: share sessions end with it

All of it is limited: beyond the limits the oldest is forgotten. Pure; `backlog/resets` draws the conclusions.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from tailrace.broker.core.partition import Partition

PARTITIONS_MAX = 10_000  # of one connection
OUT_OF_RANGE_MAX = 1_000  # of one connection
RESETS_MAX = 10_000
CLOSED_MAX = 10_000
CLOSED_MS = 60_000  # for how long a closed connection counts: some clients open one for each portion that they read

Place = tuple[str, Partition]  # a client id, and a partition


class LatestReset(NamedTuple):
    """A client that read at `fetched`, which was out of range, goes on at `latest`."""

    fetched: int
    latest: int


class Clients:
    def __init__(self, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        self._open: dict[Place, int] = {}  # how many connections fetch it
        self._closed: OrderedDict[Place, int] = OrderedDict()  # when the last of them was closed
        self.resets: OrderedDict[Place, LatestReset] = OrderedDict()

    def connect(self) -> "ClientConnection":
        """Returns what is known of a new connection. Its `close` must be called with the connection's."""
        return ClientConnection(self)

    def is_fetching(self, client_id: str | None, partition: Partition) -> bool:
        """Returns whether a client fetches the partition, or did so over a connection that was closed just now."""
        place = client_id or "", partition
        closed_ms = self._closed.get(place)
        return place in self._open or (closed_ms is not None and self._steady_ms() - closed_ms < CLOSED_MS)

    def began(self, place: Place) -> None:
        self._open[place] = self._open.get(place, 0) + 1

    def ended(self, place: Place) -> None:
        self._open[place] -= 1
        if not self._open[place]:
            del self._open[place]
            self._closed[place] = self._steady_ms()
            self._closed.move_to_end(place)
            if len(self._closed) > CLOSED_MAX:
                self._closed.popitem(last=False)

    def reset(self, place: Place, reset: LatestReset) -> None:
        self.resets[place] = reset
        if len(self.resets) > RESETS_MAX:
            self.resets.popitem(last=False)


class ClientConnection:
    """What is known of one open connection."""

    __slots__ = ("_clients", "_fetched", "_out_of_range", "_when_closed", "is_closed")

    def __init__(self, clients: Clients) -> None:
        self.is_closed = False
        self._when_closed: dict[Callable[[], None], None] = {}  # a dict, for its order
        self._clients = clients
        self._fetched: dict[Partition, str] = {}
        self._out_of_range: dict[Partition, int] = {}

    def fetches(self, client_id: str | None, partition: Partition) -> None:
        if partition not in self._fetched and len(self._fetched) < PARTITIONS_MAX:
            self._fetched[partition] = client_id or ""
            self._clients.began((client_id or "", partition))

    def sent_out_of_range(self, partition: Partition, offset: int) -> None:
        self._out_of_range[partition] = offset
        if len(self._out_of_range) > OUT_OF_RANGE_MAX:
            del self._out_of_range[next(iter(self._out_of_range))]

    def asks_latest(self, client_id: str | None, partition: Partition, latest: int) -> None:
        fetched = self._out_of_range.pop(partition, None)
        if fetched is not None and fetched < latest:
            self._clients.reset((client_id or "", partition), LatestReset(fetched, latest))

    def when_closed(self, action: Callable[[], None]) -> None:
        """Does something when the connection is closed, unless it is forgotten before."""
        self._when_closed[action] = None

    def forget(self, action: Callable[[], None]) -> None:
        self._when_closed.pop(action, None)

    def close(self) -> bool:
        """Returns whether anything had to be done, which may have written to a log."""
        self.is_closed = True
        for partition, client_id in self._fetched.items():
            self._clients.ended((client_id, partition))
        self._fetched.clear()
        self._out_of_range.clear()
        actions, self._when_closed = self._when_closed, {}
        for action in actions:
            action()
        return bool(actions)
