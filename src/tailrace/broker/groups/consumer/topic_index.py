"""Which consumer groups read a topic: finds the groups that a change of topics concerns, without a scan of all."""

from collections.abc import Collection, Iterator


class TopicIndex:
    """Topics and patterns that groups subscribe to."""

    def __init__(self) -> None:
        self._groups: dict[str, set[str]] = {}  # by topic
        self._topics: dict[str, Collection[str]] = {}  # by group
        self._with_pattern: dict[str, set[str]] = {}  # groups, by pattern
        self._patterns: dict[str, Collection[str]] = {}  # by group

    def set(self, group_id: str, topics: Collection[str], patterns: Collection[str]) -> None:
        """Replaces what a group subscribes to. Without topics and patterns the group is forgotten."""
        _replace(self._groups, group_id, self._topics.get(group_id, ()), topics)
        _replace(self._with_pattern, group_id, self._patterns.get(group_id, ()), patterns)
        _set_or_forget(self._topics, group_id, topics)
        _set_or_forget(self._patterns, group_id, patterns)

    def readers(self, topic: str) -> Iterator[str]:
        return iter(self._groups.get(topic, ()))

    def with_pattern(self, pattern: str) -> Iterator[str]:
        return iter(self._with_pattern.get(pattern, ()))

    def with_patterns(self) -> Iterator[str]:
        """The groups that subscribe to any pattern."""
        return iter(self._patterns)


def _replace(index: dict[str, set[str]], group_id: str, before: Collection[str], after: Collection[str]) -> None:
    for name in before:
        if name not in after:
            index[name].discard(group_id)
            if not index[name]:
                del index[name]
    for name in after:
        index.setdefault(name, set()).add(group_id)


def _set_or_forget(values: dict[str, Collection[str]], group_id: str, value: Collection[str]) -> None:
    if value:
        values[group_id] = value
    else:
        values.pop(group_id, None)
