"""A compaction pass in a child process, as the broker sees it: a source of new segments until it is done.

`ChildPass` is a process of its own, `LocalPass` the same work in this one, for tests and tools.
"""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from tailrace.log.compaction.cleaner import clean
from tailrace.log.compaction.messages import PassFailed, PassSpec, Said, decode_said
from tailrace.log.disk.interface import Files
from tailrace.util import children

_CHILD = "tailrace.log.compaction.child"


class Pass(Protocol):
    def next(self) -> Said:
        """The next group, or the result, or why there is none. May take long: for a thread."""

    def stop(self) -> None:
        """From any thread, at any time: afterwards `next` fails, soon."""

    def close(self) -> None:
        """Not while `next` is under way: afterwards nothing is left of it."""


class LocalPass:
    def __init__(self, files: Files, spec: PassSpec) -> None:
        self._said: Iterator[Said] = clean(files, spec)

    def next(self) -> Said:
        return next(self._said, PassFailed("it was stopped"))

    def stop(self) -> None:
        self._said = iter(())

    def close(self) -> None:
        self.stop()


class ChildPass:
    def __init__(self, spec: PassSpec) -> None:
        """Raises OSError where no process can be had."""
        # It works in the directory, rather than by its name: should the log be removed, the name may be another's.
        self._process = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
            children.command(_CHILD),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=spec.directory,
            env=children.environment(),
            text=True,
            bufsize=1,
        )
        self._line = replace(spec, directory=".").encode()

    @property
    def process_id(self) -> int:
        return self._process.pid

    def next(self) -> Said:
        process, line = self._process, self._line
        assert process.stdin is not None
        assert process.stdout is not None
        self._line = "true"
        answer = ""
        with suppress(OSError):  # a broken pipe: it has ended
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if answer.endswith("\n"):
            return decode_said(answer)
        return PassFailed(f"its process ended with {process.wait()}")

    def stop(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not written to it nobody reads
                    pipe.close()
