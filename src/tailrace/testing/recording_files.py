"""A file system in memory that records every change, and can build each state that a power cut may leave.

The model is as harsh as POSIX allows. Bytes and a file's size are durable once the file is synced; names (created,
moved or removed) are durable once their directory is synced. Any combination of the calls that are not durable may be
lost, and a write may also be torn. Directories have inodes as files do: changes inside one stay with it under whatever
name a power cut leaves it. So every prefix of the recorded calls stands for many states of the disk. `power_cuts`
yields all of them where they are few, and a seeded choice otherwise.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from errno import ENOENT, ENOTEMPTY
from itertools import product
from math import prod
from typing import NamedTuple

from tailrace.log.disk.interface import Data, Space, join, name_of, parent

KEPT, LOST, TORN = "kept", "lost", "torn"

_BLOCK = 4096


class Call(NamedTuple):
    """One recorded call: `inode` for those on bytes, `path` for those on names, and the inode of the `directory`
    that the name is in, or that is synced.
    """

    kind: str  # write truncate sync · create rename remove make_directory remove_directory sync_directory
    inode: int = -1
    path: str = ""
    target: str = ""
    position: int = 0
    data: bytes = b""
    directory: int = -1

    @property
    def fates(self) -> tuple[str, ...]:
        """The possible results of a power cut before the call is durable."""
        return (KEPT, LOST, TORN) if self.kind == "write" and len(self.data) > 1 else (KEPT, LOST)


@dataclass
class Disk:
    """Names and bytes at one moment."""

    names: dict[str, int] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    contents: dict[int, bytearray] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)  # of directories, by inode

    def __post_init__(self) -> None:
        """Gives an inode to each directory that was given by name."""
        for path in sorted(self.directories - set(self.places.values())):
            self.places[self.next_inode] = path

    @property
    def next_inode(self) -> int:
        return max((0, *self.contents, *self.places)) + 1

    def copy(self) -> "Disk":
        contents = {inode: bytearray(content) for inode, content in self.contents.items()}
        return Disk(dict(self.names), set(self.directories), contents, dict(self.places))

    def file(self, path: str) -> bytearray:
        """The bytes of a file, to read or to corrupt."""
        return self.contents[self.names[path]]

    def apply(self, call: Call, fate: str = KEPT) -> None:
        if fate != LOST:
            getattr(self, "_" + call.kind, lambda _: None)(
                call._replace(data=call.data[: len(call.data) // 2]) if fate == TORN else call
            )

    def _path(self, call: Call, name: str = "") -> str | None:
        """Returns the current path of a call's name: its directory may have moved, or be gone (None)."""
        directory = self.places.get(call.directory)
        return None if directory is None else join(directory, name_of(name or call.path))

    def _write(self, call: Call) -> None:
        content = self.contents.setdefault(call.inode, bytearray())
        if len(content) < call.position:
            content.extend(bytes(call.position - len(content)))
        content[call.position : call.position + len(call.data)] = call.data

    def _truncate(self, call: Call) -> None:
        content = self.contents.setdefault(call.inode, bytearray())
        del content[call.position :]
        content.extend(bytes(call.position - len(content)))

    def _create(self, call: Call) -> None:
        if (path := self._path(call)) is not None:
            self.names[path] = call.inode
            self.contents.setdefault(call.inode, bytearray())

    def _rename(self, call: Call) -> None:
        source, target = self._path(call), self._path(call, call.target)
        if source is not None and target is not None:
            if call.inode in self.places:
                self._move_directory(call.inode, target)
            elif source in self.names:
                self.names[target] = self.names.pop(source)

    def _move_directory(self, inode: int, target: str) -> None:
        source = self.places[inode]
        if source != target:
            self._drop_directory(target)
            moved = [path for path in self.names if parent(path) == source]
            self.names.update({join(target, name_of(path)): self.names.pop(path) for path in moved})
            self.directories = self.directories - {source} | {target}
            self.places[inode] = target

    def _remove(self, call: Call) -> None:
        if (path := self._path(call)) is not None:
            self.names.pop(path, None)

    def _make_directory(self, call: Call) -> None:
        if (path := self._path(call)) is not None:
            self._drop_directory(path)
            self.directories.add(path)
            self.places[call.inode] = path

    def _remove_directory(self, call: Call) -> None:
        if (path := self.places.get(call.inode)) is not None:
            self._drop_directory(path)

    def _drop_directory(self, path: str) -> None:
        """Removes the directory's name; its content can no longer be reached."""
        self.directories.discard(path)
        self.places = {inode: place for inode, place in self.places.items() if place != path}
        self.names = {name: inode for name, inode in self.names.items() if parent(name) != path}

    def fingerprint(self) -> int:
        reachable = sorted((path, bytes(self.contents[inode])) for path, inode in self.names.items())
        return hash((tuple(reachable), tuple(sorted(self.directories))))


