"""Decides which connections of catch-up consumers are handed off to the helper process, and takes them back.

A hand-off pays if the consumer has much left to read, or if its data has to come from a disk. A consumer that did not
benefit (it paused between its requests, or read slowly) is not handed off again for a while, each time for longer.
"""

import os
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import partial
from weakref import WeakKeyDictionary

from tailrace.broker.fastpath.fetch import HandoffRange, HandoffResult
from tailrace.protocol.messages import ApiKey
from tailrace.server.counters import Counters
from tailrace.server.handoff.helper_process import HelperProcess
from tailrace.server.handoff.messages import HANDED_OFF_BYTES, Returned
from tailrace.server.net.chunks import ResponseChunk
from tailrace.server.net.connection import Connection

AHEAD_BYTES_MIN = 8 << 20  # left to read, unless they have to come from a disk
REFUSED_S = 0.05  # until the next attempt to hand off a connection
BACKOFF_S = 0.25  # first pause after a hand-off without benefit
BACKOFF_MAX_S = 8.0


class Backoff:
    """When the connection of one consumer may be handed off again."""

    __slots__ = ("_pause_s", "not_before")

    def __init__(self) -> None:
        self.not_before = 0.0
        self._pause_s = BACKOFF_S

    def refused(self, now: float) -> None:
        """Notes that there was nothing that a helper process could have served."""
        self.not_before = now + REFUSED_S

    def returned(self, returned: Returned, now: float) -> None:
        """Notes the result of a hand-off. A consumer that got at most one response, or read slowly, did not benefit:
        the pause before its next hand-off doubles.
        """
        if len(returned.seconds) > 1 and not returned.was_slow:
            self._pause_s = BACKOFF_S
        else:
            self.not_before = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, BACKOFF_MAX_S)


class CatchUpHandOff:
    """Used from the loop's thread alone."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        helper: HelperProcess,
        counters: Counters,
        on_served: Callable[[int], None],
    ) -> None:
        """`on_served` is called with the number of requests that the helper process has answered."""
        self._loop = loop
        self.helper = helper
        self._counters = counters
        self._on_served = on_served
        self._owned: set[Connection] = set()
        self._backoffs: WeakKeyDictionary[Connection, Backoff] = WeakKeyDictionary()

    def owns(self, connection: Connection) -> bool:
        return connection in self._owned

    def offer(self, connection: Connection, frame: memoryview) -> bool:
        backoff = self._backoffs.get(connection)
        if backoff is None:
            backoff = self._backoffs[connection] = Backoff()
        if not self.helper.has_room or self._loop.time() < backoff.not_before:
            return False
        ahead = connection.fetch_fast_path.range_ahead(frame, HANDED_OFF_BYTES)
        if ahead is None:
            backoff.refused(self._loop.time())
            return False
        if not self._hand_off(connection, ahead):
            ahead.records.release()
            return False
        connection.fetch_fast_path.handed_off(ahead, int(time.time() * 1000))
        self._owned.add(connection)
        return True

    def _hand_off(self, connection: Connection, ahead: HandoffRange) -> bool:
        is_enough = connection.outbox.is_cold or ahead.records.length >= AHEAD_BYTES_MIN
        take_back = partial(self._take_back, connection, ahead)
        return is_enough and self.helper.prepare() and self.helper.hand_off(connection.descriptor, ahead, take_back)

    def _take_back(self, connection: Connection, ahead: HandoffRange, returned: Returned) -> None:
        self._owned.discard(connection)
        connection.safely(partial(self._finish, connection, ahead, returned))

    def _finish(self, connection: Connection, ahead: HandoffRange, returned: Returned) -> None:
        self._count(returned)
        answered = HandoffResult(returned.epoch, returned.offset) if returned.seconds else None
        connection.fetch_fast_path.taken_back(ahead, answered, int(time.time() * 1000))
        if connection.is_closed:
            return
        if returned.error:
            connection.fail(OSError(returned.error, os.strerror(returned.error)))
            return
        self._backoffs[connection].returned(returned, self._loop.time())
        is_cold = returned.is_cold and not returned.was_slow
        connection.handed_back(_unsent(ahead, returned), returned.unread, is_cold=is_cold)

    def _count(self, returned: Returned) -> None:
        self._counters.bytes_in += returned.bytes_in
        self._counters.bytes_out += returned.bytes_out
        for seconds in returned.seconds:
            self._counters.answered(ApiKey.FETCH, seconds)
        self._on_served(len(returned.seconds))

    def look_after(self, now: float) -> None:
        self.helper.look_after(now)

    def stop(self) -> None:
        self.helper.stop()


def _unsent(ahead: HandoffRange, returned: Returned) -> tuple[ResponseChunk, ...]:
    if returned.unsent is None:
        return ()
    head, position, size, after = returned.unsent
    return head, ahead.records.part(position, size), after
