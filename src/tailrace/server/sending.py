"""Answers on their way to a socket.

An answer is bytes, and between them slices of files. Small slices are read and sent along with the bytes around them;
larger ones go from the page cache to the socket without passing through this process (`sendfile`). Large ones, and what
is not in the page cache, a thread sends in the same way, a megabyte at a time (`Piece`): it waits in the kernel until
the client has taken it, so that many readers are served at once and the loop waits for neither them nor a disk.

A socket that takes no more is waited for, and so is one that would take more when it is the others' turn: the loop says
when it is ready, which it asks all of. Until then nothing more is put in: a client that does not read is not buffered
for.
"""

import os
import socket
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Iterable
from typing import cast

from tailrace.log.slices import Slice
from tailrace.server.chunks import CHUNK_BYTES, MORE, PIECE_BYTES, send_chunks, set_patience
from tailrace.server.metrics import Metrics
from tailrace.server.threads import Workers

COPIED_BYTES_MAX = 32 << 10  # a slice up to here costs less to copy than another system call
LOOP_BYTES_MAX = 128 << 10  # of a slice that is in the page cache: that is sent in about the time of a hand-over
PIECE_S = 0.05  # a client that takes longer to take it is slow: the loop sends to it as it takes, and holds no thread
SLOW_S = 1.0  # until it is tried again
GATHERED_MAX = 64  # buffers for one system call
GATHERED_BYTES = 256 << 10  # and about so many bytes of them: all that a client which does not read is buffered
TURN_BYTES = 256 << 10  # before others have their turn, where a client takes all as fast as it is sent: 0.1 ms
TURN_BYTES_BESIDE_OTHERS = 64 << 10  # where somebody has sent us something since our last turn, and may do so again
SLICE_BYTES = 4 << 10  # what reading one slice, however small, counts for in a turn: it takes as long

_BUFFERS = (bytes, bytearray, memoryview)

Part = bytes | bytearray | memoryview | Slice


def length_of(part: Part) -> int:
    return len(part) if isinstance(part, _BUFFERS) else part.length


def release(part: Part) -> None:
    if not isinstance(part, _BUFFERS):
        part.release()


def shortened_file() -> OSError:
    return OSError("a file has become shorter while it was sent")


