"""A member of a share group: acquires records, and tells the brokers what became of them.

All work is done inside `poll` and `close`, by the thread that calls them: heartbeats, requests, responses, renewals.
What happened to acknowledgements, and to records that were taken away, is in `results`.

A broker that cannot be reached is tried again for ever; `trouble` is the last such error, and None once all is well. An
error that no retry can mend is raised.
"""

import select
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import ClientError, ConnectionLost, GaveUp, is_passing, refusal
from tailrace.client.options import Address, ClientOptions
from tailrace.client.share.acknowledgements import Acknowledgement, Outbox, Outcome, SharePartition, Terms
from tailrace.client.share.deliveries import Delivery, read_acquired
from tailrace.client.share.holdings import Holdings, Node, Result
from tailrace.client.share.member import Member
from tailrace.client.share.placement import Placement, Places
from tailrace.client.share.session import Acknowledged, Fetch, Fetched, Session
from tailrace.protocol.messages.share_fetch import PartitionData

FETCH_WAIT_MS = 500
CLOSE_S = 10.0
_RETRY_S_MAX = 3.0  # in which nothing else happens
_WAKES = 4096  # that are taken at once


class ShareConsumer:
    def __init__(self, options: ClientOptions, group: str, topics: Iterable[str], *, renews: bool = False) -> None:
        """Does nothing before the first `poll`. With `renews`, leases are renewed until they are acknowledged."""
        names = list(topics)
        self.trouble: ClientError | None = None
        self._cluster = Cluster(replace(options, retry_timeout_s=min(options.retry_timeout_s, _RETRY_S_MAX)))
        self._backoff_s = options.retry_backoff_s
        self._group = group
        self._member = Member(self._cluster, group, names)
        self._placement = Placement(self._cluster, names)
        self._places: Places = {}
        self._nodes: dict[Address, Node] = {}
        self._turn = 0
        self._resumes = 0.0  # when brokers may be looked for again
        self._holdings = Holdings(renews=renews, backoff_s=self._backoff_s)
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
        held, ready = self._holdings, self._holdings.ready
        until, known = time.monotonic() + wait_s, len(held.results)
        while True:
            now = time.monotonic()
            held.end_due(now)
            wanted = records_max - len(ready)
            self._work(now, wanted, Fetch(wanted, _wait_ms(until - now), lock_ms))
            if (ready and records_max) or len(held.results) > known or time.monotonic() >= until:
                break
            if self._wait(until):
                break
        return [ready.popleft() for _ in range(min(records_max, len(ready)))]

    def acknowledge(self, delivery: Delivery, outcome: Outcome, *, delay_ms: int | None = None) -> None:
        """Accepts, releases or rejects a record. The next `poll` sends it. `delay_ms`, for how long a released record
        is not to be delivered, needs a tailrace broker.
        """
        self._holdings.acknowledge(delivery, outcome, Terms(delay_ms=delay_ms))

    def renew(self, delivery: Delivery, *, lock_ms: int | None = None) -> None:
        """Locks a record for another lock duration; `lock_ms` needs a tailrace broker."""
        self._holdings.renew(delivery, lock_ms)

    def results(self) -> list[Result]:
        """Returns what has happened since the last call."""
        found, self._holdings.results = self._holdings.results, []
        return found

    def damage(self) -> list[ClientError]:
        """Returns the batches that could not be read, and were rejected, since the last call."""
        found = list(self._holdings.damage)
        self._holdings.damage.clear()
        return found

    def wake(self) -> None:
        """Makes a `poll` that waits return. Any thread may call it, and a signal handler."""
        with suppress(OSError):  # full, so it wakes anyway; or closed
            self._waker.send(b"w")

    @property
    def is_settled(self) -> bool:
        """Whether every acknowledgement has its result."""
        return self._holdings.is_settled

    @property
    def held(self) -> int:
        """How many records are acquired, and not acknowledged."""
        return len(self._holdings)

    @property
    def ready(self) -> int:
        """How many acquired records `poll` has not returned yet."""
        return len(self._holdings.ready)

    @property
    def has_session(self) -> bool:
        """Whether it has joined its group, and a broker can be asked for records."""
        return bool(self._nodes)

    def lock_ends(self, delivery: Delivery) -> float:
        """Returns until when a record is locked, by the monotonic clock; 0.0 if it is not any more."""
        return self._holdings.lock_ends(delivery)

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Sends the acknowledgements that wait, releases all other records, and leaves the group. Does not raise."""
        if self._is_closed:
            return
        self._is_closed = True
        deadline = time.monotonic() + wait_s
        self._holdings.give_up_ready()
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
                self._send_acknowledgements(node, now)
            except ClientError as error:
                self._drop(node, error)
                self._note(error)
        if wanted > 0:
            self._fetch(now, wanted, fetch)

    def _open_sessions(self) -> None:
        self._places = places = self._placement.of(self._member.assignment)
        for address in self._nodes.keys() - places.keys():
            node = self._nodes[address]
            if not (node.session.is_waiting or node.outbox or self._holdings.are_of(node)):
                node.session.close()
                del self._nodes[address]
        failed: ClientError | None = None
        for address in places.keys() - self._nodes.keys():
            try:
                session = Session(self._cluster, address, self._group, self._member.member_id)
            except ClientError as error:
                failed = error
            else:
                self._nodes[address] = Node(session, Outbox())
        if failed is not None:
            raise failed

    def _send_acknowledgements(self, node: Node, now: float) -> None:
        if node.outbox and not node.session.is_acknowledging and now >= node.acknowledges_from:
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
            if node.session.is_fetching or now < node.fetches_from:
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
        has_more = any(node.session.connection.has_arrived for node in waiting)  # inside of TLS, too
        left = self._next_time(until) - time.monotonic()
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

    def _next_time(self, until: float) -> float:
        """When there is something to do, if no response comes."""
        nodes = self._nodes.values()
        pauses = [self._resumes, *(at for node in nodes for at in (node.fetches_from, node.acknowledges_from))]
        now = time.monotonic()
        return min(
            until,
            self._member.deadline,
            self._holdings.next_due,
            *(node.session.deadline for node in nodes),
            *(at for at in pauses if at > now),
        )

    # Responses

    def _receive(self, node: Node) -> None:
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
            self._holdings.confirm(answer, node, time.monotonic())

    def _take_records(self, node: Node, fetched: Fetched) -> None:
        response, now = fetched.response, time.monotonic()
        lock_s = (fetched.wanted.lock_ms or response.acquisition_lock_timeout_ms) / 1000
        node.fetches_from = now + response.throttle_time_ms / 1000
        for topic in response.responses:
            for data in topic.partitions:
                partition = SharePartition(topic.topic_id, data.partition_index)
                at = self._placement.name(partition)
                if data.error_code or at is None:
                    self._take_failure(node, now, data)
                else:
                    self._holdings.take(read_acquired(data, at, partition), node, now, lock_s)

    def _take_failure(self, node: Node, now: float, data: PartitionData) -> None:
        """A leader that has moved, a topic that was deleted: looks for the leaders again."""
        node.fetches_from = max(node.fetches_from, now + self._backoff_s)
        self._placement.renew(self._backoff_s)
        if data.error_code and not is_passing(data.error_code):
            raise refusal(f"group {self._group}", data.error_code, data.error_message)

    # Failures

    def _note(self, error: ClientError) -> None:
        if not error.is_passing and not isinstance(error, GaveUp):
            raise error
        self.trouble = error

    def _drop(self, node: Node, error: ClientError) -> None:
        """Ends a session that has failed. The broker releases what it holds."""
        node.session.close()
        self._nodes = {address: known for address, known in self._nodes.items() if known is not node}
        self._placement.renew(self._backoff_s)
        self._resumes = time.monotonic() + self._backoff_s
        self._holdings.end_all(node, error)

    # The end

    def _finish(self, node: Node, deadline: float) -> None:
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
        self._holdings.end_all(node, ConnectionLost(f"the share session of group {self._group}", "closed"))

    def _take_last(self, node: Node, answer: Fetched | Acknowledged) -> None:
        if isinstance(answer, Acknowledged):
            self._holdings.confirm(answer, node, time.monotonic())


def _wait_ms(left_s: float) -> int:
    """How long the broker may keep a request for records: not for longer than the caller waits for them."""
    return max(0, min(FETCH_WAIT_MS, round(left_s * 1000)))
