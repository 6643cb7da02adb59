"""Renders the node's counters in Prometheus' text format. Gauges are computed when the page is read."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from tailrace import __version__
from tailrace.broker.core.losses import damaged_ranges, offline_logs, recorded_gaps
from tailrace.log.retention import Reason
from tailrace.protocol.messages import ApiKey
from tailrace.server.counters import Counters

if TYPE_CHECKING:
    from tailrace.server.node import Node


# Those of `broker.transactions`, which is not imported while there are no transactions.
TRANSACTION_STATES = ("empty", "ongoing", "prepare_commit", "prepare_abort", "complete_commit", "complete_abort")
TRANSACTION_RESULTS = ("committed", "aborted", "timed_out", "fenced", "orphaned")


class Metrics(Counters):
    def __init__(self, node: "Node") -> None:
        super().__init__()
        self._node = node
        self.further_pages: list[Callable[[], Iterator[bytes]]] = []  # whole lines, of child processes

    def _groups(self) -> Iterator[str]:
        from tailrace.broker.groups.classic.state import State
        from tailrace.broker.groups.consumer.state import GroupPhase

        groups = self._node.broker.groups
        states = Counter(str(group.state) for group in groups.groups.values())
        names = dict.fromkeys((*State, *GroupPhase))  # some have the same name
        samples = [(f'state="{state}"', states[str(state)]) for state in names if state is not State.DEAD]
        yield from _family("tailrace_groups", "gauge", "Consumer groups, by state.", samples)
        members = sum(len(group.members) for group in groups.groups.values())
        yield from _one("tailrace_group_members", "gauge", "Members of all consumer groups.", members)
        title = "Rebalances of consumer groups."
        yield from _one("tailrace_group_rebalances_total", "counter", title, groups.rebalances)

    def _transactions(self) -> Iterator[str]:
        used = self._node.broker.used_transactions
        states: Counter[str] = Counter()
        ended: Counter[str] = Counter()
        age_s = 0.0
        if used is not None:
            states.update({state.name.lower(): count for state, count in used.states.items()})
            ended.update(used.ended)
            oldest_ms = used.oldest_started_ms
            age_s = 0.0 if oldest_ms is None else max(time.time() - oldest_ms / 1000, 0.0)
        samples = [(f'state="{state}"', states[state]) for state in TRANSACTION_STATES]
        yield from _family("tailrace_transactions", "gauge", "Transactional ids, by state.", samples)
        samples = [(f'result="{result}"', ended[result]) for result in TRANSACTION_RESULTS]
        title = "Transactions that have ended, by how."
        yield from _family("tailrace_transactions_ended_total", "counter", title, samples)
        title = "For how long the oldest open transaction has been open; 0 if none is."
        yield from _one("tailrace_transaction_oldest_seconds", "gauge", title, round(age_s, 3))
        name = "tailrace_transaction_duration_seconds"
        yield from _head(name, "histogram", "From the first partition of a transaction to its end in all partitions.")
        yield from () if used is None else used.durations.lines(name)

    def _quotas(self) -> Iterator[str]:
        throttled = sum(connection.throttle.is_on for connection in self._node.connections)
        title = "Connections that are not read for a while: over a quota, or for the sake of a slow group."
        yield from _one("tailrace_connections_muted", "gauge", title, throttled)
        samples = [(f'quota="{key}"', count) for key, count in sorted(self._node.broker.quotas.throttled.items())]
        yield from _family("tailrace_throttled_total", "counter", "Throttled requests, by quota.", samples)

    def _losses(self) -> Iterator[str]:
        directory, scrubber = self._node.directory, self._node.broker.scrubber
        damaged = sum(1 for _ in damaged_ranges(directory))
        yield from _one("tailrace_damaged_ranges", "gauge", "Damaged ranges that cannot be read.", damaged)
        gaps = [gap for _, gap in recorded_gaps(directory)]
        yield from _one("tailrace_recorded_gaps", "gauge", "Gaps that repairs have recorded.", len(gaps))
        offsets = sum(gap.offsets for gap in gaps)
        yield from _one("tailrace_recorded_gap_offsets", "gauge", "Offsets in these gaps.", offsets)
        scrubbed = scrubber.scrubbed_bytes
        yield from _one(
            "tailrace_scrubbed_bytes_total", "counter", "Bytes read again to look for corruption.", scrubbed
        )
        yield from _one(
            "tailrace_scrub_rounds_total", "counter", "Times that all data was read again.", scrubber.rounds
        )
        title = "Corrupt files beside the logs, and failed reads."
        yield from _one("tailrace_scrub_faults_total", "counter", title, scrubber.faults)

    def page(self) -> bytes:
        """Returns the broker's metrics, and those of its child processes, in Prometheus' text format."""
        return b"".join((self.exposition().encode(), *chain.from_iterable(pages() for pages in self.further_pages)))

    def exposition(self) -> str:
        """Returns the broker's own metrics."""
        return "\n".join([*self._node_lines(), *self._request_lines(), *self._topic_lines(), ""])

    def _node_lines(self) -> Iterator[str]:
        node = self._node
        logs = node.directory.logs.values()
        yield from _family("tailrace_build_info", "gauge", "The release.", [(f'version="{__version__}"', 1)])
        yield from _one("tailrace_connections", "gauge", "Open connections of clients.", len(node.connections))
        yield from _one("tailrace_connections_opened_total", "counter", "Accepted so far.", self.connections_opened)
        yield from _one("tailrace_received_bytes_total", "counter", "From clients.", self.bytes_in)
        yield from _one("tailrace_sent_bytes_total", "counter", "To clients.", self.bytes_out)
        yield from _one(
            "tailrace_inflight_bytes", "gauge", "Bytes of requests that are still arriving.", node.budget.total
        )
        waiting = node.broker.recompressor.waiting_bytes
        yield from _one(
            "tailrace_recompressing_bytes", "gauge", "Bytes of batches that wait to be recompressed.", waiting
        )
        yield from self._quotas()
        yield from _one("tailrace_topics", "gauge", "Topics.", len(node.broker.metadata.topics))
        yield from self._groups()
        yield from self._transactions()
        yield from _one("tailrace_logs", "gauge", "Partitions with data on disk.", len(logs))
        offline = len(offline_logs(node.directory))
        yield from _one("tailrace_logs_offline", "gauge", "Logs that refuse appends because the disk failed.", offline)
        unavailable = len(node.directory.unavailable)
        title = "Partitions that are lost, or cannot be opened."
        yield from _one("tailrace_partitions_unavailable", "gauge", title, unavailable)
        dirty = sum(log.dirty_bytes for log in logs)
        yield from _one(
            "tailrace_unflushed_bytes", "gauge", "Bytes written, and not yet synced to their log files.", dirty
        )
        yield from _one("tailrace_commits_total", "counter", "Writes to the journal.", self.journal_writes)
        yield from self._disk_lines()
        unclean = node.broker.metadata.unclean_starts
        yield from _one("tailrace_unclean_starts_total", "counter", "Starts after a crash.", unclean)
        yield from self._compaction()
        yield from self._losses()
        yield from _head("tailrace_flush_duration_seconds", "histogram", "From the request for a flush to its end.")
        yield from self.flushes.lines("tailrace_flush_duration_seconds")
        yield from _head("tailrace_loop_lag_seconds", "histogram", "Delay of the event loop's heartbeats.")
        yield from self.loop_lags.lines("tailrace_loop_lag_seconds")

    def _disk_lines(self) -> Iterator[str]:
        broker = self._node.broker
        space, deleted = broker.disk_reserve, broker.counters
        yield from _one("tailrace_logs_bytes", "gauge", "Of all logs.", broker.sizes.total)
        free = space.found.free if space.found is not None else math.nan
        yield from _one("tailrace_disk_free_bytes", "gauge", "Free bytes on the disk of the data directory.", free)
        yield from _one(
            "tailrace_disk_reserve_bytes", "gauge", "Appends are refused when less than this is free.", space.reserve
        )
        limit = broker.disk_budget.limit(space.disk_bytes)
        yield from _one("tailrace_disk_budget_bytes", "gauge", "Bytes that all logs may take; -1 is no limit.", limit)
        yield from _one(
            "tailrace_disk_is_low",
            "gauge",
            "1 while appends are refused because the disk is almost full.",
            int(space.is_low),
        )
        yield from _one(
            "tailrace_refused_appends_total",
            "counter",
            "Appends refused because the disk is almost full.",
            space.refused,
        )
        refused = broker.refused_batches
        title = "Refused first batches of idempotent producers that were not sent again."
        yield from _one("tailrace_refused_batches", "gauge", title, len(refused))
        title = "Refused batches forgotten because there were too many."
        yield from _one("tailrace_refused_batches_dropped_total", "counter", title, refused.dropped)
        sizes = [(f'reason="{reason}"', deleted.bytes_deleted[reason]) for reason in Reason]
        yield from _family("tailrace_deleted_bytes_total", "counter", "Bytes of deleted segments.", sizes)
        counts = [(f'reason="{reason}"', deleted.segments_deleted[reason]) for reason in Reason]
        yield from _family("tailrace_deleted_segments_total", "counter", "Segments that were deleted.", counts)

    def _compaction(self) -> Iterator[str]:
        counted = self._node.broker.compactor.counted
        for name, text, value in (
            ("passes_total", "Completed passes over a log.", counted.passes),
            ("failures_total", "Passes that failed.", counted.failures),
            ("read_bytes_total", "Bytes of segments that were compacted.", counted.bytes_read),
            ("written_bytes_total", "Bytes of the segments that replaced them.", counted.bytes_written),
            ("keys_total", "Distinct keys, summed over passes.", counted.keys),
            ("unreadable_batches_total", "Unreadable batches that were kept unchanged.", counted.unreadable),
            ("seconds_total", "Duration of all passes.", round(counted.seconds, 3)),
        ):
            yield from _one(f"tailrace_compaction_{name}", "counter", text, value)
        for name, text, value in (
            ("dirty_ratio_max", "Largest share of uncompacted bytes in a log.", round(counted.dirty_ratio_max, 4)),
            ("peak_memory_bytes", "Peak memory of the last pass.", counted.peak_memory_bytes),
        ):
            yield from _one(f"tailrace_compaction_{name}", "gauge", text, value)

    def _request_lines(self) -> Iterator[str]:
        name = "tailrace_request_duration_seconds"
        yield from _head(name, "histogram", "From the arrival of a request to its response, by API, waiting included.")
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
        yield from self._backlog_lines()

    def _backlog_lines(self) -> Iterator[str]:
        backlog, now_ms = self._node.broker.backlog, int(time.time() * 1000)
        states = [
            (
                f'topic="{topic.name}",group="{_escaped(group)}",policy="{topic.config.backlog.policy}"',
                int(backlog.gates.state(topic, group, now_ms)),
            )
            for topic in backlog.groups.topics()
            for group in topic.config.backlog.groups
        ]
        title = "How far a group of a backlog policy is behind: 0 below 80 % of the limit, 1 from there on, 2 at it."
        yield from _family("tailrace_backlog_state", "gauge", title, states)
        delayed = [(f'topic="{name}"', count) for name, count in sorted(backlog.gates.delayed.items())]
        title = "Appends whose response was delayed, for the sake of a slow group."
        yield from _family("tailrace_backlog_delayed_acks_total", "counter", title, delayed)
        refused = [(f'topic="{name}"', count) for name, count in sorted(backlog.gates.refused.items())]
        title = "Appends refused because a group is too far behind."
        yield from _family("tailrace_backlog_refused_total", "counter", title, refused)


def _escaped(text: str) -> str:
    """Returns a text as the value of a label."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


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
