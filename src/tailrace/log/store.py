"""What the layers above know of a partition's records: a place to append to, to read from, to look things up in.

`Log` is the one implementation today, and keeps its batches in files. A later one will keep them in an object
store; so nothing here, and nothing above, knows of files, segments or descriptors.
"""

from typing import Protocol

from tailrace.log.files.leader_epochs import EpochEnd
from tailrace.log.files.transaction_index import AbortedTransaction
from tailrace.log.log import Log
from tailrace.log.reader import FoundTime
from tailrace.log.segment.slices import Slice
from tailrace.log.validation import Appended


class Job(Protocol):
    """Something that waits for a disk, or a network: begun by the owner, run anywhere, finished by the owner."""

    def run(self) -> None: ...

    def finish(self) -> object: ...


class PartitionStore(Protocol):
    """One partition. Changed by its owner alone; read from any thread."""

    @property
    def start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int:
        """Everything below is on disk: what readers see."""

    @property
    def end_offset(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    def append(self, batches: bytearray | memoryview, now_ms: int) -> Appended:
        """Afterwards the batches are written; `FlushQueue.when_flushed` tells when they are safe."""

    def read(self, offset: int, max_bytes: int, *, up_to: int | None = None, wait: bool = True) -> Slice | None: ...

    def find_time(self, timestamp: int) -> FoundTime | None: ...

    def find_max_timestamp(self) -> FoundTime | None: ...

    def aborted_transactions(self, first: int, end: int, *, wait: bool = True) -> list[AbortedTransaction]: ...

    def epoch_end(self, epoch: int) -> EpochEnd: ...

    def delete_before(self, offset: int) -> None: ...

    def begin_flush(self) -> Job | None:
        """The next flush, to be run in a thread; None where there is nothing to do. See `log/flush/queue.py`."""


def as_store(log: Log) -> PartitionStore:
    """A log is a partition store: the type checker says so here."""
    return log
