"""Verifies a backup: every object by its hash, and every log as `tailrace log verify` does.

Two things can be wrong. An object may be corrupt in the store: its SHA-256 differs, and each file that uses it is
damaged. Or a log was already damaged when it was copied: the backup holds it as it was, and its batches fail the same
checks as in a broker.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tailrace.backup.copy import Copied, CutShort, sha256_of_file
from tailrace.backup.manifest import Manifest, StoredFile
from tailrace.backup.store import Store
from tailrace.backup.view import ROOT, BackupFiles
from tailrace.log.disk.interface import join
from tailrace.log.files.directory_state import DirectoryState, PartitionDirectory
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.names import parse_partition
from tailrace.log.tools.locate import Places
from tailrace.log.tools.verify import Verification, verify


@dataclass(frozen=True, slots=True)
class BadObject:
    """A corrupt or missing object, and the files that need it."""

    path: str
    reason: str
    files: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {"path": self.path, "reason": self.reason, "files": list(self.files)}


@dataclass(slots=True)
class BackupVerification:
    manifest: Manifest
    logs: Verification
    bad_objects: list[BadObject] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return not self.bad_objects and self.logs.healthy

    def as_json(self) -> dict[str, object]:
        return {
            "backup": self.manifest.id,
            "bad_objects": [bad.as_json() for bad in self.bad_objects],
            **self.logs.as_json(),
            "healthy": self.healthy,
        }


def verify_backup(
    store: Store, manifest: Manifest, copied: Copied, checked: dict[str, str | None]
) -> BackupVerification:
    """Verifies one backup. `checked` collects the objects that were verified, so that another backup can skip them."""
    bad = list(bad_objects(store, manifest, copied, checked))
    return BackupVerification(manifest, _verify_logs(store, manifest, {log.name for log in manifest.logs}, copied), bad)


def bad_objects(
    store: Store, manifest: Manifest, copied: Copied, checked: dict[str, str | None]
) -> Iterator[BadObject]:
    users: dict[StoredFile, list[str]] = {}
    for log in manifest.logs:
        for file in log.files:
            users.setdefault(StoredFile("", file.size, file.sha256), []).append(f"{log.name}/{file.name}")
    for file, names in users.items():
        if file.sha256 not in checked:
            checked[file.sha256] = fault_of(store, file, copied)
        if (reason := checked[file.sha256]) is not None:
            yield BadObject(store.object_path(file.sha256), reason, tuple(names))


def fault_of(store: Store, stored: StoredFile, copied: Copied) -> str | None:
    """Returns what is wrong with an object, if anything."""
    file = store.files.open(store.object_path(stored.sha256))
    try:
        file.pin()
    except FileNotFoundError:
        return "it is missing"
    try:
        if file.size() != stored.size:
            return f"the object has {file.size()} bytes, expected {stored.size}"
        digest = sha256_of_file(file, stored.size, copied)
        return None if digest == stored.sha256 else "the bytes do not match their hash"
    except (CutShort, OSError) as error:
        return f"the object cannot be read: {error.strerror or error}"
    finally:
        file.unpin()
        file.close()


def damage_of(store: Store, manifest: Manifest, names: Collection[str], copied: Copied) -> list[DamagedRange]:
    """Finds the damage in these logs of a backup that is being made."""
    return _verify_logs(store, manifest, names, copied).damage if names else []


def _verify_logs(store: Store, manifest: Manifest, names: Collection[str], copied: Copied) -> Verification:
    present = [log for log in manifest.logs if log.name in names]
    view = BackupFiles(store, manifest)
    state = DirectoryState(view, ROOT)
    found: list[PartitionDirectory] = []
    for log in present:
        partition = parse_partition(log.name)
        if partition is not None:
            found.append(state.partition_directory(join(ROOT, log.name), partition, f"{log.name}/"))
    return verify(view, Places(tuple(found), state), copied.progress)
