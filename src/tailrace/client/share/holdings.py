"""What a consumer holds, and what becomes of it: leases, acknowledgements on their way, and their results. No I/O.

A `Node` is a broker with which there is a session. Whatever is to be sent to it is in its outbox.
"""

from collections import Counter, deque
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.client.errors import ClientError, Refused
from tailrace.client.share.acknowledgements import Acknowledgement, Outbox, Outcome, SharePartition, Terms
from tailrace.client.share.deliveries import Acquired, Delivery
from tailrace.client.share.leases import Lease, Leases
from tailrace.client.share.session import Acknowledged, Session, errors_of
from tailrace.protocol.errors import ErrorCode

_DAMAGE_MAX = 100


class Result(NamedTuple):
    """What became of an acknowledgement. Without an error, it counts, and is on the broker's disk.

    With an error, it is the last word about this delivery: the record comes again, or it has been acknowledged and only
    the response was lost. `outcome` is None for a record that was taken away before it was acknowledged.
    """

    delivery: Delivery
    outcome: Outcome | None
    error: ClientError | None


@dataclass(slots=True, eq=False)
class Node:
    """A broker with which there is a session, and when it may be asked again: for records, and to acknowledge."""

    session: Session
    outbox: Outbox
    fetches_from: float = 0.0
    acknowledges_from: float = 0.0


class _Settling(NamedTuple):
    """A record that was acknowledged, and nothing says yet whether that counts."""

    lease: Lease[Node]
    outcome: Outcome


