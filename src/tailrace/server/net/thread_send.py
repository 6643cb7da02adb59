"""Sends chunks of a response in a thread, which waits in the kernel until the client has taken them."""

import os
import socket
import time
from collections.abc import Sequence
from functools import partial

from tailrace.log.layout.errors import without_frames
from tailrace.log.segment.slices import Slice
from tailrace.server.net.chunks import (
    BUFFERS,
    CHUNK_BYTES,
    MORE,
    PIECE_BYTES,
    ResponseChunk,
    send_chunks,
    shortened_file,
)

CLIENT_S = 0.05  # a client that takes longer for a piece is slow: no thread waits for it


class ThreadSend:
    """One send, of the first chunks of an outbox. Nothing else uses the socket until it is done."""

    def __init__(self, descriptor: int, chunks: Sequence[ResponseChunk], start: int, bytes_max: int) -> None:
        """Sends from the position `start` of the first chunk on, and begins no further piece after `bytes_max` bytes.

        Closes `descriptor`, which must be a duplicate: the connection may be closed meanwhile, and the number of its
        descriptor be given to another one.
        """
        self.chunks = chunks
        self._descriptor = descriptor
        self._start = start
        self._bytes_max = bytes_max
        self._until = 0.0
        self.is_wanted = True  # set to False by the loop when the connection is closed
        self.sent = 0  # bytes
        self.error: Exception | None = None
        self.is_cold = False  # the next data are not in memory, and the client is fast: a thread should send them, too
        self.was_slow = False  # the client did not take all of it in time

    def send(self) -> None:
        """Runs in the thread. Does not raise: `error` is set instead."""
        try:
            os.set_blocking(self._descriptor, True)
            try:
                self._send_all()
            finally:
                os.set_blocking(self._descriptor, False)
        except Exception as error:  # noqa: BLE001 - after any error, it is unknown how much was sent
            self.error = without_frames(error)
        finally:
            os.close(self._descriptor)

    @property
    def _has_time(self) -> bool:
        return self.is_wanted and self.sent < self._bytes_max and time.perf_counter() < self._until

    def _send_all(self) -> None:
        self._until, start = time.perf_counter() + CLIENT_S, self._start
        for chunk in self.chunks:
            if isinstance(chunk, BUFFERS):
                goes_on = self._send_bytes(memoryview(chunk)[start:])
            else:
                goes_on = self._send_slice(chunk, start)
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

    def _send_slice(self, data: Slice, start: int) -> bool:
        """Returns whether all of it was sent, and was in memory."""
        for at in range(start, data.length, PIECE_BYTES):
            if at > start and not self._has_time:
                return False
            if not self._send_piece(data, at, min(PIECE_BYTES, data.length - at)):
                return False
        return True

    def _send_piece(self, data: Slice, start: int, size: int) -> bool:
        was_cold = not data.read_ahead(start, size)
        if was_cold and self.sent:
            self.is_cold = True  # the disk is reading it by now; the thread serves others meanwhile
            return False
        started = time.perf_counter()
        chunk_bytes = CHUNK_BYTES if was_cold else size  # data in memory take one call
        count = send_chunks(partial(self._send_chunk, data, start), size, chunk_bytes)
        self.sent += count
        self.was_slow = count < size or time.perf_counter() - started > CLIENT_S
        self.is_cold = was_cold and count == size
        return not (self.was_slow or was_cold)

    def _send_chunk(self, data: Slice, piece: int, start: int, size: int) -> int:
        count = data.send_to(self._descriptor, piece + start, size)
        if not count:
            raise shortened_file()
        return count
