"""A process that answers readers of history, so that nobody else feels them.

    python -m tailrace.server.handoff.worker DESCRIPTOR

Who reads on through history asks several hundred times a second for another megabyte. Were the loop to answer each, it
would be awake for two clients that have nothing to do with each other, and both would wait for it; and to hand each to
a thread and back takes about as long as to send it. So the broker lends such a connection to us (`lending`): through a
Unix socket come a `Loan`, the client's socket and the file. A thread answers the Fetch that had come, and those that
follow as long as each looks like the first, goes on where the answer before it ended, and has the next epoch, if it is
one of a session. Then the connection goes back (`Returned`), with what was read of another request, or not sent of an
answer, and how far the session has come.

Nothing is decided here: the broker has said what may be served. What it would say by now is asked soon (`LOAN_S`).
"""

import errno
import logging
import marshal
import os
import signal
import socket
import struct
import sys
import threading
import time
from bisect import bisect_left
from contextlib import suppress
from typing import NamedTuple

from tailrace.log.disk.interface import read_ahead
from tailrace.log.files.index import positions_in
from tailrace.log.segment.batch_ends import end_of_whole_batches
from tailrace.protocol.fetch_wire import FINAL_EPOCH, FetchAnswer, epoch_after
from tailrace.server.net.chunks import CHUNK_BYTES, MORE, PIECE_BYTES, send_chunks, set_patience

logger = logging.getLogger(__name__)

LOANS_MAX = 16  # at a time
LOAN_BYTES = 64 << 20
LOAN_S = 0.25
ANSWERS_MAX = 256  # each is told of when the connection goes back
MESSAGE_BYTES = 16 << 10
THERE = 0  # the number of no loan: it says that the process is there

_REQUEST = struct.Struct(">iii")  # length, key and version in one, correlation id
_LENGTH_BYTES = 4
_CORRELATION_ID = 8, 12  # from where to where it stands, the length counted
_EPOCH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_OFFSET_MAX = (1 << 63) - 1


class Loan(NamedTuple):
    number: int
    frame: bytes  # the request that is to be answered first
    places: tuple[int, int]  # of the epoch in it, where it has a session, and of the offset
    epoch: int  # of it, or FINAL_EPOCH
    answer: FetchAnswer
    bounds: bytes
    limit: int  # of the records in an answer
    least: int  # of them in the last one: what is less may have to wait for more
    position: int  # in the file, of the batch that is asked for
    end: int  # of what may be served
    entries: bytes  # of its index

    def encode(self) -> bytes:
        return marshal.dumps((*self[:4], tuple(self.answer), *self[5:]))

    @staticmethod
    def decode(data: bytes) -> "Loan":
        loan = Loan(*marshal.loads(data))  # noqa: S302 - from our parent
        return loan._replace(answer=FetchAnswer(*loan.answer))


Unsent = tuple[bytes, int, int, bytes]  # of an answer: bytes, where in the file, how much of it, and bytes


class Returned(NamedTuple):
    number: int
    unread: bytes = b""  # what was received and is not answered
    unsent: Unsent | None = None
    seconds: list[float] = []  # noqa: RUF012 - until each answer began to leave
    epoch: int = FINAL_EPOCH  # of the next request, where there is a session
    offset: int = 0  # that was asked for by the last one that was answered
    bytes_in: int = 0
    bytes_out: int = 0
    is_cold: bool = False  # what comes next
    was_slow: bool = False  # the client, to take its answer
    error: int = 0  # of the system

    def encode(self) -> bytes:
        return marshal.dumps(tuple(self))

    @staticmethod
    def decode(data: bytes) -> "Returned":
        return Returned(*marshal.loads(data))  # noqa: S302 - from our child


