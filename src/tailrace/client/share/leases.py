"""The records that a consumer holds, and until when. Pure.

A record that was acquired again, because its lock had run out, is another lease: only the latest counts.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from tailrace.client.share.acknowledgements import SharePartition
from tailrace.client.share.deliveries import Delivery

N = TypeVar("N")

_OUTDATED_MAX = 1000  # entries of leases that have ended, beside those of others
_RENEWAL_PART = 0.5  # of the lock duration, after which a lease is renewed


@dataclass(slots=True, eq=False)
class Lease(Generic[N]):
    """`node` is whose session holds it. `due` is when it is to be looked at: to be renewed, or because it ends."""

    delivery: Delivery
    node: N
    ends: float
    due: float


class Leases(Generic[N]):
    def __init__(self, *, renews: bool) -> None:
        self._renews = renews
        self._held: dict[tuple[SharePartition, int], Lease[N]] = {}
        self._due: list[tuple[float, int, Lease[N]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Lease[N]]:
        return iter(list(self._held.values()))

    @property
    def next_due(self) -> float:
        while self._due and not self._is_current(*self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else float("inf")

    def add(self, delivery: Delivery, node: N, now: float, lock_s: float) -> Lease[N] | None:
        """Returns the lease that this one replaces, if any."""
        key = delivery.partition, delivery.offset
        before = self._held.get(key)
        lease = self._held[key] = Lease(delivery, node, now, now)
        self.extend(lease, now, lock_s)
        return before

    def extend(self, lease: Lease[N], now: float, lock_s: float) -> None:
        lease.ends = now + lock_s
        self._look_at(lease, now + lock_s * _RENEWAL_PART if self._renews else lease.ends)

    def find(self, delivery: Delivery) -> Lease[N] | None:
        """Returns the lease of exactly this delivery."""
        lease = self._held.get((delivery.partition, delivery.offset))
        return lease if lease is not None and lease.delivery is delivery else None

    def at(self, partition: SharePartition, offset: int) -> Lease[N] | None:
        return self._held.get((partition, offset))

    def remove(self, lease: Lease[N]) -> None:
        key = lease.delivery.partition, lease.delivery.offset
        if self._held.get(key) is lease:
            del self._held[key]

    def take_due(self, now: float) -> list[Lease[N]]:
        """Returns the leases that are to be looked at now. Those that have not ended come again when they end."""
        found = []
        while self.next_due <= now:
            lease = heapq.heappop(self._due)[2]
            found.append(lease)
            if lease.ends > now:
                self._look_at(lease, lease.ends)
        return found

    def _look_at(self, lease: Lease[N], due: float) -> None:
        lease.due = due
        heapq.heappush(self._due, (due, next(self._order), lease))
        if len(self._due) > _OUTDATED_MAX + 2 * len(self._held):
            self._due = [entry for entry in self._due if self._is_current(*entry)]
            heapq.heapify(self._due)

    def _is_current(self, due: float, _: int, lease: Lease[N]) -> bool:
        return lease.due == due and self._held.get((lease.delivery.partition, lease.delivery.offset)) is lease
