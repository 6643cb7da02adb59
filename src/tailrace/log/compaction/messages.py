"""The messages between the broker and a compaction pass: plain values that go through a pipe as JSON, a line each."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from tailrace.log.compaction.filter import LastOfProducer
from tailrace.log.files.index import AbortedTransaction


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Of the broker, for every pass. The names are those of `log.cleaner.*`."""

    dedupe_buffer_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_bytes_per_second: float = 0  # 0: as fast as it can


@dataclass(frozen=True, slots=True)
class PassSpec:
    """One pass over the segments of a log, from its first one on. What lies before `first_dirty` was compacted."""

    directory: str
    segments: list[tuple[int, int]]  # base offset and bytes
    end: int  # the offset behind the last of them
    first_dirty: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_interval_bytes: int
    settings: CleanerSettings = CleanerSettings()
    aborted: list[AbortedTransaction] = field(default_factory=list)
    producers: dict[int, LastOfProducer] = field(default_factory=dict)

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> "PassSpec":
        values: dict[str, Any] = json.loads(text)
        values["segments"] = [(base, size) for base, size in values["segments"]]
        values["settings"] = CleanerSettings(**values["settings"])
        values["aborted"] = [AbortedTransaction(*one) for one in values["aborted"]]
        values["producers"] = {int(number): LastOfProducer(*last) for number, last in values["producers"].items()}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """Some segments in a row, and the one that may take their place: its files are on disk, under other names."""

    bases: list[int]
    size: int
    suffixes: list[str]

    @property
    def base_offset(self) -> int:
        return self.bases[0]


@dataclass(slots=True)
class PassResult:
    """Said at the end. All before `end` is compacted once every group has taken its place."""

    end: int
    bytes_read: int = 0
    bytes_written: int = 0
    keys: int = 0
    without_key: int = 0
    unreadable: int = 0
    next_horizon_ms: int | None = None  # when something that stayed may go
    seconds: float = 0.0
    peak_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PassFailed:
    """Said instead. `damaged_base` where the log is to blame, of the segment whose bytes cannot be trusted: those are
    never compacted.
    """

    reason: str
    damaged_base: int | None = None

    @property
    def is_damage(self) -> bool:
        return self.damaged_base is not None


Said = CleanedGroup | PassResult | PassFailed
_KINDS: dict[str, type[Said]] = {kind.__name__: kind for kind in (CleanedGroup, PassResult, PassFailed)}


def encode_said(said: Said) -> str:
    return json.dumps([type(said).__name__, asdict(said)])


def decode_said(line: str) -> Said:
    kind, values = json.loads(line)
    return _KINDS[kind](**values)
