"""One client's connection: starts its requests as they arrive, and sends the responses in the order of the requests.

Starting on arrival lets pipelined Produce requests share one flush; a waiting Fetch is answered at once when another
request follows it. A Produce that matches a template is not decoded (`broker/fastpath/produce`), and matching requests
that arrived together are gathered, appended and answered as one. What bounds a client:

    no more than `PIPELINED_MAX` requests are in flight; nothing more is read until one is answered
    while the socket takes no more of a response nothing is read either, and further responses stay unencoded
    the length of a request, and the number of its elements, are limited by its API
    the memory that it takes of the broker is counted (`Budget`)
    a client that has exceeded its quotas is not read for a while (`Throttle`)

A catch-up consumer may be handed off to a helper process (`HandOff`); the connection leaves the socket alone meanwhile.

Bytes that are not a request close the connection: where the next request begins is unknown then.
"""

import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tailrace.broker.apis.k18_api_versions import unsupported_version
from tailrace.broker.apis.registry import APIS
from tailrace.broker.core.api import Api, Call, Endpoint, Silence
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.fastpath.fetch import FetchFastPath
from tailrace.broker.fastpath.produce import DelayedProduceRun, ProduceBatchRun, ProduceFastPath
from tailrace.protocol import codec
from tailrace.protocol.errors import Malformed
from tailrace.protocol.frame import read_request_header
from tailrace.protocol.messages import REQUESTS, SPOKEN, ApiKey
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.protocol.messages.produce import ProduceRequest
from tailrace.server.net.chunks import ResponseChunk
from tailrace.server.net.frames import BadFrame, Frames
from tailrace.server.net.handoff import HandOff
from tailrace.server.net.limits import FIRST_BYTES_SCARCE
from tailrace.server.net.outbox import Outbox
from tailrace.server.net.pending import GATHERED_BYTES, Deadlines, Pending
from tailrace.server.net.throttle import Throttle

if TYPE_CHECKING:
    from tailrace.server.node import Node

logger = logging.getLogger("tailrace.server.net")

PIPELINED_MAX = 100
AT_ONCE_MAX = 32  # requests of one connection before other connections have their turn
TURN_S = 0.01  # likewise; a request that has begun is completed
TURN_BYTES = 4 << 20  # of responses, likewise
TCP_ESTABLISHED, TCP_CLOSE = b"\x01", b"\x07"  # the first byte of the kernel's TCP_INFO


