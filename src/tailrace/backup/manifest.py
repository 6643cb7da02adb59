"""The manifest of a backup: its logs, their segments, and the hash of each file.

The manifest is one JSON document with a SHA-256 of its own. Large files are in the store, by the SHA-256 of their
bytes; the small text files of a data directory (checkpoints, epochs, topic ids) are in the manifest itself.
docs/BACKUP.md has the layout.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tailrace.log.layout.names import CHECKSUMS, parse_numbered

VERSION = 1
_KIND = "tailrace backup"


class BadManifest(ValueError):
    """The bytes are not a manifest that this release can read."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a partition, and the object that holds its bytes."""

    name: str
    size: int
    sha256: str

    @property
    def suffix(self) -> str:
        parsed = parse_numbered(self.name)
        return parsed[1] if parsed else ""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """`files` begins with the log file; its derived files follow if they match the checksums."""

    base_offset: int
    next_offset: int
    files: tuple[StoredFile, ...]

    @property
    def log(self) -> StoredFile:
        return self.files[0]

    @property
    def checksums(self) -> StoredFile | None:
        """The checksum file. It covers every byte of the log: logs with equal checksum files are equal."""
        return next((file for file in self.files if file.suffix == CHECKSUMS), None)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """One log of the backup. `topic_id` is hexadecimal. Unknown values are None."""

    name: str
    topic_id: str | None
    start_offset: int
    end_offset: int
    recovery_point: int | None
    epochs: tuple[tuple[int, int], ...] | None
    segments: tuple[StoredSegment, ...]
    snapshots: tuple[StoredFile, ...] = ()
    gaps: StoredFile | None = None  # ranges that repairs removed

    @property
    def files(self) -> Iterator[StoredFile]:
        for segment in self.segments:
            yield from segment.files
        yield from self.snapshots
        if self.gaps is not None:
            yield self.gaps

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(slots=True)
class Manifest:
    """`copied_bytes` are those that this backup added to the store."""

    id: str
    source: str
    directory_id: str
    data_format: int
    began_ms: int
    ended_ms: int = 0
    tailrace: str = ""
    copied_bytes: int = 0
    logs: list[StoredLog] = field(default_factory=list)
    damage: list[dict[str, Any]] = field(default_factory=list)  # damage found in the source, by file name

    @property
    def files(self) -> Iterator[StoredFile]:
        for log in self.logs:
            yield from log.files

    @property
    def size(self) -> int:
        return sum(log.size for log in self.logs)

    def encode(self) -> bytes:
        body = {"kind": _KIND, "version": VERSION, **asdict(self)}
        return _dump({**body, "sha256": _sha256_of(body)}) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> "Manifest":
        """Raises BadManifest for corrupt bytes, or the version of a later release."""
        try:
            body = json.loads(data)
            if body.pop("kind") != _KIND:
                raise BadManifest("not a manifest of a backup")
            if body["version"] > VERSION:
                raise BadManifest(
                    f"the manifest has version {body['version']}, and this release knows {VERSION}: use a newer release"
                )
            if body.pop("sha256") != _sha256_of({"kind": _KIND, **body}):
                raise BadManifest("its checksum does not match")
            del body["version"]
            logs = [_log(log) for log in body.pop("logs")]
            return cls(**body, logs=logs)
        except BadManifest:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # Not `repr`: that of a UnicodeDecodeError shows all bytes.
            raise BadManifest(f"the manifest cannot be read: {type(error).__name__}: {str(error)[:200]}") from None


def segment_from(body: dict[str, Any]) -> StoredSegment:
    return StoredSegment(body["base_offset"], body["next_offset"], tuple(_file(file) for file in body["files"]))


def _file(body: dict[str, Any]) -> StoredFile:
    return StoredFile(body["name"], body["size"], body["sha256"])


def _log(body: dict[str, Any]) -> StoredLog:
    epochs = body["epochs"]
    return StoredLog(
        name=body["name"],
        topic_id=body["topic_id"],
        start_offset=body["start_offset"],
        end_offset=body["end_offset"],
        recovery_point=body["recovery_point"],
        epochs=None if epochs is None else tuple((epoch, start) for epoch, start in epochs),
        segments=tuple(segment_from(segment) for segment in body["segments"]),
        snapshots=tuple(_file(file) for file in body["snapshots"]),
        gaps=_file(body["gaps"]) if body.get("gaps") else None,
    )


def _dump(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _sha256_of(body: dict[str, Any]) -> str:
    """Returns the same hash for tuples and lists."""
    return hashlib.sha256(_dump(body)).hexdigest()


class KnownSegments:
    """The sealed segments that the store already has, by identity.

    A segment is identified by topic id, partition, first offset, size and checksum file, which has a CRC-32C for every
    MiB. Compaction and repair change the checksum file.
    """

    def __init__(self) -> None:
        self._segments: dict[tuple[str | None, str, int, int, str], StoredSegment] = {}

    def add(self, topic_id: str | None, log_name: str, segment: StoredSegment) -> None:
        if (checksums := segment.checksums) is not None:
            self._segments[topic_id, log_name, segment.base_offset, segment.log.size, checksums.sha256] = segment

    def add_all(self, manifest: Manifest) -> None:
        """Adds all segments but damaged ones: those are copied again, so that each backup reports the damage."""
        damaged = {damage["file"] for damage in manifest.damage}
        for log in manifest.logs:
            for segment in log.segments:
                if f"{log.name}/{segment.log.name}" not in damaged:
                    self.add(log.topic_id, log.name, segment)

    def find(
        self, topic_id: str | None, log_name: str, base_offset: int, size: int, sums_sha256: str
    ) -> StoredSegment | None:
        return self._segments.get((topic_id, log_name, base_offset, size, sums_sha256))
