"""The manifest of a backup: its logs, their segments, and the hash of each file.

The manifest is one JSON document, checked by a SHA-256 of its own. Whatever is large is in the store, by the SHA-256 of
its bytes; what a data directory says in small text files (checkpoints, epochs, topic ids) is in the manifest itself.
docs/BACKUP.md has the layout.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tailrace.log.layout.names import SUMS, parse_numbered

VERSION = 1
_KIND = "tailrace backup"


class BadManifest(ValueError):
    """These bytes are no manifest that this release can read."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a partition, and the object that has its bytes."""

    name: str
    size: int
    sha256: str

    @property
    def suffix(self) -> str:
        parsed = parse_numbered(self.name)
        return parsed[1] if parsed else ""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """`files` begins with the log itself; what is derived follows, where its sums vouch for it."""

    base_offset: int
    next_offset: int
    files: tuple[StoredFile, ...]

    @property
    def log(self) -> StoredFile:
        return self.files[0]

    @property
    def sums(self) -> StoredFile | None:
        """They speak of every byte of the log: the same sums are of the same log."""
        return next((file for file in self.files if file.suffix == SUMS), None)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """`topic_id` is hexadecimal. What nobody knows is None."""

    name: str
    topic_id: str | None
    start_offset: int
    end_offset: int
    recovery_point: int | None
    epochs: tuple[tuple[int, int], ...] | None
    segments: tuple[StoredSegment, ...]
    snapshots: tuple[StoredFile, ...] = ()
    gaps: StoredFile | None = None  # what repairs have given up

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
    """`copied_bytes` went into the store with this backup; the other bytes of it were there."""

    id: str
    source: str
    directory_id: str
    data_format: int
    began_ms: int
    ended_ms: int = 0
    tailrace: str = ""
    copied_bytes: int = 0
    logs: list[StoredLog] = field(default_factory=list)
    damage: list[dict[str, Any]] = field(default_factory=list)  # that the source had, by the names of its files

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
        """Raises BadManifest where a byte is wrong, or the version is one of a later release."""
        try:
            body = json.loads(data)
            if body.pop("kind") != _KIND:
                raise BadManifest("it is not a backup's manifest")
            if body["version"] > VERSION:
                raise BadManifest(
                    f"it has version {body['version']}, and this release knows {VERSION}: use a newer one"
                )
            if body.pop("sha256") != _sha256_of({"kind": _KIND, **body}):
                raise BadManifest("its checksum does not match")
            del body["version"]
            logs = [_log(log) for log in body.pop("logs")]
            return cls(**body, logs=logs)
        except BadManifest:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # Not `repr`, which of a wrong byte shows all bytes.
            raise BadManifest(f"it cannot be read: {type(error).__name__}: {str(error)[:200]}") from None


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
    """The same whether its sequences are tuples or lists."""
    return hashlib.sha256(_dump(body)).hexdigest()


class KnownSegments:
    """What is in the store already: sealed segments by what says that they are the same.

    That is the topic's id, the partition, the first offset, the size and the sums, which have a CRC-32C for every MiB.
    Compaction and repair write other sums.
    """

    def __init__(self) -> None:
        self._segments: dict[tuple[str | None, str, int, int, str], StoredSegment] = {}

    def add(self, topic_id: str | None, log_name: str, segment: StoredSegment) -> None:
        if (sums := segment.sums) is not None:
            self._segments[topic_id, log_name, segment.base_offset, segment.log.size, sums.sha256] = segment

    def add_all(self, manifest: Manifest) -> None:
        """All but those that were damaged: they are copied again, so that each backup says what is wrong with it."""
        damaged = {damage["file"] for damage in manifest.damage}
        for log in manifest.logs:
            for segment in log.segments:
                if f"{log.name}/{segment.log.name}" not in damaged:
                    self.add(log.topic_id, log.name, segment)

    def find(
        self, topic_id: str | None, log_name: str, base_offset: int, size: int, sums_sha256: str
    ) -> StoredSegment | None:
        return self._segments.get((topic_id, log_name, base_offset, size, sums_sha256))
