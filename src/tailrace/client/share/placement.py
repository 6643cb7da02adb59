"""Which broker leads each assigned partition."""

import time
from collections.abc import Iterable
from contextlib import suppress

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import TopicNotFound
from tailrace.client.options import Address
from tailrace.client.share.acknowledgements import SharePartition

Places = dict[Address, frozenset[SharePartition]]


class Placement:
    """Knows the subscribed topics by their ids. Partitions without a leader are left out, and looked for again."""

    def __init__(self, cluster: Cluster, topics: Iterable[str]) -> None:
        self._cluster = cluster
        self._topics = sorted(set(topics))
        self._names: dict[bytes, str] = {}
        self._assignment: frozenset[SharePartition] = frozenset()
        self._places: Places = {}
        self._good_until = 0.0

    def of(self, assignment: frozenset[SharePartition]) -> Places:
        """Asks for metadata where it has to. Raises ClientError."""
        now = time.monotonic()
        if assignment != self._assignment or now >= self._good_until:
            found, is_complete = self._place(assignment)
            self._assignment, self._places = assignment, found
            options = self._cluster.options
            self._good_until = now + (options.metadata_max_age_s if is_complete else options.retry_backoff_max_s)
        return self._places

    def name(self, partition: SharePartition) -> TopicPartition | None:
        """None if the partition is of no topic that is known."""
        topic = self._names.get(partition.topic_id)
        return None if topic is None else TopicPartition(topic, partition.number)

    def renew(self, wait_s: float) -> None:
        """Asks for new metadata in a while, because a broker says that it has changed."""
        self._names = {}
        self._good_until = min(self._good_until, time.monotonic() + wait_s)

    def _place(self, assignment: frozenset[SharePartition]) -> tuple[Places, bool]:
        if any(partition.topic_id not in self._names for partition in assignment):
            self._names |= {topic.topic_id: name for name, topic in self._cluster.topics(self._topics).items()}
        retry = self._cluster.retry("looking for leaders")
        found: dict[Address, set[SharePartition]] = {}
        is_complete = True
        for partition in assignment:
            at = self.name(partition)
            leader = None
            if at is not None:
                with suppress(TopicNotFound):  # it was deleted, and the assignment will tell
                    leader = self._cluster.leader(at, retry)
            if leader is None:
                is_complete = False
            else:
                found.setdefault(leader.address, set()).add(partition)
        return {address: frozenset(partitions) for address, partitions in found.items()}, is_complete