class Holdings:
    def __init__(self, *, renews: bool, backoff_s: float) -> None:
        self.ready: deque[Delivery] = deque()  # acquired, and not yet handed to the owner
        self.results: list[Result] = []
        self.damage: deque[ClientError] = deque(maxlen=_DAMAGE_MAX)  # batches that could not be read
        self._backoff_s = backoff_s
        self._leases: Leases[Node] = Leases(renews=renews)
        self._settling: dict[tuple[SharePartition, int], _Settling] = {}

    def __len__(self) -> int:
        """How many records are acquired, and not acknowledged."""
        return len(self._leases)

    @property
    def is_settled(self) -> bool:
        """Whether every acknowledgement has its result."""
        return not self._settling

    @property
    def next_due(self) -> float:
        """When `end_due` has something to do."""
        return self._leases.next_due

    def are_of(self, node: Node) -> bool:
        """Whether any of it is held by the session with a broker."""
        return any(lease.node is node for lease in (*self._leases, *(one.lease for one in self._settling.values())))

    def lock_ends(self, delivery: Delivery) -> float:
        """Returns until when a record is locked, by the monotonic clock; 0.0 if it is not any more."""
        lease = self._leases.find(delivery)
        return 0.0 if lease is None else lease.ends

    # What the owner does

    def acknowledge(self, delivery: Delivery, outcome: Outcome, terms: Terms) -> None:
        lease = self._find(delivery, outcome)
        if lease is not None:
            self._leases.remove(lease)
            self._settling[delivery.partition, delivery.offset] = _Settling(lease, outcome)
            lease.node.outbox.put(_of(delivery, outcome), terms)

    def renew(self, delivery: Delivery, lock_ms: int | None) -> None:
        lease = self._find(delivery, Outcome.RENEW)
        if lease is not None:
            self._renew(lease, lock_ms)

    def give_up_ready(self) -> None:
        """Forgets what the owner has not been handed."""
        for delivery in self.ready:
            if (lease := self._leases.find(delivery)) is not None:
                self._leases.remove(lease)
        self.ready.clear()

    # What brokers say

    def take(self, acquired: Acquired, node: Node, now: float, lock_s: float) -> None:
        self.damage.extend(acquired.damage)
        for settled in acquired.settled:
            node.outbox.put(settled)
        for delivery in acquired.deliveries:
            if (before := self._leases.add(delivery, node, now, lock_s)) is not None:
                self._lose(before, _expired(before.delivery))
        self.ready.extend(acquired.deliveries)

    def confirm(self, answer: Acknowledged, node: Node, now: float) -> None:
        errors = errors_of(answer)
        counts = Counter(one.partition for one in answer.sent)
        lock_s = (answer.terms.lock_ms or answer.response.acquisition_lock_timeout_ms) / 1000
        for one in answer.sent:
            error = errors.get(one.partition)
            if error is not None and self._is_repeated(one, answer.terms, error, counts[one.partition], node, now):
                continue
            if one.outcome is Outcome.RENEW:
                self._end_renewal(one, error, now, lock_s)
            elif (settling := self._settling.pop((one.partition, one.first), None)) is not None:
                self.results.append(Result(settling.lease.delivery, one.outcome, error))

    def end_due(self, now: float) -> None:
        """Renews leases whose time has come, and ends those whose time is over."""
        for lease in self._leases.take_due(now):
            if now < lease.ends:
                self._renew(lease)
            else:
                self._lose(lease, _expired(lease.delivery))

    def end_all(self, node: Node, error: ClientError) -> None:
        """The session with a broker has ended, and with it all that it held."""
        for lease in self._leases:
            if lease.node is node:
                self._lose(lease, error)
        for key, (lease, outcome) in list(self._settling.items()):
            if lease.node is node:
                del self._settling[key]
                self.results.append(Result(lease.delivery, outcome, error))

    # Steps

    def _find(self, delivery: Delivery, outcome: Outcome) -> Lease[Node] | None:
        """The lease of a delivery; if there is none any more, that is a result."""
        lease = self._leases.find(delivery)
        if lease is None:
            self.results.append(Result(delivery, outcome, _expired(delivery)))
        return lease

    def _renew(self, lease: Lease[Node], lock_ms: int | None = None) -> None:
        lease.node.outbox.put(_of(lease.delivery, Outcome.RENEW), Terms(is_renewal=True, lock_ms=lock_ms))

    def _is_repeated(
        self, one: Acknowledgement, terms: Terms, error: Refused, count: int, node: Node, now: float
    ) -> bool:
        """One that is not valid makes the broker refuse all of its partition: each is sent again by itself. So is one
        that the broker could not store, as long as its lock lasts.
        """
        settling = self._settling.get((one.partition, one.first))
        lease = self._leases.at(one.partition, one.first) if settling is None else settling.lease
        if lease is None or now >= lease.ends:
            return False
        if count > 1:
            node.outbox.put(one, terms._replace(is_alone=True))
        elif error.is_passing:
            node.outbox.put(one, terms)
            node.acknowledges_from = now + self._backoff_s
        else:
            return False
        return True

    def _end_renewal(self, one: Acknowledgement, error: ClientError | None, now: float, lock_s: float) -> None:
        lease = self._leases.at(one.partition, one.first)
        if lease is None:
            return
        if error is None:
            self._leases.extend(lease, now, lock_s)
            self.results.append(Result(lease.delivery, Outcome.RENEW, None))
        else:
            self._lose(lease, error)

    def _lose(self, lease: Lease[Node], error: ClientError) -> None:
        """The record is not ours any more. The owner does not hear of one that it has not been handed."""
        self._leases.remove(lease)
        lease.node.outbox.forget(lease.delivery.partition, lease.delivery.offset)
        if lease.delivery in self.ready:
            self.ready.remove(lease.delivery)
        else:
            self.results.append(Result(lease.delivery, None, error))


def _of(delivery: Delivery, outcome: Outcome) -> Acknowledgement:
    return Acknowledgement(delivery.partition, delivery.offset, delivery.offset, outcome)


def _expired(delivery: Delivery) -> Refused:
    return Refused(f"the lock on {delivery.at} at offset {delivery.offset} has ended", ErrorCode.INVALID_RECORD_STATE)
