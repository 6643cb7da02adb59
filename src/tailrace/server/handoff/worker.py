"""The helper process that serves catch-up consumers, so that other clients do not wait for them.

    python -m tailrace.server.handoff.worker DESCRIPTOR

A catch-up consumer fetches another megabyte several hundred times a second. If the loop served each of these requests,
other clients would wait for it; and handing each one to a thread and back takes about as long as sending the response.
So the broker hands the whole connection off: it sends a `HandedOff`, the client's socket and the file through a Unix
socket. A thread answers the pending Fetch, and the following ones as long as each looks like the first, continues at
the end of the previous response, and has the next epoch if it belongs to a session. Then the connection is returned
(`Returned`), with the bytes of another request that were read, the bytes of a response that were not sent, and the
state of the session.

The helper process makes no decisions: the broker has said what may be served. The connection is returned soon
(`HANDED_OFF_S`), so that the broker can decide anew.
"""

import errno
import logging
import os
import signal
import socket
import struct
import sys
import threading
import time
from bisect import bisect_left
from contextlib import suppress

from tailrace.log.disk.page_cache import read_ahead
from tailrace.log.files.index import positions_in
from tailrace.log.segment.slices import end_of_whole_batches
from tailrace.protocol.fetch_wire import FINAL_EPOCH, epoch_after
from tailrace.server.handoff.messages import (
    ANSWERS_MAX,
    HANDED_OFF_BYTES,
    HANDED_OFF_MAX,
    HANDED_OFF_S,
    MESSAGE_BYTES,
    READY,
    HandedOff,
    Returned,
    Unsent,
)
from tailrace.server.net.chunks import CHUNK_BYTES, MORE, PIECE_BYTES, send_chunks, set_patience

logger = logging.getLogger("tailrace.server.handoff")

_REQUEST = struct.Struct(">iii")  # length, key and version in one, correlation id
_LENGTH_BYTES = 4
_CORRELATION_ID = 8, 12  # its position in the frame, length included
_EPOCH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_OFFSET_MAX = (1 << 63) - 1


