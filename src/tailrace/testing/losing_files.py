"""Real files that lose what was not synced when the process is killed.

A kill leaves the page cache alone, so a test that only kills proves nothing about fsync. Here written bytes stay in
this process until their file is synced, and only then reach the operating system: after a kill, the disk holds what a
power cut would leave in the worst case. `lies_about` makes the sync of matching files do nothing: a test that still
passes then proves nothing.
"""

from tailrace.log.disk.interface import Data, File
from tailrace.log.disk.os_files import OperatingSystemFiles


class LosingFiles(OperatingSystemFiles):
    """Names are changed on disk at once; bytes are held back until their file is synced."""

    def __init__(self, *, lies_about: str | None = None) -> None:
        super().__init__()
        self._lies_about = lies_about
        self._pending: dict[str, PendingBytes] = {}

    def open(self, path: str, *, create: bool = False) -> "LosingFile":  # type: ignore[override]
        file = super().open(path, create=create)
        return LosingFile(self, file, self._pending.setdefault(path, PendingBytes()))

    def is_honest_about(self, path: str) -> bool:
        return self._lies_about is None or not path.endswith(self._lies_about)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        moved = [path for path in self._pending if path == source or path.startswith(source + "/")]
        for path in moved:
            self._pending[target + path.removeprefix(source)] = self._pending.pop(path)

    def remove(self, path: str) -> None:
        super().remove(path)
        self._pending.pop(path, None)

    def files_in(self, directory: str) -> dict[str, int]:
        sizes = super().files_in(directory)
        return {name: max(size, self._pending_end(directory, name)) for name, size in sizes.items()}

    def _pending_end(self, directory: str, name: str) -> int:
        pending = self._pending.get(f"{directory}/{name}")
        return pending.end if pending is not None else 0


class PendingBytes:
    """Bytes written to a file and not synced, in order."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, bytes]] = []

    @property
    def end(self) -> int:
        return max((position + len(data) for position, data in self.writes), default=0)


class LosingFile:
    """Implements `tailrace.log.disk.interface.File`."""

    def __init__(self, files: LosingFiles, file: File, pending: PendingBytes) -> None:
        self._files = files
        self._file = file
        self._pending = pending

    @property
    def path(self) -> str:
        return self._file.path

    def write_at(self, position: int, data: Data) -> None:
        self._pending.writes.append((position, bytes(data)))

    def write_synced_at(self, position: int, data: Data) -> None:
        self.write_at(position, data)
        self.sync()

    def write_past_cache(self) -> None:
        pass

    def read_at(self, position: int, size: int) -> bytes:
        data = bytearray(self._file.read_at(position, size))
        for start, written in self._pending.writes:
            self._overlay(data, start - position, written, size)
        return bytes(data)

    def _overlay(self, data: bytearray, at: int, written: bytes, size: int) -> None:
        if at < 0:
            at, written = 0, written[-at:]
        written = written[: max(0, size - at)]
        if written:
            data.extend(bytes(max(0, at - len(data))))
            data[at : at + len(written)] = written

    def read_cached_at(self, position: int, size: int) -> Data | None:
        return self.read_at(position, size)

    def size(self) -> int:
        return max(self._file.size(), self._pending.end)

    def truncate(self, size: int) -> None:
        self._pending.writes = [(start, data[: size - start]) for start, data in self._pending.writes if start < size]
        if size < self._file.size():
            self._file.truncate(size)

    def reserve(self, position: int, size: int) -> bool:
        return False

    def give_back(self) -> None:
        pass

    def sync(self) -> None:
        if self._files.is_honest_about(self.path):
            written, self._pending.writes = self._pending.writes, []
            for position, data in written:
                self._file.write_at(position, data)
            self._file.sync()

    def sync_descriptor(self) -> int | None:
        return None

    def forget_cached(self, position: int = 0, size: int = 0) -> None:
        self._file.forget_cached(position, size)

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        raise NotImplementedError("unsynced bytes cannot be sent from the file")

    def send_cached_to(self, descriptor: int, position: int, size: int) -> int | None:
        return self.send_to(descriptor, position, size)

    def read_ahead(self, position: int, size: int) -> bool:
        return self._file.read_ahead(position, size)

    def descriptor(self) -> int:
        raise NotImplementedError("unsynced bytes cannot be read from the file")

    def pin(self) -> None:
        self._file.pin()

    def unpin(self) -> None:
        self._file.unpin()

    def close(self) -> None:
        self._file.close()
