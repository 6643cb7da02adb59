"""Files whose calls fail on demand: the n-th call of a kind, once or from then on, on files whose name matches.

    faulty = FaultyFiles(OperatingSystemFiles())
    faulty.fail("sync", EIO, name=".log", after=2)      # the third sync of a .log file fails
    faulty.fail("write_at", ENOSPC, forever=True)       # the disk is full until `heal`

Kinds are the names of the methods of `File` and `Files`: write_at read_at truncate sync · open rename remove
remove_directory sync_directory make_directory space. `count` has the number of calls of each kind, so that a test can
fail each of them in turn. `space_left` sets the free space that the disk reports.
"""

import os
from collections import Counter
from dataclasses import dataclass

from tailrace.log.disk.interface import Data, File, Files, Lock, Space, name_of


@dataclass
class Fault:
    kind: str
    error: int
    name: str
    after: int
    forever: bool

    def strikes(self, kind: str, path: str) -> bool:
        if self.kind != kind or self.name not in name_of(path):
            return False
        self.after -= 1
        return self.after < 0 if self.forever else self.after == -1


class FaultyFiles:
    """Implements `tailrace.log.disk.interface.Files` on top of another implementation."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._faults: list[Fault] = []
        self.space_left: Space | None = None
        self.count: Counter[str] = Counter()

    def fail(self, kind: str, error: int, *, name: str = "", after: int = 0, forever: bool = False) -> None:
        """Makes call number `after` (from 0) of this kind raise OSError; with `forever`, all later calls, too."""
        self._faults.append(Fault(kind, error, name, after, forever))

    def heal(self) -> None:
        self._faults.clear()

    def called(self, kind: str, path: str) -> None:
        self.count[kind] += 1
        for fault in self._faults:
            if fault.strikes(kind, path):
                raise OSError(fault.error, os.strerror(fault.error), path)

    def open(self, path: str, *, create: bool = False) -> "FaultyFile":
        if create:
            self.called("open", path)
        return FaultyFile(self, self._files.open(path, create=create))

    def files_in(self, directory: str) -> dict[str, int]:
        return self._files.files_in(directory)

    def directories_in(self, directory: str) -> list[str]:
        return self._files.directories_in(directory)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def make_directory(self, path: str) -> None:
        self.called("make_directory", path)
        self._files.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self.called("rename", target)
        self._files.rename(source, target)

    def remove(self, path: str) -> None:
        self.called("remove", path)
        self._files.remove(path)

    def remove_directory(self, path: str) -> None:
        self.called("remove_directory", path)
        self._files.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self.called("sync_directory", path)
        self._files.sync_directory(path)

    def modified_ms(self, path: str) -> int:
        return self._files.modified_ms(path)

    def space(self, path: str) -> Space:
        self.called("space", path)
        return self.space_left or self._files.space(path)

    def lock(self, path: str) -> Lock | None:
        return self._files.lock(path)


class FaultyFile:
    """Implements `tailrace.log.disk.interface.File`."""

    def __init__(self, files: FaultyFiles, file: File) -> None:
        self._files = files
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def write_at(self, position: int, data: Data) -> None:
        """A write that fails leaves half of its bytes behind, as a full disk does."""
        try:
            self._files.called("write_at", self.path)
        except OSError:
            self._file.write_at(position, memoryview(data)[: len(data) // 2])
            raise
        self._file.write_at(position, data)

    def write_synced_at(self, position: int, data: Data) -> None:
        self.write_at(position, data)
        self.sync()

    def write_past_cache(self) -> None:
        pass

    def read_at(self, position: int, size: int) -> bytes:
        self._files.called("read_at", self.path)
        return self._file.read_at(position, size)

    def read_cached_at(self, position: int, size: int) -> Data | None:
        return self._file.read_cached_at(position, size)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._files.called("truncate", self.path)
        self._file.truncate(size)

    def reserve(self, position: int, size: int) -> bool:
        self._files.called("reserve", self.path)
        return self._file.reserve(position, size)

    def give_back(self) -> None:
        self._files.called("give_back", self.path)
        self._file.give_back()

    def sync(self) -> None:
        self._files.called("sync", self.path)
        self._file.sync()

    def sync_descriptor(self) -> int | None:
        return None

    def forget_cached(self, position: int = 0, size: int = 0) -> None:
        self._file.forget_cached(position, size)

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        return self._file.send_to(descriptor, position, size)

    def send_cached_to(self, descriptor: int, position: int, size: int) -> int | None:
        return self._file.send_cached_to(descriptor, position, size)

    def read_ahead(self, position: int, size: int) -> bool:
        return self._file.read_ahead(position, size)

    def descriptor(self) -> int:
        return self._file.descriptor()

    def pin(self) -> None:
        self._file.pin()

    def unpin(self) -> None:
        self._file.unpin()

    def close(self) -> None:
        self._file.close()
