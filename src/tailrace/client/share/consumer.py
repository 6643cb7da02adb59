"""A member of a share group: acquires records, and tells the brokers what became of them.

All work is done inside `poll` and `close`, by the thread that calls them: heartbeats, requests, responses, renewals.
What happened to acknowledgements, and to records that were taken away, is in `results`.

A broker that cannot be reached is tried again for ever; `trouble` is the last such error, and None once all is well. An
error that no retry can mend is raised.
"""

import select
import socket
import time
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import ClientError, ConnectionLost, GaveUp, Refused, is_passing, refusal
from tailrace.client.options import Address, ClientOptions
from tailrace.client.share.acknowledgements import Acknowledgement, Outbox, Outcome, SharePartition, Terms
from tailrace.client.share.deliveries import Acquired, Delivery, read_acquired
from tailrace.client.share.leases import Lease, Leases
from tailrace.client.share.member import Member
from tailrace.client.share.placement import Placement, Places
from tailrace.client.share.session import Acknowledged, Fetch, Fetched, Session, errors_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_fetch import PartitionData

FETCH_WAIT_MS = 500
CLOSE_S = 10.0
_RETRY_S_MAX = 3.0  # in which nothing else happens
_DAMAGE_MAX = 100
_WAKES = 4096  # that are taken at once


class Result(NamedTuple):
    """What became of an acknowledgement. Without an error, it counts, and is on the broker's disk.

    With an error, it is the last word about this delivery: the record comes again, or it has been acknowledged and only
    the response was lost. `outcome` is None for a record that was taken away before it was acknowledged.
    """

    delivery: Delivery
    outcome: Outcome | None
    error: ClientError | None


@dataclass(slots=True, eq=False)
class _Node:
    """A broker with which there is a session."""

    session: Session
    outbox: Outbox
    resumes: float = 0.0  # when it may be asked for records again

    @property
    def is_idle(self) -> bool:
        return not self.session.is_waiting and not self.outbox


class _Settling(NamedTuple):
    """A record that was acknowledged, and nothing says yet whether that counts."""

    lease: Lease[_Node]
    outcome: Outcome


