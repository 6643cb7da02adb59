"""A closed range of topics: its bounds, its size, and what is missing from it.

Made before a replay reads anything. An end can be a place in the log (offsets, the first, the last) or a time. Records
of a time are those whose own timestamp is of that time; as timestamps need not be in order, a range that ends at a time
is read to the end of the log, and what is not of the time is left out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from tailrace.client.admin.configs import topic_configs
from tailrace.client.cluster.cluster import Cluster, cluster_for
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.fetch import PartitionReader
from tailrace.client.offsets import earliest, latest, list_offsets
from tailrace.spark.source.bounds import partitions_of, require_all, topics_of
from tailrace.spark.source.options import BadOptions, source_options
from tailrace.spark.source.positions import Offsets, Positions
from tailrace.util.times import NoTime, milliseconds, parse

SAMPLED_MAX = 8  # partitions whose first records are looked at, to tell how large records are
EARLIEST, LATEST, NOW = "earliest", "latest", "now"

When = str | datetime | Mapping[str, Mapping[int, int]]


class Completeness(StrEnum):
    COMPLETE = "complete"
    MAYBE = "maybe complete"  # records before the first one were deleted: whether some were of the range is not known
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class Gap:
    what: str
    is_certain: bool

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class End:
    """One end of a range: a word, a time in ms, or offsets."""

    word: str | None = None
    time_ms: int | None = None
    offsets: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets of one partition that are read, from `start` to before `end`. `count` of them belong to the range, or
    about as many if a time ends it.
    """

    place: TopicPartition
    start: int
    end: int
    count: int
    bytes_per_offset: float | None = None  # of those that were looked at


