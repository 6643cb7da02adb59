"""One partition of a topic: its log, once it has one, and the fetches that wait for more records."""

from typing import TYPE_CHECKING, Protocol

from tailrace.log.layout.errors import LogUnavailable
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log

if TYPE_CHECKING:
    from tailrace.broker.core.topics import Topic


class WaitingFetch(Protocol):
    """A Fetch that waits for a partition to have more records for consumers."""

    def partition_moved(self) -> None: ...


class Partition:
    """One partition. It has no log, and nothing on disk, until the first append; until then it reads as empty.

    `unavailable` is the reason if the log should be there but cannot be opened. It can then be neither read nor
    written.
    """

    __slots__ = ("has_queue", "index", "log", "topic", "unavailable", "waiting_fetches")

    def __init__(self, topic: "Topic", index: int) -> None:
        self.topic = topic
        self.index = index
        self.log: Log | None = None
        self.has_queue = False  # appends queue behind a batch that is being recompressed: see `Recompressor`
        self.unavailable: LogUnavailable | None = None
        self.waiting_fetches: set[WaitingFetch] = set()

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.index)

    @property
    def start_offset(self) -> int:
        return self.log.start_offset if self.log is not None else 0

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark if self.log is not None else 0

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset if self.log is not None else 0

    @property
    def end_offset(self) -> int:
        return self.log.end_offset if self.log is not None else 0

    @property
    def has_unflushed(self) -> bool:
        return self.log is not None and self.log.end_offset > self.log.high_watermark

    def moved(self) -> None:
        """Makes all waiting fetches look again, as there is more to read, or the topic is gone."""
        for fetch in list(self.waiting_fetches):
            fetch.partition_moved()
