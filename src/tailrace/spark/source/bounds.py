"""From options to offsets: which partitions are read, and where that begins and ends."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tailrace.client import groups
from tailrace.client.admin.configs import topic_configs
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import Topic, TopicPartition
from tailrace.client.errors import TopicNotFound
from tailrace.client.fetch import PartitionReader
from tailrace.client.offsets import Found, earliest, latest, list_offsets
from tailrace.client.options import Isolation
from tailrace.spark.columns.ranges import ALL, NumberRange
from tailrace.spark.source.losses import LOST_END, Loss, meet
from tailrace.spark.source.options import EARLIEST, FIRST, GROUP, LATEST, NEXT, BadOptions, Bound, SourceOptions
from tailrace.spark.source.positions import Offsets, Positions
from tailrace.spark.source.pushdown import RowFilter

Topics = Mapping[str, Topic]

MARGIN_MS = 3_600_000  # that clocks of leaders are apart at most


@dataclass(frozen=True, slots=True)
class End:
    """The end of a batch, and the range of times of its records; no range means all of them."""

    positions: Positions
    times: Mapping[TopicPartition, NumberRange] = field(default_factory=dict)


def topics_of(cluster: Cluster, options: SourceOptions, *, missing_ok: bool = False) -> Topics:
    """The topics that are to be read, as they are now. Raises TopicNotFound for one that is named and not there,
    unless it is left out.
    """
    pattern, names = options.selection.pattern, options.selection.names
    if pattern is not None:
        everything = cluster.all_topics().items()
        return {name: topic for name, topic in everything if re.fullmatch(pattern, name) and not topic.is_internal}
    found = cluster.topics(names)
    if not missing_ok and (missing := [name for name in names if name not in found]):
        raise TopicNotFound(missing[0])
    return found


def partitions_of(topics: Topics, options: SourceOptions) -> list[TopicPartition]:
    there = [place for topic in topics.values() for place in topic.partitions]
    if not options.selection.partitions:
        return there
    missing = {place for place in options.selection.partitions if place.topic in topics} - set(there)
    if missing:
        raise BadOptions(f"assign names {min(missing)}, and there is no such partition")
    return [place for place in there if place in options.selection.partitions]


def ids_of(topics: Topics) -> dict[str, bytes]:
    return {name: topic.topic_id for name, topic in topics.items() if topic.has_id}


def start_of(cluster: Cluster, options: SourceOptions, topics: Topics) -> Positions:
    """Returns the positions at which a query begins."""
    places = partitions_of(topics, options)
    if options.starting.word == GROUP:
        return Positions(_group_start(cluster, options, places), ids_of(topics))
    return Positions(_resolved(cluster, options.starting, places, "starting"), ids_of(topics))


def end_of(cluster: Cluster, options: SourceOptions, topics: Topics) -> End:
    """Returns the end of a batch."""
    places, ids = partitions_of(topics, options), ids_of(topics)
    before = _times(options.ending, places, "ending")
    if not before:
        return End(Positions(_resolved(cluster, options.ending, places, "ending"), ids))
    return _before(cluster, End(Positions(latest(cluster, places), ids)), before)


def narrowed(cluster: Cluster, start: Positions, end: End, row_filter: RowFilter) -> tuple[Positions, End]:
    """The part of a batch that has the rows that are wanted, and as few others as can be."""
    starts, ends = {}, {}
    for place, at in start.offsets.items():
        is_wanted = (row_filter.topics is None or place.topic in row_filter.topics) and (
            row_filter.partitions is None or place.partition in row_filter.partitions
        )
        if is_wanted and place in end.positions.offsets:
            starts[place] = max(at, row_filter.offsets.first)
            ends[place] = min(end.positions.offsets[place], row_filter.offsets.last + 1)
    if row_filter.times.first > 0:
        found = list_offsets(cluster, dict.fromkeys(starts, row_filter.times.first))
        starts = {place: max(at, _offset(found[place], ends[place])) for place, at in starts.items()}
    times = {place: end.times.get(place, ALL).within(row_filter.times) for place in ends}
    narrow = End(Positions(ends, end.positions.topic_ids), times)
    if 0 <= row_filter.times.last < ALL.last:
        narrow = _before(cluster, narrow, dict.fromkeys(ends, row_filter.times.last + 1))
    return Positions(starts, start.topic_ids), narrow


def begin_of(cluster: Cluster, options: SourceOptions, start: Positions, end: Positions) -> Positions:
    """Returns the positions from which a batch reads the partitions that have something to read. Deleted records in
    between are a loss; a topic that was created again between start and end is read from its beginning.
    """
    planned = {
        place: start.offsets[place] if _is_same(place.topic, start, end) else 0
        for place, stop in end.offsets.items()
        if place in start.offsets and (start.offsets[place] < stop or not _is_same(place.topic, start, end))
    }
    moved = _of_topics_there(cluster, options, planned, end)
    firsts, lasts = earliest(cluster, moved), latest(cluster, moved, Isolation.READ_UNCOMMITTED)
    lost = [place for place, at in moved.items() if at > lasts[place]]
    losses = [
        Loss(place, at, firsts[place], "retention or an operator has deleted them")
        for place, at in moved.items()
        if at < firsts[place] and _is_same(place.topic, start, end)
    ]
    meet([*losses, *(Loss(place, moved[place], end.offsets[place], LOST_END) for place in lost)], options)
    there = {place: max(at, firsts[place]) for place, at in moved.items() if place not in lost}
    return Positions(there, end.topic_ids)


def _of_topics_there(cluster: Cluster, options: SourceOptions, planned: Offsets, end: Positions) -> Offsets:
    """A topic that was deleted since the batch was planned is a loss, whether or not there is another by its name."""
    topics = cluster.topics({place.topic for place in planned})
    ids = ids_of(topics)
    gone = {
        place: "the topic was deleted" + (", and made again under its name" if place.topic in topics else "")
        for place in planned
        if place.topic not in topics or ids.get(place.topic) != end.topic_ids.get(place.topic, ids.get(place.topic))
    }
    meet([Loss(place, planned[place], end.offsets[place], why) for place, why in gone.items()], options)
    return {place: at for place, at in planned.items() if place not in gone}


def _is_same(topic: str, start: Positions, end: Positions) -> bool:
    known = start.topic_ids.get(topic)
    return known is None or known == end.topic_ids.get(topic, known)


def _group_start(cluster: Cluster, options: SourceOptions, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the committed offsets of the group; the beginning of a partition where it has none."""
    assert options.group is not None
    known = groups.committed(cluster, options.group, places)
    missing = [place for place in places if place not in known]
    return {place: found.offset for place, found in known.items()} | earliest(cluster, missing)


