"""The lock on a directory: one process at a time has it open.

    flock on the directory     still holds after `.lock` was deleted
    flock on `.lock`           the lock that earlier releases take
    record lock on `.lock`     the lock that Java's FileLock takes, and so Apache Kafka

The record lock belongs to the open file (`F_OFD_SETLK`) on Linux, and to the process (`lockf`) on other systems, where
it also conflicts with any flock on the file, so that none is taken. (Not tested by us on macOS.) A lock of the process
does not exclude a second broker in the same process, and closing any descriptor of the file drops it. So this module
also remembers which directories this process has locked, and opens nothing in those.
"""

import errno
import fcntl
import os
import struct
import sys
import threading
from contextlib import ExitStack

_IS_LINUX = sys.platform == "linux"
_OFD_SETLK: int | None = getattr(fcntl, "F_OFD_SETLK", None) if _IS_LINUX else None
_WHOLE_FILE = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # Linux's struct flock; the pid has to be 0
_held: set[tuple[int, int]] = set()  # device and inode of directories
_mutex = threading.Lock()


class DirectoryLock:
    def __init__(self, undo: ExitStack) -> None:
        self._undo = undo

    def release(self) -> None:
        """Releases the lock. A second call does nothing."""
        self._undo.close()


def lock(path: str) -> DirectoryLock | None:
    """Locks the file `path`, which is created if needed, and its directory. Returns None if either is locked."""
    directory = os.path.dirname(path) or "."
    with ExitStack() as undo:
        if not _remember(directory, undo):
            return None
        if not _flock_directory(_open(directory, os.O_RDONLY | os.O_DIRECTORY, undo)):
            return None
        file = _open(path, os.O_RDWR | os.O_CREAT, undo)
        if (_IS_LINUX and not _flock(file)) or not _record_lock(file):
            return None
        return DirectoryLock(undo.pop_all())


def _remember(directory: str, undo: ExitStack) -> bool:
    found = os.stat(directory)
    identity = found.st_dev, found.st_ino
    with _mutex:
        if identity in _held:
            return False
        _held.add(identity)
    undo.callback(_held.discard, identity)
    return True


def _open(path: str, flags: int, undo: ExitStack) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    undo.callback(os.close, descriptor)
    return descriptor


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _flock_directory(descriptor: int) -> bool:
    try:
        return _flock(descriptor)
    except OSError:  # NFS, for one, has no locks on directories: the locks on the file have to suffice there
        return True


def _record_lock(descriptor: int) -> bool:
    try:
        if not _lock_open_file(descriptor):
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, depending on the system
        return False
    return True


def _lock_open_file(descriptor: int) -> bool:
    """Returns False where the system has no locks that belong to an open file. Raises OSError if it is locked."""
    if _OFD_SETLK is None:
        return False
    try:
        fcntl.fcntl(descriptor, _OFD_SETLK, _WHOLE_FILE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True
