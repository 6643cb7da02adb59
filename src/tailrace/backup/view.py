"""Presents a backup as a data directory, for `verify` and `restore`.

Objects appear under the names that their files had, and the small text files are made from the manifest. It implements
`Files` for reading only.
"""

from typing import NoReturn

from tailrace.backup.manifest import Manifest, StoredFile, StoredLog
from tailrace.backup.store import Store
from tailrace.log.disk.interface import Data, File, Lock, join, parent
from tailrace.log.files.checkpoints import FORMAT_FILE, RECOVERY_POINTS, START_OFFSETS, encode_offsets
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.leader_epochs import EpochStart, LeaderEpochs
from tailrace.log.files.partition_metadata import encode_topic_id
from tailrace.log.layout.names import PARTITION_METADATA, parse_partition

ROOT = "backup"  # the directory's path in this view


def small_files(manifest: Manifest) -> dict[str, bytes]:
    """Returns the small files that the manifest holds, by their paths in the directory. Without the format file, which
    is written last.
    """
    found: dict[str, bytes] = {}
    logs = {partition: log for log in manifest.logs if (partition := parse_partition(log.name)) is not None}
    points = {partition: log.recovery_point for partition, log in logs.items()}
    if None not in points.values():
        known = {partition: point for partition, point in points.items() if point is not None}
        found[RECOVERY_POINTS] = encode_offsets(known)
    found[START_OFFSETS] = encode_offsets({partition: log.start_offset for partition, log in logs.items()})
    for log in manifest.logs:
        found.update(_small_files_of(log))
    return found


def _small_files_of(log: StoredLog) -> dict[str, bytes]:
    found = {}
    if log.topic_id is not None:
        found[join(log.name, PARTITION_METADATA)] = encode_topic_id(bytes.fromhex(log.topic_id))
    if log.epochs is not None:
        starts = [EpochStart(epoch, offset) for epoch, offset in log.epochs]
        found[join(log.name, EPOCHS_FILE)] = LeaderEpochs(starts).encode()
    return found


class BackupFiles:
    """Implements `tailrace.log.disk.interface.Files`, read-only, for the directory `ROOT`."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store = store
        self._stored: dict[str, StoredFile] = {
            join(join(ROOT, log.name), file.name): file for log in manifest.logs for file in log.files
        }
        self._small = {join(ROOT, path): data for path, data in small_files(manifest).items()}
        self._small[join(ROOT, FORMAT_FILE)] = f"{manifest.data_format}\n".encode()
        self._directories = {ROOT: sorted(log.name for log in manifest.logs)}
        self._names: dict[str, dict[str, int]] = {ROOT: {}, **{join(ROOT, log.name): {} for log in manifest.logs}}
        for path, file in self._stored.items():
            self._names[parent(path)][file.name] = file.size
        for path, data in self._small.items():
            self._names[parent(path)][path.rpartition("/")[2]] = len(data)

    def open(self, path: str, *, create: bool = False) -> File:
        assert not create, "a backup is not written through its view"
        if (stored := self._stored.get(path)) is not None:
            return ObjectFile(path, self._store.files.open(self._store.object_path(stored.sha256)))
        return MemoryFile(path, self._small.get(path))

    def files_in(self, directory: str) -> dict[str, int]:
        return dict(self._names[directory])

    def directories_in(self, directory: str) -> list[str]:
        return list(self._directories.get(directory, []))

    def exists(self, path: str) -> bool:
        return path in self._stored or path in self._small or path in self._names

    def modified_ms(self, path: str) -> NoReturn:
        raise PermissionError(path)  # no reader of a backup needs this, or the next one

    def space(self, path: str) -> NoReturn:
        raise PermissionError(path)

    def make_directory(self, path: str) -> None:
        raise PermissionError(path)

    def rename(self, source: str, target: str) -> None:
        raise PermissionError(source)

    def remove(self, path: str) -> None:
        raise PermissionError(path)

    def remove_directory(self, path: str) -> None:
        raise PermissionError(path)

    def sync_directory(self, path: str) -> None:
        raise PermissionError(path)

    def lock(self, path: str) -> Lock | None:
        return None


class ReadOnlyFile:
    """The common base of the two kinds of `tailrace.log.disk.interface.File` here."""

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def write_at(self, position: int, data: Data) -> None:
        raise PermissionError(self._path)

    def write_synced_at(self, position: int, data: Data) -> None:
        raise PermissionError(self._path)

    def write_past_cache(self) -> None:
        raise PermissionError(self._path)

    def truncate(self, size: int) -> None:
        raise PermissionError(self._path)

    def reserve(self, position: int, size: int) -> bool:
        raise PermissionError(self._path)

    def give_back(self) -> None:
        raise PermissionError(self._path)

    def sync(self) -> None:
        raise PermissionError(self._path)

    def sync_descriptor(self) -> int | None:
        return None

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        raise PermissionError(self._path)

    def read_ahead(self, position: int, size: int) -> bool:
        raise PermissionError(self._path)

    def descriptor(self) -> int:
        raise PermissionError(self._path)

    def send_cached_to(self, descriptor: int, position: int, size: int) -> int | None:
        raise PermissionError(self._path)


class ObjectFile(ReadOnlyFile):
    """An object under the name that its file had."""

    def __init__(self, path: str, file: File) -> None:
        super().__init__(path)
        self._file = file

    def read_at(self, position: int, size: int) -> bytes:
        return self._file.read_at(position, size)

    def read_cached_at(self, position: int, size: int) -> Data | None:
        return self._file.read_cached_at(position, size)

    def size(self) -> int:
        return self._file.size()

    def forget_cached(self, position: int = 0, size: int = 0) -> None:
        self._file.forget_cached(position, size)

    def pin(self) -> None:
        self._file.pin()

    def unpin(self) -> None:
        self._file.unpin()

    def close(self) -> None:
        self._file.close()


class MemoryFile(ReadOnlyFile):
    """A file from the manifest. It may not exist: then reading it raises FileNotFoundError."""

    def __init__(self, path: str, data: bytes | None) -> None:
        super().__init__(path)
        self._data = data

    def _content(self) -> bytes:
        if self._data is None:
            raise FileNotFoundError(self._path)
        return self._data

    def read_at(self, position: int, size: int) -> bytes:
        return self._content()[position : position + size]

    def read_cached_at(self, position: int, size: int) -> Data | None:
        return self.read_at(position, size)

    def size(self) -> int:
        return len(self._content())

    def forget_cached(self, position: int = 0, size: int = 0) -> None:
        pass

    def pin(self) -> None:
        self._content()

    def unpin(self) -> None:
        pass

    def close(self) -> None:
        pass
