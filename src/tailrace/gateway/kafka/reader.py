"""Reads pages of messages from any position. Concurrent requests for the same page share one Fetch."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import CorruptRecords
from tailrace.client.fetch_once import Fetched, fetch_once
from tailrace.client.offsets import LATEST, list_offsets
from tailrace.gateway.kafka.threads import Threads
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import Record, decode_records

T = TypeVar("T")

FETCH_BYTES = 1 << 20
PAGE_BYTES = 1 << 20  # of keys, values and headers; a single message may be larger


class Page(NamedTuple):
    """`next_offset` is where the next page begins, `end` the offset after the last record that can be read."""

    records: Sequence[Record]
    next_offset: int
    end: int


class Reader:
    """Used from the loop's thread alone."""

    def __init__(self, cluster: Cluster, threads: Threads) -> None:
        self._cluster = cluster
        self._threads = threads
        self._shared: dict[tuple[Any, ...], asyncio.Future[Any]] = {}

    async def position(self, partition: TopicPartition, time_ms: int) -> int:
        """Returns the first offset with this timestamp or a later one, the end if there is none. EARLIEST and LATEST
        are times, too. Raises ClientError.
        """

        def find() -> int:
            found = list_offsets(self._cluster, {partition: time_ms})[partition]
            if found is None:
                found = list_offsets(self._cluster, {partition: LATEST})[partition]
            assert found is not None
            return found.offset

        return await self._once(("position", partition, time_ms), find)

    async def page(self, partition: TopicPartition, offset: int, records_max: int) -> Page:
        """Raises ClientError."""
        return await self._once(
            ("page", partition, offset, records_max), lambda: read_page(self._cluster, partition, offset, records_max)
        )

    async def _once(self, key: tuple[Any, ...], call: Callable[[], T]) -> T:
        """Returns the result of the call, or of one with the same key that runs already. A caller that is cancelled
        does not stop it.
        """
        running = self._shared.get(key)
        if running is None:
            running = asyncio.ensure_future(self._threads.run(call))
            self._shared[key] = running
            running.add_done_callback(lambda future: self._done(key, future))
        result: T = await asyncio.shield(running)
        return result

    def _done(self, key: tuple[Any, ...], future: "asyncio.Future[Any]") -> None:
        del self._shared[key]
        if not future.cancelled():
            future.exception()  # all callers may be gone


def read_page(cluster: Cluster, partition: TopicPartition, offset: int, records_max: int) -> Page:
    """Reads one page, in a thread. Raises ClientError."""
    fetched = fetch_once(cluster, partition, offset, FETCH_BYTES)
    try:
        return page_of(fetched, offset, records_max)
    except CorruptBatch as error:
        raise CorruptRecords(*partition, offset, str(error)) from None


def page_of(fetched: Fetched, offset: int, records_max: int) -> Page:
    """Returns the first records from `offset` on. Raises CorruptBatch."""
    records: list[Record] = []
    size = 0
    for position, _ in fetched.batches:
        for record in decode_records(fetched.records, position):
            if record.offset < offset:
                continue
            size += record_bytes(record)
            if len(records) >= records_max or (records and size > PAGE_BYTES):
                return Page(records, record.offset, fetched.end)
            records.append(record)
    return Page(records, fetched.next_offset, fetched.end)


def record_bytes(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