class Outbox:
    """One connection's. `put` and `send`; `on_sent` is called when it has become empty after it was not."""

    __slots__ = (
        "_deadline",
        "_fd",
        "_is_closed",
        "_is_in_thread",
        "_is_waiting",
        "_left_of_turn",
        "_loop",
        "_metrics",
        "_on_error",
        "_on_sent",
        "_parts",
        "_readers",
        "_received",
        "_senders",
        "_sent_of_part",
        "_slow_until",
        "_socket",
        "_timeout_s",
        "_took_at",
        "is_cold",
    )

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: socket.socket,
        readers: Workers,
        senders: Workers,
        metrics: Metrics,
        *,
        timeout_s: float,
        on_sent: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        set_patience(sock)
        self._readers = readers  # of what is cold
        self._senders = senders  # of what is not: whoever reads slowly stands in the way of nobody who waits for a disk
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._on_sent = on_sent
        self._on_error = on_error
        self._parts: deque[Part] = deque()
        self._sent_of_part = 0
        self._is_waiting = False  # until the loop says that the socket takes more
        self._is_in_thread = False  # which sends what comes next
        self._slow_until = 0.0  # a thread would be held by it
        self.is_cold = False  # what this client reads has to come from a disk, or had to a moment ago
        self._is_closed = False
        self._left_of_turn = 0
        self._received = 0  # by all connections, when our last turn began
        self._took_at = 0.0  # when the client has last taken something
        self._deadline: TimerHandle | None = None

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def put(self, parts: Iterable[Part]) -> int:
        """Says how many bytes of memory they take."""
        size = 0
        for part in parts:
            if isinstance(part, _BUFFERS):
                if part:
                    self._parts.append(part)
                    size += len(part)
            elif part.length:
                self._parts.append(part)
            else:
                part.release()
        return size

    def send(self) -> None:
        """Afterwards all is sent, or the rest is sent as soon as it can be."""
        if not (self._is_waiting or self._is_in_thread or self._is_closed):
            self._send_a_turn()

    def _send_a_turn(self) -> None:
        """As much as the socket takes, until it is the others' turn. The loop says when ours is next."""
        received = self._metrics.bytes_in
        self._left_of_turn = TURN_BYTES if received == self._received else TURN_BYTES_BESIDE_OTHERS
        self._received = received
        try:
            while self._parts and self._left_of_turn > 0 and self._send_some():
                pass
        except BlockingIOError:
            pass
        except OSError as error:
            self._on_error(error)
            return
        if not self._parts or self._is_in_thread:
            self._stop_waiting()
        elif self._is_waiting:
            self._took_at = self._loop.time()
        else:
            self._wait()

    def send_at_once(self, data: bytes) -> None:
        """Puts and sends what is small, and most often gone at once."""
        if self._parts or self._is_closed:
            self.put((data,))
            return
        try:
            count = self._socket.send(data)
        except BlockingIOError:
            count = 0
        except OSError as error:
            self._on_error(error)
            return
        self._metrics.bytes_out += count
        if count < len(data):
            self._parts.append(data)
            self._sent_of_part = count
            self._wait()

    def _send_some(self) -> bool:
        """Sends what stands first. False where the socket takes no more for now, or a thread sends it."""
        part = self._parts[0]
        if isinstance(part, _BUFFERS):
            return self._send_buffers()
        left = part.length - self._sent_of_part
        if left <= COPIED_BYTES_MAX:
            data = part.read_cached(self._sent_of_part, left)
            if data is None:
                self._send_in_thread(part, left, self._readers)
                return False
            part.release()
            self._parts[0] = data
            self._sent_of_part = 0
            return True
        size = min(left, max(self._left_of_turn, COPIED_BYTES_MAX))
        is_for_loop = self._is_for_loop(left)
        sent = part.send_cached_to(self._fd, self._sent_of_part, size) if is_for_loop else None
        if sent is None:
            workers = self._readers if is_for_loop or self.is_cold else self._senders
            self._send_in_thread(part, min(left, PIECE_BYTES), workers)
            return False
        self._sent(sent)
        return sent == size

    def _is_for_loop(self, left: int) -> bool:
        if self.is_cold:
            return False
        return left <= LOOP_BYTES_MAX or self._senders.are_busy or self._loop.time() < self._slow_until

    def _send_buffers(self) -> bool:
        if len(self._parts) == 1 and not self._sent_of_part:
            only = cast(bytes, self._parts[0])
            self._sent(sent := self._socket.send(only))
            return sent == len(only)
        buffers: list[bytes | bytearray | memoryview] = []
        size = 0
        flags = 0
        for part in self._parts:
            if not isinstance(part, _BUFFERS):
                if part.length <= COPIED_BYTES_MAX and (data := part.read_cached()) is not None:
                    part.release()
                    self._parts[len(buffers)] = part = data
                    self._left_of_turn -= SLICE_BYTES
                else:
                    flags = MORE
                    break
            buffers.append(part)
            size += len(part)
            if len(buffers) == GATHERED_MAX or size >= GATHERED_BYTES:
                break
        if self._sent_of_part:
            buffers[0] = memoryview(buffers[0])[self._sent_of_part :]
            size -= self._sent_of_part
        self._sent(sent := self._socket.sendmsg(buffers, (), flags))
        return sent == size

    def _sent(self, count: int) -> None:
        """Takes away what has gone."""
        if not count:
            raise shortened_file()
        self._metrics.bytes_out += count
        self._left_of_turn -= count
        count += self._sent_of_part
        parts = self._parts
        while parts and count >= (length := length_of(parts[0])):
            count -= length
            release(parts.popleft())
        self._sent_of_part = count

    # Waiting for others, and for the client

    def _wait(self) -> None:
        """Afterwards it goes on when the socket takes more, if it does so in time. Where the turn was over before the
        socket was full that is at once, but after all others who are ready, too.
        """
        self._is_waiting = True
        self._took_at = self._loop.time()
        self._loop.add_writer(self._fd, self._writable)
        if self._deadline is None:
            self._deadline = self._loop.call_later(self._timeout_s, self._check_deadline)

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        self._send_a_turn()
        if not self._parts:
            self._tell_if_empty()

    def _check_deadline(self) -> None:
        """One timer serves many answers: where something was taken since, it is set again for the rest."""
        self._deadline = None
        if self._is_waiting:
            left_s = self._took_at + self._timeout_s - self._loop.time()
            if left_s > 0:
                self._deadline = self._loop.call_later(left_s, self._check_deadline)
            else:
                self._on_error(TimeoutError(f"the client has taken nothing of its answer for {self._timeout_s:.0f} s"))

    def _tell_if_empty(self) -> None:
        if not self._parts and not self._is_closed:
            self._on_sent()

    # By a thread

    def _send_in_thread(self, part: Slice, size: int, workers: Workers) -> None:
        piece = Piece(os.dup(self._fd), part, self._sent_of_part, size)
        self._is_in_thread = True
        workers.submit(piece.send, lambda: self._was_sent(piece))

    def _was_sent(self, piece: "Piece") -> None:
        self._is_in_thread = False
        self.is_cold = piece.is_cold
        if piece.was_slow:
            self._slow_until = self._loop.time() + SLOW_S
        if self._is_closed:
            piece.part.release()
            return
        try:
            count = piece.sent()
        except OSError as error:
            self._on_error(error)
            return
        if count:
            self._sent(count)
            self.send()
        else:
            self._wait()
        self._tell_if_empty()

    def close(self) -> None:
        """Afterwards nothing is sent any more, and no file is held, but by a thread that is still sending."""
        self._is_closed = True
        self._stop_waiting()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        first = self._parts[0] if self._is_in_thread else None
        for part in self._parts:
            if part is not first:
                release(part)
        self._parts.clear()


class Piece:
    """A piece of a slice that a thread sends, through a descriptor of its own: the connection may be closed meanwhile,
    and its number be somebody else's. Nobody else uses the socket until it has come back.
    """

    def __init__(self, descriptor: int, part: Slice, start: int, size: int) -> None:
        self.part = part
        self._descriptor = descriptor
        self._start = start
        self._size = size
        self._count = 0
        self._error: OSError | None = None
        self.is_cold = False  # what lies behind it, and its client is fast: a thread had better send that, too
        self.was_slow = False  # its client, to take it

    def send(self) -> None:
        try:
            was_cold = not self.part.read_ahead(self._start, self._size)
            started = time.perf_counter()
            os.set_blocking(self._descriptor, True)
            try:
                chunk_bytes = CHUNK_BYTES if was_cold else self._size  # what is in memory goes in one call
                self._count = send_chunks(self._send_chunk, self._size, chunk_bytes)
            finally:
                os.set_blocking(self._descriptor, False)
            self.was_slow = self._count < self._size or time.perf_counter() - started > PIECE_S
            self.is_cold = was_cold and self._count == self._size
        except OSError as error:
            self._error = error
        finally:
            os.close(self._descriptor)

    def _send_chunk(self, start: int, size: int) -> int:
        count = self.part.send_to(self._descriptor, self._start + start, size)
        if not count:
            raise shortened_file()
        return count

    def sent(self) -> int:
        """How many bytes went. Raises what sending has raised."""
        if self._error is not None:
            raise self._error
        return self._count