class Conversation:
    """One loan."""

    def __init__(self, loan: Loan, client: socket.socket, file: int) -> None:
        self._loan = loan
        self._client = client
        self._file = file
        self._position = loan.position
        self._starts = positions_in(loan.entries)  # of some batches
        self._next_offset = 0
        length = len(loan.frame).to_bytes(_LENGTH_BYTES)
        self._request = bytearray(length + loan.frame)  # received into, again and again
        self._expected = bytearray(self._request)  # but for its correlation id
        self._epoch, self._offset = loan.epoch, 0
        self._unread = b""
        self._unsent: Unsent | None = None
        self._seconds: list[float] = []
        self._bytes_in = 0
        self._bytes_out = 0
        self._is_cold = True
        self._was_slow = False
        self._until = time.perf_counter() + LOAN_S

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
            self._loan.number,
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
            self._is_cold = not read_ahead(self._file, self._position, self._loan.limit)
            end = self._find_end()
            if end <= self._position:
                self._unread = bytes(self._request)
                return
            self._expect_next()
            self._seconds.append(time.perf_counter() - started)
            is_sent = self._send(end - self._position)
            self._position = end
            is_over = self._bytes_out >= LOAN_BYTES or len(self._seconds) >= ANSWERS_MAX
            if not is_sent or is_over or time.perf_counter() > self._until or not self._receive():
                return

    def _find_end(self) -> int:
        """Where the batches end that fit into an answer, and may be served. None of them where their bytes make no
        sense, or where a reader would wait for more than is left: the broker says so better than we could.
        """
        start, loan = self._position, self._loan
        wanted = min(start + max(loan.limit, 1), loan.end)
        known = bisect_left(self._starts, wanted)
        begin = max(start, self._starts[known - 1]) if known else start
        try:
            end, self._next_offset = end_of_whole_batches(self._read, start, begin, wanted, loan.end)
        except OSError:
            return start
        is_too_little = end == loan.end and end - start < loan.least
        return start if is_too_little or not 0 <= self._next_offset <= _OFFSET_MAX else end

    def _expect_next(self) -> None:
        """The request that goes on where the answer to this one ends."""
        epoch_at, offset_at = (_LENGTH_BYTES + place for place in self._loan.places)
        (self._offset,) = _OFFSET.unpack_from(self._expected, offset_at)
        _OFFSET.pack_into(self._expected, offset_at, self._next_offset)
        if self._epoch != FINAL_EPOCH:
            self._epoch = epoch_after(self._epoch)
            _EPOCH.pack_into(self._expected, epoch_at, self._epoch)

    def _read(self, position: int, size: int) -> bytes:
        return os.pread(self._file, size, position)

    def _send(self, size: int) -> bool:
        """The answer with so many bytes of records. False where the client does not take all of it."""
        position, answer = self._position, self._loan.answer
        _, _, correlation_id = _REQUEST.unpack_from(self._request)
        head = answer.head(correlation_id, self._loan.bounds, size)
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
        """Whether another request of the same form has come, for what follows."""
        view, count = memoryview(self._request), 0
        while count < len(view):
            try:
                received = self._client.recv_into(view[count:])
            except BlockingIOError:
                received = 0
            count += received
            begun = min(count, _LENGTH_BYTES)
            if not received or view[:begun] != self._expected[:begun] or time.perf_counter() > self._until:
                break  # another request may be shorter: what it has of one of these would be waited for
        self._bytes_in += count
        if count < len(view) or not self._is_next():
            self._unread = bytes(view[:count])
            return False
        return True

    def _is_next(self) -> bool:
        request, expected, (begin, end) = self._request, self._expected, _CORRELATION_ID
        return request[:begin] == expected[:begin] and request[end:] == expected[end:]


def serve(control: socket.socket) -> None:
    """Until the broker is gone."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
        if not data:
            return
        loan = Loan.decode(data)
        client, file = descriptors
        try:
            with socket.socket(fileno=client) as sock:
                returned = Conversation(loan, sock, file).run()
        except Exception:  # the broker waits for its connection
            logger.exception("a reader of history was not answered, for a reason that nobody foresaw")
            returned = Returned(loan.number, error=errno.EIO)
        finally:
            os.close(file)
        control.send(returned.encode())


def serve_or_die(control: socket.socket) -> None:
    """A loan that nobody has would not come back: then none of us is left, and the broker sees it."""
    try:
        serve(control)
    except BaseException as error:
        if not isinstance(error, ConnectionError):  # else it is the broker that is gone
            logger.exception("the process for readers of history fails")
        os._exit(1)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # which whole groups of processes are sent
        signal.signal(number, signal.SIG_IGN)  # it is the broker's to say when: its clients are answered first
    control = socket.socket(fileno=int(sys.argv[1]))
    with suppress(ConnectionError):  # a broker that is gone already: the threads see it, too
        control.send(Returned(THERE).encode())
    threads = [threading.Thread(target=serve_or_die, args=(control,)) for _ in range(LOANS_MAX)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
