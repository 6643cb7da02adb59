"""How a verb that runs for long is ended: with ctrl-C, or because nobody reads it any more."""

import os
import select
import signal
import sys
from types import FrameType


class Stop:
    """Notes the first ctrl-C (or SIGTERM), for whoever asks between two steps; the second one ends the process."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.asked:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.asked = True


class Reader:
    """Whoever reads our stdout. When it is gone, as `head` is after some lines, we end, and it is no error."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._poll.register(sys.stdout.fileno(), 0)  # errors and hang-ups are always reported

    @property
    def is_gone(self) -> bool:
        return any(event & (select.POLLERR | select.POLLNVAL) for _, event in self._poll.poll(0))


def leave_stdout() -> None:
    """What is still buffered for a reader that is gone goes nowhere, without a complaint at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
