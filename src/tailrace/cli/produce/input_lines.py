"""Lines of a file, a pipe or a terminal, each with its number and position, and a pause when nothing comes."""

import os
import select
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.cli.common.output import Failure

MAX_LINE_BYTES = 32 << 20

_READ_BYTES = 1 << 18
_PAUSE_SECONDS = 0.2


class Line(NamedTuple):
    number: int  # from 1 on
    position: int  # of its first byte
    end: int  # where the next one begins
    content: bytes  # without the end of the line


class Lines:
    """Reads no more than it hands out, and a buffer: what is not wanted yet stays in the pipe."""

    def __init__(self, descriptor: int, *, position: int = 0, number: int = 0) -> None:
        """`number` lines were read before, and the next one begins at `position`."""
        self.position = position
        self.number = number
        self._descriptor = descriptor

    def __iter__(self) -> Iterator[Line | None]:
        """None stands for a pause: nothing has come for a moment, and the caller may do other things."""
        pieces: list[bytes] = []
        size = 0
        while (read := self._read()) != b"":
            if read is None:
                yield None
                continue
            *complete, rest = read.split(b"\n")
            for content in complete:
                yield self._line(b"".join([*pieces, content]) if pieces else content)
                pieces, size = [], 0
            if rest:
                pieces.append(rest)
                size += len(rest)
                self._check(size)
        if pieces:
            yield self._line(b"".join(pieces), end=0)

    def _line(self, content: bytes, end: int = 1) -> Line:
        self._check(len(content))
        self.number += 1
        line = Line(self.number, self.position, self.position + len(content) + end, content)
        self.position = line.end
        return line

    def _check(self, size: int) -> None:
        if size > MAX_LINE_BYTES:
            raise Failure(f"line {self.number + 1} is longer than {MAX_LINE_BYTES >> 20} MB")

    def _read(self) -> bytes | None:
        if not select.select([self._descriptor], [], [], _PAUSE_SECONDS)[0]:
            return None
        return os.read(self._descriptor, _READ_BYTES)
