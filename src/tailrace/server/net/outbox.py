"""Sends the responses of one connection to its socket.

An answer is bytes, and between them slices of files. Small slices are read and sent along with the bytes around them;
larger ones go from the page cache to the socket without passing through this process (`sendfile`). Large ones, and what
is not in the page cache, a thread sends in the same way, a megabyte at a time (`ThreadSend`): it waits in the kernel
until the client has taken it, so that many readers are served at once and the loop waits for neither them nor a disk.
Where there are several, as of several partitions, it sends some of them, with the bytes in between, before it comes
back.

A socket that takes no more is waited for, and so is one that would take more when it is the others' turn: the loop says
when it is ready, which it asks all of. Until then nothing more is put in: a client that does not read is not buffered
for.
"""

import os
import socket
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import cast

from tailrace.log.layout.errors import without_frames
from tailrace.log.segment.slices import Slice
from tailrace.server.counters import Counters
from tailrace.server.net.chunks import CHUNK_BYTES, MORE, PIECE_BYTES, send_chunks, set_patience
from tailrace.server.net.pending import ignore
from tailrace.server.threads import Workers

COPIED_BYTES_MAX = 32 << 10  # a slice up to here costs less to copy than another system call
LOOP_BYTES_MAX = 128 << 10  # of a slice that is in the page cache: that is sent in about the time of a hand-over
PIECE_S = 0.05  # a client that takes longer to take it is slow: the loop sends to it as it takes, and holds no thread
THREAD_SEND_BYTES = (
    8 << 20
)  # about, that a thread sends before it comes back; it does so sooner where that takes as long
THREAD_SEND_CHUNKS_MAX = 64
SLOW_S = 1.0  # until it is tried again
GATHERED_MAX = 64  # buffers for one system call
GATHERED_BYTES = 256 << 10  # and about so many bytes of them: all that a client which does not read is buffered
TURN_BYTES = 256 << 10  # before others have their turn, where a client takes all as fast as it is sent: 0.1 ms
TURN_BYTES_BESIDE_OTHERS = 64 << 10  # where a client has sent something since our last turn, and may do so again
SLICE_BYTES = 4 << 10  # what reading one slice, however small, counts for in a turn: it takes as long

_BUFFERS = (bytes, bytearray, memoryview)

ResponseChunk = bytes | bytearray | memoryview | Slice


def length_of(part: ResponseChunk) -> int:
    return len(part) if isinstance(part, _BUFFERS) else part.length


def release(part: ResponseChunk) -> None:
    if not isinstance(part, _BUFFERS):
        part.release()


def shortened_file() -> OSError:
    return OSError("a file has become shorter while it was sent")


