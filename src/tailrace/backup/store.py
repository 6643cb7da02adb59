"""The directory that backups are kept in.

    tailrace.backup            the version of this layout; a release that does not know it leaves the directory alone
    objects/<SHA-256>          the bytes of a file, named by their hash: stored once, however many backups have it
    objects/….tmp              an object being written; the next run removes leftovers
    backups/<time>.json        the manifests. A backup exists if, and only if, its manifest does
    unfinished.jsonl           the segments that a run has copied so far, so that the next one need not if it is killed
    .lock                      held by the process that writes

An object gets its name once it is on disk, and the manifest is written last, after the names of all objects. So a
killed run or a full disk leaves earlier backups intact, and objects that the next run reuses or removes.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

from tailrace.backup.copy import Copied, copy_bytes, sha256_of
from tailrace.backup.manifest import BadManifest, KnownSegments, Manifest, StoredFile, StoredSegment, segment_from
from tailrace.log.disk.interface import (
    Data,
    File,
    Files,
    Lock,
    join,
    name_of,
    parent,
    read_whole,
    remove_if_there,
    replace_whole,
)
from tailrace.log.files.checksums import ChunkChecksums
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import TEMPORARY

MARKER = "tailrace.backup"
LAYOUT_VERSION = 1
LOCK_FILE = ".lock"
OBJECTS, BACKUPS, JOURNAL = "objects", "backups", "unfinished.jsonl"
_MANIFEST_SUFFIX = ".json"


class NotABackup(LogError):
    """The directory holds no backups."""


class NotForBackups(LogError):
    """The directory holds other files, which are left alone."""


class StoreInUse(LogError):
    """Another process is writing backups there."""


class NoSuchBackup(LogError):
    """The directory holds backups, but not this one."""


class Store:
    """Read access to existing backups. `WritableStore` changes them."""

    def __init__(self, files: Files, path: str) -> None:
        """Raises NotABackup, or NotForBackups if a later release wrote the directory."""
        self.files = files
        self.path = path
        marker = read_whole(files, join(path, MARKER)) if files.exists(path) else None
        if marker is None:
            raise NotABackup(f"{path} holds no backups. `tailrace backup create DATA_DIR {path}` makes one")
        _check_layout(path, marker)

    def ids(self) -> list[str]:
        """The ids of all backups, oldest first."""
        directory = join(self.path, BACKUPS)
        names = self.files.files_in(directory) if self.files.exists(directory) else {}
        return sorted(name.removesuffix(_MANIFEST_SUFFIX) for name in names if name.endswith(_MANIFEST_SUFFIX))

    def manifest(self, backup_id: str) -> Manifest:
        """Raises NoSuchBackup, BadManifest."""
        data = read_whole(self.files, self._manifest_path(backup_id)) if backup_id in self.ids() else None
        if data is None:
            raise NoSuchBackup(f"{self.path} has no backup {backup_id}. `tailrace backup list {self.path}` shows them")
        try:
            return Manifest.decode(data)
        except BadManifest as error:
            raise BadManifest(f"{self._manifest_path(backup_id)}: {error}") from None

    def manifests(self) -> tuple[list[Manifest], list[BadManifest]]:
        """Returns the readable manifests, oldest first, and the errors of the others."""
        found, bad = [], []
        for backup_id in self.ids():
            try:
                found.append(self.manifest(backup_id))
            except BadManifest as error:
                bad.append(error)
        return found, bad

    def latest(self) -> Manifest:
        """Raises NoSuchBackup where there is none."""
        ids = self.ids()
        if not ids:
            raise NoSuchBackup(
                f"{self.path} has no backup yet: the first one was not finished. Run `tailrace backup create` again"
            )
        return self.manifest(ids[-1])

    def object_path(self, sha256: str) -> str:
        return join(join(self.path, OBJECTS), sha256)

    def _manifest_path(self, backup_id: str) -> str:
        return join(join(self.path, BACKUPS), backup_id + _MANIFEST_SUFFIX)


def object_sizes(store: Store) -> dict[str, int]:
    """Returns the sizes of all objects, by their expected SHA-256."""
    files, directory = store.files, join(store.path, OBJECTS)
    names = files.files_in(directory) if files.exists(directory) else {}
    return {name: size for name, size in names.items() if not name.endswith(TEMPORARY)}


def known_segments(store: Store) -> KnownSegments:
    """Returns the segments of all readable backups, and those that a killed run has copied."""
    known = KnownSegments()
    for manifest in store.manifests()[0]:
        known.add_all(manifest)
    for line in (read_whole(store.files, join(store.path, JOURNAL)) or b"").splitlines():
        with suppress(ValueError, KeyError, TypeError):  # the last line of a killed run may be incomplete
            entry = json.loads(line)
            known.add(entry["topic_id"], entry["log"], segment_from(entry["segment"]))
    return known


class WritableStore(Store):
    def __init__(self, files: Files, path: str) -> None:
        """Takes the lock; creates the directory if it does not exist. Raises NotForBackups, StoreInUse."""
        _make_ready(files, path)
        lock = files.lock(join(path, LOCK_FILE))
        if lock is None:
            raise StoreInUse(f"another process is writing backups in {path}. Wait for it to finish")
        self._lock: Lock = lock
        try:
            super().__init__(files, path)
            self._make_directories()
            self._sweep()
            self._objects = object_sizes(self)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        self._lock.release()

    def _make_directories(self) -> None:
        missing = [name for name in (OBJECTS, BACKUPS) if not self.files.exists(join(self.path, name))]
        for name in missing:
            self.files.make_directory(join(self.path, name))
        if missing:
            self.files.sync_directory(self.path)

    def _sweep(self) -> None:
        """Removes objects that a killed run was writing."""
        directory = join(self.path, OBJECTS)
        for name in self.files.files_in(directory):
            if name.endswith(TEMPORARY):
                self.files.remove(join(directory, name))

    # Existing objects

    def has(self, file: StoredFile) -> bool:
        return self._objects.get(file.sha256) == file.size

    def known_segments(self) -> KnownSegments:
        return known_segments(self)

    # Writing

    def put(self, file: File, end: int, copied: Copied, chunks: ChunkChecksums | None = None) -> StoredFile:
        """Stores the first `end` bytes of `file` as an object. Durable once `commit` has made its name so."""
        with self._new_object() as target:
            digest = copy_bytes(file, target, end, copied, chunks)
            self._adopt(target, digest, end, copied)
        return StoredFile(name_of(file.path), end, digest)

    def put_whole(self, name: str, data: Data, copied: Copied) -> StoredFile:
        """Stores a small file that is in memory."""
        digest = sha256_of(data)
        if self._objects.get(digest) != len(data):
            with self._new_object() as target:
                target.write_at(0, data)
                self._adopt(target, digest, len(data), copied)
        return StoredFile(name, len(data), digest)

    @contextmanager
    def _new_object(self) -> Iterator[File]:
        """Yields a temporary file, which is removed on exit unless it was adopted."""
        file = self.files.open(join(join(self.path, OBJECTS), f"new{TEMPORARY}"), create=True)
        try:
            file.truncate(0)
            yield file
        finally:
            file.close()
            remove_if_there(self.files, file.path)

    def _adopt(self, file: File, digest: str, size: int, copied: Copied) -> None:
        """Syncs the object before it gets its name."""
        if self._objects.get(digest) != size:
            file.sync()
            file.forget_cached()
            self.files.rename(file.path, self.object_path(digest))
            self._objects[digest] = size
            copied.stored_bytes += size

    def note(self, topic_id: str | None, log_name: str, segment: StoredSegment) -> None:
        """Adds a line to the journal. Not synced: losing it in a power cut only costs copying the segment again."""
        entry = {"topic_id": topic_id, "log": log_name, "segment": asdict(segment)}
        line = b"\n" + json.dumps(entry).encode() + b"\n"  # the first newline ends a line that a kill left incomplete
        journal = self.files.open(join(self.path, JOURNAL), create=True)
        try:
            journal.write_at(journal.size(), line)
        finally:
            journal.close()

    def commit(self, manifest: Manifest) -> None:
        """Makes the backup durable."""
        self.files.sync_directory(join(self.path, OBJECTS))
        replace_whole(self.files, self._manifest_path(manifest.id), manifest.encode())
        remove_if_there(self.files, join(self.path, JOURNAL))

    def delete(self, backup_ids: Iterable[str]) -> None:
        """Deletes these backups; `collect` removes the objects that only they had."""
        for backup_id in backup_ids:
            self.files.remove(self._manifest_path(backup_id))
        self.files.sync_directory(join(self.path, BACKUPS))

    def collect(self) -> int:
        """Removes the objects that no backup has, and returns their bytes. Removes nothing if a manifest cannot be
        read, because its objects are unknown.
        """
        manifests, bad = self.manifests()
        if bad:
            return 0
        wanted = {file.sha256 for manifest in manifests for file in manifest.files}
        unwanted = [digest for digest in self._objects if digest not in wanted]
        for digest in unwanted:
            self.files.remove(self.object_path(digest))
        return sum(self._objects.pop(digest) for digest in unwanted)


def _check_layout(path: str, marker: bytes) -> None:
    text = marker.decode(errors="replace").strip()
    if not text.isdigit() or int(text) > LAYOUT_VERSION:
        raise NotForBackups(
            f"{path} has backups of version {text!r}, and this release knows {LAYOUT_VERSION}: use a newer release"
        )


def _make_ready(files: Files, path: str) -> None:
    """Marks the directory as one of backups, durably."""
    if not files.exists(path):
        files.make_directory(path)
        files.sync_directory(parent(path))
    elif files.exists(join(path, MARKER)):
        return
    elif set(files.files_in(path)) - {LOCK_FILE, MARKER + ".tmp"} or files.directories_in(path):
        raise NotForBackups(f"{path} is not empty, and holds no backups. Choose another directory")
    replace_whole(files, join(path, MARKER), f"{LAYOUT_VERSION}\n".encode())