class RecordingFiles:
    """Implements `tailrace.log.disk.interface.Files`."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        self._began_as = self.disk.copy()
        self._next_inode = self.disk.next_inode
        self._inodes = {path: inode for inode, path in self.disk.places.items()}  # of directories
        self.calls: list[Call] = []

    def record(self, call: Call) -> None:
        self.calls.append(call)
        self.disk.apply(call)

    def _directory(self, path: str) -> int:
        try:
            return self._inodes[path]
        except KeyError:
            raise FileNotFoundError(ENOENT, "no such directory", path) from None

    def _new_inode(self) -> int:
        self._next_inode += 1
        return self._next_inode - 1

    def open(self, path: str, *, create: bool = False) -> "RecordedFile":
        if create and path not in self.disk.names:
            self.record(Call("create", self._new_inode(), path, directory=self._directory(parent(path))))
        return RecordedFile(self, path)

    def inode(self, path: str) -> int:
        try:
            return self.disk.names[path]
        except KeyError:
            raise FileNotFoundError(ENOENT, "no such file", path) from None

    def content(self, inode: int) -> bytearray:
        return self.disk.contents[inode]

    def files_in(self, directory: str) -> dict[str, int]:
        return {
            name_of(path): len(self.disk.contents[inode])
            for path, inode in self.disk.names.items()
            if parent(path) == directory
        }

    def directories_in(self, directory: str) -> list[str]:
        return sorted(name_of(path) for path in self.disk.directories if parent(path) == directory)

    def exists(self, path: str) -> bool:
        return path in self.disk.names or path in self.disk.directories

    def make_directory(self, path: str) -> None:
        if path not in self.disk.directories:
            inode = self._new_inode()
            self.record(Call("make_directory", inode, path, directory=self._directory(parent(path))))
            self._inodes[path] = inode

    def rename(self, source: str, target: str) -> None:
        directory = self._directory(parent(source))
        assert parent(target) == parent(source), "a file is only renamed inside its directory"
        if source in self._inodes:
            self._inodes[target] = inode = self._inodes.pop(source)
        else:
            inode = self.inode(source)
        self.record(Call("rename", inode, source, target, directory=directory))

    def remove(self, path: str) -> None:
        self.record(Call("remove", self.inode(path), path, directory=self._directory(parent(path))))

    def remove_directory(self, path: str) -> None:
        inode = self._directory(path)
        if self.files_in(path) or self.directories_in(path):
            raise OSError(ENOTEMPTY, "not empty", path)
        self.record(Call("remove_directory", inode, path, directory=self._directory(parent(path))))
        del self._inodes[path]

    def sync_directory(self, path: str) -> None:
        self.record(Call("sync_directory", path=path, directory=self._directory(path)))

    def modified_ms(self, path: str) -> int:
        """Returns a fixed time long ago: there is no clock here."""
        self.inode(path)
        return 0

    def space(self, path: str) -> Space:
        return Space(1 << 40, 1 << 40)

    def lock(self, path: str) -> "NoLock":
        return NoLock()

    # Power cuts

    def power_cuts(self, after: int, *, limit: int, seed: int = 0) -> Iterator["RecordingFiles"]:
        """Yields states that the disk may be in if the power fails after `after` calls, each once, at most about
        `limit`.
        """
        calls = self.calls[:after]
        unsafe = _unsafe(calls)
        seen = set()
        for fates in _choices([calls[number].fates for number in unsafe], limit, seed):
            disk = self._rebuild(calls, dict(zip(unsafe, fates, strict=True)))
            fingerprint = disk.fingerprint()
            if fingerprint not in seen:
                seen.add(fingerprint)
                yield RecordingFiles(disk)

    def power_cut(self, seed: int, *, tears: bool = True) -> "RecordingFiles":
        """Returns one random state that the disk may be in if the power fails now; without torn writes if asked."""
        unsafe, lot = _unsafe(self.calls), random.Random(seed)
        fates = {number: lot.choice(self.calls[number].fates if tears else (KEPT, LOST)) for number in unsafe}
        return RecordingFiles(self._rebuild(self.calls, fates))

    def _rebuild(self, calls: list[Call], fates: dict[int, str]) -> Disk:
        disk = self._began_as.copy()
        for number, call in enumerate(calls):
            disk.apply(call, fates.get(number, KEPT))
        for path in [path for path in disk.names if parent(path) not in disk.directories]:
            del disk.names[path]  # its directory was lost, and all in it
        return disk


def _unsafe(calls: list[Call]) -> list[int]:
    """Returns the calls whose effect no later sync has made durable."""
    unsafe, synced = [], set()
    for number in range(len(calls) - 1, -1, -1):
        call = calls[number]
        if call.kind == "sync":
            synced.add(call.inode)
        elif call.kind == "sync_directory":
            synced.add(call.directory)
        elif (call.inode if call.kind in ("write", "truncate") else call.directory) not in synced:
            unsafe.append(number)
    return unsafe[::-1]


def _choices(fates: list[tuple[str, ...]], limit: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Yields every combination. Where these are too many: the extremes, each call alone lost or kept, and a random
    choice.
    """
    if prod(map(len, fates)) <= limit:
        yield from product(*fates)
        return
    everything = range(len(fates))
    yield (KEPT,) * len(fates)
    yield (LOST,) * len(fates)
    for one in everything:
        yield tuple(LOST if number == one else KEPT for number in everything)
        yield tuple(KEPT if number == one else LOST for number in everything)
        yield tuple(fates[one][-1] if number == one else KEPT if number < one else LOST for number in everything)
    lot = random.Random(seed)
    for _ in range(max(0, limit - 3 * len(fates))):
        yield tuple(lot.choice(options) for options in fates)


