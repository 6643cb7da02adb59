"""`__tailrace_positions`: the committed offsets of groups as they were, at most one record a minute per group.

Each record has the offsets that have changed since the record before it, or all of them (`complete`). A complete record
of each group is written at each start of the broker and twice in `tailrace.group.history.ms`; records are kept for so
much longer that there is a complete one before every moment of that time. A complete record without offsets is of a
group that was deleted. Of a group with very many offsets, several records of the same moment follow each other, of
which the first is the complete one. Key: the group.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tailrace.facts import document
from tailrace.facts.document import UnreadableFact

VERSION = 1


class GroupPositions(NamedTuple):
    """Offsets by topic and partition. In a record that is not complete, -1 is an offset that was removed."""

    group: str
    at: int
    complete: bool
    offsets: dict[str, dict[int, int]]

    @property
    def key(self) -> bytes:
        return self.group.encode()

    @property
    def offset_count(self) -> int:
        return sum(map(len, self.offsets.values()))

    def parts(self, offsets_max: int) -> "Iterator[GroupPositions]":
        """Yields records of at most so many offsets that say the same: the first one is complete if this one is."""
        if self.offset_count <= offsets_max:
            yield self
            return
        places = [(topic, index, offset) for topic, of in self.offsets.items() for index, offset in of.items()]
        for first in range(0, len(places), offsets_max):
            offsets: dict[str, dict[int, int]] = {}
            for topic, index, offset in places[first : first + offsets_max]:
                offsets.setdefault(topic, {})[index] = offset
            yield GroupPositions(self.group, self.at, self.complete and not first, offsets)

    def encode(self) -> bytes:
        return document.encode(VERSION, self._asdict())


def decode(value: bytes) -> GroupPositions:
    """Raises UnreadableFact."""
    fields = document.decode(value, VERSION)
    try:
        offsets = {
            topic: {int(partition): offset for partition, offset in partitions.items()}
            for topic, partitions in fields.pop("offsets").items()
        }
        return GroupPositions(**fields, offsets=offsets)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableFact(f"not the positions of a group: {error}") from None


def held_at(records: Iterable[GroupPositions], at: int) -> dict[str, dict[int, int]] | None:
    """Returns what a group held at a moment, by its records in order; None if they do not reach back so far."""
    held: dict[str, dict[int, int]] | None = None
    for record in records:
        if record.at > at:
            break
        if record.complete:
            held = {topic: dict(partitions) for topic, partitions in record.offsets.items()}
        elif held is not None:
            _apply(record, held)
    return held


def _apply(record: GroupPositions, held: dict[str, dict[int, int]]) -> None:
    for topic, partitions in record.offsets.items():
        of_topic = held.setdefault(topic, {})
        of_topic.update(partitions)
        for partition in [partition for partition, offset in of_topic.items() if offset < 0]:
            del of_topic[partition]
        if not of_topic:
            del held[topic]


class Unmoved(NamedTuple):
    """An offset, and since when it has been committed. If not `exact`, it was before that already."""

    offset: int
    since: int
    exact: bool


def unmoved(records: Iterable[GroupPositions]) -> dict[tuple[str, int], Unmoved]:
    """Returns the last offset of each partition of a group, by its records in order."""
    found: dict[tuple[str, int], Unmoved] = {}
    is_first = True
    for record in records:
        if is_first and not record.complete:
            continue
        offsets = {(topic, index): offset for topic, of in record.offsets.items() for index, offset in of.items()}
        if record.complete:
            found = {place: known for place, known in found.items() if place in offsets}
        for place, offset in offsets.items():
            if offset < 0:
                found.pop(place, None)
            elif place not in found or found[place].offset != offset:
                found[place] = Unmoved(offset, record.at, not is_first)
        is_first = False
    return found
