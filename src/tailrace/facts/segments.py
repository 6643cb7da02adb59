"""`__tailrace_segments`: the segments of each partition, and what decides when they go. Compacted, one record each.

Published when a segment is rolled or deleted, when a compaction replaces segments, and when one of the configs below
changes; at most once a second per partition. Removed with the topic. Key: topic id and partition. A partition that has
had one segment from the beginning has no record. The last segment is the active one, as it was when the record was
written.

The values of the whole broker (`tick_…`, `budget_bytes`, `all_logs_bytes`) are those of `at`: the newest record of any
partition has the current ones. After a start the broker writes a record again, as the ticks of retention have moved.
"""

from typing import NamedTuple

from tailrace.facts import document
from tailrace.facts.document import UnreadableFact

VERSION = 1


class SegmentFact(NamedTuple):
    """`next` is the offset behind the segment, `size` its bytes, `newest` its largest timestamp, None if unknown. A
    partition of very many segments is published with some of them joined, the oldest excepted: `newest` is then that of
    the first.
    """

    base: int
    next: int
    size: int
    newest: int | None


class PartitionFact(NamedTuple):
    """One partition as its broker knows it. Limits are -1 where there is none. What is held follows from the commits of
    `hold_groups`.
    """

    topic: str
    topic_id: str
    partition: int
    at: int
    start: int
    segments: tuple[SegmentFact, ...]
    deletes: bool
    compacts: bool
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    tick_ms: int  # of retention
    policy: str = "drop"
    hold_bytes: int = -1
    hold_ms: int = -1
    hold_groups: tuple[str, ...] = ()
    budget_bytes: int = -1
    all_logs_bytes: int = 0
    tick_at: int = 0  # retention checks at this time, and each `tick_ms` before and after it
    hold_expiry_ms: int = -1  # after the last sign of a group, without members and commits, nothing is held for it
    hold_signs: tuple[int, ...] = ()  # the last sign of each of these groups, at `at`; none while that is not known
    active_since: int | None = None  # when the active segment began: the first append after `segment_ms` rolls it

    @property
    def key(self) -> bytes:
        return key_of(self.topic_id, self.partition)

    def encode(self) -> bytes:
        return document.encode(VERSION, self._asdict())


def key_of(topic_id: str, partition: int) -> bytes:
    return document.encode(VERSION, {"of": [topic_id, partition]})


def decode(value: bytes) -> PartitionFact:
    """Raises UnreadableFact."""
    fields = document.decode(value, VERSION)
    try:
        segments = tuple(SegmentFact(*segment) for segment in fields.pop("segments"))
        lists = {name: tuple(fields.get(name, ())) for name in ("hold_groups", "hold_signs")}
        return PartitionFact(**{**fields, **lists}, segments=segments)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFact(f"not a partition's segments: {error}") from None
