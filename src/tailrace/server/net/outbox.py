"""Sends the responses of one connection to its socket.

A response is bytes, and between them slices of files. Small slices are read and sent along with the bytes around them;
larger ones go from the page cache to the socket without passing through this process (`sendfile`). A thread sends large
slices, and those that are not in the page cache, several in one go if they are in memory (`thread_send`). It waits in
the kernel until the client has taken the data, so that many consumers are served at once, and the loop waits neither
for clients nor for a disk.

While a socket is full, and after a turn that did not fill it, the outbox waits until the loop finds the socket
writable, among all others. Meanwhile the connection puts nothing more into it: responses to a client that does not read
are not buffered.
"""

import os
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import cast

from tailrace.server.counters import Counters
from tailrace.server.net.chunks import (
    BUFFERS,
    MORE,
    PIECE_BYTES,
    ResponseChunk,
    length_of,
    release,
    set_patience,
    shortened_file,
)
from tailrace.server.net.pending import ignore
from tailrace.server.net.thread_send import ThreadSend
from tailrace.server.threads import Workers

COPIED_BYTES_MAX = 32 << 10  # copying a slice up to here costs less than another system call
LOOP_BYTES_MAX = 128 << 10  # of a slice in the page cache: sending it takes about as long as handing it to a thread
THREAD_SEND_BYTES = 8 << 20  # roughly, of one send in a thread; it ends sooner if the client is slow
THREAD_SEND_CHUNKS_MAX = 64
SLOW_S = 1.0  # until a thread sends to a slow client again; the loop does so meanwhile
GATHERED_MAX = 64  # buffers for one system call
GATHERED_BYTES = 256 << 10  # roughly, of them: the most that is buffered for a client that does not read
TURN_BYTES = 256 << 10  # before other connections have their turn, even if the client takes more: 0.1 ms
TURN_BYTES_BESIDE_OTHERS = 64 << 10  # likewise, if any client has sent something since the last turn
SLICE_BYTES = 4 << 10  # what reading one slice, however small, counts for in a turn: it takes as long


