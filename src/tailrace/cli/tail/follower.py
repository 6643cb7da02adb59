"""Reads given partitions to an end, or for good.

A reader is given ranges of offsets, hands out messages, and is done at the end of a bounded range or, since a log may
end with markers that are no messages, when the broker reports the end of the partition. While it follows, it finds new
partitions and topics, waits for brokers that are away, and reports where messages were lost. A `Follower` reads given
partitions; a `group_member.Member` reads those that its group assigns.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from tailrace.cli.common import output
from tailrace.cli.common.client import (
    OFFSET_BEGINNING,
    ClusterMetadata,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from tailrace.cli.common.connection import Connection
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.common.topics.offsets import Partition, partitions_of
from tailrace.cli.common.topics.ranges import OffsetRange
from tailrace.cli.common.topics.selection import Selection

_REFRESH_SECONDS = 5.0
_METADATA_SECONDS = 2.0
_PATIENCE_SECONDS = 30.0  # for a broker that is away, in a bounded read
_MANY = 1000  # messages at a time


def properties(*, follow: bool, uncommitted: bool) -> dict[str, Any]:
    return {
        "group.id": "tailrace-tail",  # librdkafka wants one, and the broker never hears of it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",  # a jump is ours to make, and to tell
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        "queued.max.messages.kbytes": 16 << 10,
        "fetch.queue.backoff.ms": 10,  # else a second, each time the queue is full
        "fetch.wait.max.ms": 500 if follow else 50,
        "reconnect.backoff.max.ms": 2000,
    }


def landing(partition: Partition, offset: int, low: int, high: int) -> int:
    """Returns the offset at which to continue, for `offset` in a log from `low` to `high`. Warns about what that leaves
    out.
    """
    if offset < low:
        output.warn(f"{partition}: offsets {offset} to {low - 1} are gone (retention); going on at {low}")
        return low
    if offset > high:
        output.warn(f"{partition} now ends at offset {high}, before {offset}; going on there")
        return high
    return offset


class Reading:
    """Reads ranges of partitions, each to its end. Subclasses decide which partitions."""

    def __init__(self, connection: Connection, consumer: Consumer, *, follow: bool) -> None:
        self._connection = connection
        self._consumer = consumer
        self._spans: dict[Partition, OffsetRange] = {}
        self._away_since: float | None = None
        self._refreshed = time.monotonic()
        self._bounded = not follow

    @property
    def is_done(self) -> bool:
        return self._bounded and not self._spans

    def read(self, seconds: float) -> list[Message]:
        """Returns messages as soon as there are any; none if none came within that time."""
        first = self._consumer.poll(seconds)
        self._watch()
        if first is None:
            return []
        return [message for message in [first, *self._consumer.consume(_MANY, 0)] if self._is_wanted(message)]

    def refresh(self, selection: Selection, wanted: Callable[[Partition], bool]) -> None:
        """Every few seconds: looks for partitions that are new or gone."""
        if time.monotonic() < self._refreshed + _REFRESH_SECONDS:
            return
        metadata = self._metadata()
        self._refreshed = time.monotonic()
        if metadata is None:
            return  # it is away, and `_watch` hears of it
        self._answers()
        there = set(filter(wanted, partitions_of(metadata, selection.of(metadata.topics))))
        self._change(there)

    def written(self, messages: Iterable[Message]) -> None:
        """They are where they were to go."""

    def close(self) -> None:
        self._consumer.close()

    def _metadata(self) -> ClusterMetadata | None:
        try:
            found: ClusterMetadata = self._consumer.list_topics(timeout=_METADATA_SECONDS)
        except KafkaException:
            return None
        return found

    def _change(self, there: set[Partition]) -> None:
        """These are the partitions that there are to read now."""
        raise NotImplementedError

    def _move(self, partition: Partition, offset: int) -> None:
        raise NotImplementedError

    def _finish(self, partition: Partition) -> None:
        raise NotImplementedError

    def _trouble(self, error: KafkaError) -> None:
        """Handles an error of the client as a whole, rather than of a partition."""

    def _is_wanted(self, message: Message) -> bool:
        place, offset = (message.topic(), message.partition()), message.offset()
        span = self._spans.get(place)  # type: ignore[call-overload] # a Partition is such a pair, and takes time to make
        error = message.error()
        if span is None:
            if error and place[0] is None:
                self._trouble(error)
            return False
        if error:
            self._event(Partition(*place), span, error, offset or 0)  # type: ignore[arg-type]
            return False
        assert offset is not None
        if span.end is not None and offset + 1 >= span.end:
            self._finish(Partition(*place))  # type: ignore[arg-type]
            return bool(offset < span.end)
        return bool(offset >= span.first)

    def _event(self, partition: Partition, span: OffsetRange, error: KafkaError, offset: int) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            if span.end is not None:
                self._finish(partition)
        elif code == KafkaError._AUTO_OFFSET_RESET:
            self._jump(partition, span, offset)
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
            if span.end is not None:
                raise Failure(f"{partition} was deleted while it was read", ExitCode.NOT_FOUND)
        elif code in (KafkaError.INVALID_MSG, KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION):
            raise Failure(
                f"{partition} is damaged from offset {offset} on ({error.str()})\n"
                "  `tailrace log verify DIR`, where the broker keeps its data, says what is lost"
            )
        elif code not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT):
            raise self._connection.failure(error, f"{partition} cannot be read")

    def _jump(self, partition: Partition, span: OffsetRange, offset: int) -> None:
        """The offset to be read next is not there: goes on with what is, and says what that leaves out."""
        place = TopicPartition(*partition)
        try:
            low, high = self._consumer.get_watermark_offsets(place, timeout=_METADATA_SECONDS) or (offset, offset)
        except KafkaException as error:
            raise self._connection.failure(error.args[0], f"{partition} cannot be read at offset {offset}") from None
        is_ahead = high < offset <= span.first  # the log does not reach that far yet
        self._move(partition, high if is_ahead else landing(partition, offset, low, high))

    def _watch(self) -> None:
        """Brokers that are away are waited for, and named once."""
        if not self._connection.is_away:
            return
        if self._away_since is None:
            self._away_since = time.monotonic()
            output.warn(f"no broker answers at {self._connection.bootstrap} ({self._connection.trouble}); waiting")
        elif self._bounded and time.monotonic() > self._away_since + _PATIENCE_SECONDS:
            raise Failure(self._connection.not_reachable(), ExitCode.NOT_REACHABLE)

    def _answers(self) -> None:
        self._connection.is_away = False
        if self._away_since is not None:
            output.warn("a broker answers again")
            self._away_since = None


class Follower(Reading):
    """Reads without a group: nothing is joined and nothing committed, so that reading disturbs no other consumer."""

    def __init__(
        self, connection: Connection, consumer: Consumer, spans: dict[Partition, OffsetRange], *, follow: bool
    ) -> None:
        super().__init__(connection, consumer, follow=follow)
        self._spans.update((partition, span) for partition, span in spans.items() if not span.is_empty)
        consumer.assign([TopicPartition(*partition, span.first) for partition, span in self._spans.items()])

    def _change(self, there: set[Partition]) -> None:
        self._drop(self._spans.keys() - there)
        self._add(there - self._spans.keys())

    def _add(self, partitions: Iterable[Partition]) -> None:
        """They are new, so all that is in them is."""
        added = sorted(partitions)
        self._spans.update((partition, OffsetRange(0)) for partition in added)
        self._consumer.incremental_assign([TopicPartition(*partition, OFFSET_BEGINNING) for partition in added])

    def _drop(self, partitions: Iterable[Partition]) -> None:
        dropped = sorted(partitions)
        for partition in dropped:
            del self._spans[partition]
        self._consumer.incremental_unassign([TopicPartition(*partition) for partition in dropped])
        for topic in sorted({partition.topic for partition in dropped}):
            output.warn(f"{topic} was deleted; should it be made anew, it is followed from its start")

    def _finish(self, partition: Partition) -> None:
        del self._spans[partition]
        self._consumer.incremental_unassign([TopicPartition(*partition)])

    def _move(self, partition: Partition, offset: int) -> None:
        self._consumer.incremental_unassign([TopicPartition(*partition)])
        self._consumer.incremental_assign([TopicPartition(*partition, offset)])
