"""Restores a data directory from a backup, and verifies each byte.

The format file is written first and marks the directory as unfinished, so that no broker opens it. It is replaced by
the real one when everything is on disk. So an interrupted restore is never mistaken for a complete one. It can be run
again, and then starts over.
"""

from dataclasses import dataclass, field

from tailrace.backup.copy import Copied, copy_bytes
from tailrace.backup.manifest import Manifest, StoredFile, StoredLog
from tailrace.backup.store import Store
from tailrace.backup.view import small_files
from tailrace.log.directory.admission import FORMAT_VERSION
from tailrace.log.disk.interface import Files, join, parent, read_whole, remove_if_there, replace_whole, write_whole
from tailrace.log.files.checkpoints import FORMAT_FILE, RESTORED_FILE
from tailrace.log.layout.errors import LogError, UnknownFormat
from tailrace.log.layout.names import TEMPORARY

UNFINISHED = b"unfinished restore: run `tailrace backup restore` again\n"
_ALLOWED = {"lost+found", FORMAT_FILE + TEMPORARY}  # from mkfs, and from a restore that was interrupted at once


class NotEmpty(LogError):
    """The target directory is not empty."""


class BadBackup(LogError):
    """The backup is damaged: `damaged` names the files."""

    def __init__(self, message: str, damaged: list[str]) -> None:
        super().__init__(message)
        self.damaged = damaged


@dataclass(slots=True)
class Restored:
    """Files that do not match the backup: restored as they are, or left out."""

    files: int = 0
    bytes: int = 0
    damaged: list[str] = field(default_factory=list)


def check_target(files: Files, path: str) -> bool:
    """Returns whether the target holds an unfinished restore, which starts over. Raises NotEmpty."""
    if not files.exists(path):
        return False
    if not (set(files.files_in(path)) | set(files.directories_in(path))) - _ALLOWED:
        return False
    if read_whole(files, join(path, FORMAT_FILE)) == UNFINISHED:
        return True
    raise NotEmpty(f"{path} is not empty. Restore into a new or empty directory")


def check_format(manifest: Manifest) -> None:
    """Raises UnknownFormat."""
    if manifest.data_format > FORMAT_VERSION:
        raise UnknownFormat(
            f"the backup is of a directory of format {manifest.data_format}, and this release knows {FORMAT_VERSION}: "
            "restore it with the release that wrote it, or a newer one"
        )


def restore(store: Store, manifest: Manifest, path: str, copied: Copied, *, accept_damage: bool = False) -> Restored:
    """Writes a data directory to `path` as it was backed up; durable on return.

    Raises NotEmpty, UnknownFormat, and BadBackup where bytes do not match their hash. The directory then stays
    unfinished, unless `accept_damage` is set.
    """
    check_format(manifest)
    return Restoration(store, manifest, path, copied).run(accept_damage=accept_damage)


class Restoration:
    def __init__(self, store: Store, manifest: Manifest, path: str, copied: Copied) -> None:
        self._store = store
        self._files = store.files
        self._manifest = manifest
        self._path = path
        self._copied = copied
        self._result = Restored()

    def run(self, *, accept_damage: bool) -> Restored:
        files, path = self._files, self._path
        is_unfinished = check_target(files, path)
        self._begin()
        if is_unfinished:
            self._clear()
        for log in self._manifest.logs:
            self._restore_log(log)
        for name, data in small_files(self._manifest).items():
            write_whole(files, join(path, name), data)
        for log in self._manifest.logs:
            files.sync_directory(join(path, log.name))
        files.sync_directory(path)
        if self._result.damaged and not accept_damage:
            raise BadBackup(f"the backup {self._manifest.id} is damaged", self._result.damaged)
        # The first start aborts open transactions: the backup may lack some of their batches.
        replace_whole(files, join(path, RESTORED_FILE), self._manifest.id.encode() + b"\n")
        replace_whole(files, join(path, FORMAT_FILE), f"{self._manifest.data_format}\n".encode())
        return self._result

    def _begin(self) -> None:
        """Creates the directory and marks it as unfinished, durably."""
        if not self._files.exists(self._path):
            self._files.make_directory(self._path)
            self._files.sync_directory(parent(self._path))
        replace_whole(self._files, join(self._path, FORMAT_FILE), UNFINISHED)

    def _clear(self) -> None:
        """Removes what an unfinished restore has left."""
        files = self._files
        for name in files.directories_in(self._path):
            directory = join(self._path, name)
            if name not in _ALLOWED:
                for inner in files.files_in(directory):
                    files.remove(join(directory, inner))
                files.remove_directory(directory)
        for name in files.files_in(self._path):
            if name != FORMAT_FILE:
                files.remove(join(self._path, name))

    def _restore_log(self, log: StoredLog) -> None:
        directory = join(self._path, log.name)
        self._files.make_directory(directory)
        for file in log.files:
            if not self._restore_file(file, join(directory, file.name)):
                self._result.damaged.append(f"{log.name}/{file.name}")
            self._result.files += 1
            self._result.bytes += file.size

    def _restore_file(self, stored: StoredFile, path: str) -> bool:
        """Restores one file, and returns whether it matches the backup."""
        source = self._store.files.open(self._store.object_path(stored.sha256))
        target = self._files.open(path, create=True)
        try:
            source.pin()
            try:
                digest = copy_bytes(source, target, min(stored.size, source.size()), self._copied)
                target.sync()
                target.forget_cached()
            finally:
                source.unpin()
            return digest == stored.sha256
        except FileNotFoundError:
            remove_if_there(self._files, path)
            return False
        finally:
            source.close()
            target.close()
