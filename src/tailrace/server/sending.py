"""Answers on their way to a socket.

An answer is bytes, and between them slices of files. Small slices are read and sent along with the bytes around them;
larger ones go from the page cache to the socket without passing through this process (`sendfile`). What is not in the
page cache is sent in the same way by a thread, a piece at a time: the loop never waits for a disk.

A socket that takes no more is waited for. Until then nothing more is put in: a client that does not read is not
buffered for.
"""

import os
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Iterable
from typing import cast

from tailrace.log.slices import Slice
from tailrace.server.metrics import Metrics
from tailrace.server.threads import Workers

COPIED_BYTES_MAX = 32 << 10  # a slice up to here costs less to copy than another system call
COLD_BYTES = 1 << 20  # of a slice, by a thread
PIECE_BYTES = 64 << 10  # of a slice, to the socket: some ten microseconds, as others wait meanwhile
PROBE_BYTES = 128 << 10  # the kernel reads ahead, and forgets, in about such pieces
GATHERED_MAX = 64  # buffers for one system call
GATHERED_BYTES = 256 << 10  # and about so many bytes of them: all that a client which does not read is buffered
TURN_BYTES = 64 << 10  # before others have their turn, where a client takes all as fast as it is sent
SLICE_BYTES = 4 << 10  # what reading one slice, however small, counts for in a turn: it takes as long

_MORE = getattr(socket, "MSG_MORE", 0)

Part = bytes | bytearray | memoryview | Slice


def length_of(part: Part) -> int:
    return len(part) if isinstance(part, bytes | bytearray | memoryview) else part.length


def release(part: Part) -> None:
    if not isinstance(part, bytes | bytearray | memoryview):
        part.release()