class Connection:
    def __init__(self, node: "Node", sock: socket.socket, endpoint: Endpoint, peer: str) -> None:
        self.node = node
        self.peer = peer
        self._client_host = "/" + peer.rpartition(":")[0]  # as Kafka shows it
        self.active_at = node.loop.time()
        self._client = node.broker.clients.connect()
        self._socket = sock
        self.descriptor = sock.fileno()
        self._endpoint = endpoint
        self._frames = Frames(node.buffers, node.frame_bytes_max, node.budget.first_bytes)
        self._pending: deque[Pending] = deque()
        self._under_way = 0  # number of requests in `_pending`, some of which are answered together
        self._deadlines = Deadlines(node.loop, self._pending, self._expire)
        self.outbox = Outbox(
            node.loop,
            sock,
            node.readers,
            node.senders,
            node.metrics,
            timeout_s=node.write_timeout_s,
            on_sent=self.answer,
            on_error=self.fail,
        )
        self.throttle = Throttle(node, on_begin=self._pause, on_end=self._throttle_ended)
        self._quotas = self.throttle.quotas
        self._produce_fast_path = ProduceFastPath(node.broker)
        self.fetch_fast_path = FetchFastPath(node.broker)
        self._is_reading = False
        self._has_more = False  # whether requests have arrived that were not started
        self._handoff: HandOff = node.handoff
        self.is_closed = False
        self._resume()

    @property
    def owes_nothing(self) -> bool:
        """Whether no request is in flight, and all responses were sent."""
        return not self._pending and self.outbox.is_empty and not self._handoff.owns(self)

    @property
    def is_amid_request(self) -> bool:
        """Whether a part of a request has arrived."""
        return self._frames.is_amid

    @property
    def is_hung_up(self) -> bool:
        """Whether the client has closed the connection, as far as is known without reading."""
        return self._tcp_state() not in (b"", TCP_ESTABLISHED)

    @property
    def is_reset(self) -> bool:
        """Whether it is broken, so that no response can reach the client."""
        return self._tcp_state() == TCP_CLOSE

    def _tcp_state(self) -> bytes:
        """Returns an empty string if the system does not know, as macOS."""
        if not hasattr(socket, "TCP_INFO"):
            return b""
        return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)

    # Reading

    def _resume(self) -> None:
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            self.node.loop.add_reader(self.descriptor, self._readable)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self.node.loop.remove_reader(self.descriptor)

    def look(self) -> bool:
        """Reads and starts requests that have arrived, without waiting for the loop. Returns whether there was
        one, or one was in flight.
        """
        return bool(self._pending) or (self._is_reading and self._readable())

    def _readable(self) -> bool:
        """Reads from the socket. Returns whether anything has arrived: `look` uses that."""
        if not self.outbox.is_empty:  # rare: nearly all clients wait for a response before the next request
            self._pause()  # until it was sent
            return False
        frames, budget = self._frames, self.node.budget
        growth = frames.growth
        if growth and not budget.may_hold(self, frames.held_bytes + growth):
            self._pause()  # until other connections have released memory
            return False
        room = frames.room()
        if budget.is_used_up and not frames.is_amid:
            room = room[:FIRST_BYTES_SCARCE]
        try:
            count = self._socket.recv_into(room)
        except (BlockingIOError, InterruptedError):
            frames.keep()
            return False
        except OSError as error:
            self.fail(error)
            return False
        if not count:
            self.close()
            return False
        self.active_at = self.node.loop.time()
        self.node.metrics.bytes_in += count
        try:  # as `safely` does, without two more calls
            self._received(count)
        except Exception as error:  # noqa: BLE001 - `_end_for` logs it
            self._end_for(error)
        return True

    def _received(self, count: int) -> None:
        if not self._take_fast_path(count):
            self.node.busy_poll.disturbed()
            self._frames.received(count)
            if self._frames.is_waiting:  # the rest of a large request has not arrived
                return
            if self._frames.began_large():
                self.node.budget.holds(self, self._frames.held_bytes)
                return
            self._work_off()

    def _take_fast_path(self, count: int) -> bool:
        """Handles what has arrived if it is one request that matches a template. Returns whether it was."""
        frame = self._frames.only_frame(count)
        if frame is None or self._quotas.values or self.node.is_stopping or self._under_way + 1 >= PIPELINED_MAX:
            return False
        is_handled = self._produce_alone(frame) or (not self._pending and self._fetch_alone(frame))
        if is_handled and self._frames.taken(len(frame)):
            self.node.budget.holds(self, 0)
        return is_handled

    def _produce_alone(self, frame: memoryview) -> bool:
        now_ms = int(time.time() * 1000)
        if not self._produce_fast_path.gather(frame, now_ms):
            return False
        run, started, is_first = self._produce_fast_path.take_gathered(), time.perf_counter(), not self._pending
        assert run is not None
        response = self._append(run, now_ms)
        if response is None:
            return False
        if is_first and isinstance(response, bytes):
            self._respond_at_once(run.template.header.api_key, started, response)
        else:
            self._await_response(run, started, response)
            if is_first and self.node.busy_poll.is_alone_with(self):
                self.node.flusher.write_journal_now()
            self._answer()  # a duplicate may be on disk already
        self.node.flusher.start_flushes()
        return True

    def _append(self, run: ProduceBatchRun, now_ms: int) -> "bytes | DelayedProduceRun | None":
        behind = self._pending[-1].later if self._pending else None
        return self._produce_fast_path.append_run(run, now_ms, behind)

    def _respond_at_once(self, api_key: int, started: float, response: bytes) -> None:
        self.outbox.send_at_once(response)
        ended = time.perf_counter()
        self.node.metrics.answered(api_key, ended - started)
        self.node.busy_poll.answered(self, started, ended)

    def _await_response(self, run: ProduceBatchRun, started: float, response: "bytes | DelayedProduceRun") -> None:
        requests = len(run.requests)
        if self._pending:
            self.node.busy_poll.disturbed()
            if response is self._pending[-1].later:
                self._pending[-1].requests += requests
                self._under_way += requests
                return
            self._hurry_earlier()
        self._started(Pending(run.template.header, started, requests), response)

    def _append_gathered(self, now_ms: int, steady_ms: int) -> bool:
        """Appends the gathered run, or starts its few requests one by one if it cannot be appended as a whole. Returns
        whether there was one.
        """
        run = self._produce_fast_path.take_gathered()
        if run is None:
            return False
        started = time.perf_counter()
        response = self._append(run, now_ms)
        if response is None:
            self._start_one_by_one(run, now_ms, steady_ms)
        else:
            self._await_response(run, started, response)
        return True

    def _start_one_by_one(self, run: ProduceBatchRun, now_ms: int, steady_ms: int) -> None:
        for frame, *_ in run.requests:
            if self.is_closed:
                return
            if len(run.requests) > 1 and self._produce_fast_path.gather(frame, now_ms):
                self._append_gathered(now_ms, steady_ms)
            else:
                self._start(frame, now_ms, steady_ms)

    def _fetch_alone(self, frame: memoryview) -> bool:
        if (self.fetch_fast_path.reads_on or self.outbox.is_cold) and self._handoff.offer(self, frame):
            self._pause()
            return True
        started = time.perf_counter()
        read = self.fetch_fast_path.read(frame, int(time.time() * 1000))
        if read is None:
            return False
        template, parts = read
        self.node.busy_poll.disturbed()
        self.outbox.put(parts)
        self.outbox.send()
        self.node.metrics.answered(template.header.api_key, time.perf_counter() - started)
        return True

    def handed_back(self, unsent: Sequence[ResponseChunk], unread: bytes, *, is_cold: bool) -> None:
        """Takes the socket back, with the rest of a response, and the bytes that were read of the next request."""
        self.active_at = self.node.loop.time()
        self.outbox.is_cold = is_cold
        if unsent:
            self.outbox.put(unsent)
            self.outbox.send()
        self._resume()
        if unread:
            self._received(self._frames.put_back(unread))

    def safely(self, step: Callable[[], None]) -> None:
        """Runs `step`. An error closes this connection, and affects nothing else."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - `_end_for` logs it
            self._end_for(error)

    def _end_for(self, error: Exception) -> None:
        if isinstance(error, Malformed | BadFrame):
            logger.info("%s sent bytes that are not a request: %s", self.peer, error)
            self.close()
        else:
            logger.exception("unexpected error while handling a request from %s", self.peer)
            self.fail(error)

    def _work_off(self) -> None:
        """Starts requests that have arrived, and sends responses that are ready."""
        all_started = self._start_requests()
        if self.is_closed:
            return
        self._frames.keep()
        self.node.budget.holds(self, self._frames.held_bytes)
        self.node.pump()
        self._answer()
        self._has_more = not all_started
        if not self.outbox.is_empty:
            return  # requests that arrive meanwhile have to wait
        if not self._may_start():
            self._pause()  # until a response was sent
        elif self._has_more:
            self._pause()
            self.node.loop.call_soon(self.answer)
        else:
            self._resume()

    def _start_requests(self) -> bool:
        """Starts requests that have arrived. Returns False if some are left: it is the turn of other connections,
        or too many requests are in flight.
        """
        now_ms, steady_ms = int(time.time() * 1000), self.node.steady_ms()
        turn_ends = time.perf_counter() + TURN_S
        if not self._may_start():
            return False
        for _ in range(min(AT_ONCE_MAX, PIPELINED_MAX - self._under_way)):
            frame = self._next_frame(now_ms, steady_ms)
            if frame is None:
                self._append_gathered(now_ms, steady_ms)
                return True
            if self._gather(frame, now_ms):
                continue
            was_first = not self._append_gathered(now_ms, steady_ms)  # then it still cannot be gathered
            if not self.is_closed and (was_first or not self._gather(frame, now_ms)):
                self._start(frame, now_ms, steady_ms)
            if not self._may_start() or time.perf_counter() > turn_ends:
                break
        self._append_gathered(now_ms, steady_ms)
        return False

    def _next_frame(self, now_ms: int, steady_ms: int) -> memoryview | None:
        try:
            return self._frames.next_frame()
        except BadFrame:
            self._append_gathered(now_ms, steady_ms)  # the requests before it are valid
            raise

    def _gather(self, frame: memoryview, now_ms: int) -> bool:
        return not self._quotas.values and self._produce_fast_path.gather(frame, now_ms)

    def _may_start(self) -> bool:
        return (
            not self.is_closed
            and self._under_way < PIPELINED_MAX
            and self.outbox.is_empty
            and not self.throttle.is_on
            and not self._handoff.owns(self)
            and not self.node.is_stopping
        )

    def _go_on(self) -> None:
        """Continues when there is room again, for responses and then for requests."""
        if self.is_closed:
            return
        self._answer()
        if self._may_start():
            if self._has_more:
                self._work_off()
            else:
                self._resume()

    # One request

    def _start(self, frame: memoryview, now_ms: int, steady_ms: int) -> None:
        header = read_request_header(frame)
        pending = Pending(header, time.perf_counter())
        api = APIS.get(header.api_key)
        if api is None or header.api_version not in SPOKEN[header.api_key].versions:
            self._refuse_version(pending)
            return
        request = codec.decode(
            REQUESTS[header.api_key],
            header.api_version,
            frame,
            header.body,
            elements=api.elements_max,
            more_may_follow=True,
        )
        self._hurry_earlier()
        call = Call(
            header.api_version, header.client_id, self._endpoint, now_ms, steady_ms, self._client_host, self._client
        )
        answer = self._handle(api, request, call)
        if self._quotas.values:
            self.throttle.charge_request(header, time.perf_counter() - pending.started, len(frame))
        self._started(pending, answer)
        if isinstance(request, ProduceRequest):
            self._produce_fast_path.learn(frame, header, request)
        elif isinstance(request, FetchRequest):
            self.fetch_fast_path.learn(frame, header, request)

    def _handle(self, api: Api, request: Any, call: Call) -> Any:
        return self.node.broker.handle(api, request, call)

    def _hurry_earlier(self) -> None:
        for earlier in self._pending:
            earlier.hurry()

    def _refuse_version(self, pending: Pending) -> None:
        """Answers an ApiVersions request of an unsupported version in version 0, as Kafka does. For other APIs there
        is no response that the client could read: closes the connection.
        """
        header = pending.header
        if header.api_key != ApiKey.API_VERSIONS:
            logger.info(
                "%s sent version %d of API key %d, which is not supported. Check the version of the client",
                self.peer, header.api_version, header.api_key,
            )  # fmt: skip
            self.close()
            return
        pending.header = header._replace(api_version=0)
        self._enter(pending)
        self._answered(pending, unsupported_version())

    def _started(self, pending: Pending, answer: Any) -> None:
        if isinstance(answer, Silence):
            self.node.metrics.answered(pending.header.api_key, time.perf_counter() - pending.started)
            if answer.close:
                self.close()
            elif answer.pause_ms:
                self.throttle.pause(answer.pause_ms)
            return
        self._enter(pending)
        if not isinstance(answer, DelayedResponse):
            self._answered(pending, answer)
            return
        if not answer.is_resolved:
            pending.later = answer
            if answer.wait_ms is not None:
                self._deadlines.watch(pending, answer.wait_ms)
        answer.when_resolved(partial(self._resolved, pending))

    def _enter(self, pending: Pending) -> None:
        self._pending.append(pending)
        self._under_way += pending.requests

    def _leave(self) -> Pending:
        """Removes the first request, whose response is being sent."""
        pending = self._pending.popleft()
        self._under_way -= pending.requests
        return pending

    def _expire(self, pending: Pending) -> None:
        if pending.later is not None:
            self.safely(pending.later.expire)
            self.node.pump()

    def _resolved(self, pending: Pending, answer: Any) -> None:
        was_later = pending.later is not None
        pending.later = None
        if self.is_closed:
            return
        if isinstance(answer, Silence):  # for a Produce that was delayed
            self._silenced(pending, answer)
            return
        self._answered(pending, answer)
        if was_later:
            self.node.ready.add(self)

    def _silenced(self, pending: Pending, answer: Silence) -> None:
        self.node.metrics.answered(pending.header.api_key, time.perf_counter() - pending.started)
        self._pending.remove(pending)
        self._under_way -= pending.requests
        if answer.close:
            self.close()
            return
        if answer.pause_ms:
            self.throttle.pause(answer.pause_ms)
        self.node.ready.add(self)  # for the responses behind it

    def _answered(self, pending: Pending, answer: Any) -> None:
        if self._quotas.values:
            self.throttle.charge_answer(pending.header, answer)
        pending.answer = answer
        pending.is_answered = True
        seconds = time.perf_counter() - pending.started
        self.node.metrics.answered(pending.header.api_key, seconds, pending.requests)

    def _throttle_ended(self) -> None:
        """Starts the requests that were read before the throttling began, and reads more."""
        self.active_at = self.node.loop.time()
        self.answer()

    # Sending responses

    def answer(self) -> None:
        """Sends the responses that are ready, in order, and resumes reading if it was paused."""
        self.safely(self._go_on)

    def _answer(self) -> None:
        """Sends the responses that are ready. Each is encoded just before; small ones share a system call."""
        metrics = self.node.metrics
        turn_ends = metrics.bytes_out + TURN_BYTES
        while self.outbox.is_empty and self._is_next_answered():
            if metrics.bytes_out >= turn_ends:
                self.node.loop.call_soon(self.answer)
                return
            if isinstance(self._pending[0].answer, bytes):
                self._send_encoded()
            else:
                gathered = 0
                while self._is_next_answered() and gathered < GATHERED_BYTES:
                    gathered += self.outbox.put(self._pending[0].encode())
                    self._leave()
                self.outbox.send()
            self.active_at = self.node.loop.time()

    def _send_encoded(self) -> None:
        """Sends the next responses that are encoded already. They are small: at most a hundred acknowledgements."""
        encoded: list[bytes] = []
        while self._pending and isinstance(self._pending[0].answer, bytes):
            last = self._leave()
            encoded.append(last.answer)
        self.outbox.send_at_once(b"".join(encoded))
        if self.node.flusher.loop_waited and not self._pending and not self.is_closed:  # no other client needs the loop
            self.node.busy_poll.answered(self, last.started, time.perf_counter())

    def _is_next_answered(self) -> bool:
        return bool(self._pending) and self._pending[0].is_answered

    # The end

    def fail(self, error: Exception) -> None:
        if not self.is_closed:
            if not isinstance(error, ConnectionError):
                logger.info("closing the connection of %s: %s", self.peer, error)
            self.close()

    def close(self) -> None:
        """Closes the socket, and releases timers, files, memory and waiting requests."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._client.close():
            self.node.loop.call_soon(self.node.pump)
        self._pause()
        self.throttle.close()
        self._deadlines.close()
        self.outbox.close()
        self._frames.close()
        for pending in self._pending:
            pending.abandon()
        self._pending.clear()
        self.node.budget.holds(self, 0)
        self._socket.close()
        self.node.closed(self)

    def hurry(self) -> None:
        """Stops reading, and answers waiting Fetch requests with what is available: the broker is about to stop."""
        self._pause()
        for pending in list(self._pending):
            pending.hurry()
