"""The messages between the broker and a compaction pass: plain values, sent through a pipe as one line of JSON each."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from tailrace.log.compaction.filter import LastOfProducer
from tailrace.log.files.index import AbortedTransaction


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The broker's settings for every pass, named like `log.cleaner.*`."""

    dedupe_buffer_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_bytes_per_second: float = 0  # 0: no limit


@dataclass(frozen=True, slots=True)
class PassSpec:
    """One pass over the segments of a log, from its first one on. Everything before `first_dirty` was
    compacted before.
    """

    directory: str
    segments: list[tuple[int, int]]  # base offset and size in bytes
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
    """Consecutive segments, and the new one that may replace them: its files are on disk, under temporary names."""

    bases: list[int]
    size: int
    suffixes: list[str]

    @property
    def base_offset(self) -> int:
        return self.bases[0]


@dataclass(slots=True)
class PassResult:
    """The last message of a pass. Everything before `end` is compacted once every group was swapped."""

    end: int
    bytes_read: int = 0
    bytes_written: int = 0
    keys: int = 0
    without_key: int = 0
    unreadable: int = 0
    next_horizon_ms: int | None = None  # when a record that was kept may be removed
    seconds: float = 0.0
    peak_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PassFailed:
    """The last message of a failed pass. `damaged_base`: the segment with the untrustworthy bytes, if the log is to
    blame; such bytes are never compacted.
    """

    reason: str
    damaged_base: int | None = None

    @property
    def is_damage(self) -> bool:
        return self.damaged_base is not None


PassMessage = CleanedGroup | PassResult | PassFailed
_KINDS: dict[str, type[PassMessage]] = {kind.__name__: kind for kind in (CleanedGroup, PassResult, PassFailed)}


def encode_message(message: PassMessage) -> str:
    return json.dumps([type(message).__name__, asdict(message)])


def decode_message(line: str) -> PassMessage:
    kind, values = json.loads(line)
    return _KINDS[kind](**values)
