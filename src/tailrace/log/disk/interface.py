"""The one seam through which the log touches the disk.

Everything in `log/` reads, writes, syncs, renames and removes through a `Files` and the `File`s it opens.
`OperatingSystemFiles` is the real one. Its twins live in `tailrace.testing`: one records the calls and can build every
state that a power cut may leave, one fails the calls a test names.

A `File` is a name that can be read and written for as long as it is kept; its descriptor is opened when needed and
taken back when the process has too many. `pin` holds the descriptor open: whoever reads in another thread, or must
outlive the file's removal, pins first. Pinning is safe from any thread.

Errors are `OSError`, as the operating system gives them, and name the file: what they mean is the log's to decide.
"""

import errno
import fcntl
import mmap
import os
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple, Protocol

from tailrace.log.disk.fallocate import reserve
from tailrace.log.disk.locks import DirectoryLock, lock
from tailrace.log.disk.page_cache import fill_without_waiting, is_cached

Data = bytes | bytearray | memoryview


class File(Protocol):
    """One file by name, read and written at positions."""

    @property
    def path(self) -> str: ...

    def write_at(self, position: int, data: Data) -> None:
        """All of `data` is written, or OSError is raised and any part of it may be."""

    def write_synced_at(self, position: int, data: Data) -> None:
        """The same, and afterwards it is on disk: as to write and to sync, in one."""

    def write_past_cache(self) -> None:
        """From now on what is written goes to the disk past the page cache, where the file system has that: whole
        blocks, from a `block_buffer`. It must stay pinned, and nothing is read from it any more.
        """

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only where the file ends."""

    def read_cached_at(self, position: int, size: int) -> Data | None:
        """The same, but None where that would wait for the disk."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, position: int, size: int) -> bool:
        """Afterwards the disk has blocks for these bytes, which may lie behind the end; the file is as long as before.
        False where it has none to spare, or knows no such thing.
        """

    def give_back(self) -> None:
        """Afterwards there are no blocks behind the end of the file. Only its writer may: nobody appends meanwhile."""

    def sync(self) -> None:
        """Afterwards all that was written is on disk, with the file's size."""

    def sync_descriptor(self) -> int | None:
        """For who can have it synced in another way than by `sync`; None where that has to be called. The file must be
        pinned.
        """

    def forget_cached(self, position: int = 0, size: int = 0) -> None:
        """Afterwards what is read there, or with no size all behind, comes from the disk, not from what the system
        remembers of it.
        """

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        """Sends up to `size` bytes to a socket without copying them through this process; says how many went. The file
        must be pinned.
        """

    def send_cached_to(self, descriptor: int, position: int, size: int) -> int | None:
        """The same, but None where that would wait for the disk."""

    def read_ahead(self, position: int, size: int) -> bool:
        """Afterwards these bytes, and about as many behind them, are on their way from the disk; it is not waited for
        them. Says whether they were all there, as far as one sample tells. The file must be pinned.
        """

    def descriptor(self) -> int:
        """For another process to read from. The file must be pinned."""

    def pin(self) -> None: ...

    def unpin(self) -> None: ...

    def close(self) -> None:
        """Afterwards only who has it pinned can use it. Never opened again: its name may be another file's by then."""


class Space(NamedTuple):
    """Of a disk, in bytes: what this process may still write, and what there is of it in all."""

    free: int
    total: int


