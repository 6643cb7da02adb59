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
        """Writes all of `data`. Raises OSError on failure; any part of it may have been written then."""

    def write_synced_at(self, position: int, data: Data) -> None:
        """Writes all of `data` and syncs it in one call: on return, it is on disk."""

    def write_past_cache(self) -> None:
        """Makes later writes bypass the page cache, where the file system supports that. They must be whole blocks from
        a `block_buffer`. The file must stay pinned, and must not be read any more.
        """

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only where the file ends."""

    def read_cached_at(self, position: int, size: int) -> Data | None:
        """Reads like `read_at`, but returns None where that would wait for the disk."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, position: int, size: int) -> bool:
        """Preallocates disk blocks for these bytes, which may lie behind the end of the file. The file's size does not
        change. Returns False where the disk has no blocks to spare, or the system does not support this.
        """

    def give_back(self) -> None:
        """Frees the blocks behind the end of the file. Only the writer of the file may call this, and not during an
        append.
        """

    def sync(self) -> None:
        """Flushes everything that was written, and the file's size, to disk."""

    def sync_descriptor(self) -> int | None:
        """Returns a descriptor that can be synced by other means than `sync`; None where only `sync` will do. The file
        must be pinned.
        """

    def forget_cached(self, position: int = 0, size: int = 0) -> None:
        """Drops these bytes from the page cache, so that the next read of them comes from the disk. With no size,
        everything from `position` on.
        """

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        """Sends up to `size` bytes to a socket without copying them through this process. Returns how many were sent.
        The file must be pinned.
        """

    def send_cached_to(self, descriptor: int, position: int, size: int) -> int | None:
        """Sends like `send_to`, but returns None where that would wait for the disk."""

    def read_ahead(self, position: int, size: int) -> bool:
        """Starts reading these bytes, and about as many behind them, into the page cache, without waiting for them.
        Returns whether all of them were cached already, judged by a sample. The file must be pinned.
        """

    def descriptor(self) -> int:
        """Returns the descriptor, for another process to read from. The file must be pinned."""

    def pin(self) -> None: ...

    def unpin(self) -> None: ...

    def close(self) -> None:
        """Closes the file once the last pin is released. It is never opened again: another file may have its name by
        then.
        """


class Space(NamedTuple):
    """The space of a disk in bytes: free for this process, and in total."""

    free: int
    total: int


class Files(Protocol):
    """The calls that concern names rather than bytes."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens a file. With `create`, a missing file is created; without, it raises FileNotFoundError on first use."""

    def files_in(self, directory: str) -> dict[str, int]:
        """Returns the regular files of a directory with their sizes."""

    def directories_in(self, directory: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Creates the directory, unless it exists. Does not sync its parent."""

    def rename(self, source: str, target: str) -> None:
        """Renames a file, or a directory with everything in it."""

    def remove(self, path: str) -> None:
        """Removes the name. While the file is pinned it can still be read."""

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Makes created, renamed and removed names in the directory durable."""

    def modified_ms(self, path: str) -> int:
        """Returns when a file was last written, by the wall clock."""

    def space(self, path: str) -> Space:
        """Returns the space of the disk that `path` is on. May block for long on a network file system."""

    def lock(self, path: str) -> "Lock | None":
        """Locks the file `path` and its directory against all others, this process included (see `log/disk/locks`).
        Returns None if either is locked.
        """


class Lock(Protocol):
    def release(self) -> None: ...


def read_whole(files: Files, path: str) -> bytes | None:
    """Returns the bytes of a small file, or None if it does not exist."""
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    except FileNotFoundError:
        return None
    finally:
        file.close()


def write_whole(files: Files, path: str, data: Data, *, sync: bool = True) -> None:
    """Replaces the contents of `path` by `data`. Not atomic: for derived files that carry their own checksum."""
    file = files.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at(0, data)
        if sync:
            file.sync()
    finally:
        file.close()


def replace_whole(files: Files, path: str, data: Data) -> None:
    """Replaces the contents of `path` by `data`, durably. A crash leaves either the old or the new bytes."""
    put_in_place(files, path, data)
    files.sync_directory(parent(path))


def put_in_place(files: Files, path: str, data: Data) -> None:
    """Replaces the contents of `path` by `data`, atomically. Durable once the directory is synced."""
    temporary = path + ".tmp"
    write_whole(files, temporary, data)
    files.rename(temporary, path)


def remove_if_there(files: Files, path: str) -> None:
    with suppress(FileNotFoundError):  # instead of checking first: another thread may be removing it, too
        files.remove(path)


def join(directory: str, name: str) -> str:
    return os.path.join(directory, name)


def parent(path: str) -> str:
    return os.path.dirname(path) or "."


def name_of(path: str) -> str:
    return os.path.basename(path)


def block_buffer(size: int) -> memoryview:
    """Returns page-aligned memory, as direct writes need it."""
    return memoryview(mmap.mmap(-1, size))
