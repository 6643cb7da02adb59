"""Connections of readers of cold history, lent to another process (`cold_reader`), and taken back.

The process is started when the first such reader is met, by a thread, and ends with us: the socket that we talk through
is then closed. Until it is there, and where it has as much to do as it can, readers are served as all others are.
Should it die, the clients that it had are disconnected, as a broker may do, and another one is started; after a few
deaths there is none.
"""

import errno
import logging
import socket
import subprocess
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable

from tailrace import children
from tailrace.broker.repeated_fetch import Stretch
from tailrace.log.slices import FileSlice
from tailrace.server.cold_reader import LOANS_MAX, MESSAGE_BYTES, Loan, Returned
from tailrace.server.threads import Workers

logger = logging.getLogger(__name__)

DEATHS_MAX = 3
STOP_S = 2.0

_PROGRAM = "tailrace.server.cold_reader"
_CAN_LEND = hasattr(socket, "SOCK_SEQPACKET") and sys.platform == "linux"

TakeBack = Callable[[Returned, FileSlice], None]


def loan_of(number: int, stretch: Stretch) -> tuple[Loan, int]:
    """And the descriptor of the file."""
    form, (file, position) = stretch.form, stretch.records.place()
    end = position + stretch.records.length
    return Loan(number, stretch.frame, form.start, form.answer, stretch.bounds, form.limit, position, end), file


class Lender:
    """Used from the loop's thread alone."""

    def __init__(self, loop: AbstractEventLoop, workers: Workers) -> None:
        self._loop = loop
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._is_ready = False
        self._is_stopped = not _CAN_LEND
        self._deaths = 0
        self._lent: dict[int, tuple[FileSlice, TakeBack]] = {}
        self.loans = 0  # so far

    @property
    def has_room(self) -> bool:
        """Whether one more can be lent. Who asks would like to: afterwards there will be a process."""
        if self._control is None and not self._is_stopped:
            self._start()
        return self._is_ready and len(self._lent) < LOANS_MAX

    def lend(self, client: int, stretch: Stretch, take_back: TakeBack) -> bool:
        """Afterwards the client's socket is not ours until `take_back` is called, with what has become of it and the
        stretch, which is released then. False where the process has not taken it.
        """
        assert self._control is not None
        number = self.loans + 1
        loan, file = loan_of(number, stretch)
        try:
            socket.send_fds(self._control, [loan.encode()], [client, file])
        except OSError as error:  # its socket is full, or it has just died
            logger.info("a reader of cold history is served by the broker itself: %s", error)
            return False
        self.loans = number
        self._lent[number] = stretch.records, take_back
        return True

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._control = ours
        self._loop.add_reader(ours.fileno(), self._readable)
        self._workers.submit(lambda: self._run(theirs), lambda: None)

    def _run(self, theirs: socket.socket) -> None:
        """In a thread: to start a process takes a while."""
        with theirs:
            try:
                process = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
                    children.command(_PROGRAM, str(theirs.fileno())),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # ours may be a pipe that somebody reads to its end
                    env=children.environment(),
                )
            except OSError as error:
                logger.warning("no process can be had for readers of cold history: %s", error)
            else:
                self._process = process

    def _readable(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._died()
            return
        returned = Returned.decode(data)
        if returned.number:
            self._take_back(returned)
        else:
            self._is_ready = True

    def _take_back(self, returned: Returned) -> None:
        records, take_back = self._lent.pop(returned.number)
        try:
            take_back(returned, records)
        finally:
            records.release()

    def _died(self) -> None:
        self._close()
        if (process := self._process) is not None:
            self._process = None
            self._workers.submit(lambda: self._bury(process), lambda: None)
        self._deaths += 1
        if self._deaths >= DEATHS_MAX:
            logger.warning("readers of cold history get no process any more: it has died %d times", self._deaths)
            self._is_stopped = True
        for number in list(self._lent):
            self._take_back(Returned(number, b"", None, [], 0, 0, False, errno.EIO))

    def _close(self) -> None:
        control, self._control, self._is_ready = self._control, None, False
        if control is not None:
            self._loop.remove_reader(control.fileno())
            control.close()

    def stop(self) -> None:
        """Afterwards the process is gone. For a thread's time: it may wait a little."""
        self._is_stopped = True
        self._close()
        if (process := self._process) is not None:
            self._process = None
            self._bury(process)

    def _bury(self, process: "subprocess.Popen[bytes]") -> None:
        """It ends as soon as it has seen that its socket is closed."""
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