class Files(Protocol):
    """The calls that concern names rather than bytes."""

    def open(self, path: str, *, create: bool = False) -> File:
        """A file that exists, or with `create` one that may be new. Without, a missing file raises on first use."""

    def files_in(self, directory: str) -> dict[str, int]:
        """The plain files of a directory with their sizes."""

    def directories_in(self, directory: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Afterwards the directory is there; its parent is not synced yet."""

    def rename(self, source: str, target: str) -> None:
        """Of a file, or of a directory with all that is in it."""

    def remove(self, path: str) -> None:
        """Afterwards the name is gone; who has the file pinned can still read it."""

    def remove_directory(self, path: str) -> None:
        """Afterwards the directory, which must be empty, is gone."""

    def sync_directory(self, path: str) -> None:
        """Afterwards the names in the directory, new and gone, are on disk."""

    def modified_ms(self, path: str) -> int:
        """When a file was last written, by the wall clock."""

    def space(self, path: str) -> Space:
        """Of the disk that `path` is on. May take long, where that is not at hand."""

    def lock(self, path: str) -> "Lock | None":
        """Locks the file `path` and its directory against all others, this process included (see `log/disk/locks`).
        Returns None if either is locked.
        """


class Lock(Protocol):
    def release(self) -> None: ...


def read_whole(files: Files, path: str) -> bytes | None:
    """The bytes of a small file, or None where there is none."""
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    except FileNotFoundError:
        return None
    finally:
        file.close()


def write_whole(files: Files, path: str, data: Data, *, sync: bool = True) -> None:
    """Afterwards `path` holds `data` alone. Not atomic: for derived files that carry their own checksum."""
    file = files.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at(0, data)
        if sync:
            file.sync()
    finally:
        file.close()


def replace_whole(files: Files, path: str, data: Data) -> None:
    """Afterwards `path` holds `data`, on disk; a crash at any point leaves either the old bytes or the new."""
    put_in_place(files, path, data)
    files.sync_directory(parent(path))


def put_in_place(files: Files, path: str, data: Data) -> None:
    """The same, but on disk only once the directory is synced."""
    temporary = path + ".tmp"
    write_whole(files, temporary, data)
    files.rename(temporary, path)


def remove_if_there(files: Files, path: str) -> None:
    with suppress(FileNotFoundError):  # rather than to look first: somebody else may be removing it, too
        files.remove(path)


def join(directory: str, name: str) -> str:
    return os.path.join(directory, name)


def parent(path: str) -> str:
    return os.path.dirname(path) or "."


def name_of(path: str) -> str:
    return os.path.basename(path)


def block_buffer(size: int) -> memoryview:
    """Memory that a disk can read by itself, as it begins where a page does."""
    return memoryview(mmap.mmap(-1, size))


def default_descriptor_limit() -> int:
    """Half of what the process may open, 4,000 at most: the other half belongs to connections."""
    limit = os.sysconf("SC_OPEN_MAX")  # -1 where there is none
    return 4000 if limit < 0 else max(16, min(4000, limit // 2))


class OperatingSystemFiles:
    """The real disk, with a bound on open descriptors over everything opened here."""

    def __init__(self, descriptor_limit: int | None = None) -> None:
        self._descriptors = DescriptorPool(descriptor_limit or default_descriptor_limit())

    @property
    def open_descriptors(self) -> int:
        return len(self._descriptors)

    def open(self, path: str, *, create: bool = False) -> "OperatingSystemFile":
        file = OperatingSystemFile(path, self._descriptors)
        if create:
            file.create()
        return file

    def files_in(self, directory: str) -> dict[str, int]:
        found: dict[str, int] = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # a broker at work there may have removed it since it was listed
                    if entry.is_file():
                        found[entry.name] = entry.stat().st_size
        return found

    def directories_in(self, directory: str) -> list[str]:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):  # any other error does not say that there is none
            return False
        return True

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def space(self, path: str) -> Space:
        found = os.statvfs(path)
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def lock(self, path: str) -> DirectoryLock | None:
        return lock(path)


class DescriptorPool:
    """Keeps at most `limit` descriptors open. The victim is one that nobody pins and nobody used since it was last
    looked at.
    """

    def __init__(self, limit: int) -> None:
        self.mutex = threading.Lock()
        self.is_over_limit = False  # then all of them are pinned
        self._limit = limit
        self._files: OrderedDict[OperatingSystemFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def opened(self, file: "OperatingSystemFile") -> None:
        """Called with the mutex held. Where everything is pinned the limit gives way: a reader is never refused."""
        self._files[file] = None
        self._shrink_to(self._limit)
        self.is_over_limit = len(self._files) > self._limit

    def _shrink_to(self, count: int) -> None:
        for _ in range(2 * len(self._files)):
            if len(self._files) <= count:
                return
            candidate, _ = self._files.popitem(last=False)
            if not candidate.give_up_descriptor():
                self._files[candidate] = None

    def make_room(self) -> None:
        """The process has no descriptor left: afterwards it has some, unless all that are here are pinned."""
        with self.mutex:
            self._shrink_to(max(0, len(self._files) - _GIVEN_UP_AT_ONCE))
            self.is_over_limit = len(self._files) > self._limit

    def forget(self, file: "OperatingSystemFile") -> None:
        """Called with the mutex held."""
        del self._files[file]
        self.is_over_limit = len(self._files) > self._limit


_NO_DESCRIPTOR = -1
_SYNCED: int | None = getattr(os, "RWF_DSYNC", None)
_DIRECT: int = getattr(os, "O_DIRECT", 0)
_STAT_BLOCK = 512
_STRAY_BYTES = 64 << 10  # that a file may have beside its data: not worth a call, which says that it was changed
_GIVEN_UP_AT_ONCE = 32  # descriptors, where the process has no other left


class OperatingSystemFile:
    __slots__ = ("_closed", "_descriptor", "_path", "_pins", "_pool", "_used")

    def __init__(self, path: str, pool: DescriptorPool) -> None:
        self._path = path
        self._pool = pool
        self._descriptor = _NO_DESCRIPTOR
        self._pins = 0
        self._used = True
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def create(self) -> None:
        self._pin(os.O_CREAT)
        self.unpin()

    def pin(self) -> None:
        self._pin()

    def _pin(self, flags: int = 0) -> int:
        with self._pool.mutex:
            if self._descriptor != _NO_DESCRIPTOR:
                self._pins += 1
                self._used = True
                return self._descriptor
        try:
            opened = self._open(flags)  # without the mutex: a slow disk must not hold up everyone else
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._pool.make_room()
            opened = self._open(flags)
        with self._pool.mutex:
            is_wanted = self._descriptor == _NO_DESCRIPTOR and not self._closed
            if is_wanted:
                self._descriptor = opened
            descriptor = self._descriptor
            if descriptor != _NO_DESCRIPTOR:
                self._pins += 1  # before the pool looks for a victim: it must not be this one
                self._used = True
            if is_wanted:
                self._pool.opened(self)
        if not is_wanted:
            os.close(opened)  # another thread was quicker, or has closed the file
        if descriptor == _NO_DESCRIPTOR:
            raise FileNotFoundError(errno.ENOENT, "closed", self._path)
        return descriptor

    def _open(self, flags: int) -> int:
        try:
            return _without_read_ahead(os.open(self._path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644))
        except (PermissionError, OSError) as error:
            # Tools look into directories that they may not write, and on file systems mounted read-only.
            if flags or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

    def unpin(self) -> None:
        with self._pool.mutex:
            self._pins -= 1
            is_unwanted = self._closed or self._pool.is_over_limit
            if is_unwanted and not self._pins and self._descriptor != _NO_DESCRIPTOR:
                self._pool.forget(self)
                self._close_descriptor()

    def close(self) -> None:
        """Afterwards the descriptor is closed, or will be when the last pin goes."""
        with self._pool.mutex:
            self._closed = True
            if not self._pins and self._descriptor != _NO_DESCRIPTOR:
                self._pool.forget(self)
                self._close_descriptor()

    def give_up_descriptor(self) -> bool:
        """Called by the pool, with its mutex held. A file used since the last call gets another round."""
        if self._pins:
            return False
        if self._used:
            self._used = False
            return False
        self._close_descriptor()
        return True

    def _close_descriptor(self) -> None:
        os.close(self._descriptor)
        self._descriptor = _NO_DESCRIPTOR

    def write_at(self, position: int, data: Data) -> None:
        descriptor = self._pin()
        try:
            written = os.pwrite(descriptor, data, position)
            while written < len(data):
                written += os.pwrite(descriptor, memoryview(data)[written:], position + written)
        except OSError as error:
            error.filename = self._path
            raise
        finally:
            self.unpin()

    def write_past_cache(self) -> None:
        assert self._pins, "only what is pinned stays as it is"
        with suppress(OSError):  # some file systems, and systems, have no such thing
            _set_direct(self._descriptor, True)

    def write_synced_at(self, position: int, data: Data) -> None:
        descriptor = self._pin()
        try:
            if not _write_synced(descriptor, position, data):
                _set_direct(descriptor, False)  # which may be what it does not take
                self.write_at(position, data)
                _sync_descriptor(descriptor)
        except OSError as error:
            error.filename = self._path
            raise
        finally:
            self.unpin()

    def read_at(self, position: int, size: int) -> bytes:
        descriptor = self._pin()
        try:
            data = os.pread(descriptor, size, position)
            while 0 < len(data) < size:
                more = os.pread(descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            error.filename = self._path
            raise
        finally:
            self.unpin()

    def read_cached_at(self, position: int, size: int) -> Data | None:
        descriptor = self._pin()
        try:
            data = bytearray(size)
            return data if fill_without_waiting(data, descriptor, position) else None
        finally:
            self.unpin()

    def size(self) -> int:
        descriptor = self._pin()
        try:
            return os.fstat(descriptor).st_size
        finally:
            self.unpin()

    def truncate(self, size: int) -> None:
        descriptor = self._pin()
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            error.filename = self._path
            raise
        finally:
            self.unpin()

    def reserve(self, position: int, size: int) -> bool:
        descriptor = self._pin()
        try:
            return reserve(descriptor, position, size)
        finally:
            self.unpin()

    def give_back(self) -> None:
        descriptor = self._pin()
        try:
            found = os.fstat(descriptor)
            if found.st_blocks * _STAT_BLOCK > found.st_size + _STRAY_BYTES:
                os.ftruncate(descriptor, found.st_size)  # whichever file this is, nothing but blocks can be lost
        finally:
            self.unpin()

    def sync(self) -> None:
        descriptor = self._pin()
        try:
            _sync_descriptor(descriptor)
        except OSError as error:
            error.filename = self._path
            raise
        finally:
            self.unpin()

    def sync_descriptor(self) -> int | None:
        assert self._pins, "only what is pinned is synced so"
        return self._descriptor if sys.platform == "linux" else None

    def forget_cached(self, position: int = 0, size: int = 0) -> None:
        descriptor = self._pin()
        try:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_DONTNEED)
        finally:
            self.unpin()

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        assert self._pins, "only what is pinned is sent"  # so nobody takes the descriptor away, and no lock is needed
        return os.sendfile(descriptor, self._descriptor, position, size)

    def read_ahead(self, position: int, size: int) -> bool:
        assert self._pins, "only what is pinned is read ahead"
        return read_ahead(self._descriptor, position, size)

    def descriptor(self) -> int:
        assert self._pins, "only what is pinned is shown"
        return self._descriptor

    def send_cached_to(self, descriptor: int, position: int, size: int) -> int | None:
        assert self._pins, "only what is pinned is sent"
        own = self._descriptor
        return os.sendfile(descriptor, own, position, size) if is_cached(own, position, size) else None


def _without_read_ahead(descriptor: int) -> int:
    """Else whoever reads a page at the right place begins to read those that follow it, and be it one that asks not to
    wait for a disk: half a millisecond of the loop's time. Who may wait asks for more at a time.
    """
    if _FADVISE is not None:
        _FADVISE(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    return descriptor


def read_ahead(descriptor: int, position: int, size: int) -> bool:
    """See `File.read_ahead`."""
    ahead, end = position + size, min(position + size + _AHEAD_BYTES, os.fstat(descriptor).st_size)
    probe = bytearray(1)
    if end <= position or fill_without_waiting(probe, descriptor, end - 1):
        return True
    if _FADVISE is not None:
        is_there = ahead < end and fill_without_waiting(probe, descriptor, position, ahead - 1)  # since the last time
        for start in range(ahead if is_there else position, end, _ASKED_BYTES):
            _FADVISE(descriptor, start, min(_ASKED_BYTES, end - start), os.POSIX_FADV_WILLNEED)
            os.sched_yield()  # asking takes a while, too, and others may wait for the processor
    return False


_FADVISE = getattr(os, "posix_fadvise", None)
_AHEAD_BYTES = (1 << 20) + (64 << 10)  # what most readers ask for next, and the header of the batch behind it
_ASKED_BYTES = 128 << 10  # at a time: 30 to 80 µs; of much more the system may bring only a part


def _write_synced(descriptor: int, position: int, data: Data) -> bool:
    """Whether the system can do both in one, and did."""
    if _SYNCED is None:
        return False
    try:
        return os.pwritev(descriptor, (data,), position, _SYNCED) == len(data)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
        return False


def _set_direct(descriptor: int, is_direct: bool) -> None:
    if _DIRECT:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if is_direct else flags & ~_DIRECT)


def _sync_descriptor(descriptor: int) -> None:
    if sys.platform == "darwin":
        # macOS: fsync stops at the drive's own cache. Not tested by us on real hardware.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)