class Outbox:
    """One connection's. `put` and `send`; `on_sent` is called when it has become empty after it was not."""

    __slots__ = (
        "_deadline",
        "_fd",
        "_is_blocked",
        "_is_closed",
        "_is_in_thread",
        "_left_of_turn",
        "_loop",
        "_metrics",
        "_on_error",
        "_on_sent",
        "_parts",
        "_readers",
        "_sent_of_part",
        "_socket",
        "_timeout_s",
    )

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: socket.socket,
        readers: Workers,
        metrics: Metrics,
        *,
        timeout_s: float,
        on_sent: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._readers = readers
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._on_sent = on_sent
        self._on_error = on_error
        self._parts: deque[Part] = deque()
        self._sent_of_part = 0
        self._is_blocked = False  # the socket takes no more, or it is the others' turn
        self._is_in_thread = False  # which sends what comes next
        self._is_closed = False
        self._left_of_turn = 0
        self._deadline: TimerHandle | None = None

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def put(self, parts: Iterable[Part]) -> int:
        """Says how many bytes of memory they take."""
        size = 0
        for part in parts:
            if length_of(part):
                self._parts.append(part)
                size += len(part) if isinstance(part, bytes | bytearray | memoryview) else 0
        return size

    def send(self) -> None:
        """Afterwards all is sent, or the rest is sent as soon as it can be."""
        if self._is_blocked or self._is_in_thread or self._is_closed:
            return
        self._left_of_turn = TURN_BYTES
        try:
            while self._parts:
                if self._left_of_turn <= 0:
                    self._is_blocked = True
                    self._loop.call_soon(self._has_turn)
                    return
                if not self._send_some():
                    return
        except BlockingIOError:
            self._block()
        except OSError as error:
            self._on_error(error)

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
            self._block()

    def _send_some(self) -> bool:
        """Sends what stands first. False where a thread does."""
        part = self._parts[0]
        if isinstance(part, bytes | bytearray | memoryview):
            self._send_buffers()
            return True
        left = part.length - self._sent_of_part
        if left <= COPIED_BYTES_MAX:
            data = part.read_cached(self._sent_of_part, left)
            if data is None:
                self._send_in_thread(part, left)
                return False
            part.release()
            self._parts[0] = data
            self._sent_of_part = 0
            return True
        size = min(left, PIECE_BYTES)
        if not self._is_cached(part, size):
            self._send_in_thread(part, min(left, COLD_BYTES))
            return False
        self._sent(part.send_to(self._fd, self._sent_of_part, size))
        return True

    def _send_buffers(self) -> None:
        if len(self._parts) == 1 and not self._sent_of_part:
            self._sent(self._socket.send(cast(bytes, self._parts[0])))
            return
        buffers: list[bytes | bytearray | memoryview] = []
        size = 0
        flags = 0
        for part in self._parts:
            if not isinstance(part, bytes | bytearray | memoryview):
                if part.length <= COPIED_BYTES_MAX and (data := part.read_cached()) is not None:
                    part.release()
                    self._parts[len(buffers)] = part = data
                    self._left_of_turn -= SLICE_BYTES
                else:
                    flags = _MORE
                    break
            buffers.append(part)
            size += len(part)
            if len(buffers) == GATHERED_MAX or size >= GATHERED_BYTES:
                break
        if self._sent_of_part:
            buffers[0] = memoryview(buffers[0])[self._sent_of_part :]
        self._sent(self._socket.sendmsg(buffers, (), flags))

    def _sent(self, count: int) -> None:
        """Takes away what has gone."""
        if not count:
            raise OSError("a file has become shorter while it was sent")
        self._metrics.bytes_out += count
        self._left_of_turn -= count
        count += self._sent_of_part
        while self._parts and count >= (length := length_of(self._parts[0])):
            count -= length
            release(self._parts.popleft())
        self._sent_of_part = count

    # Waiting for others, and for the client

    def _has_turn(self) -> None:
        if not self._is_closed:
            self._is_blocked = False
            self.send()
            self._tell_if_empty()

    def _block(self) -> None:
        """Afterwards it goes on when the socket takes more, if it does so in time."""
        self._is_blocked = True
        self._loop.add_writer(self._fd, self._writable)
        self._deadline = self._loop.call_later(self._timeout_s, self._took_too_long)

    def _writable(self) -> None:
        self._unblock()
        self.send()
        self._tell_if_empty()

    def _unblock(self) -> None:
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._fd)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _took_too_long(self) -> None:
        self._on_error(TimeoutError(f"the client has taken nothing of its answer for {self._timeout_s:.0f} s"))

    def _tell_if_empty(self) -> None:
        if not self._parts and not self._is_closed:
            self._on_sent()

    # Waiting for a disk

    def _is_cached(self, part: Slice, size: int) -> bool:
        start = self._sent_of_part
        for position in range(start, start + size, PROBE_BYTES):
            if part.read_cached(position, 1) is None:
                return False
        return part.read_cached(start + size - 1, 1) is not None

    def _send_in_thread(self, part: Slice, size: int) -> None:
        self._is_in_thread = True
        piece = ColdPiece(os.dup(self._fd), part, self._sent_of_part, size)
        self._readers.submit(piece.send, lambda: self._was_sent(piece))

    def _was_sent(self, piece: "ColdPiece") -> None:
        self._is_in_thread = False
        if self._is_closed:
            piece.part.release()
            return
        try:
            self._sent(piece.sent())
        except BlockingIOError:
            self._block()
            return
        except OSError as error:
            self._on_error(error)
            return
        self.send()
        self._tell_if_empty()

    def close(self) -> None:
        """Afterwards nothing is sent any more, and no file is held, but by a thread that is still sending."""
        self._is_closed = True
        self._unblock()
        first = self._parts[0] if self._is_in_thread else None
        for part in self._parts:
            if part is not first:
                release(part)
        self._parts.clear()


class ColdPiece:
    """A piece of a slice that a thread sends, through a descriptor of its own: the connection may be closed meanwhile,
    and its number be somebody else's.
    """

    def __init__(self, descriptor: int, part: Slice, start: int, size: int) -> None:
        self.part = part
        self._descriptor = descriptor
        self._start = start
        self._size = size
        self._count = 0
        self._error: OSError | None = None

    def send(self) -> None:
        try:
            self._count = self.part.send_to(self._descriptor, self._start, self._size)
        except OSError as error:
            self._error = error
        finally:
            os.close(self._descriptor)

    def sent(self) -> int:
        """How many bytes went. Raises what sending has raised."""
        if self._error is not None:
            raise self._error
        return self._count
