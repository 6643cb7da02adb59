"""The metadata log: appends decided changes, replays them, and holds responses until they are flushed.

A handler decides on records. `write` appends them as one batch, so that a crash leaves all of them or none, and replays
them into the state at once. A response that depends on that state waits for `when_settled`: a client never learns what
a power cut could take back.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from errno import EAGAIN
from functools import partial
from typing import Protocol

from tailrace.broker.core.delayed import Flushed
from tailrace.broker.core.errors import code_of
from tailrace.broker.metadata import records as metadata_records
from tailrace.broker.metadata.internal_topics import append_records, records_of
from tailrace.broker.metadata.records import MetadataRecord
from tailrace.broker.metadata.state import Metadata
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.errors import StorageError
from tailrace.log.log import Log
from tailrace.records.decoders import decode_with_python

logger = logging.getLogger("tailrace.broker.metadata")


def replay_all(log: Log, metadata: Metadata) -> None:
    """Replays the log, up to the high watermark, into the state. Raises UnknownRecord, or LogError."""
    # The compiled decoder takes longer to import than reading a few thousand topics in Python.
    for record in records_of(log, decode_with_python):
        change = metadata_records.decode(record)
        try:
            metadata.replay(change)
        except KeyError:
            if not log.recorded_gaps:
                raise
            logger.warning("ignored %s: a repair has given up the creation of its topic", change)


def write_records(log: Log, metadata: Metadata, changes: Sequence[MetadataRecord], now_ms: int) -> None:
    """Appends the records as one batch, and replays them into the state."""
    _append(log, changes, now_ms)
    for change in changes:
        metadata.replay(change)


def _append(log: Log, changes: Sequence[MetadataRecord], now_ms: int) -> None:
    append_records(log, (metadata_records.encode(change, now_ms) for change in changes), now_ms)


class Result(Protocol):
    """The part of a response that reports one of the requested changes."""

    error_code: int
    error_message: str | None


class MetadataLog:
    """The metadata log of a running broker."""

    def __init__(self, log: Log, metadata: Metadata, flushes: FlushQueue) -> None:
        self.log = log
        self.observers: list[Callable[[Sequence[MetadataRecord]], None]] = []  # called after each change of the state
        self._metadata = metadata
        self._flushes = flushes
        self._delayed: Sequence[MetadataRecord] | None = None
        self._delayed_ms = 0

    @property
    def is_settled(self) -> bool:
        """Whether all that was written has been flushed."""
        log = self.log
        return log.view.high_watermark >= log.bounds.end  # inlined: every response checks this

    def write(self, changes: Sequence[MetadataRecord], now_ms: int) -> None:
        """Appends the records, changes the state and requests a flush. Raises StorageError, and then nothing has
        changed.
        """
        self.write_delayed()
        write_records(self.log, self._metadata, changes, now_ms)
        self._flushes.request(self.log)
        for observe in self.observers:
            observe(changes)

    def write_or_refuse(self, changes: Sequence[MetadataRecord], results: Iterable[Result], now_ms: int) -> bool:
        """Writes the changes. If the disk refuses them, returns False and sets an error on all results without one."""
        try:
            self.write(changes, now_ms)
        except StorageError as error:
            logger.error("cannot write to the metadata log: %s. Nothing was changed", error)
            for result in results:
                if not result.error_code:
                    result.error_code, result.error_message = code_of(error), str(error)
            return False
        return True

    def delay(self, changes: Sequence[MetadataRecord], now_ms: int) -> None:
        """Takes records that are already in the state, but for which the disk had no room at the start. They must be on
        disk before anything is appended to any log.
        """
        self._delayed, self._delayed_ms = changes, now_ms

    def write_delayed(self) -> None:
        """Writes the delayed records, if there are any. Raises StorageError if they are not on disk, mostly for lack of
        room.
        """
        if self._delayed is None:
            return
        if self._delayed:
            _append(self.log, self._delayed, self._delayed_ms)
            self._delayed = ()
        if self.log.flushing is not None:
            self._flushes.request(self.log)
            raise StorageError("an unclean start is being recorded", OSError(EAGAIN, "try again"))
        self.log.flush()
        self._delayed = None
        logger.warning("the disk has room again: appends are accepted")

    def when_settled(self) -> Flushed:
        settled: Flushed = Flushed()
        self._flushes.when_flushed(self.log, self.log.end_offset, partial(Flushed.resolve, settled))
        return settled