class Outbox:
    """One connection's. `put` and `send`; `on_sent` is called when it has become empty after it was not."""

    __slots__ = (
        "_counters",
        "_deadline",
        "_fd",
        "_is_closed",
        "_is_waiting",
        "_left_of_turn",
        "_loop",
        "_on_error",
        "_on_sent",
        "_parts",
        "_readers",
        "_received",
        "_senders",
        "_sent_of_part",
        "_slow_until",
        "_socket",
        "_thread_send",
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
        self._readers = readers  # of what is cold
        self._senders = senders  # of what is not: a slow client holds up none that waits for a disk
        self._counters = counters
        self._timeout_s = timeout_s
        self._on_sent = on_sent
        self._on_error = on_error
        self._parts: deque[ResponseChunk] = deque()
        self._sent_of_part = 0
        self._is_waiting = False  # until the loop says that the socket takes more
        self._thread_send: ThreadSend | None = None  # by a thread, of what comes next
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

    def put(self, parts: Iterable[ResponseChunk]) -> int:
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
        """Sends all, or as much as the socket takes now, and the rest as soon as it can be."""
        if not (self._is_waiting or self._thread_send is not None or self._is_closed):
            self._send_a_turn()

    def _send_a_turn(self) -> None:
        """As much as the socket takes, until it is the others' turn. The loop says when ours is next."""
        received = self._counters.bytes_in
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
        if not self._parts or self._thread_send is not None:
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
        self._counters.bytes_out += count
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
                self._send_in_thread(self._readers)
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
            self._send_in_thread(workers)
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
        self._counters.bytes_out += count
        self._left_of_turn -= count
        count += self._sent_of_part
        parts = self._parts
        while parts and count >= (length := length_of(parts[0])):
            count -= length
            release(parts.popleft())
        self._sent_of_part = count

    # Waiting for others, and for the client

    def _wait(self) -> None:
        """Goes on when the socket takes more, if it does so in time. Where the turn was over before the socket was full
        that is at once, but after all others that are ready, too.
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

    def _send_in_thread(self, workers: Workers) -> None:
        """What may have to come from a disk, a piece at a time: others wait for that, too."""
        is_in_memory = workers is self._senders
        parts = self._next_for_thread() if is_in_memory else [self._parts[0]]
        most = THREAD_SEND_BYTES if is_in_memory else PIECE_BYTES
        sending = ThreadSend(os.dup(self._fd), parts, self._sent_of_part, most)
        workers.submit(sending.send, partial(self._was_sent, sending))
        self._thread_send = sending

    def _next_for_thread(self) -> list[ResponseChunk]:
        """Large slices, and the bytes between them. The end of an answer is the loop's: who has it may ask again, and
        would find the thread not back yet.
        """
        chunks, size = [self._parts[0]], length_of(self._parts[0]) - self._sent_of_part
        for part in islice(self._parts, 1, THREAD_SEND_CHUNKS_MAX):
            if size >= THREAD_SEND_BYTES or not (isinstance(part, _BUFFERS) or part.length > LOOP_BYTES_MAX):
                break
            chunks.append(part)
            size += length_of(part)
        while isinstance(chunks[-1], _BUFFERS):  # the first is a slice
            chunks.pop()
        return chunks

    def _was_sent(self, sending: "ThreadSend") -> None:
        self._thread_send = None
        self.is_cold = sending.is_cold
        if sending.was_slow:
            self._slow_until = self._loop.time() + SLOW_S
        if self._is_closed:
            for part in sending.parts:
                release(part)
            return
        if sending.error is not None:
            self._on_error(sending.error)
            return
        if sending.sent:
            self._sent(sending.sent)
            self.send()
        else:
            self._wait()
        self._tell_if_empty()

    def close(self) -> None:
        """Sends nothing any more, and releases all files but those of a thread that is still sending. Lets go of
        the connection, which owns this.
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
            held = len(self._thread_send.parts)  # until it has come back
        for part in islice(self._parts, held, None):
            release(part)
        self._parts.clear()


class ThreadSend:
    """What stands first in an outbox, sent by a thread through a descriptor of its own: the connection may be closed
    meanwhile, and its number be another's. Nothing else uses the socket until this has come back.
    """

    def __init__(self, descriptor: int, parts: Sequence[ResponseChunk], start: int, most: int) -> None:
        """Of the first part, what lies behind `start`, and no further piece after `most` bytes."""
        self.parts = parts
        self._descriptor = descriptor
        self._start = start
        self._most = most
        self._until = 0.0
        self.is_wanted = True
        self.sent = 0  # bytes
        self.error: Exception | None = None
        self.is_cold = False  # what comes next, and its client is fast: a thread had better send that, too
        self.was_slow = False  # its client, to take it

    def send(self) -> None:
        try:
            os.set_blocking(self._descriptor, True)
            try:
                self._send_parts()
            finally:
                os.set_blocking(self._descriptor, False)
        except Exception as error:  # noqa: BLE001 - whatever it is, how much has gone is not known
            self.error = without_frames(error)
        finally:
            os.close(self._descriptor)

    @property
    def _has_time(self) -> bool:
        return self.is_wanted and self.sent < self._most and time.perf_counter() < self._until

    def _send_parts(self) -> None:
        self._until, start = time.perf_counter() + PIECE_S, self._start
        for part in self.parts:
            if isinstance(part, _BUFFERS):
                goes_on = self._send_bytes(memoryview(part)[start:])
            else:
                goes_on = self._send_slice(part, start)
            if not (goes_on and self._has_time):
                return
            start = 0

    def _send_bytes(self, data: memoryview) -> bool:
        sock = socket.socket(fileno=self._descriptor)
        try:
            count = sock.send(data, MORE)  # a slice follows
        except BlockingIOError:
            count = 0
        finally:
            sock.detach()
        self.sent += count
        self.was_slow = count < len(data)
        return not self.was_slow

    def _send_slice(self, part: Slice, start: int) -> bool:
        """Whether all of it has gone, and it was in memory."""
        for at in range(start, part.length, PIECE_BYTES):
            if at > start and not self._has_time:
                return False
            if not self._send_piece(part, at, min(PIECE_BYTES, part.length - at)):
                return False
        return True

    def _send_piece(self, part: Slice, start: int, size: int) -> bool:
        was_cold = not part.read_ahead(start, size)
        if was_cold and self.sent:
            self.is_cold = True  # it is on its way: others wait for it, and for the disk
            return False
        started = time.perf_counter()
        chunk_bytes = CHUNK_BYTES if was_cold else size  # what is in memory goes in one call
        count = send_chunks(partial(self._send_chunk, part, start), size, chunk_bytes)
        self.sent += count
        self.was_slow = count < size or time.perf_counter() - started > PIECE_S
        self.is_cold = was_cold and count == size
        return not (self.was_slow or was_cold)

    def _send_chunk(self, part: Slice, piece: int, start: int, size: int) -> int:
        count = part.send_to(self._descriptor, piece + start, size)
        if not count:
            raise shortened_file()
        return count
