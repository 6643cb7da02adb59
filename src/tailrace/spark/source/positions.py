"""Offsets of many partitions, in the JSON that Spark's `kafka` format has in its checkpoints.

    {"orders": {"0": 5, "1": 7}, "orders#id=cO4mA0T7TGqyIkjFMWiwHg": {}}

The second key is ours: it says which topic of that name the offsets belong to. Spark's connector passes over it, so a
checkpoint can be handed over to it, and back. Spark compares checkpoints as texts, so keys are always in one order.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tailrace.client.cluster.metadata import TopicPartition

ID = "#id="

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of a reader. `topic_ids` has the ids of the topics, where known."""

    offsets: Offsets
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)

    def to_json(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        for topic, topic_id in sorted(self.topic_ids.items()):
            if topic in found:
                found[f"{topic}{ID}{printed_id(topic_id)}"] = {}
        return found

    @staticmethod
    def from_json(found: Mapping[str, Mapping[str, int]]) -> "Positions":
        offsets: dict[TopicPartition, int] = {}
        topic_ids = {}
        for key, partitions in found.items():
            topic, is_id, printed = key.partition(ID)
            if is_id and not partitions:
                topic_ids[topic] = parsed_id(printed)
            else:
                offsets |= {TopicPartition(key, int(index)): int(offset) for index, offset in partitions.items()}
        return Positions(offsets, topic_ids)


def printed_id(topic_id: bytes) -> str:
    """Returns the id in Kafka's notation."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def parsed_id(printed: str) -> bytes:
    return urlsafe_b64decode(printed + "==")


def offsets_in(text: str, option: str) -> dict[TopicPartition, int]:
    """The numbers of an option such as `startingOffsets`: {"topic": {"0": 5}}. Raises ValueError."""
    try:
        found: Any = json.loads(text)
        return {
            TopicPartition(str(topic), int(index)): int(offset)
            for topic, partitions in found.items()
            for index, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f'{option} is a word, or JSON such as {{"topic": {{"0": 5, "1": -2}}}}, and not {text!r}'
        ) from error


def partitions_in(text: str, option: str) -> list[TopicPartition]:
    """The partitions of `assign`: {"topic": [0, 1]}. Raises ValueError."""
    try:
        found: Any = json.loads(text)
        return [TopicPartition(str(topic), int(index)) for topic, indexes in found.items() for index in indexes]
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f'{option} is JSON such as {{"topic": [0, 1]}}, and not {text!r}') from error


def limited(start: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Ends that are together at most `limit` offsets behind `start`, each partition with its share of what there is; at
    least one, so that none is left out for ever.
    """
    there = {place: max(0, end[place] - start.get(place, 0)) for place in end}
    total = sum(there.values())
    if total <= limit:
        return dict(end)
    return {
        place: start.get(place, 0) + min(count, max(1, count * limit // total)) if count else end[place]
        for place, count in there.items()
    }


def split(start: int, end: int, parts: int) -> Iterable[tuple[int, int]]:
    """The range in so many pieces, none of them empty."""
    count = max(1, min(parts, end - start))
    bounds = [start + (end - start) * number // count for number in range(count + 1)]
    return pairwise(bounds)