class RecordedFile:
    """Implements `tailrace.log.disk.interface.File`."""

    def __init__(self, files: RecordingFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._inode: int | None = None
        self._pins = 0
        self._closed = False
        self._is_past_cache = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def _number(self) -> int:
        if self._closed and not self._pins:
            raise FileNotFoundError(ENOENT, "closed", self._path)
        if self._inode is None:
            self._inode = self._files.inode(self._path)
        return self._inode

    def write_at(self, position: int, data: Data) -> None:
        self._files.record(Call("write", self._number, position=position, data=bytes(data)))

    def write_synced_at(self, position: int, data: Data) -> None:
        assert not self._is_past_cache or position % _BLOCK == len(data) % _BLOCK == 0, "a disk takes whole blocks"
        self.write_at(position, data)
        self.sync()

    def write_past_cache(self) -> None:
        assert self._pins, "only what is pinned stays as it is"
        self._is_past_cache = True

    def read_at(self, position: int, size: int) -> bytes:
        return bytes(self._files.content(self._number)[position : position + size])

    def read_cached_at(self, position: int, size: int) -> Data | None:
        return self.read_at(position, size)

    def size(self) -> int:
        return len(self._files.content(self._number))

    def truncate(self, size: int) -> None:
        if size != self.size():
            self._files.record(Call("truncate", self._number, position=size))

    def reserve(self, position: int, size: int) -> bool:
        return False

    def give_back(self) -> None:
        pass

    def sync(self) -> None:
        self._files.record(Call("sync", self._number))

    def sync_descriptor(self) -> int | None:
        return None

    def forget_cached(self, position: int = 0, size: int = 0) -> None:
        pass

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        raise NotImplementedError("there is no descriptor behind a file in memory")

    def send_cached_to(self, descriptor: int, position: int, size: int) -> int | None:
        return self.send_to(descriptor, position, size)

    def read_ahead(self, position: int, size: int) -> bool:
        return True

    def descriptor(self) -> int:
        raise NotImplementedError("there is no descriptor behind a file in memory")

    def pin(self) -> None:
        assert self._number >= 0  # as with a descriptor: from now on the file can be read although its name goes
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1

    def close(self) -> None:
        self._closed = True


class NoLock:
    def release(self) -> None:
        pass
