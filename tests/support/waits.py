"""Waiting for a condition, with a limit."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(condition: Callable[[], Found], timeout_s: float = 30, poll_s: float = 0.01) -> Found:
    """Calls `condition` again and again, and returns its first true value. Fails the test where none comes in time."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"no true value of {condition} within {timeout_s:g} s"
        time.sleep(poll_s)
    return found
