"""The interface through which the log touches the disk: protocols, and helpers for paths and whole files.

Everything in `log/` reads, writes, syncs, renames and removes through a `Files` and the `File`s it opens.
`OperatingSystemFiles` (`log/disk/os_files`) is the real one. Its twins live in `tailrace.testing`: one records the
calls and can build every state that a power cut may leave, one fails the calls a test names.

A `File` is a name that can be read and written for as long as it is kept; its descriptor is opened when needed and
taken back when the process has too many. `pin` holds the descriptor open. Code that reads in another thread, or must
outlive the file's removal, pins first. Pinning is safe from any thread.

Errors are `OSError`, as the operating system gives them, and name the file: what they mean is the log's to decide.
"""

import mmap
import os
from contextlib import suppress
from typing import NamedTuple, Protocol

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
