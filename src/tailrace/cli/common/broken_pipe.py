"""Ends a verb quietly when the reader of its stdout is gone (`util/shutdown` ends it with ctrl-C)."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Reader:
    """The reader of our stdout. When it is gone, as `head` is after some lines, the verb ends without an error."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._poll.register(sys.stdout.fileno(), 0)  # errors and hang-ups are always reported

    @property
    def is_gone(self) -> bool:
        return any(event & (select.POLLERR | select.POLLNVAL) for _, event in self._poll.poll(0))


@contextmanager
def ending_with_the_reader() -> Iterator[None]:
    """Ends a verb that only prints when its reader is gone, which is not an error."""
    try:
        yield
    except BrokenPipeError:
        leave_stdout()
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # how it ended counts, not that the output was not read to the end
            leave_stdout()


def leave_stdout() -> None:
    """Discards buffered output for a reader that is gone, so that Python does not complain at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
