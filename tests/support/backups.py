"""Backups for tests: of a broker without a server, on a disk in memory, and of what happens to files meanwhile."""

from collections.abc import Callable
from itertools import count
from typing import Any

from brokers import LocalBroker
from logs import SMALL, batch_of, memory_files, stored_batches, write_log

from tailrace.backup.copy import Copied
from tailrace.backup.create import Creation, Result, open_source
from tailrace.backup.manifest import Manifest
from tailrace.backup.restore import Restored, restore
from tailrace.backup.store import Store, WritableStore
from tailrace.backup.verify import BackupVerification, verify_backup
from tailrace.log.disk.interface import File, Files, Lock
from tailrace.log.log import Log
from tailrace.testing.recording_files import RecordingFiles

DATA, DEST, RESTORED = "disk/data", "disk/backups", "disk/restored"

_clock = count(1_800_000_000_000)


def a_source(files: RecordingFiles | None = None, *, batches: int = 30) -> tuple[RecordingFiles, LocalBroker]:
    """A broker with a topic of many small segments, on a disk in memory."""
    files = files or memory_files()
    broker = LocalBroker(DATA, files=files)
    broker.create_topic("orders")
    broker.produce(b"first")
    broker.log().configure(SMALL)
    write_log(broker.log(), batches)
    broker.log().flush()
    return files, broker


def back_up(files: Files, copied: Copied | None = None, *, sleep: Callable[[float], None] = lambda _: None) -> Result:
    store = WritableStore(files, DEST)
    try:
        source = open_source(files, DATA)
        creation = Creation(source, store, copied or Copied(), now_ms=lambda: next(_clock), sleep=sleep)
        return creation.run()
    finally:
        store.close()


def verified(files: Files, backup_id: str | None = None) -> BackupVerification:
    store = Store(files, DEST)
    manifest = store.latest() if backup_id is None else store.manifest(backup_id)
    return verify_backup(store, manifest, Copied(), {})


def restored(files: Files, backup_id: str | None = None, **options: Any) -> Restored:
    store = Store(files, DEST)
    manifest: Manifest = store.latest() if backup_id is None else store.manifest(backup_id)
    return restore(store, manifest, RESTORED, Copied(), **options)


def write_more(log: Log, batches: int) -> None:
    for number in range(batches):
        log.append(batch_of(1 + number % 3, time=5000 + number), 5000 + number)


def batches_of(log: Log) -> dict[int, bytes]:
    """What readers find."""
    return stored_batches(log)


class WatchedFiles:
    """Implements `tailrace.log.disk.interface.Files` on top of another one, and reports each call before it is made."""

    def __init__(self, files: Files, tell: Callable[[str, str], None]) -> None:
        self._files = files
        self.tell = tell

    def open(self, path: str, *, create: bool = False) -> "WatchedFile":
        self.tell("open", path)
        return WatchedFile(self, self._files.open(path, create=create))

    def lock(self, path: str) -> Lock | None:
        return self._files.lock(path)

    def __getattr__(self, name: str) -> Any:
        def call(path: str, *others: Any) -> Any:
            self.tell(name, path)
            return getattr(self._files, name)(path, *others)

        return call


class WatchedFile:
    def __init__(self, files: WatchedFiles, file: File) -> None:
        self._files = files
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self._files.tell(name, self._file.path)
            return getattr(self._file, name)(*arguments, **options)

        return call


class Killed(BaseException):
    """The process is gone: nothing is tidied up."""


def counting(then: Callable[[int], None]) -> tuple[Callable[[str, str], None], list[int]]:
    """Something to be told of calls, which passes on their number, and how many there were."""
    calls = [0]

    def tell(_: str, __: str) -> None:
        calls[0] += 1
        then(calls[0])

    return tell, calls
