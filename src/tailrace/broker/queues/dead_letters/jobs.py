"""Jobs of dead letters: one makes them of the records that were given up, one finds those that were written before."""

import logging
from collections.abc import Sequence

from tailrace.broker.metadata.internal_topics import NotRead, read_batches
from tailrace.broker.queues.dead_letters.letters import DeadLetter, Origin, offset_in, record_of
from tailrace.log.layout.errors import LogError, StorageError, without_frames
from tailrace.log.log import Log
from tailrace.records import batch
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import Record, decode_records, encode_batch

logger = logging.getLogger("tailrace.broker.queues")

BATCH_BYTES_MAX = 1 << 20  # of records; one that is larger comes by itself


class CopyJob:
    """Makes a batch of dead letters: of as many as fit, in order. A record that is gone or damaged has no copy.
    If a disk fails, the batch ends before that record; with `must_copy=False`, it has no copy, either.
    """

    def __init__(
        self,
        log: Log | None,
        letters: Sequence[DeadLetter],
        origin: Origin,
        *,
        copies: bool,
        must_copy: bool,
        now_ms: int,
    ) -> None:
        self.batch = bytearray()
        self.taken = 0  # of the letters
        self.error: StorageError | None = None
        self._log = log
        self._letters = letters
        self._origin = origin
        self._copies = copies
        self._must_copy = must_copy
        self._now_ms = now_ms
        self._known: dict[int, Record] = {}  # of the batch that was decoded last
        self._known_offsets = range(0)

    def run(self) -> None:
        records: list[Record] = []
        size = 0
        for letter in self._letters:
            try:
                copied = self._find(letter.offset) if self._copies else None
            except StorageError as error:
                self.error = without_frames(error)
                break
            record = record_of(letter, self._origin, copied, self._now_ms)
            size += len(record.key or b"") + len(record.value or b"")
            if records and size > BATCH_BYTES_MAX:
                break
            records.append(record._replace(offset=len(records)))
        if records:
            self.batch, self.taken = encode_batch(records), len(records)

    def _find(self, offset: int) -> Record | None:
        """Returns the record; None if it is gone or damaged. Records are given up in any order. Raises StorageError."""
        if self._log is not None and offset not in self._known_offsets:
            try:
                self._decode(self._log, offset)
            except (LogError, CorruptBatch) as error:
                if self._must_copy and isinstance(error, StorageError):
                    raise
                logger.warning("the dead letter of offset %d of %s has no copy: %s", offset, self._log.directory, error)
                self._known, self._known_offsets = {}, range(0)
        return self._known.get(offset)

    def _decode(self, log: Log, offset: int) -> None:
        """Raises LogError and CorruptBatch."""
        self._known, self._known_offsets = {}, range(0)
        found = log.read(offset, 1)
        if found is None:
            return
        with found:
            data = found.read()
        for position, header in batch.split(data):
            if header.base_offset <= offset <= header.last_offset and not header.is_control:
                self._known = {record.offset: record for record in decode_records(data, position)}
                self._known_offsets = range(header.base_offset, header.next_offset)

    def finish(self) -> None:
        pass


class SearchJob:
    """Finds the dead letters of a share partition in a dead-letter topic, from an offset on. One that is in a damaged
    range is not found, and is written again.
    """

    def __init__(self, log: Log, from_offset: int, origin: Origin) -> None:
        self.offsets: set[int] = set()  # of the records that they are of
        self._log = log
        self._from_offset = from_offset
        self._origin = origin

    def run(self) -> None:
        try:
            for found in read_batches(self._log, from_offset=self._from_offset):
                offsets = (offset_in(record.headers, self._origin) for record in found.records)
                self.offsets.update(offset for offset in offsets if offset is not None)
        except (LogError, NotRead, CorruptBatch) as error:
            logger.warning("cannot find out which dead letters %s has: %s", self._log.directory, error)

    def finish(self) -> None:
        pass
