"""Retries with exponential backoff, until a deadline.

Deadlines are times of `time.monotonic`.
"""

import random
import time

from tailrace.client.errors import ClientError, GaveUp
from tailrace.client.options import ClientOptions

_LAST_S = 1.0  # for a request that is sent when time is nearly over


class Retry:
    """One operation with its retries. `doing` describes it in the final error. The options set the first pause, unless
    a shorter one is given.
    """

    def __init__(self, options: ClientOptions, doing: str, first_pause_s: float | None = None) -> None:
        self.doing = doing
        self._options = options
        self._first_pause = min(options.retry_backoff_s, first_pause_s or options.retry_backoff_s)
        self.progress()

    def progress(self) -> None:
        """Restarts the deadline, because the operation made progress."""
        self._started = time.monotonic()
        self.deadline = self._started + self._options.retry_timeout_s
        self._pause = self._first_pause

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def request_deadline(self, wait_s: float = 0.0) -> float:
        """The deadline of one request that the broker may keep for `wait_s`."""
        now = time.monotonic()
        return now + max(_LAST_S, min(self._options.request_timeout_s, self.deadline - now)) + wait_s

    def pause(self, cause: ClientError) -> None:
        """Waits before the next try. Raises the cause if it cannot be retried, and GaveUp at the deadline."""
        if not cause.is_passing:
            raise cause
        pause = self._pause * (0.8 + 0.4 * random.random())  # noqa: S311 - so that clients do not reconnect all at once
        if time.monotonic() + pause > self.deadline:
            raise GaveUp(self.doing, self._options.retry_timeout_s, str(cause)) from cause
        time.sleep(pause)
        self._pause = min(self._pause * 2, self._options.retry_backoff_max_s)
