"""Which member holds which records of a share partition, and until when.

    grant    what one acquisition gave a member: a run of records with one deadline
    lease    what is left of a grant on one page; the leases of a page are in order, and do not overlap

Deadlines of grants mostly come in order, as a group has one lock duration: those are a queue, and only the others a
heap. A grant that is over, or was renewed, leaves its entry there until it comes up or there are too many of them.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count, islice
from typing import NamedTuple

from tailrace.broker.queues.partition.pages import PAGE_OFFSETS, page_ranges
from tailrace.broker.queues.partition.states import OffsetRange

_LEFT_MAX = 1_000


class Grant:
    __slots__ = ("acquired_ms", "deadline", "first", "held", "last", "member_id")

    def __init__(self, member_id: str, first: int, last: int, acquired_ms: int, deadline: int) -> None:
        self.member_id = member_id
        self.first = first
        self.last = last
        self.acquired_ms = acquired_ms
        self.deadline = deadline
        self.held = 0  # records


class Lease(NamedTuple):
    first: int
    last: int
    grant: Grant


def _first_of(lease: Lease) -> int:
    return lease.first


class Leases:
    def __init__(self) -> None:
        self.held = 0  # records
        self._by_page: dict[int, list[Lease]] = {}
        self._by_member: dict[str, dict[Grant, None]] = {}
        self._deadlines = _Deadlines()

    # Change

    def grant(self, member_id: str, first: int, last: int, acquired_ms: int, deadline: int) -> None:
        """Gives a member records that no member holds."""
        grant = Grant(member_id, first, last, acquired_ms, deadline)
        for number, one, other in page_ranges(first, last):
            leases = self._by_page.setdefault(number, [])
            lease = Lease(one, other, grant)
            if leases and leases[-1].first > one:
                leases.insert(bisect_right(leases, one, key=_first_of), lease)
            else:
                leases.append(lease)
        grant.held = last - first + 1
        self.held += grant.held
        self._by_member.setdefault(member_id, {})[grant] = None
        self._deadlines.live += 1
        self._deadlines.add(grant)

    def end(self, first: int, last: int) -> None:
        """No member holds these records any more."""
        if not self.held:
            return
        for number, one, other in page_ranges(first, last):
            leases = self._by_page.get(number)
            if leases is not None:
                self._cut(leases, one, other)
                if not leases:
                    del self._by_page[number]

    def _cut(self, leases: list[Lease], first: int, last: int) -> None:
        begin = max(0, bisect_right(leases, first, key=_first_of) - 1)
        end = bisect_right(leases, last, key=_first_of)
        kept = []
        for lease in leases[begin:end]:
            one, other, grant = lease
            if other < first:
                kept.append(lease)
                continue
            if one < first:
                kept.append(Lease(one, first - 1, grant))
            if other > last:
                kept.append(Lease(last + 1, other, grant))
            self._ended(grant, min(other, last) - max(one, first) + 1)
        leases[begin:end] = kept

    def _ended(self, grant: Grant, records: int) -> None:
        grant.held -= records
        self.held -= records
        if not grant.held:
            grants = self._by_member[grant.member_id]
            del grants[grant]
            if not grants:
                del self._by_member[grant.member_id]
            self._deadlines.live -= 1

    def renew(self, first: int, last: int, now_ms: int, lock_ms: int, total_max_ms: int) -> None:
        """Extends the deadline of records that a member holds, except where it would hold them for too long in all."""
        for lease in list(self.of(first, last)):
            grant = lease.grant
            deadline = now_ms + lock_ms
            if deadline > grant.acquired_ms + total_max_ms or deadline <= grant.deadline:
                continue
            if lease.last - lease.first + 1 == grant.held:
                grant.deadline = deadline
                self._deadlines.add(grant)
            else:
                self.end(lease.first, lease.last)
                self.grant(grant.member_id, lease.first, lease.last, grant.acquired_ms, deadline)

    # Questions

    def of(self, first: int, last: int) -> Iterator[Lease]:
        """Yields the leases of these records, in order, cut to the range."""
        for number, one, other in page_ranges(first, last):
            leases = self._by_page.get(number)
            if leases is None:
                continue
            begin = max(0, bisect_right(leases, one, key=_first_of) - 1)
            for lease in leases[begin : bisect_right(leases, other, key=_first_of)]:
                if lease.last >= one:
                    yield Lease(max(lease.first, one), min(lease.last, other), lease.grant)

    def are_of(self, member_id: str, first: int, last: int) -> bool:
        """Returns whether the member holds all of these records."""
        leases = self._by_page.get(first // PAGE_OFFSETS)
        if leases is None:
            return False
        lease = leases[bisect_right(leases, first, key=_first_of) - 1]
        if lease.first <= first and last <= lease.last:
            return lease.grant.member_id == member_id
        offset = first
        for lease in self.of(first, last):
            if lease.first != offset or lease.grant.member_id != member_id:
                return False
            offset = lease.last + 1
        return offset == last + 1

    def of_member(self, member_id: str) -> Iterator[OffsetRange]:
        """Yields what a member holds."""
        for grant in self._by_member.get(member_id, ()):
            yield from self._of_grant(grant)

    def overdue(self, now_ms: int) -> Iterator[OffsetRange]:
        """Yields the records whose deadline is over."""
        for grant in self._deadlines.due(now_ms):
            yield from self._of_grant(grant)

    def _of_grant(self, grant: Grant) -> Iterator[OffsetRange]:
        for lease in self.of(grant.first, grant.last):
            if lease.grant is grant:
                yield OffsetRange(lease.first, lease.last)

    @property
    def next_deadline(self) -> int | None:
        return self._deadlines.next


class _Deadlines:
    """Grants in the order of their deadlines. An entry counts while its grant has that deadline, and holds records."""

    def __init__(self) -> None:
        self.live = 0  # grants that hold records
        self._queue: deque[tuple[int, Grant]] = deque()
        self._others: list[tuple[int, int, Grant]] = []  # whose deadline is before that of a grant in the queue
        self._numbers = count()

    def add(self, grant: Grant) -> None:
        deadline = grant.deadline
        if self._queue and deadline < self._queue[-1][0]:
            heappush(self._others, (deadline, next(self._numbers), grant))
        else:
            self._queue.append((deadline, grant))
        if len(self._queue) + len(self._others) > 2 * self.live + _LEFT_MAX:
            self._queue = deque(entry for entry in self._queue if _counts(*entry))
            self._others = [entry for entry in self._others if _counts(entry[0], entry[2])]
            heapify(self._others)

    def due(self, now_ms: int) -> Iterator[Grant]:
        for deadline, grant in self._queue:
            if deadline > now_ms:
                break
            if _counts(deadline, grant):
                yield grant
        for deadline, _, grant in self._others:
            if deadline <= now_ms and _counts(deadline, grant):
                yield grant

    @property
    def next(self) -> int | None:
        queue, others = self._queue, self._others
        while queue and not _counts(*queue[0]):
            queue.popleft()
        while others and not _counts(others[0][0], others[0][2]):
            heappop(others)
        first = [entry[0] for entry in islice(queue, 1)]
        return min((*first, *(entry[0] for entry in others[:1])), default=None)


def _counts(deadline: int, grant: Grant) -> bool:
    return grant.held > 0 and grant.deadline == deadline
