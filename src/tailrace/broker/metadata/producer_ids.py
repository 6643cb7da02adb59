"""Allocates producer ids, from blocks that are recorded and flushed before their first id is used.

An id given out twice would turn new records into duplicates of old ones. So a block is recorded in the metadata log,
and the response that carries an id of it waits for that, like every response that depends on the metadata.
"""

from tailrace.broker.metadata.log import MetadataLog
from tailrace.broker.metadata.records import ProducerIdsReserved
from tailrace.broker.metadata.state import Metadata

BLOCK = 1000


class ProducerIds:
    def __init__(self, metadata: Metadata, log: MetadataLog) -> None:
        self._metadata = metadata
        self._log = log
        self._next = self._end = metadata.next_producer_id

    def take(self, now_ms: int) -> int:
        """Returns an id that was never used before. Raises StorageError if its block cannot be recorded."""
        if self._next == self._end:
            end = self._next + BLOCK
            self._log.write([ProducerIdsReserved(next_producer_id=end)], now_ms)
            self._end = end  # only now: ids of a block that could not be recorded must not be used
        self._next += 1
        return self._next - 1
