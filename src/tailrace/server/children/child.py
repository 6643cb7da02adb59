"""One supervised child process: a module of ours, started again when it ends.

    stdin   what the child has to know, as one line; then nothing. Its end is the end of the broker, however that ended:
            the child then ends at once
    stdout  pages of metrics in Prometheus' text format, each followed by a line `# EOF`
    stderr  the broker's own

A child that ends is started again after a pause, which doubles up to a minute while it keeps ending soon.
"""

import logging
import os
import subprocess
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Sequence
from contextlib import suppress

from tailrace.server.threads import Workers
from tailrace.util import children

logger = logging.getLogger("tailrace.server.children")

PAUSE_S = 1.0
PAUSE_MAX_S = 60.0
STABLE_S = 60.0  # a child that has run for so long is started again after the shortest pause
STOP_S = 2.0
PAGE_BYTES_MAX = 64 << 20  # more than the monitor writes
READ_BYTES = 1 << 20
_END_OF_PAGE = b"# EOF\n"


class Child:
    """Used from the loop's thread alone."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        workers: Workers,
        name: str,
        module: str,
        greeting: bytes,
        descriptors: Sequence[int] = (),
    ) -> None:
        """The child inherits the descriptors, under the same numbers."""
        self.name = name
        self.page = b""  # its latest metrics
        self.starts = 0
        self._loop = loop
        self._workers = workers
        self._command = children.command(module)
        self._greeting = greeting
        self._descriptors = descriptors
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = bytearray()
        self._started_at = 0.0
        self._pause_s = PAUSE_S
        self._timer: TimerHandle | None = None
        self._is_stopping = False

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Starts it, in a thread, because that takes a while."""
        self._timer = None
        if self._is_stopping:
            return
        self.starts += 1
        self._started_at = self._loop.time()
        started: list[subprocess.Popen[bytes]] = []
        self._workers.submit(
            lambda: started.append(_start_process(self._command, self._greeting, self._descriptors)),
            lambda: self._started(started),
        )

    def _started(self, started: "list[subprocess.Popen[bytes]]") -> None:
        if not started:  # the thread has logged why
            self._start_later("it could not be started")
            return
        process = started[0]
        if self._is_stopping:
            self._close_pipes(process)
            self._workers.submit(lambda: _discard(bury(process)), lambda: None)
            return
        self._process = process
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._loop.add_reader(process.stdout.fileno(), self._readable)

    def _readable(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            data = os.read(self._process.stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended()
            return
        self._received(data)
        if len(self._unread) > PAGE_BYTES_MAX:
            logger.error(
                "the metrics of child process %s are longer than %d bytes: it is started again",
                self.name, PAGE_BYTES_MAX,
            )  # fmt: skip
            self._process.kill()
            self._ended()

    def _received(self, data: bytes) -> None:
        seen = max(0, len(self._unread) - len(_END_OF_PAGE))
        self._unread += data
        end = self._unread.rfind(_END_OF_PAGE, seen)
        if end >= 0:
            before = self._unread.rfind(_END_OF_PAGE, seen, end)
            begin = 0 if before < 0 else before + len(_END_OF_PAGE)
            with memoryview(self._unread) as whole:  # of tens of megabytes, perhaps: copied once
                self.page = bytes(whole[begin:end])
            del self._unread[: end + len(_END_OF_PAGE)]

    def _ended(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        self._close_pipes(process)
        self.page, self._unread = b"", bytearray()
        codes: list[int] = []
        self._workers.submit(lambda: codes.append(bury(process)), lambda: self._start_later(_why(codes)))

    def _close_pipes(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._loop.remove_reader(process.stdout.fileno())
        process.stdin.close()
        process.stdout.close()

    def _start_later(self, why: str) -> None:
        if self._is_stopping:
            return
        if self._loop.time() - self._started_at >= STABLE_S:
            self._pause_s = PAUSE_S
        logger.warning("child process %s ended: %s; starting it again in %.0f s", self.name, why, self._pause_s)
        self._timer = self._loop.call_later(self._pause_s, self.start)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def stop(self) -> Callable[[], None]:
        """Tells it to end. Returns what waits for that; call it when the broker has stopped."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        process, self._process = self._process, None
        if process is None:
            return lambda: None
        self._close_pipes(process)
        return lambda: _discard(bury(process))


def _start_process(command: list[str], greeting: bytes, descriptors: Sequence[int]) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=children.environment(),
        bufsize=0,
        pass_fds=descriptors,
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended: the end of its stdout says so
        process.stdin.write(greeting + b"\n")
    return process


def bury(process: "subprocess.Popen[bytes]") -> int:
    """Waits for the end of a process that was told to end; kills it after a moment. Returns its exit code."""
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _why(codes: list[int]) -> str:
    if not codes:
        return "its exit code is unknown"
    return f"signal {-codes[0]}" if codes[0] < 0 else f"exit code {codes[0]}"


def _discard(_: object) -> None:
    pass
