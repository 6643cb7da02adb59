"""Renders what the node counts in Prometheus' text format. Gauges are computed when the page is read."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace import __version__
from tailrace.broker.core.losses import damaged_ranges, offline_logs, recorded_gaps
from tailrace.log.retention import Reason
from tailrace.protocol.messages import ApiKey
from tailrace.server.counters import Counters

if TYPE_CHECKING:
    from tailrace.server.node import Node


class Metrics(Counters):
    def __init__(self, node: "Node") -> None:
        super().__init__()
        self._node = node

    def _groups(self) -> Iterator[str]:
        from tailrace.broker.groups.classic.state import State

        groups = self._node.broker.groups
        states = Counter(group.state for group in groups.groups.values())
        samples = [(f'state="{state}"', states[state]) for state in State if state is not State.DEAD]
        yield from _family("tailrace_groups", "gauge", "Groups of consumers, by what they are at.", samples)
        members = sum(len(group.members) for group in groups.groups.values())
        yield from _one("tailrace_group_members", "gauge", "Members of all groups.", members)
        title = "Times that groups have shared out their work anew."
        yield from _one("tailrace_group_rebalances_total", "counter", title, groups.rebalances)

    def _quotas(self) -> Iterator[str]:
        throttled = sum(connection.throttle.is_on for connection in self._node.connections)
        yield from _one("tailrace_connections_muted", "gauge", "Connections that wait because of a quota.", throttled)
        samples = [(f'quota="{key}"', count) for key, count in sorted(self._node.broker.quotas.throttled.items())]
        yield from _family("tailrace_throttled_total", "counter", "Times that a quota made a client wait.", samples)

    def _losses(self) -> Iterator[str]:
        directory, scrubber = self._node.directory, self._node.broker.scrubber
        damaged = sum(1 for _ in damaged_ranges(directory))
        yield from _one("tailrace_damaged_ranges", "gauge", "Ranges that readers are refused.", damaged)
        gaps = [gap for _, gap in recorded_gaps(directory)]
        yield from _one("tailrace_recorded_gaps", "gauge", "Gaps that repairs have recorded.", len(gaps))
        offsets = sum(gap.offsets for gap in gaps)
        yield from _one("tailrace_recorded_gap_offsets", "gauge", "Offsets that are lost in these.", offsets)
        scrubbed = scrubber.scrubbed_bytes
        yield from _one("tailrace_scrubbed_bytes_total", "counter", "Read again to look for rot.", scrubbed)
        yield from _one("tailrace_scrub_rounds_total", "counter", "Times that all was read again.", scrubber.rounds)
        title = "Files beside the logs that were rotten, and what could not be read."
        yield from _one("tailrace_scrub_faults_total", "counter", title, scrubber.faults)

    def exposition(self) -> str:
        """All of it in Prometheus' text format."""
        return "\n".join([*self._node_lines(), *self._request_lines(), *self._topic_lines(), ""])

    def _node_lines(self) -> Iterator[str]:
        node = self._node
        logs = node.directory.logs.values()
        yield from _family("tailrace_build_info", "gauge", "The release.", [(f'version="{__version__}"', 1)])
        yield from _one("tailrace_connections", "gauge", "Open connections of clients.", len(node.connections))
        yield from _one("tailrace_connections_opened_total", "counter", "Accepted so far.", self.connections_opened)
        yield from _one("tailrace_received_bytes_total", "counter", "From clients.", self.bytes_in)
        yield from _one("tailrace_sent_bytes_total", "counter", "To clients.", self.bytes_out)
        yield from _one("tailrace_inflight_bytes", "gauge", "Of requests not arrived whole.", node.budget.total)
        waiting = node.broker.recompressor.waiting_bytes
        yield from _one("tailrace_recompressing_bytes", "gauge", "Of batches that wait to be recompressed.", waiting)
        yield from self._quotas()
        yield from _one("tailrace_topics", "gauge", "Topics.", len(node.broker.metadata.topics))
        yield from self._groups()
        yield from _one("tailrace_logs", "gauge", "Partitions that have something on disk.", len(logs))
        offline = len(offline_logs(node.directory))
        yield from _one("tailrace_logs_offline", "gauge", "Logs that take no appends: the disk failed.", offline)
        unavailable = len(node.directory.unavailable)
        title = "Partitions that are lost, or cannot be opened."
        yield from _one("tailrace_partitions_unavailable", "gauge", title, unavailable)
        dirty = sum(log.dirty_bytes for log in logs)
        yield from _one("tailrace_unflushed_bytes", "gauge", "Written, and not yet synced in their own files.", dirty)
        yield from _one("tailrace_commits_total", "counter", "To the journal, of all logs at once.", self.commits)
        yield from self._disk_lines()
        unclean = node.broker.metadata.unclean_starts
        yield from _one("tailrace_unclean_starts_total", "counter", "Starts after a crash.", unclean)
        yield from self._compaction()
        yield from self._losses()
        yield from _head("tailrace_flush_duration_seconds", "histogram", "From the wish to flush a log to its end.")
        yield from self.flushes.lines("tailrace_flush_duration_seconds")
        yield from _head("tailrace_loop_lag_seconds", "histogram", "How late the event loop is.")
        yield from self.loop_lags.lines("tailrace_loop_lag_seconds")

    def _disk_lines(self) -> Iterator[str]:
        broker = self._node.broker
        space, deleted = broker.disk_reserve, broker.counters
        yield from _one("tailrace_logs_bytes", "gauge", "Of all logs.", broker.sizes.total)
        free = space.found.free if space.found is not None else math.nan
        yield from _one("tailrace_disk_free_bytes", "gauge", "Of the disk with the data directory.", free)
        yield from _one("tailrace_disk_reserve_bytes", "gauge", "With less free, appends are refused.", space.reserve)
        limit = broker.disk_budget.limit(space.disk_bytes)
        yield from _one("tailrace_disk_budget_bytes", "gauge", "What all logs may take; -1 is no limit.", limit)
        yield from _one("tailrace_disk_is_low", "gauge", "1 while appends are refused for that.", int(space.is_low))
        yield from _one("tailrace_refused_appends_total", "counter", "For want of space.", space.refused)
        refused = broker.refused_batches
        title = "First batches of idempotent producers that were refused and have not been sent again."
        yield from _one("tailrace_refused_batches", "gauge", title, len(refused))
        title = "Such batches forgotten because there were too many."
        yield from _one("tailrace_refused_batches_dropped_total", "counter", title, refused.dropped)
        sizes = [(f'reason="{reason}"', deleted.bytes_deleted[reason]) for reason in Reason]
        yield from _family("tailrace_deleted_bytes_total", "counter", "Of segments that were deleted.", sizes)
        counts = [(f'reason="{reason}"', deleted.segments_deleted[reason]) for reason in Reason]
        yield from _family("tailrace_deleted_segments_total", "counter", "Segments that were deleted.", counts)

    def _compaction(self) -> Iterator[str]:
        counted = self._node.broker.compactor.counted
        for name, text, value in (
            ("passes_total", "Passes over a log that were done.", counted.passes),
            ("failures_total", "Passes that failed.", counted.failures),
            ("read_bytes_total", "Bytes of segments that were compacted.", counted.bytes_read),
            ("written_bytes_total", "Bytes of the segments that took their place.", counted.bytes_written),
            ("keys_total", "Different keys, of each pass.", counted.keys),
            ("unreadable_batches_total", "Batches left as they are: they cannot be read.", counted.unreadable),
            ("seconds_total", "Time that passes took.", round(counted.seconds, 3)),
        ):
            yield from _one(f"tailrace_compaction_{name}", "counter", text, value)
        for name, text, value in (
            ("dirty_ratio_max", "The largest share of a log that is new.", round(counted.dirty_ratio_max, 4)),
            ("peak_memory_bytes", "Memory of the last pass, at most.", counted.peak_memory_bytes),
        ):
            yield from _one(f"tailrace_compaction_{name}", "gauge", text, value)

    def _request_lines(self) -> Iterator[str]:
        name = "tailrace_request_duration_seconds"
        yield from _head(name, "histogram", "From the arrival of a request to its answer, by API; waiting included.")
        for key, histogram in sorted(self.requests_by_api.items()):
            yield from histogram.lines(name, f'api="{ApiKey(key).name.lower()}"')

    def _topic_lines(self) -> Iterator[str]:
        topics = sorted(self._node.broker.counters.topics.items())
        records = [(f'topic="{name}"', counted.records_in) for name, counted in topics]
        produced = [(f'topic="{name}"', counted.bytes_in) for name, counted in topics]
        yield from _family("tailrace_topic_produced_records_total", "counter", "Appended records.", records)
        yield from _family("tailrace_topic_produced_bytes_total", "counter", "Appended bytes.", produced)
        deleted = [(f'topic="{name}"', counted.bytes_deleted) for name, counted in topics]
        yield from _family("tailrace_topic_deleted_bytes_total", "counter", "Deleted bytes.", deleted)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _one(name: str, kind: str, text: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, text)
    yield f"{name} {value}"


def _family(name: str, kind: str, text: str, values: list[tuple[str, int]]) -> Iterator[str]:
    yield from _head(name, kind, text)
    for labels, value in values:
        yield f"{name}{{{labels}}} {value}"
