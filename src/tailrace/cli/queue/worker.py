"""One run of the command of `tailrace queue work`: a message on its stdin, and facts about it in its environment.

A run is a process group of its own, so that ctrl-C reaches `work` alone, which decides what becomes of it.
"""

import os
import shutil
import signal
import subprocess
import threading
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress

from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.queue.requests import Delivery, Outcome

REJECTED = 65  # EX_DATAERR: the message is no good, and would not be at the next attempt
_TERMINATION_SECONDS = 5.0


def require(command: list[str]) -> None:
    """Raises Failure if there is no such program."""
    if shutil.which(command[0]) is None:
        raise Failure(f"there is no program {command[0]!r} to run", ExitCode.USAGE)


def outcome_of(status: int) -> Outcome:
    return {0: Outcome.ACCEPT, REJECTED: Outcome.REJECT}.get(status, Outcome.RELEASE)


def environment(delivery: Delivery) -> dict[bytes, bytes]:
    """What the command finds in its environment, beside ours."""
    record = delivery.record
    found = {
        b"TAILRACE_TOPIC": delivery.at.topic.encode(),
        b"TAILRACE_PARTITION": b"%d" % delivery.at.partition,
        b"TAILRACE_OFFSET": b"%d" % delivery.offset,
        b"TAILRACE_ATTEMPT": b"%d" % delivery.attempt,
        b"TAILRACE_TIMESTAMP": b"%d" % record.timestamp,
    }
    if record.key is not None:
        if b"\0" in record.key:  # no variable can have one
            found[b"TAILRACE_KEY_BASE64"] = b64encode(record.key)
        else:
            found[b"TAILRACE_KEY"] = record.key
    return found


class Task:
    """One run. `start` begins a thread for it, which calls `done` when the command has ended."""

    def __init__(self, command: list[str], delivery: Delivery, done: Callable[["Task"], None]) -> None:
        self.delivery = delivery
        self.status: int | None = None
        self.trouble: str | None = None  # why it could not be run
        self._command = command
        self._done = done
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"work-{self.delivery.offset}", daemon=True).start()

    def stop(self) -> None:
        """Ends it: SIGTERM to the command and its children, and SIGKILL if that does not help in a few seconds."""
        with self._lock:
            self._is_stopped = True
            process = self._process
        if process is not None:
            _signal(process, signal.SIGTERM)
            killer = threading.Timer(_TERMINATION_SECONDS, _signal, (process, signal.SIGKILL))
            killer.daemon = True
            killer.start()

    def _run(self) -> None:
        try:
            with self._lock:
                if not self._is_stopped:
                    self._process = self._start()
            if self._process is not None:
                with self._process:
                    self._process.communicate(self.delivery.record.value or b"")
                self.status = self._process.returncode
        except OSError as error:
            self.trouble = f"{self._command[0]}: {error.strerror or error}"
        finally:
            self._done(self)

    def _start(self) -> "subprocess.Popen[bytes]":
        variables = {**os.environb, **environment(self.delivery)}
        return subprocess.Popen(  # noqa: S603 - the user's own command
            self._command, stdin=subprocess.PIPE, env=variables, start_new_session=True
        )


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    if process.returncode is None:  # it has not been waited for, so its id is its own
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