class ShareConsumer:
    def __init__(self, options: ClientOptions, group: str, topics: Iterable[str], *, renews: bool = False) -> None:
        """Does nothing before the first `poll`. With `renews`, leases are renewed until they are acknowledged."""
        names = list(topics)
        self.trouble: ClientError | None = None
        self.damage: deque[ClientError] = deque(maxlen=_DAMAGE_MAX)  # batches that could not be read, and were rejected
        self._cluster = Cluster(replace(options, retry_timeout_s=min(options.retry_timeout_s, _RETRY_S_MAX)))
        self._group = group
        self._member = Member(self._cluster, group, names)
        self._placement = Placement(self._cluster, names)
        self._places: Places = {}
        self._nodes: dict[Address, _Node] = {}
        self._turn = 0
        self._resumes = 0.0  # when brokers may be looked for again
        self._leases: Leases[_Node] = Leases(renews=renews)
        self._settling: dict[tuple[SharePartition, int], _Settling] = {}
        self._ready: deque[Delivery] = deque()
        self._results: list[Result] = []
        self._is_closed = False
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)

    # What the owner calls

    def poll(self, records_max: int, wait_s: float, *, lock_ms: int | None = None) -> list[Delivery]:
        """Returns up to so many records, as soon as there are any; after `wait_s`, a `wake` or a result, maybe none.

        With 0 for `records_max`, it only does what has to be done. `lock_ms`, how long the records are to be locked,
        needs a tailrace broker; others lock as the group is configured.
        """
        until, known = time.monotonic() + wait_s, len(self._results)
        while True:
            now = time.monotonic()
            self._end_leases(now)
            wanted = records_max - len(self._ready)
            self._work(now, wanted, Fetch(wanted, _wait_ms(until - now), lock_ms))
            if (self._ready and records_max) or len(self._results) > known or time.monotonic() >= until:
                break
            if self._wait(until):
                break
        return [self._ready.popleft() for _ in range(min(records_max, len(self._ready)))]

    def acknowledge(self, delivery: Delivery, outcome: Outcome, *, delay_ms: int | None = None) -> None:
        """Accepts, releases or rejects a record. The next `poll` sends it. `delay_ms`, for how long a released record
        is not to be delivered, needs a tailrace broker.
        """
        lease = self._take(delivery, outcome)
        if lease is not None:
            self._leases.remove(lease)
            self._settling[delivery.partition, delivery.offset] = _Settling(lease, outcome)
            lease.node.outbox.put(_of(delivery, outcome), Terms(delay_ms=delay_ms))

    def renew(self, delivery: Delivery, *, lock_ms: int | None = None) -> None:
        """Locks a record for another lock duration; `lock_ms` needs a tailrace broker."""
        lease = self._take(delivery, Outcome.RENEW)
        if lease is not None:
            self._renew(lease, lock_ms)

    def results(self) -> list[Result]:
        """Returns what has happened since the last call."""
        found, self._results = self._results, []
        return found

    def wake(self) -> None:
        """Makes a `poll` that waits return. Any thread may call it, and a signal handler."""
        with suppress(OSError):  # full, so it wakes anyway; or closed
            self._waker.send(b"w")

    @property
    def is_settled(self) -> bool:
        """Whether every acknowledgement has its result."""
        return not self._settling

    @property
    def held(self) -> int:
        """How many records are acquired, and not acknowledged."""
        return len(self._leases)

    @property
    def ready(self) -> int:
        """How many acquired records `poll` has not returned yet."""
        return len(self._ready)

    @property
    def has_session(self) -> bool:
        """Whether it has joined its group, and a broker can be asked for records."""
        return bool(self._nodes)

    def lock_ends(self, delivery: Delivery) -> float:
        """Returns until when a record is locked, by the monotonic clock; 0.0 if it is not any more."""
        lease = self._leases.find(delivery)
        return 0.0 if lease is None else lease.ends

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Sends the acknowledgements that wait, releases all other records, and leaves the group. Does not raise."""
        if self._is_closed:
            return
        self._is_closed = True
        deadline = time.monotonic() + wait_s
        for delivery in self._ready:
            if (lease := self._leases.find(delivery)) is not None:
                self._leases.remove(lease)
        self._ready.clear()
        for node in list(self._nodes.values()):
            try:
                self._finish(node, deadline)
            except ClientError as error:
                self._drop(node, error)
        with suppress(ClientError):
            self._member.leave(deadline)
        self._cluster.close()
        self._woken.close()
        self._waker.close()

    # One round of work

    def _work(self, now: float, wanted: int, fetch: Fetch) -> None:
        try:
            self._member.step(now)
            if now >= self._resumes:
                self._open_sessions()
        except ClientError as error:
            self._resumes = now + self._cluster.options.retry_backoff_max_s
            self._note(error)
        for node in list(self._nodes.values()):
            try:
                self._send_acknowledgements(node)
            except ClientError as error:
                self._drop(node, error)
                self._note(error)
        if wanted > 0:
            self._fetch(now, wanted, fetch)

    def _open_sessions(self) -> None:
        self._places = places = self._placement.of(self._member.assignment)
        for address in places.keys() - self._nodes.keys():
            session = Session(self._cluster, address, self._group, self._member.member_id)
            self._nodes[address] = _Node(session, Outbox())
        for address in self._nodes.keys() - places.keys():
            node = self._nodes[address]
            if node.is_idle and not any(lease.node is node for lease in self._leases):
                node.session.close()
                del self._nodes[address]

    def _send_acknowledgements(self, node: _Node) -> None:
        if node.outbox and not node.session.is_acknowledging:
            node.session.acknowledge(*node.outbox.take())

    def _fetch(self, now: float, wanted: int, fetch: Fetch) -> None:
        """Asks the brokers in turns, none of them twice at a time, for as much as is wanted of them together."""
        nodes = [(address, node) for address, node in self._nodes.items() if address in self._places]
        wanted -= sum(node.session.wanted for _, node in nodes)
        self._turn += 1
        for number in range(len(nodes)):
            address, node = nodes[(self._turn + number) % len(nodes)]
            if wanted <= 0:
                return
            if node.session.is_fetching or now < node.resumes:
                continue
            share = -(-wanted // (len(nodes) - number))
            try:
                node.session.fetch(self._places[address], fetch._replace(records_max=share))
            except ClientError as error:
                self._drop(node, error)
                self._note(error)
            wanted -= share

    def _wait(self, until: float) -> bool:
        """Waits for a response, and takes those that have come. Returns whether `wake` was called."""
        waiting = [node for node in self._nodes.values() if node.session.is_waiting]
        member = self._member.waiting_on
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for connection in [node.session.connection for node in waiting] + ([member] if member else []):
            poll.register(connection, select.POLLIN)
        now = time.monotonic()
        times = [until, self._member.deadline, self._leases.next_due, *(node.session.deadline for node in waiting)]
        times += [at for at in (self._resumes, *(node.resumes for node in self._nodes.values())) if at > now]
        left = min(times) - now
        has_more = any(node.session.connection.has_arrived for node in waiting)  # inside of TLS, too
        ready = poll.poll(0 if has_more else max(1, left * 1000))
        for node in waiting:
            if node.session.connection.has_arrived or time.monotonic() >= node.session.deadline:
                self._receive(node)
        if member is not None and member.has_arrived:
            try:
                self._member.receive()
            except ClientError as error:
                self._note(error)
        return any(descriptor == self._woken.fileno() for descriptor, _ in ready) and bool(self._woken.recv(_WAKES))

    # Responses

    def _receive(self, node: _Node) -> None:
        try:
            answer = node.session.receive()
        except ClientError as error:
            self._drop(node, error)
            self._note(error)
            return
        self.trouble = None
        if isinstance(answer, Fetched):
            self._take_records(node, answer)
        else:
            self._take_confirmation(node, answer)

    def _take_records(self, node: _Node, fetched: Fetched) -> None:
        response, now = fetched.response, time.monotonic()
        lock_s = (fetched.wanted.lock_ms or response.acquisition_lock_timeout_ms) / 1000
        node.resumes = now + response.throttle_time_ms / 1000
        for topic in response.responses:
            for data in topic.partitions:
                partition = SharePartition(topic.topic_id, data.partition_index)
                at = self._placement.name(partition)
                if data.error_code or at is None:
                    self._take_failure(node, now, data)
                else:
                    self._take_acquired(node, now, lock_s, read_acquired(data, at, partition))

    def _take_failure(self, node: _Node, now: float, data: PartitionData) -> None:
        """A leader that has moved, a topic that was deleted: looks for the leaders again."""
        backoff_s = self._cluster.options.retry_backoff_s
        node.resumes = max(node.resumes, now + backoff_s)
        self._placement.renew(backoff_s)
        if data.error_code and not is_passing(data.error_code):
            raise refusal(f"group {self._group}", data.error_code, data.error_message)

    def _take_acquired(self, node: _Node, now: float, lock_s: float, acquired: Acquired) -> None:
        self.damage.extend(acquired.damage)
        for settled in acquired.settled:
            node.outbox.put(settled)
        for delivery in acquired.deliveries:
            if (before := self._leases.add(delivery, node, now, lock_s)) is not None:
                self._lose(before, _expired(before.delivery))
        self._ready.extend(acquired.deliveries)

    def _take_confirmation(self, node: _Node, answer: Acknowledged) -> None:
        errors = errors_of(answer)
        counts = Counter(one.partition for one in answer.sent)
        now = time.monotonic()
        lock_s = (answer.terms.lock_ms or answer.response.acquisition_lock_timeout_ms) / 1000
        for one in answer.sent:
            error = errors.get(one.partition)
            if error is not None and self._is_repeated(node, one, answer.terms, error, counts[one.partition], now):
                continue
            if one.outcome is Outcome.RENEW:
                self._end_renewal(one, error, now, lock_s)
            elif (settling := self._settling.pop((one.partition, one.first), None)) is not None:
                self._results.append(Result(settling.lease.delivery, one.outcome, error))

    def _is_repeated(
        self, node: _Node, one: Acknowledgement, terms: Terms, error: Refused, count: int, now: float
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
            node.resumes = now + self._cluster.options.retry_backoff_s
        else:
            return False
        return True

    def _end_renewal(self, one: Acknowledgement, error: ClientError | None, now: float, lock_s: float) -> None:
        lease = self._leases.at(one.partition, one.first)
        if lease is None:
            return
        if error is None:
            self._leases.extend(lease, now, lock_s)
            self._results.append(Result(lease.delivery, Outcome.RENEW, None))
        else:
            self._lose(lease, error)

    # Leases

    def _take(self, delivery: Delivery, outcome: Outcome) -> Lease[_Node] | None:
        """The lease of a delivery; if there is none any more, that is a result."""
        lease = self._leases.find(delivery)
        if lease is None:
            self._results.append(Result(delivery, outcome, _expired(delivery)))
        return lease

    def _renew(self, lease: Lease[_Node], lock_ms: int | None = None) -> None:
        lease.node.outbox.put(_of(lease.delivery, Outcome.RENEW), Terms(is_renewal=True, lock_ms=lock_ms))

    def _end_leases(self, now: float) -> None:
        for lease in self._leases.take_due(now):
            if now < lease.ends:
                self._renew(lease)
            else:
                self._lose(lease, _expired(lease.delivery))

    def _lose(self, lease: Lease[_Node], error: ClientError) -> None:
        """The record is not ours any more. The owner does not hear of one that `poll` has not returned yet."""
        self._leases.remove(lease)
        lease.node.outbox.forget(lease.delivery.partition, lease.delivery.offset)
        if lease.delivery in self._ready:
            self._ready.remove(lease.delivery)
        else:
            self._results.append(Result(lease.delivery, None, error))

    # Failures

    def _note(self, error: ClientError) -> None:
        if not error.is_passing and not isinstance(error, GaveUp):
            raise error
        self.trouble = error

    def _drop(self, node: _Node, error: ClientError) -> None:
        """Ends a session that has failed. The broker releases what it holds."""
        backoff_s = self._cluster.options.retry_backoff_s
        node.session.close()
        self._nodes = {address: known for address, known in self._nodes.items() if known is not node}
        self._placement.renew(backoff_s)
        self._resumes = time.monotonic() + backoff_s
        self._end_all(node, error)

    def _end_all(self, node: _Node, error: ClientError) -> None:
        for lease in self._leases:
            if lease.node is node:
                self._lose(lease, error)
        for key, (lease, outcome) in list(self._settling.items()):
            if lease.node is node:
                del self._settling[key]
                self._results.append(Result(lease.delivery, outcome, error))

    # The end

    def _finish(self, node: _Node, deadline: float) -> None:
        """Ends a session in good order: with all acknowledgements, after which the broker releases the rest."""
        session, outbox, last = node.session, node.outbox, list[Acknowledgement]()
        while session.is_acknowledging or outbox:
            if not session.is_acknowledging:
                terms, taken = outbox.take()
                if terms == Terms() and not outbox:
                    last = taken
                    break
                session.acknowledge(terms, taken)
            self._take_last(node, session.receive(deadline))
        if session.is_open:
            for answer in session.finish(last, deadline):
                self._take_last(node, answer)
        self._end_all(node, _closed(self._group))

    def _take_last(self, node: _Node, answer: Fetched | Acknowledged) -> None:
        if isinstance(answer, Acknowledged):
            self._take_confirmation(node, answer)


def _of(delivery: Delivery, outcome: Outcome) -> Acknowledgement:
    return Acknowledgement(delivery.partition, delivery.offset, delivery.offset, outcome)


def _expired(delivery: Delivery) -> Refused:
    return Refused(f"the lock on {delivery.at} at offset {delivery.offset} has ended", ErrorCode.INVALID_RECORD_STATE)


def _closed(group: str) -> ConnectionLost:
    return ConnectionLost(f"the share session of group {group}", "closed")


def _wait_ms(left_s: float) -> int:
    """How long the broker may keep a request for records: not for longer than the caller waits for them."""
    return max(0, min(FETCH_WAIT_MS, round(left_s * 1000)))
