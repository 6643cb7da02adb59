"""The files of the operating system, with a bound on open descriptors: the `Files` of `log/disk/interface`."""

import errno
import os
import sys
import threading
from collections import OrderedDict
from contextlib import suppress

from tailrace.log.disk import system_calls
from tailrace.log.disk.interface import Data, Space
from tailrace.log.disk.locks import DirectoryLock, lock
from tailrace.log.disk.page_cache import fill_without_waiting, is_cached, read_ahead, without_read_ahead


def default_descriptor_limit() -> int:
    """Returns half of what the process may open, 4,000 at most. The other half is left to connections."""
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
        except (FileNotFoundError, NotADirectoryError):  # any other error does not prove that the file is missing
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
    """Keeps at most `limit` descriptors open. It closes those that are not pinned and were not used since the pool last
    considered them.
    """

    def __init__(self, limit: int) -> None:
        self.mutex = threading.Lock()
        self.is_over_limit = False  # if True, all of them are pinned
        self._limit = limit
        self._files: OrderedDict[OperatingSystemFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def opened(self, file: "OperatingSystemFile") -> None:
        """Adds an open file. Called with the mutex held. If all files are pinned, the pool exceeds its limit rather
        than refuse a reader.
        """
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
        """Closes some descriptors because the process has none left. Does nothing if all are pinned."""
        with self.mutex:
            self._shrink_to(max(0, len(self._files) - _GIVEN_UP_AT_ONCE))
            self.is_over_limit = len(self._files) > self._limit

    def forget(self, file: "OperatingSystemFile") -> None:
        """Drops a file from the pool. Called with the mutex held."""
        del self._files[file]
        self.is_over_limit = len(self._files) > self._limit


_NO_DESCRIPTOR = -1
_STAT_BLOCK = 512
_STRAY_BYTES = 64 << 10  # blocks beyond the data that are not worth a truncation, which would change the file's mtime
_GIVEN_UP_AT_ONCE = 32  # descriptors closed at a time when the process has none left


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
            return without_read_ahead(os.open(self._path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644))
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
        """Closes the descriptor, at once or when the last pin is released."""
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
        assert self._pins, "the file must be pinned"
        with suppress(OSError):  # not supported by every file system or operating system
            system_calls.set_direct(self._descriptor, True)

    def write_synced_at(self, position: int, data: Data) -> None:
        descriptor = self._pin()
        try:
            if not system_calls.write_synced(descriptor, position, data):
                system_calls.set_direct(descriptor, False)  # a direct write may be what failed
                self.write_at(position, data)
                system_calls.sync(descriptor)
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
            return system_calls.reserve(descriptor, position, size)
        finally:
            self.unpin()

    def give_back(self) -> None:
        descriptor = self._pin()
        try:
            found = os.fstat(descriptor)
            if found.st_blocks * _STAT_BLOCK > found.st_size + _STRAY_BYTES:
                os.ftruncate(descriptor, found.st_size)  # to its own size: only blocks behind the end are freed
        finally:
            self.unpin()

    def sync(self) -> None:
        descriptor = self._pin()
        try:
            system_calls.sync(descriptor)
        except OSError as error:
            error.filename = self._path
            raise
        finally:
            self.unpin()

    def sync_descriptor(self) -> int | None:
        assert self._pins, "the file must be pinned"
        return self._descriptor if sys.platform == "linux" else None

    def forget_cached(self, position: int = 0, size: int = 0) -> None:
        descriptor = self._pin()
        try:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_DONTNEED)
        finally:
            self.unpin()

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        assert self._pins, "the file must be pinned"  # so the pool cannot close the descriptor, and no lock is needed
        return os.sendfile(descriptor, self._descriptor, position, size)

    def read_ahead(self, position: int, size: int) -> bool:
        assert self._pins, "the file must be pinned"
        return read_ahead(self._descriptor, position, size)

    def descriptor(self) -> int:
        assert self._pins, "the file must be pinned"
        return self._descriptor

    def send_cached_to(self, descriptor: int, position: int, size: int) -> int | None:
        assert self._pins, "the file must be pinned"
        own = self._descriptor
        return os.sendfile(descriptor, own, position, size) if is_cached(own, position, size) else None
