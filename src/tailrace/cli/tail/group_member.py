"""Reads as a member of a consumer group, which assigns the partitions and the first offsets.

An offset is recorded when its message is written out, never before: what is not recorded, comes again. librdkafka
commits what is recorded once a second, before partitions are handed on, and at the end. A partition without a committed
offset is begun where the user said; that place is recorded at once, so that the group has one from then on.
"""

import contextlib
import time
from collections.abc import Iterable
from typing import Any

from tailrace.cli.common import output
from tailrace.cli.common.client import Consumer, KafkaError, KafkaException, Message, TopicPartition
from tailrace.cli.common.connection import Connection, reason_of
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.common.topics.offsets import Offsets, Partition
from tailrace.cli.common.topics.ranges import OffsetRange
from tailrace.cli.tail import follower

_COMMIT_MS = 1000
_ASKING_SECONDS = 15.0
_IDLE_SECONDS = 3.0  # how long a bounded read without partitions waits for a rebalance
_AS_OTHERS_WILL = (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)
_FOR_GOOD = (
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.GROUP_MAX_SIZE_REACHED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError._FATAL,
)


def properties(group: str, *, follow: bool, uncommitted: bool) -> dict[str, Any]:
    return {
        **follower.properties(follow=follow, uncommitted=uncommitted),
        "group.id": group,
        "enable.auto.commit": True,  # of what is recorded, which `written` does
        "auto.commit.interval.ms": _COMMIT_MS,
        "on_commit": _committed,
    }


class Member(follower.Reading):
    """`spans` say where to begin what the group has no offset for, and where to end; what is not in them, is new."""

    def __init__(
        self,
        connection: Connection,
        consumer: Consumer,
        offsets: Offsets,
        group: str,
        spans: dict[Partition, OffsetRange],
        *,
        follow: bool,
    ) -> None:
        super().__init__(connection, consumer, follow=follow)
        self._offsets = offsets
        self._group = group
        self._planned = spans
        self._topics: set[str] = set()
        self._assigned: set[Partition] = set()
        self._idle_since: float | None = None  # and None before it has joined
        self._change(set(spans))

    @property
    def is_done(self) -> bool:
        if self._assigned or self._idle_since is None:
            return bool(self._assigned) and super().is_done
        return self._bounded and time.monotonic() > self._idle_since + _IDLE_SECONDS

    def written(self, messages: Iterable[Message]) -> None:
        for message in {(message.topic(), message.partition()): message for message in messages}.values():
            with contextlib.suppress(KafkaException):  # it was handed on meanwhile, and its new owner writes it again
                self._consumer.store_offsets(message=message)

    def close(self) -> None:
        """Commits and leaves the group, unless no broker answers: that would wait for most of a minute."""
        if self._connection.is_away and self._metadata() is None:
            output.warn("no broker takes the last commit: what was printed last may come again")
        else:
            super().close()

    def _change(self, there: set[Partition]) -> None:
        topics = {partition.topic for partition in there}
        if topics == self._topics:
            return
        self._topics = topics
        if topics:
            self._consumer.subscribe(sorted(topics), on_assign=self._take, on_revoke=self._give)
        else:
            self._consumer.unsubscribe()

    def _take(self, _: Consumer, places: list[TopicPartition]) -> None:
        starts = self._starts(places)
        self._assign([TopicPartition(*at, start) for at, (start, _) in starts.items()])
        self._assigned.update(starts)
        for partition, (start, is_new) in starts.items():
            planned = self._plan_of(partition)
            self._spans[partition] = OffsetRange(planned.first if is_new else start, planned.end)
            if is_new and start >= planned.first:
                self._consumer.store_offsets(offsets=[TopicPartition(*partition, start)])
            if self._spans[partition].is_empty:
                self._finish(partition)
        if not self._assigned and self._idle_since is None:
            output.warn(f"the other members of {self._group} have all the partitions; standing by")
        self._idle_since = None if self._assigned else self._idle_since or time.monotonic()

    def _give(self, _: Consumer, places: list[TopicPartition]) -> None:
        for place in places:
            self._assigned.discard(Partition(place.topic, place.partition))
            self._spans.pop(Partition(place.topic, place.partition), None)

    def _starts(self, places: list[TopicPartition]) -> dict[Partition, tuple[int, bool]]:
        """Returns for each partition where to begin, and whether the group has no offset there."""
        doing = f"the offsets of {self._group} cannot be had"
        try:
            committed = self._consumer.committed(places, timeout=_ASKING_SECONDS) if places else []
        except KafkaException as error:
            raise self._connection.failure(error.args[0], doing) from None
        for place in committed:
            if place.error is not None:  # or it would look as if there were none
                raise self._connection.failure(place.error, doing)
        known = {Partition(place.topic, place.partition): place.offset for place in committed}
        low, high = self._offsets.earliest(known), self._offsets.latest(known)
        return {
            at: (min(max(self._plan_of(at).first, low[at]), high[at]), True)
            if offset < 0
            else (follower.landing(at, offset, low[at], high[at]), False)
            for at, offset in known.items()
        }

    def _plan_of(self, partition: Partition) -> OffsetRange:
        """The range of a partition. One that is not planned is new: read from its start, or not in a bounded read."""
        return self._planned.get(partition, OffsetRange(0, 0 if self._bounded else None))

    def _assign(self, places: list[TopicPartition]) -> None:
        """Which of the two is right, the assignor decides that the members have in common."""
        try:
            self._consumer.incremental_assign(places)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            self._consumer.assign(places)

    def _finish(self, partition: Partition) -> None:
        """Pauses the partition. It stays assigned until we leave, so that no other member continues in it meanwhile."""
        del self._spans[partition]
        self._consumer.pause([TopicPartition(*partition)])

    def _move(self, partition: Partition, offset: int) -> None:
        with contextlib.suppress(KafkaException):
            self._consumer.incremental_unassign([TopicPartition(*partition)])
            self._consumer.incremental_assign([TopicPartition(*partition, offset)])
            return
        places = self._consumer.position([TopicPartition(*at) for at in sorted(self._assigned - {partition})])
        self._consumer.assign([*places, TopicPartition(*partition, offset)])
        self._consumer.pause([TopicPartition(*at) for at in self._assigned - self._spans.keys()])

    def _trouble(self, error: KafkaError) -> None:
        code = error.code()
        if code == KafkaError._MAX_POLL_EXCEEDED:
            output.warn(f"stdout was not read for so long that {self._group} went on without us; joining again")
        elif code == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
            raise Failure(
                f"the members of {self._group} share partitions by an assignor that is not ours\n"
                f"  `tailrace group show {self._group}` names it; -X partition.assignment.strategy=NAME joins them",
                ExitCode.REFUSED,
            )
        elif code in _FOR_GOOD:
            raise self._connection.failure(error, f"cannot be a member of {self._group}")


def _committed(error: KafkaError | None, _: list[TopicPartition]) -> None:
    """Called after each commit, with what became of it."""
    if error is not None and error.code() not in (KafkaError._NO_OFFSET, *_AS_OTHERS_WILL):
        output.warn(f"what was printed last could not be committed, and will come again ({reason_of(error)})")