@dataclass(frozen=True, slots=True)
class ReplayRange:
    parts: tuple[PartitionRange, ...]
    gaps: tuple[Gap, ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def completeness(self) -> Completeness:
        if any(gap.is_certain for gap in self.gaps):
            return Completeness.INCOMPLETE
        return Completeness.MAYBE if self.gaps else Completeness.COMPLETE

    @property
    def count(self) -> int:
        """The number of offsets: there are at most as many records."""
        return sum(part.count for part in self.parts)

    @property
    def bytes(self) -> int:
        """The size on disk, compressed or not: an estimate."""
        sizes = [(part.bytes_per_offset, part.count) for part in self.parts if part.bytes_per_offset is not None]
        weight = sum(count for _, count in sizes)
        return int(sum(size * count for size, count in sizes) / weight * self.count) if weight else 0

    def source_options(self) -> dict[str, str]:
        """The options of the format. They fix offsets, so that records deleted between plan and reading are noticed."""
        options = {"startingOffsets": _printed({part.place: part.start for part in self.parts})}
        if self.to_ms is not None:
            return options | {"endingTimestamp": str(self.to_ms)}
        return options | {"endingOffsets": _printed({part.place: part.end for part in self.parts})}


def replay_range_of(options: Mapping[str, str], first: End, last: End) -> ReplayRange:
    """`options` are the format's, without ends. Raises BadOptions, and what the client raises."""
    given = source_options(options, is_stream=False)
    if first.time_ms is not None and last.time_ms is not None and last.time_ms <= first.time_ms:
        raise BadOptions("the range ends before it begins")
    cluster = cluster_for(given.client)
    topics = topics_of(cluster, given)
    places = partitions_of(topics, given)
    log_starts, log_ends = earliest(cluster, places), latest(cluster, places)
    starts, gaps = _starts(cluster, first, log_starts, log_ends)
    gaps += _compacted(cluster, topics)
    stops, counted = _stops(cluster, last, log_ends)
    parts = [_part(place, starts[place], stops[place], counted[place]) for place in places]
    return ReplayRange(tuple(_sampled(cluster, parts)), tuple(gaps), first.time_ms, last.time_ms)


def start_from(given: When) -> End:
    """Raises BadOptions."""
    return _end_from(given, (EARLIEST,))


def stop_from(given: When) -> End:
    """Raises BadOptions."""
    return _end_from(given, (LATEST, NOW))


def _end_from(given: When, words: tuple[str, ...]) -> End:
    if isinstance(given, datetime):
        return End(time_ms=milliseconds(given.astimezone()))
    if not isinstance(given, str):
        places = ((TopicPartition(name, int(index)), at) for name, ends in given.items() for index, at in ends.items())
        return End(offsets=dict(places))
    if given in words:
        return End(word=given)
    try:
        return End(time_ms=milliseconds(parse(given, datetime.now(UTC))))
    except NoTime as error:
        raise BadOptions(f"{error}; or {' or '.join(words)}") from error


def _part(place: TopicPartition, start: int, stop: int, counted: int) -> PartitionRange:
    return PartitionRange(place, start, max(start, stop), max(0, counted - start))


def _starts(cluster: Cluster, end: End, log_starts: Offsets, log_ends: Offsets) -> tuple[Offsets, list[Gap]]:
    """Returns where reading begins, and what is missing there."""
    if end.time_ms is not None:
        return _at(cluster, end.time_ms, log_ends), list(_deleted_before(log_starts))
    wanted = end.offsets or dict.fromkeys(log_starts, 0)
    require_all(wanted, log_starts, "the range")
    gaps = [
        Gap(f"{place}: offsets {at} to {log_starts[place] - 1} were deleted", True)
        for place, at in sorted(wanted.items())
        if at < log_starts[place]
    ]
    return {place: max(at, log_starts[place]) for place, at in wanted.items()}, gaps


def _deleted_before(log_starts: Offsets) -> Iterator[Gap]:
    """Times need not be in order, so what was deleted before a log's first record may have been of any time."""
    for place, at in sorted(log_starts.items()):
        if at > 0:
            yield Gap(f"{place}: offsets before {at} were deleted, and some may have been of the range", False)


def _stops(cluster: Cluster, end: End, log_ends: Offsets) -> tuple[Offsets, Offsets]:
    """Returns where reading ends and where the range ends: not exactly the same if a time ends the range."""
    if end.time_ms is not None:
        return log_ends, _at(cluster, end.time_ms, log_ends)
    wanted = end.offsets or log_ends
    require_all(wanted, log_ends, "the range")
    if beyond := [place for place, at in wanted.items() if at > log_ends[place]]:
        place = min(beyond)
        raise BadOptions(f"the range ends at offset {wanted[place]} of {place}, which ends at {log_ends[place]}")
    return wanted, wanted


def _at(cluster: Cluster, time_ms: int, log_ends: Offsets) -> Offsets:
    """The first record of that time or later; the end where there is none."""
    found = list_offsets(cluster, dict.fromkeys(log_ends, time_ms))
    return {place: log_ends[place] if one is None else one.offset for place, one in found.items()}


def _compacted(cluster: Cluster, topics: Iterable[str]) -> list[Gap]:
    policies = topic_configs(cluster, topics, "cleanup.policy")
    return [
        Gap(f"{name} is compacted: of records with the same key, older ones may be gone", False)
        for name, policy in sorted(policies.items())
        if "compact" in (policy or "")
    ]


def _sampled(cluster: Cluster, parts: list[PartitionRange]) -> Iterator[PartitionRange]:
    left = SAMPLED_MAX
    for part in parts:
        if left and part.count:
            left -= 1
            part = replace(part, bytes_per_offset=_bytes_per_offset(cluster, part))
        yield part


def _bytes_per_offset(cluster: Cluster, part: PartitionRange) -> float | None:
    with PartitionReader(cluster, *part.place, part.start, part.end) as reader:
        for chunk in reader:
            (_, first), (_, last) = chunk.batches[0], chunk.batches[-1]
            return len(chunk.records) / (last.next_offset - first.base_offset)
    return None


def _printed(offsets: Offsets) -> str:
    return json.dumps(Positions(offsets).to_json())