class Conversation:
    """Serves one connection while it is handed off."""

    def __init__(self, handed_off: HandedOff, client: socket.socket, file: int) -> None:
        self._handed_off = handed_off
        self._client = client
        self._file = file
        self._position = handed_off.position
        self._starts = positions_in(handed_off.entries)  # of some batches
        self._next_offset = 0
        length = len(handed_off.frame).to_bytes(_LENGTH_BYTES)
        self._request = bytearray(length + handed_off.frame)  # receive buffer, reused
        self._expected = bytearray(self._request)  # all bytes but the correlation id
        self._epoch, self._offset = handed_off.epoch, 0
        self._unread = b""
        self._unsent: Unsent | None = None
        self._seconds: list[float] = []
        self._bytes_in = 0
        self._bytes_out = 0
        self._is_cold = True
        self._was_slow = False
        self._until = time.perf_counter() + HANDED_OFF_S

    def run(self) -> Returned:
        error = 0
        try:
            self._client.setblocking(True)
            set_patience(self._client)
            try:
                self._converse()
            finally:
                self._client.setblocking(False)
        except OSError as raised:
            error = raised.errno or errno.EIO
        return Returned(
            self._handed_off.number,
            self._unread,
            self._unsent,
            self._seconds,
            self._epoch,
            self._offset,
            self._bytes_in,
            self._bytes_out,
            self._is_cold,
            self._was_slow,
            error,
        )

    def _converse(self) -> None:
        while True:
            started = time.perf_counter()
            self._is_cold = not read_ahead(self._file, self._position, self._handed_off.limit)
            end = self._find_end()
            if end <= self._position:
                self._unread = bytes(self._request)
                return
            self._expect_next()
            self._seconds.append(time.perf_counter() - started)
            is_sent = self._send(end - self._position)
            self._position = end
            is_over = self._bytes_out >= HANDED_OFF_BYTES or len(self._seconds) >= ANSWERS_MAX
            if not is_sent or is_over or time.perf_counter() > self._until or not self._receive():
                return

    def _find_end(self) -> int:
        """Returns the end of the batches that fit into a response, and may be served. Returns the start if their bytes
        are invalid, or if the reader would wait for more than is left: the broker handles these cases.
        """
        start, handed_off = self._position, self._handed_off
        wanted = min(start + max(handed_off.limit, 1), handed_off.end)
        known = bisect_left(self._starts, wanted)
        begin = max(start, self._starts[known - 1]) if known else start
        try:
            end, self._next_offset = end_of_whole_batches(self._read, start, begin, wanted, handed_off.end)
        except OSError:
            return start
        is_too_little = end == handed_off.end and end - start < handed_off.least
        return start if is_too_little or not 0 <= self._next_offset <= _OFFSET_MAX else end

    def _expect_next(self) -> None:
        """Sets the expected request: the one that continues at the end of this response."""
        epoch_at, offset_at = (_LENGTH_BYTES + place for place in self._handed_off.places)
        (self._offset,) = _OFFSET.unpack_from(self._expected, offset_at)
        _OFFSET.pack_into(self._expected, offset_at, self._next_offset)
        if self._epoch != FINAL_EPOCH:
            self._epoch = epoch_after(self._epoch)
            _EPOCH.pack_into(self._expected, epoch_at, self._epoch)

    def _read(self, position: int, size: int) -> bytes:
        return os.pread(self._file, size, position)

    def _send(self, size: int) -> bool:
        """Sends a response with so many bytes of records. Returns False if the client does not take all of it."""
        position, answer = self._position, self._handed_off.answer
        _, _, correlation_id = _REQUEST.unpack_from(self._request)
        head = answer.head(correlation_id, self._handed_off.bounds, size)
        sent = self._send_bytes(head, MORE)
        if sent < len(head):
            self._was_slow = True
            self._unsent = head[sent:], position, size, answer.after
            return False
        chunk_bytes = CHUNK_BYTES if self._is_cold else PIECE_BYTES
        sent = send_chunks(
            lambda start, count: self._send_file(position + start, count), size, chunk_bytes, until=self._until
        )
        self._bytes_out += sent
        if sent < size:
            self._was_slow = time.perf_counter() <= self._until
            self._unsent = b"", position + sent, size - sent, answer.after
            return False
        sent = self._send_bytes(answer.after, 0)
        if sent < len(answer.after):
            self._unsent = answer.after[sent:], 0, 0, b""
        return self._unsent is None

    def _send_file(self, position: int, size: int) -> int:
        return os.sendfile(self._client.fileno(), self._file, position, size)

    def _send_bytes(self, data: bytes, flags: int) -> int:
        sent = send_chunks(
            lambda start, size: self._client.send(data[start : start + size], flags), len(data), until=self._until
        )
        self._bytes_out += sent
        return sent

    def _receive(self) -> bool:
        """Receives a request. Returns whether it matches the template, and continues where the last response ended."""
        view, count = memoryview(self._request), 0
        while count < len(view):
            try:
                received = self._client.recv_into(view[count:])
            except BlockingIOError:
                received = 0
            count += received
            begun = min(count, _LENGTH_BYTES)
            if not received or view[:begun] != self._expected[:begun] or time.perf_counter() > self._until:
                break  # another request may be shorter: do not wait for the rest of this one
        self._bytes_in += count
        if count < len(view) or not self._is_next():
            self._unread = bytes(view[:count])
            return False
        return True

    def _is_next(self) -> bool:
        request, expected, (begin, end) = self._request, self._expected, _CORRELATION_ID
        return request[:begin] == expected[:begin] and request[end:] == expected[end:]


def serve(control: socket.socket) -> None:
    """Serves connections until the broker is gone."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
        if not data:
            return
        handed_off = HandedOff.decode(data)
        client, file = descriptors
        try:
            with socket.socket(fileno=client) as sock:
                returned = Conversation(handed_off, sock, file).run()
        except Exception:  # the broker still needs its connection back
            logger.exception("unexpected error while serving a catch-up consumer")
            returned = Returned(handed_off.number, error=errno.EIO)
        finally:
            os.close(file)
        control.send(returned.encode())


def serve_or_die(control: socket.socket) -> None:
    """Ends the process if a thread fails: the broker then disconnects the clients that are handed off."""
    try:
        serve(control)
    except BaseException as error:
        if not isinstance(error, ConnectionError):  # a ConnectionError means that the broker is gone
            logger.exception("unexpected error in the helper process for catch-up consumers")
        os._exit(1)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # these are sent to whole process groups
        signal.signal(number, signal.SIG_IGN)  # the broker ends this process, after answering its clients
    control = socket.socket(fileno=int(sys.argv[1]))
    with suppress(ConnectionError):  # if the broker is gone already, the threads see it, too
        control.send(Returned(READY).encode())
    threads = [threading.Thread(target=serve_or_die, args=(control,)) for _ in range(HANDED_OFF_MAX)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
