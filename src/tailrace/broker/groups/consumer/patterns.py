"""Subscriptions by regular expression: which topics a pattern matches.

Patterns are RE2's, whose matching takes linear time, and have to match the whole name. Internal topics never match. A
pattern is matched against all names in increments, so that the loop can serve other requests; with few topics that is
done at once. A result counts until topics come or go.
"""

import logging
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING

from tailrace.broker.core.delayed import IncrementalResponse, StartJob
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.patterns import full_match
from tailrace.broker.core.topics import Topic
from tailrace.broker.groups.consumer_records import PatternValue

if TYPE_CHECKING:
    from tailrace.broker.metadata.state import Metadata

logger = logging.getLogger("tailrace.broker.groups")

PATTERNS_MAX = 1_000  # that are kept, of all groups
NAMES_A_STEP = 50


class PatternResolver:
    def __init__(self, metadata: "Metadata", start_job: StartJob, resolved: Callable[[str], None]) -> None:
        """`resolved` is called with each pattern whose topics are found out later than `resolve` was called."""
        self._metadata = metadata
        self._start_job = start_job
        self._resolved = resolved
        self._compiled: dict[str, Callable[[str], bool]] = {}
        self._values: dict[str, PatternValue] = {}
        self._running: set[str] = set()
        self._version = 0  # grows when topics come or go

    def topics_changed(self) -> None:
        self._version += 1

    def resolve(self, pattern: str, now_ms: int) -> PatternValue | None:
        """Returns the topics that a pattern matches; those of before, or None, while that is being found out."""
        known = self._values.get(pattern)
        if (known is None or known.version != self._version) and pattern not in self._running:
            try:
                matches = self.check(pattern)
            except Refused as error:  # another version of RE2 took it
                logger.warning("a pattern of a consumer group matches no topics: %s", error)
                return known
            self._running.add(pattern)
            work = IncrementalResponse(self._match(pattern, matches, now_ms), self._start_job)
            if not work.is_resolved:
                work.when_resolved(lambda _: self._resolved(pattern))
        return self._values.get(pattern)

    def check(self, pattern: str) -> Callable[[str], bool]:
        """Returns a function that matches names. Raises Refused for a pattern that cannot be compiled."""
        compiled = self._compiled.get(pattern)
        if compiled is None:
            if len(self._compiled) >= PATTERNS_MAX:  # most belong to groups that are gone
                self._compiled.clear()
                self._values.clear()
            compiled = self._compiled[pattern] = full_match(pattern)
        return compiled

    def _match(self, pattern: str, matches: Callable[[str], bool], now_ms: int) -> Generator[None, None, None]:
        version = -1
        while version != self._version:  # topics have come or gone meanwhile
            version = self._version
            topics: list[str] = []
            for some in _chunks(list(self._metadata.topics.values())):
                topics += (topic.name for topic in some if not topic.is_shown_as_internal and matches(topic.name))
                yield
        self._running.discard(pattern)
        self._values[pattern] = PatternValue(topics=sorted(topics), version=version, timestamp=now_ms)


def _chunks(topics: list[Topic]) -> Iterable[list[Topic]]:
    return (topics[first : first + NAMES_A_STEP] for first in range(0, len(topics), NAMES_A_STEP))
