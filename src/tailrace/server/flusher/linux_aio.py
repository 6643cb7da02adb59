"""Syncs large files without a thread of ours: Linux does it by itself, and reports the end through an eventfd.

A thread that syncs takes the interpreter from the loop twice, just when the loop has the next megabyte to take in. A
sync that is handed over (`io_submit`, FDSYNC) is done by the system's own threads, and the loop is told: with batches
of a megabyte a producer has a tenth more, for a sixth less of our processor time.

Its thread begins on the processor where it was asked for, before we go on: the better part of a millisecond for a
megabyte. So it is asked for when all else is done.

Small syncs are for our threads all the same: with batches of 16 KB, and more who want a processor than there are, a
producer had a tenth less by the system (perhaps as its threads stay on the processor where they were asked for). So is
a job that is more than the sync of one file, and everything where there is no such system call, or it is forbidden.
"""

import logging
import os
import struct
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import NamedTuple

from tailrace.log.flush.queue import IN_FLIGHT_MAX, Job
from tailrace.log.jobs import FlushJob

logger = logging.getLogger("tailrace.server.flusher")


class Calls(NamedTuple):
    """The numbers of the system calls."""

    setup: int
    destroy: int
    submit: int
    events: int


LEAST_BYTES = 128 << 10  # that are worth it

_CALLS = {"x86_64": Calls(206, 207, 209, 208), "aarch64": Calls(0, 1, 2, 4)}  # by architecture
_REQUEST = struct.Struct("<QQHhIQQqQII")  # number · · what, · descriptor · buffer, size, offset · · flags, eventfd
_EVENT = struct.Struct("<QQqq")  # number · · how it went ·
_FDSYNC = 3
_TELL_EVENTFD = 1


class Syncs:
    """Used from the loop's thread alone. Nothing is handed over before `open`, which takes some milliseconds."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._system: System | None = None
        self._under_way: dict[int, tuple[FlushJob, Callable[[], None]]] = {}
        self._number = 0

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def open(self) -> None:
        """From now on syncs are handed over, where the system takes them."""
        try:
            self._system = System(IN_FLIGHT_MAX)
        except OSError as error:
            logger.debug("syncs are for threads here: %s", error)
            return
        self._loop.add_reader(self._system.eventfd, self._readable)

    def start(self, job: Job, done: Callable[[], None]) -> bool:
        """Whether the system does the job; then `done` is called on the loop. If not, a thread has to."""
        if self._system is None or not isinstance(job, FlushJob) or job.bytes < LEAST_BYTES:
            return False
        if (file := job.only_file) is None:
            return False
        self._number += 1
        try:
            file.pin()  # until the system has it: then it may be closed
        except OSError:
            return False  # a thread meets that, too, and says so
        try:
            descriptor = file.sync_descriptor()
            if descriptor is None or not self._system.submit(descriptor, self._number):
                return False
        finally:
            file.unpin()
        self._under_way[self._number] = job, done
        return True

    def _readable(self) -> None:
        assert self._system is not None
        os.eventfd_read(self._system.eventfd)
        self._tell(self._system.finished())

    def _tell(self, finished: list[tuple[int, int]]) -> None:
        for number, result in finished:
            job, done = self._under_way.pop(number)
            job.synced(OSError(-result, os.strerror(-result)) if result < 0 else None)
            try:
                done()
            except Exception:  # the others are to be told all the same
                logger.exception("unexpected error after a sync")

    def close(self) -> None:
        """Waits until all that was handed over is done, however long that takes. From then on nothing is."""
        if self._system is not None:
            self._loop.remove_reader(self._system.eventfd)
            while self._under_way:
                self._tell(self._system.finished(wait=True))
            self._system.close()
            self._system = None


class System:
    """The system calls, and the memory that they have in common with us."""

    def __init__(self, most: int) -> None:
        """Raises OSError where there are none."""
        calls = _CALLS.get(os.uname().machine) if sys.platform == "linux" else None
        if calls is None or sys.maxsize < 1 << 32:  # the numbers of a program of 32 bits mean something else
            raise OSError("this system has no asynchronous sync that we know")
        import ctypes  # here, as it takes some milliseconds: the first acknowledgement is sooner without

        self._call = ctypes.PyDLL(None, use_errno=True).syscall  # which keeps the interpreter: it takes microseconds
        self._waiting_call = ctypes.CDLL(None).syscall  # which does not
        context = ctypes.c_ulong(0)
        if self._call(calls.setup, most, ctypes.byref(context)):
            raise OSError(ctypes.get_errno(), "io_setup")
        self._destroy = ctypes.c_long(calls.destroy), context
        self.eventfd = self._eventfd()
        self._request = ctypes.create_string_buffer(_REQUEST.size)
        self._events = ctypes.create_string_buffer(most * _EVENT.size)
        self._address = ctypes.c_ulong(ctypes.addressof(self._request))
        self._submit = ctypes.c_long(calls.submit), context, ctypes.c_long(1), ctypes.byref(self._address)
        number, all_of_them = ctypes.c_long(calls.events), ctypes.c_long(most)
        self._reap = number, context, ctypes.c_long(0), all_of_them, self._events, None
        self._wait = number, context, ctypes.c_long(1), all_of_them, self._events, None

    def _eventfd(self) -> int:
        try:
            return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            self._call(*self._destroy)
            raise

    def submit(self, descriptor: int, number: int) -> bool:
        """False where the system does not take it."""
        _REQUEST.pack_into(self._request, 0, number, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _TELL_EVENTFD, self.eventfd)
        return bool(self._call(*self._submit) == 1)

    def finished(self, *, wait: bool = False) -> list[tuple[int, int]]:
        """The numbers of those that are done, and 0 or an error's number below it. May `wait` for the first."""
        count = self._waiting_call(*self._wait) if wait else self._call(*self._reap)
        found = (_EVENT.unpack_from(self._events, at * _EVENT.size) for at in range(count))
        return [(number, result) for number, _, result, _ in found]

    def close(self) -> None:
        """When nothing is under way."""
        self._call(*self._destroy)
        os.close(self.eventfd)