def _resolved(cluster: Cluster, bound: Bound, places: list[TopicPartition], which: str) -> dict[TopicPartition, int]:
    if times := _times(bound, places, which):
        return _start_by_time(cluster, bound, times)
    if bound.word == EARLIEST:
        return earliest(cluster, places)
    if bound.word == LATEST:
        return latest(cluster, places)
    given = dict(bound.offsets)
    require_all(given, places, f"{which}Offsets")
    words = {FIRST: earliest, NEXT: latest}
    found: dict[TopicPartition, int] = {}
    for number, ask in words.items():
        found |= ask(cluster, [place for place, offset in given.items() if offset == number])
    return given | found


def _times(bound: Bound, places: list[TopicPartition], which: str) -> dict[TopicPartition, int]:
    """Empty where the bound is not one of time."""
    if bound.timestamp is not None:
        return dict.fromkeys(places, bound.timestamp)
    if bound.timestamps:
        require_all(dict(bound.timestamps), places, f"{which}OffsetsByTimestamp")
    return dict(bound.timestamps)


def _before(cluster: Cluster, end: End, times: Mapping[TopicPartition, int]) -> End:
    """Ends, and records before the times only. All the log has to be read for those: behind a record that is later,
    others may be earlier. Only where brokers stamp records is there an offset that none of them is behind: that of the
    time and a margin, as the clock of the next leader may be behind that of the last. What this misses: a clock that is
    further behind, and records of a time in between in which the topic left timestamps to its producers.
    """
    ends, spans = dict(end.positions.offsets), dict(end.times)
    # By now: the ends were found before, and lie before what has come since.
    found = list_offsets(cluster, {place: min(time + MARGIN_MS, ALL.last) for place, time in times.items()})
    stamped = topic_configs(cluster, {place.topic for place in times}, "message.timestamp.type")
    for place, time in times.items():
        offset = _offset(found[place], ends[place])
        if stamped.get(place.topic) == "LogAppendTime" and _is_stamped(cluster, place, offset, ends[place]):
            ends[place] = min(offset, ends[place])
        spans[place] = spans.get(place, ALL).within(NumberRange(last=time - 1))
    return End(Positions(ends, end.positions.topic_ids), spans)


def _is_stamped(cluster: Cluster, place: TopicPartition, offset: int, end: int) -> bool:
    """Whether the record there has the broker's time: a topic may have come to have those later."""
    if offset >= end:
        return True
    with PartitionReader(cluster, *place, offset, offset + 1) as reader:
        return all(header.has_log_append_time for chunk in reader for _, header in chunk.batches)


def _offset(found: Found | None, otherwise: int) -> int:
    return otherwise if found is None else found.offset


def _start_by_time(cluster: Cluster, bound: Bound, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The first offset at or after a time. Behind the last record, that is an error, or the end."""
    found = list_offsets(cluster, times)
    late = [place for place in times if found.get(place) is None]
    if late and not bound.latest_if_later:
        raise BadOptions(
            f"{late[0]} has no record at or after the starting time {times[late[0]]}; "
            "startingOffsetsByTimestampStrategy=latest begins at its end then"
        )
    ends = latest(cluster, late)
    return {place: one.offset for place, one in found.items() if one is not None} | ends


def require_all(given: Mapping[TopicPartition, int], places: Iterable[TopicPartition], option: str) -> None:
    """Raises BadOptions unless exactly these partitions are given, as Spark's connector does."""
    missing, others = set(places) - set(given), set(given) - set(places)
    if missing:
        raise BadOptions(f"{option} says nothing of {min(missing)}: each partition has to be there")
    if others:
        raise BadOptions(f"{option} speaks of {min(others)}, which is not read")
