"""Partitions as options name them: `orders` is all of a topic's, `orders:0,2` two of them."""

import re
from collections.abc import Iterable

from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.common.topics.offsets import Partition


class Choice:
    """The partitions that were given with `option`, which may be repeated."""

    def __init__(self, given: Iterable[str], option: str) -> None:
        self.topics: dict[str, set[int] | None] = {}
        for text in given:
            name, colon, numbers = text.partition(":")
            if not name or (colon and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers)):
                raise Failure(
                    f"{option} takes TOPIC or TOPIC:0,2 (some of its partitions), not {text!r}", ExitCode.USAGE
                )
            some = {int(number) for number in numbers.split(",")} if colon else None
            before = self.topics.get(name, set())
            self.topics[name] = None if some is None or before is None else before | some

    def of(self, there: Iterable[Partition], missing: str) -> list[Partition]:
        """Those of `there` that are meant. `missing` begins the complaint, should one not be among them."""
        there = sorted(there)
        for topic, numbers in self.topics.items():
            known = {partition.number for partition in there if partition.topic == topic}
            others = sorted((numbers or set()) - known)
            if others or not known:
                name = Partition(topic, others[0]) if others else topic
                raise Failure(f"{missing} {name}; there is {_named(there)}", ExitCode.NOT_FOUND)
        return [one for one in there if one.topic in self.topics and self._means(one)]

    def _means(self, partition: Partition) -> bool:
        numbers = self.topics[partition.topic]
        return numbers is None or partition.number in numbers


def _named(partitions: list[Partition]) -> str:
    return ", ".join(map(str, partitions[:5])) + (" …" if len(partitions) > 5 else "") or "none"
