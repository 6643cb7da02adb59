"""Clients that are programs: fed line by line while they run, read line by line while they run, and always ended."""

import contextlib
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from compat.contract import Received

SECONDS = 50


def run(command: list[str], *, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, env=environment
    )


def feed(command: list[str], pieces: Iterable[bytes]) -> tuple[int, str]:
    """Its exit status and all that it said."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin:  # who ends early says why
                for piece in pieces:
                    process.stdin.write(piece)
                    process.stdin.flush()
            status = process.wait(SECONDS)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


class PrintingConsumer:
    """A program that prints a line for each message."""

    def __init__(self, command: list[str], parse: Callable[[bytes], Received], explain: Callable[[str], None]) -> None:
        """`explain` is given what the program complained of, should it end by itself, and may raise."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the rest)
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors)
        self._parse = parse
        self._explain = explain
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name=command[0])
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.put(line)
        self._lines.put(None)

    def take(self, count: int, *, within: float = 45) -> list[Received]:
        taken: list[Received] = []
        deadline = time.monotonic() + within
        while len(taken) < count:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if line is None:
                self._errors.seek(0)
                self._explain(said := self._errors.read().decode(errors="replace"))
                raise AssertionError(f"it ended by itself with {self._process.wait()}: {said}")
            taken.append(self._parse(line.rstrip(b"\n")))
        return taken

    def close(self) -> None:
        self._process.terminate()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that waits at the end may wait for long
                self._process.wait(2)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._errors.close()


@contextlib.contextmanager
def printing(
    command: list[str], parse: Callable[[bytes], Received], explain: Callable[[str], None]
) -> Iterator[PrintingConsumer]:
    with contextlib.closing(PrintingConsumer(command, parse, explain)) as consumer:
        yield consumer
