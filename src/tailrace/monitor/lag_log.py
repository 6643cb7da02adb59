"""Publishes lag to `__tailrace_lag`: the record of each group that has changed, tombstones, and a beat each round."""

from collections.abc import Sequence

from tailrace.client.cluster.cluster import Cluster
from tailrace.facts.lag import BEAT_KEY, Beat, GroupLag
from tailrace.monitor.alerts.publisher import Publisher
from tailrace.monitor.sources.published import LAG_TOPIC, TopicReader


class LagLog:
    """Reads the keys of an earlier process. Raises ClientError."""

    def __init__(self, cluster: Cluster) -> None:
        self._publisher = Publisher(cluster, LAG_TOPIC)
        self._rows: dict[bytes, int] = {}  # hashes, by key
        for record in TopicReader(cluster, LAG_TOPIC).read():
            if record.key is not None and record.key != BEAT_KEY:
                self._rows[record.key] = 0
                if record.value is None:
                    del self._rows[record.key]

    def write(self, groups: Sequence[GroupLag], beat: Beat) -> None:
        """Raises ClientError; the next call then writes what is missing."""
        gone = set(self._rows)
        for group in groups:
            key, rows = group.key, hash((group.has_members, group.rows))
            gone.discard(key)
            if self._rows.get(key) != rows:
                self._rows[key] = rows
                self._publisher.put(key, group.encode())
        for key in gone:
            del self._rows[key]
            self._publisher.put(key, None)
        if groups or gone:  # with nothing to watch, nothing is written
            self._publisher.put(BEAT_KEY, beat.encode())
        self._publisher.flush()
