"""Finds the first record that a group has not read: its timestamp says how long it has been waiting.

A Fetch at the position of a group returns the batch that has it. One Fetch serves all groups in a partition that are
close together; what was found is kept for as long as a group stands there.

Records of open and aborted transactions do not count: a consumer of committed records does not get them, and the broker
does not know which groups have such consumers.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from tailrace.client.batches import committed_batches
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import Leader, TopicPartition
from tailrace.client.cluster.routing import Answer, Question, ask_leaders
from tailrace.client.errors import ClientError
from tailrace.client.fetch_requests import IDS_SINCE, FetchTarget, fetch_request
from tailrace.client.options import Isolation
from tailrace.monitor.figures.snapshot import Position, Unread
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse
from tailrace.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, check_header, read_header
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import decode_records

PARTITION_BYTES = 64 << 10
BATCH_BYTES_MAX = 1 << 28
PARTITIONS_AT_ONCE = 200
RESPONSE_BYTES = PARTITIONS_AT_ONCE * PARTITION_BYTES
_UNREADABLE = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
ROUNDS_EMPTY_MAX = 3  # in which a partition returns nothing
OLDEST_VERSION = 4
WAIT_MS = 100


class UnreadRecords:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._found: dict[Position, Unread] = {}

    def find(self, positions: Mapping[Position, int]) -> dict[Position, Unread | None]:
        """Returns the first record at or after each position; None where there is none. `positions` have the end of
        their partition, and are below it. What was found at other positions is forgotten.
        """
        self._found = {position: self._found[position] for position in positions.keys() & self._found.keys()}
        result: dict[Position, Unread | None] = dict(self._found)
        wanted: dict[TopicPartition, list[int]] = {}
        for partition, offset in positions.keys() - result.keys():
            wanted.setdefault(partition, []).append(offset)
        searches = {
            partition: _Search(offsets, positions[partition, offsets[0]]) for partition, offsets in wanted.items()
        }
        while searches:
            self._round(searches, result)
        self._found = {position: unread for position, unread in result.items() if unread is not None}
        return result

    def _round(self, searches: dict[TopicPartition, "_Search"], result: dict[Position, Unread | None]) -> None:
        targets = {partition: searches[partition].next() for partition in islice(searches, PARTITIONS_AT_ONCE)}
        fetched = ask_leaders(self._cluster, _Fetch(targets), targets, "reading the first unread records")
        for partition, answer in fetched.items():
            search = searches[partition]
            for offset, unread in search.take(answer):
                result[partition, offset] = unread
            if not search.open:
                del searches[partition]


class Fetched(NamedTuple):
    """What a partition returned: records up to its last stable offset, and which of them were aborted."""

    records: memoryview
    stable_end: int
    aborted: Sequence[tuple[int, int]] = ()  # producer id, and the first offset of its transaction


class _Target(NamedTuple):
    offset: int
    max_bytes: int


class _Search:
    """Positions of one partition, each with the offset from which on its record is looked for, in order of these."""

    def __init__(self, offsets: Iterable[int], end: int) -> None:
        self.open = [(offset, offset) for offset in sorted(offsets)]
        self._end = end
        self._max_bytes = PARTITION_BYTES
        self._empty = 0

    def next(self) -> _Target:
        return _Target(self.open[0][1], self._max_bytes)

    def take(self, fetched: Fetched | None) -> Iterator[tuple[int, Unread | None]]:
        """Yields what a response settles, by position."""
        if fetched is None:  # deleted meanwhile, or damaged: how old they are is unknown
            yield from ((position, Unread(position, None)) for position, _ in self.open)
            self.open = []
            return
        end = min(self._end, fetched.stable_end)
        batches, cut_size = _batches(fetched.records)
        if not batches and self.open[0][1] >= end:
            yield from ((position, None) for position, _ in self.open)
            self.open = []
            return
        if not batches:
            yield from self._took_nothing(cut_size)
            return
        self._empty, self._max_bytes = 0, PARTITION_BYTES
        page = _Page(fetched.records, committed_batches(fetched.records, batches, fetched.aborted))
        covered = batches[-1][1].next_offset
        reached = bisect_left(self.open, covered, key=lambda one: one[1])
        still_open = []
        for position, wanted in self.open[:reached]:
            if (found := page.first_record(max(position, wanted))) is not None:
                yield position, found
            elif covered >= end:
                yield position, None
            else:
                still_open.append((position, covered))
        self.open = still_open + self.open[reached:]

    def _took_nothing(self, cut_size: int) -> Iterator[tuple[int, Unread | None]]:
        self._empty += 1
        if cut_size and cut_size <= BATCH_BYTES_MAX:
            self._max_bytes = max(cut_size, self._max_bytes)
        else:
            self._max_bytes = min(BATCH_BYTES_MAX, self._max_bytes * 16)
        if self._empty > ROUNDS_EMPTY_MAX:  # how old the record is stays unknown
            position, _ = self.open.pop(0)
            yield position, Unread(position, None)


class _Page:
    """The batches of one response that count; each is decoded once at most."""

    def __init__(self, records: memoryview, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        self._records = records
        self._batches = batches
        self._lasts = [header.last_offset for _, header in batches]
        self._decoded: dict[int, tuple[list[int], list[int]]] = {}  # offsets and timestamps, by position

    def first_record(self, offset: int) -> Unread | None:
        for position, header in self._batches[bisect_left(self._lasts, offset) :]:
            try:
                offsets, timestamps = self._decode(position)
            except CorruptBatch:  # damaged: how old it is can still be said
                return Unread(max(offset, header.base_offset), _timestamp(header.max_timestamp))
            if (number := bisect_left(offsets, offset)) < len(offsets):
                return Unread(offsets[number], _timestamp(timestamps[number]))
        return None

    def _decode(self, position: int) -> tuple[list[int], list[int]]:
        if position not in self._decoded:
            found = decode_records(self._records, position)
            self._decoded[position] = [one.offset for one in found], [one.timestamp for one in found]
        return self._decoded[position]


def _timestamp(timestamp: int) -> int | None:
    return None if timestamp == NO_TIMESTAMP else timestamp


def _batches(records: memoryview) -> tuple[list[tuple[int, BatchHeader]], int]:
    """The whole batches, and the size of one that was cut short behind them."""
    found: list[tuple[int, BatchHeader]] = []
    position = 0
    while position + HEADER_SIZE <= len(records):
        header = read_header(records, position)
        try:
            check_header(header)
        except CorruptBatch:
            break
        if position + header.size > len(records):
            return found, header.size
        found.append((position, header))
        position += header.size
    return found, 0


class _Fetch(Question["Fetched | None"]):
    response = FetchResponse
    versions = (OLDEST_VERSION, IDS_SINCE - 1)

    def __init__(self, targets: Mapping[TopicPartition, _Target]) -> None:
        self._targets = targets

    def request(self, partitions: Sequence[TopicPartition], leaders: dict[TopicPartition, Leader]) -> FetchRequest:
        targets = [
            FetchTarget(one, ZERO_UUID, self._targets[one].offset, leaders[one].epoch, self._targets[one].max_bytes)
            for one in partitions
        ]
        most = max(RESPONSE_BYTES, *(target.max_bytes for target in targets))
        return fetch_request(targets, Isolation.READ_COMMITTED, max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=most)

    def answers(self, response: FetchResponse) -> Iterator[Answer["Fetched | None"]]:
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                records = memoryview(data.records or b"")  # type: ignore[arg-type]
                stable_end = data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
                aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
                if data.error_code in _UNREADABLE:
                    yield Answer(partition, 0, None)
                else:
                    yield Answer(partition, data.error_code, Fetched(records, stable_end, aborted))

    def failure(self, answer: Answer["Fetched | None"]) -> ClientError | None:
        return None
