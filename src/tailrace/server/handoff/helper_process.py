"""The broker's side of the helper process: starts it, passes it connections and takes them back.

A thread starts the process when the first catch-up consumer appears. It ends with the broker, when the socket between
the two is closed. If it dies, the clients handed off to it are disconnected, as a broker may do, and another one is
started; after a few deaths in a row, the broker pauses before it starts another.
"""

import errno
import logging
import math
import socket
import subprocess
import sys
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable

from tailrace.broker.fastpath.fetch import HandoffRange, bounds_of
from tailrace.log.segment.slices import FileSlice
from tailrace.server.handoff.messages import HANDED_OFF_MAX, MESSAGE_BYTES, READY, HandedOff, Returned
from tailrace.server.threads import Workers
from tailrace.util import children

logger = logging.getLogger("tailrace.server.handoff")

DEATHS_MAX = 3
PAUSE_S = 60.0  # after too many deaths within that time
LOST_S = 10.0  # a connection normally comes back much sooner
STOP_S = 2.0

_PROGRAM = "tailrace.server.handoff.worker"
_CAN_PASS_SOCKETS = hasattr(socket, "SOCK_SEQPACKET") and sys.platform == "linux"

TakeBack = Callable[[Returned], None]


def message_of(number: int, ahead: HandoffRange) -> tuple[HandedOff, int]:
    """Returns the message for the helper process, and the descriptor of the file."""
    template, (file, position) = ahead.template, ahead.records.place()
    message = HandedOff(
        number=number,
        frame=ahead.frame,
        places=(template.places.start, template.places.offset),
        epoch=ahead.epoch,
        answer=template.answer,
        bounds=bounds_of(ahead.view),
        limit=template.limit,
        least=0 if template.is_due else template.min_bytes,
        position=position,
        end=position + ahead.records.length,
        entries=ahead.entries,
    )
    return message, file


class HelperProcess:
    """Used from the loop's thread alone."""

    def __init__(self, loop: AbstractEventLoop, workers: Workers) -> None:
        self._loop = loop
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._is_ready = False
        self._not_before = 0.0 if _CAN_PASS_SOCKETS else math.inf  # no process is started before
        self._deaths: deque[float] = deque(maxlen=DEATHS_MAX)
        self._handed_off: dict[int, tuple[FileSlice, TakeBack, float]] = {}
        self.handed_off = 0  # in total

    @property
    def has_room(self) -> bool:
        """Whether the process can take one more connection, if it runs or may be started."""
        return len(self._handed_off) < HANDED_OFF_MAX and (self._is_ready or self._loop.time() >= self._not_before)

    def prepare(self) -> bool:
        """Returns whether a connection can be handed off now. Starts the process if none runs."""
        if self._control is None and self._loop.time() >= self._not_before:
            self._start()
        return self._is_ready and self.has_room

    def hand_off(self, client: int, ahead: HandoffRange, take_back: TakeBack) -> bool:
        """Passes the client's socket to the process, which owns it until `take_back` is called with the result; then
        `ahead` is released. Returns False if the process did not take it.
        """
        assert self._control is not None
        number = self.handed_off + 1
        message, file = message_of(number, ahead)
        try:
            socket.send_fds(self._control, [message.encode()], [client, file])
        except OSError as error:  # the socket to the process is full, or the process has just died
            logger.info("cannot hand off a catch-up consumer, the broker serves it: %s", error)
            return False
        self.handed_off = number
        self._handed_off[number] = ahead.records, take_back, self._loop.time()
        return True

    def _start(self) -> None:
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self._failed(f"cannot create a socket pair: {error}")
            return
        ours.setblocking(False)
        self._control = ours
        self._loop.add_reader(ours.fileno(), self._readable)
        started: list[subprocess.Popen[bytes]] = []
        self._workers.submit(lambda: _start_process(theirs, started), lambda: self._started(ours, started))

    def _started(self, control: socket.socket, started: "list[subprocess.Popen[bytes]]") -> None:
        """Handles the end of the start. A failed start closes the process's end of the socket, like a death."""
        if started and self._control is control:
            self._process = started[0]
        elif started:  # it has died since
            _bury(started[0])

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
        if returned.number == READY:
            self._is_ready = True
        else:
            self._take_back(returned)

    def _take_back(self, returned: Returned) -> None:
        records, take_back, _ = self._handed_off.pop(returned.number)
        try:
            take_back(returned)
        finally:
            records.release()

    def look_after(self, now: float) -> None:
        """Called now and then: a process that has kept a connection for much too long is hanging, and is replaced."""
        if self._process is not None and any(now - since > LOST_S for _, _, since in self._handed_off.values()):
            self._process.kill()

    def _died(self) -> None:
        self._close()
        self._failed("the helper process has died")
        if (process := self._process) is not None:
            self._process = None
            self._workers.submit(lambda: _bury(process), lambda: None)
        self._take_all_back()

    def _failed(self, what: str) -> None:
        now = self._loop.time()
        self._deaths.append(now)
        if len(self._deaths) == DEATHS_MAX and now - self._deaths[0] < PAUSE_S:
            logger.warning(
                "the helper process for catch-up consumers failed %d times within %.0f s, the broker serves them for a "
                "while: %s",
                DEATHS_MAX, PAUSE_S, what,
            )  # fmt: skip
            self._not_before = now + PAUSE_S

    def _take_all_back(self) -> None:
        for number in list(self._handed_off):
            self._take_back(Returned(number, error=errno.EIO))

    def _close(self) -> None:
        control, self._control, self._is_ready = self._control, None, False
        if control is not None:
            self._loop.remove_reader(control.fileno())
            control.close()

    def stop(self) -> None:
        """Ends the process. It ends by itself once it sees that its socket is closed; after a moment it is killed."""
        self._not_before = math.inf
        self._close()
        self._take_all_back()
        if (process := self._process) is not None:
            self._process = None
            _bury(process)


def _start_process(control: socket.socket, started: "list[subprocess.Popen[bytes]]") -> None:
    """Runs in a thread, because it takes a while."""
    with control:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
                children.command(_PROGRAM, str(control.fileno())),
                pass_fds=[control.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a reader of our stdout may wait for its end
                env=children.environment(),
            )
        except OSError as error:
            logger.warning("cannot start the helper process for catch-up consumers: %s", error)
        else:
            started.append(process)


def _bury(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