class Outbox:
    """The outbox of one connection: `put` chunks, then `send`. Calls `on_sent` when everything was sent later than in
    `send`, and `on_error` when the connection is of no use any more.
    """

    __slots__ = (
        "_chunks",
        "_counters",
        "_deadline",
        "_fd",
        "_is_closed",
        "_is_waiting",
        "_left_of_turn",
        "_loop",
        "_on_error",
        "_on_sent",
        "_readers",
        "_received",
        "_senders",
        "_sent_of_first",
        "_slow_until",
        "_socket",
        "_taken_at",
        "_thread_send",
        "_timeout_s",
        "is_cold",
    )

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: socket.socket,
        readers: Workers,
        senders: Workers,
        counters: Counters,
        *,
        timeout_s: float,
        on_sent: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        set_patience(sock)
        self._readers = readers  # for data on disk
        self._senders = senders  # for data in memory: clients that take them slowly hold up no reads from disk
        self._counters = counters
        self._timeout_s = timeout_s
        self._on_sent = on_sent
        self._on_error = on_error
        self._chunks: deque[ResponseChunk] = deque()
        self._sent_of_first = 0
        self._is_waiting = False  # until the loop finds the socket writable
        self._thread_send: ThreadSend | None = None  # that is under way, of the first chunks
        self._slow_until = 0.0  # until then, no thread sends to this client
        self.is_cold = False  # the client reads data that come from a disk, or did a moment ago
        self._is_closed = False
        self._left_of_turn = 0
        self._received = 0  # by all connections, when the last turn began
        self._taken_at = 0.0  # when the client last took something
        self._deadline: TimerHandle | None = None

    @property
    def is_empty(self) -> bool:
        return not self._chunks

    def put(self, chunks: Iterable[ResponseChunk]) -> int:
        """Adds chunks, and owns them from now on. Returns how many bytes of memory they take."""
        size = 0
        for chunk in chunks:
            if isinstance(chunk, BUFFERS):
                if chunk:
                    self._chunks.append(chunk)
                    size += len(chunk)
            elif chunk.length:
                self._chunks.append(chunk)
            else:
                chunk.release()
        return size

    def send(self) -> None:
        """Sends as much as the socket takes now, and the rest as soon as possible."""
        if not (self._is_waiting or self._thread_send is not None or self._is_closed):
            self._send_a_turn()

    def _send_a_turn(self) -> None:
        """Sends as much as the socket takes, or as fits into one turn."""
        received = self._counters.bytes_in
        self._left_of_turn = TURN_BYTES if received == self._received else TURN_BYTES_BESIDE_OTHERS
        self._received = received
        try:
            while self._chunks and self._left_of_turn > 0 and self._send_some():
                pass
        except BlockingIOError:
            pass
        except OSError as error:
            self._on_error(error)
            return
        if not self._chunks or self._thread_send is not None:
            self._stop_waiting()
        elif self._is_waiting:
            self._taken_at = self._loop.time()
        else:
            self._wait()

    def send_at_once(self, data: bytes) -> None:
        """Puts and sends a small response, which most often fits into the socket at once."""
        if self._chunks or self._is_closed:
            self.put((data,))
            return
        try:
            count = self._socket.send(data)
        except BlockingIOError:
            count = 0
        except OSError as error:
            self._on_error(error)
            return
        self._counters.bytes_out += count
        if count < len(data):
            self._chunks.append(data)
            self._sent_of_first = count
            self._wait()

    def _send_some(self) -> bool:
        """Sends the first chunk. Returns False if the socket is full, or a thread sends the chunk."""
        chunk = self._chunks[0]
        if isinstance(chunk, BUFFERS):
            return self._send_buffers()
        left = chunk.length - self._sent_of_first
        if left <= COPIED_BYTES_MAX:
            data = chunk.read_cached(self._sent_of_first, left)
            if data is None:
                self._send_in_thread(self._readers)
                return False
            chunk.release()
            self._chunks[0] = data
            self._sent_of_first = 0
            return True
        size = min(left, max(self._left_of_turn, COPIED_BYTES_MAX))
        is_for_loop = self._is_for_loop(left)
        sent = chunk.send_cached_to(self._fd, self._sent_of_first, size) if is_for_loop else None
        if sent is None:
            workers = self._readers if is_for_loop or self.is_cold else self._senders
            self._send_in_thread(workers)
            return False
        self._sent(sent)
        return sent == size

    def _is_for_loop(self, left: int) -> bool:
        if self.is_cold:
            return False
        return left <= LOOP_BYTES_MAX or self._senders.are_busy or self._loop.time() < self._slow_until

    def _send_buffers(self) -> bool:
        if len(self._chunks) == 1 and not self._sent_of_first:
            only = cast(bytes, self._chunks[0])
            self._sent(sent := self._socket.send(only))
            return sent == len(only)
        buffers: list[bytes | bytearray | memoryview] = []
        size = 0
        flags = 0
        for chunk in self._chunks:
            if not isinstance(chunk, BUFFERS):
                if chunk.length <= COPIED_BYTES_MAX and (data := chunk.read_cached()) is not None:
                    chunk.release()
                    self._chunks[len(buffers)] = chunk = data
                    self._left_of_turn -= SLICE_BYTES
                else:
                    flags = MORE
                    break
            buffers.append(chunk)
            size += len(chunk)
            if len(buffers) == GATHERED_MAX or size >= GATHERED_BYTES:
                break
        if self._sent_of_first:
            buffers[0] = memoryview(buffers[0])[self._sent_of_first :]
            size -= self._sent_of_first
        self._sent(sent := self._socket.sendmsg(buffers, (), flags))
        return sent == size

    def _sent(self, count: int) -> None:
        """Removes what was sent."""
        if not count:
            raise shortened_file()
        self._counters.bytes_out += count
        self._left_of_turn -= count
        count += self._sent_of_first
        chunks = self._chunks
        while chunks and count >= (length := length_of(chunks[0])):
            count -= length
            release(chunks.popleft())
        self._sent_of_first = count

    # Waiting for others, and for the client

    def _wait(self) -> None:
        """Waits until the socket is writable, and fails if that takes too long. After a turn that did not fill the
        socket it is writable at once, but other connections come first.
        """
        self._is_waiting = True
        self._taken_at = self._loop.time()
        self._loop.add_writer(self._fd, self._writable)
        if self._deadline is None:
            self._deadline = self._loop.call_later(self._timeout_s, self._check_deadline)

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        self._send_a_turn()
        if not self._chunks:
            self._report_if_empty()

    def _check_deadline(self) -> None:
        """One timer serves many responses: if the client has taken something meanwhile, it is set again."""
        self._deadline = None
        if self._is_waiting:
            left_s = self._taken_at + self._timeout_s - self._loop.time()
            if left_s > 0:
                self._deadline = self._loop.call_later(left_s, self._check_deadline)
            else:
                self._on_error(
                    TimeoutError(f"the client has taken nothing of its response for {self._timeout_s:.0f} s")
                )

    def _report_if_empty(self) -> None:
        if not self._chunks and not self._is_closed:
            self._on_sent()

    # By a thread

    def _send_in_thread(self, workers: Workers) -> None:
        """Sends several chunks that are in memory, or one piece that may come from a disk: others wait for the disk."""
        is_in_memory = workers is self._senders
        chunks = self._next_for_thread() if is_in_memory else [self._chunks[0]]
        bytes_max = THREAD_SEND_BYTES if is_in_memory else PIECE_BYTES
        sending = ThreadSend(os.dup(self._fd), chunks, self._sent_of_first, bytes_max)
        workers.submit(sending.send, partial(self._was_sent, sending))
        self._thread_send = sending

    def _next_for_thread(self) -> list[ResponseChunk]:
        """Returns large slices, and the bytes between them. The loop sends the last bytes of a response: the client may
        send its next request right after them, and would have to wait for the thread's return.
        """
        chunks, size = [self._chunks[0]], length_of(self._chunks[0]) - self._sent_of_first
        for chunk in islice(self._chunks, 1, THREAD_SEND_CHUNKS_MAX):
            if size >= THREAD_SEND_BYTES or not (isinstance(chunk, BUFFERS) or chunk.length > LOOP_BYTES_MAX):
                break
            chunks.append(chunk)
            size += length_of(chunk)
        while isinstance(chunks[-1], BUFFERS):  # the first is a slice
            chunks.pop()
        return chunks

    def _was_sent(self, sending: "ThreadSend") -> None:
        self._thread_send = None
        self.is_cold = sending.is_cold
        if sending.was_slow:
            self._slow_until = self._loop.time() + SLOW_S
        if self._is_closed:
            for chunk in sending.chunks:
                release(chunk)
            return
        if sending.error is not None:
            self._on_error(sending.error)
            return
        if sending.sent:
            self._sent(sending.sent)
            self.send()
        else:
            self._wait()
        self._report_if_empty()

    def close(self) -> None:
        """Sends nothing any more. Releases all files, except those of a thread that is still sending, and drops the
        references to the connection, which owns this.
        """
        self._is_closed = True
        self._on_sent = self._on_error = ignore
        self._stop_waiting()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        held = 0
        if self._thread_send is not None:
            self._thread_send.is_wanted = False
            held = len(self._thread_send.chunks)  # `_was_sent` releases them
        for chunk in islice(self._chunks, held, None):
            release(chunk)
        self._chunks.clear()
