"""Syncs large files without a thread of ours: Linux' asynchronous I/O syncs, and reports completion by an eventfd.

A syncing thread takes the interpreter lock from the loop twice, just when the loop has the next megabyte to receive. A
sync submitted with `io_submit` (FDSYNC) runs in kernel threads. With batches of 1 MB that gives a producer 10 % more
throughput, and takes a sixth less of our CPU time.

The kernel thread starts on the processor that submitted the sync, before we go on, and takes most of a millisecond for
a megabyte. So the sync is submitted after all other work.

Small syncs stay with our threads: with batches of 16 KB on a busy machine, a producer lost 10 % by the kernel's threads
(perhaps because they stay on the processor of the submitter). So do jobs that are more than the sync of one file, and
all syncs where the system call does not exist or is forbidden.
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


LEAST_BYTES = 128 << 10  # smaller syncs are for threads

_CALLS = {"x86_64": Calls(206, 207, 209, 208), "aarch64": Calls(0, 1, 2, 4)}  # by architecture
_REQUEST = struct.Struct("<QQHhIQQqQII")  # number · · operation, · descriptor · buffer, size, offset · · flags, eventfd
_EVENT = struct.Struct("<QQqq")  # number · · result ·
_FDSYNC = 3
_TELL_EVENTFD = 1


class Syncs:
    """Used from the loop's thread alone. Nothing is submitted before `open`, which takes some milliseconds."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._system: System | None = None
        self._under_way: dict[int, tuple[FlushJob, Callable[[], None]]] = {}
        self._number = 0

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def open(self) -> None:
        """Enables asynchronous syncs, if the system supports them."""
        try:
            self._system = System(IN_FLIGHT_MAX)
        except OSError as error:
            logger.debug("no asynchronous syncs, threads do them: %s", error)
            return
        self._loop.add_reader(self._system.eventfd, self._readable)

    def start(self, job: Job, done: Callable[[], None]) -> bool:
        """Returns whether the kernel does the job; then `done` is called on the loop. If not, a thread has to do it."""
        if self._system is None or not isinstance(job, FlushJob) or job.bytes < LEAST_BYTES:
            return False
        if (file := job.only_file) is None:
            return False
        self._number += 1
        try:
            file.pin()  # until the kernel has it: then it may be closed
        except OSError:
            return False  # a thread meets the same error, and reports it
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
            except Exception:  # the other callbacks must still run
                logger.exception("unexpected error after a sync")

    def close(self) -> None:
        """Waits until all submitted syncs are done, however long that takes. Nothing is submitted from then on."""
        if self._system is not None:
            self._loop.remove_reader(self._system.eventfd)
            while self._under_way:
                self._tell(self._system.finished(wait=True))
            self._system.close()
            self._system = None


class System:
    """The system calls, and the memory shared with the kernel."""

    def __init__(self, most: int) -> None:
        """Raises OSError if the system does not support them."""
        calls = _CALLS.get(os.uname().machine) if sys.platform == "linux" else None
        if calls is None or sys.maxsize < 1 << 32:  # a 32-bit program has other numbers
            raise OSError("this system has no asynchronous sync")
        import ctypes  # imported late: it takes some milliseconds, which would delay the first acknowledgement

        self._call = ctypes.PyDLL(None, use_errno=True).syscall  # keeps the interpreter lock: takes microseconds
        self._waiting_call = ctypes.CDLL(None).syscall  # releases the interpreter lock
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
        """False if the kernel refuses it."""
        _REQUEST.pack_into(self._request, 0, number, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _TELL_EVENTFD, self.eventfd)
        return bool(self._call(*self._submit) == 1)

    def finished(self, *, wait: bool = False) -> list[tuple[int, int]]:
        """Returns the numbers of finished syncs, each with 0 or a negative errno. May `wait` for the first."""
        count = self._waiting_call(*self._wait) if wait else self._call(*self._reap)
        found = (_EVENT.unpack_from(self._events, at * _EVENT.size) for at in range(count))
        return [(number, result) for number, _, result, _ in found]

    def close(self) -> None:
        """Call this only when nothing is in flight."""
        self._call(*self._destroy)
        os.close(self.eventfd)
