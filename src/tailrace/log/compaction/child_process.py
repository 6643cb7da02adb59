"""A compaction pass as the broker sees it: it yields new segments, and then a result.

`ChildPass` runs the pass in a process of its own, `LocalPass` in this one, for tests and tools.
"""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from tailrace.log.compaction.cleaner import clean
from tailrace.log.compaction.messages import PassFailed, PassMessage, PassSpec, decode_message
from tailrace.log.disk.interface import Files
from tailrace.util import children

_CHILD = "tailrace.log.compaction.child"


class Pass(Protocol):
    def next(self) -> PassMessage:
        """Returns the next new segment, or the result, or the reason of a failure. May block for long: call it in a
        thread.
        """

    def stop(self) -> None:
        """Makes `next` fail soon. May be called from any thread, at any time."""

    def close(self) -> None:
        """Removes everything that is left of the pass. Must not be called while `next` runs."""


class LocalPass:
    def __init__(self, files: Files, spec: PassSpec) -> None:
        self._messages: Iterator[PassMessage] = clean(files, spec)

    def next(self) -> PassMessage:
        return next(self._messages, PassFailed("the pass was stopped"))

    def stop(self) -> None:
        self._messages = iter(())

    def close(self) -> None:
        self.stop()


class ChildPass:
    def __init__(self, spec: PassSpec) -> None:
        """Raises OSError if the process cannot be started."""
        # The child uses the directory as its working directory: by name, it might reach a new log after a removal.
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

    def next(self) -> PassMessage:
        process, line = self._process, self._line
        assert process.stdin is not None
        assert process.stdout is not None
        self._line = "true"
        answer = ""
        with suppress(OSError):  # a broken pipe: the process has exited
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if answer.endswith("\n"):
            return decode_message(answer)
        return PassFailed(f"the compaction process exited with status {process.wait()}")

    def stop(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unwritten input is of no use to a killed process
                    pipe.close()
