"""Records what clients did and saw, and checks it against the guarantees of a log broker, for tests that break things.

A test notes every send, every acknowledgement and every record read while it kills brokers, and at the end all that is
left, read from the start. `check` returns the anomalies. It depends on no broker and no client: notes of any Kafka will
do. Modelled on the checker of Jepsen's Kafka workload.

    history = History()
    send = history.sends("producer 1", ("orders", 0), b"1")         # before it is sent
    send.acknowledge(message.offset())                              # when it is acknowledged, if ever
    history.reads("reader 1", ("orders", 0), 0, b"1")               # in the order in which the reader got them
    history.finds(("orders", 0), 0, b"1")                           # in the end, from the start
    assert not check(history)

The checker identifies records by value, so a partition must not be sent the same value twice; put a number in front of
equal values. The test chooses the names of partitions. A partition that was deleted and created again needs another
name here, and so does a reader that seeks back, from there on.

Which anomalies count depends on what its producers were promised:

    KEPT       what is acknowledged stays, at its offset   `acks=all`; with `acks=1` while only processes die
    ONCE       no message is there twice                   idempotent producers
    IN_ORDER   messages are in the order of sending        those, and producers with one request in flight

A send that is never acknowledged may be there or not. Nothing here waits. Any thread may add notes, as long as each
producer and each reader is used by one thread at a time.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Flag, StrEnum, auto
from itertools import pairwise
from typing import NamedTuple

Partition = Hashable


class Promise(Flag):
    NOTHING = 0
    KEPT = auto()
    ONCE = auto()
    IN_ORDER = auto()
    IDEMPOTENT = KEPT | ONCE | IN_ORDER


class Kind(StrEnum):
    """An anomaly."""

    LOST_WRITE = "lost-write"  # acknowledged, and not there
    DUPLICATE = "duplicate"  # sent once, and there twice
    REORDERED = "reordered"  # sent after another of its producer, and there before it
    INCONSISTENT_OFFSETS = "inconsistent-offsets"  # one offset, two values
    READ_THEN_GONE = "read-then-gone"  # a reader saw it, and it is not there
    NONMONOTONIC_POLL = "nonmonotonic-poll"  # a reader got an offset again, or an earlier one
    POLL_SKIP = "poll-skip"  # a reader was not given what is between two records it got
    NEVER_SENT = "never-sent"  # read, and never sent


class Anomaly(NamedTuple):
    kind: Kind
    partition: Partition
    text: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.partition}: {self.text}"


@dataclass(slots=True)
class Send:
    producer: str
    partition: Partition
    value: bytes
    promise: Promise = Promise.IDEMPOTENT
    is_acknowledged: bool = False
    offset: int | None = None

    def acknowledge(self, offset: int | None) -> None:
        """The offset is None if the broker acknowledged without one, as for a duplicate that it no longer remembers."""
        self.is_acknowledged = True
        self.offset = offset

    def __str__(self) -> str:
        where = f", acknowledged at {self.offset}" if self.is_acknowledged else ", never acknowledged"
        return f"{_short(self.value)} of {self.producer}{where}"


class Read(NamedTuple):
    offset: int
    value: bytes


@dataclass
class _Notes:
    """All notes about one partition."""

    start_offset: int = 0
    sends: list[Send] = field(default_factory=list)
    reads: dict[str, list[Read]] = field(default_factory=dict)  # by reader
    found: list[Read] = field(default_factory=list)


class History:
    def __init__(self) -> None:
        self._notes: dict[Partition, _Notes] = {}

    def sends(self, producer: str, partition: Partition, value: bytes, promise: Promise = Promise.IDEMPOTENT) -> Send:
        """Call this before sending the message: a reader may be quicker than the acknowledgement."""
        send = Send(producer, partition, value, promise)
        self._of(partition).sends.append(send)
        return send

    def reads(self, reader: str, partition: Partition, offset: int, value: bytes) -> None:
        self._of(partition).reads.setdefault(reader, []).append(Read(offset, value))

    def finds(self, partition: Partition, offset: int, value: bytes) -> None:
        """Notes a record that is there at the end. A partition in which nothing was found counts as empty."""
        self._of(partition).found.append(Read(offset, value))

    def begins(self, partition: Partition, offset: int) -> None:
        """Notes that records before the offset were deleted on purpose: they are not missed."""
        self._of(partition).start_offset = offset

    def deletes(self, partition: Partition) -> None:
        """Notes that the partition was deleted: none of its records is expected any more."""
        self._notes.pop(partition, None)

    def _of(self, partition: Partition) -> _Notes:
        notes = self._notes.get(partition)
        return notes if notes is not None else self._notes.setdefault(partition, _Notes())

    def items(self) -> list[tuple[Partition, _Notes]]:
        return list(self._notes.items())

    def counts(self) -> dict[str, int]:
        """Returns how much there is to check: a test in which nothing happened proves nothing."""
        notes = list(self._notes.values())
        return {
            "sent": sum(len(each.sends) for each in notes),
            "acknowledged": sum(send.is_acknowledged for each in notes for send in each.sends),
            "read": sum(len(reads) for each in notes for reads in each.reads.values()),
            "found": sum(len(each.found) for each in notes),
        }


def check(history: History) -> list[Anomaly]:
    """Returns the anomalies. Raises ValueError for a history in which a partition was sent a value twice."""
    return [anomaly for partition, notes in history.items() for anomaly in _Check(partition, notes).all()]


class _Check:
    """The notes of one partition, by offset and by value."""

    def __init__(self, partition: Partition, notes: _Notes) -> None:
        self._partition = partition
        self._notes = notes
        self._value_at = dict(notes.found)
        self._all_offsets = sorted(self._value_at)
        self._offsets: dict[bytes, list[int]] = defaultdict(list)
        for offset, value in notes.found:
            self._offsets[value].append(offset)
        self._sent = {send.value for send in notes.sends}
        if len(self._sent) != len(notes.sends):
            raise ValueError(f"{partition} was sent the same value twice: the two cannot be told apart")

    def all(self) -> Iterator[Anomaly]:
        yield from self._lost_writes()
        yield from self._duplicates()
        yield from self._reordered()
        yield from self._inconsistent_offsets()
        yield from self._read_then_gone()
        for reader, reads in [*self._notes.reads.items(), ("the last reader", self._notes.found)]:
            yield from self._polls(reader, reads)
        yield from self._never_sent()

    def _anomaly(self, kind: Kind, text: str) -> Anomaly:
        return Anomaly(kind, self._partition, text)

    def _lost_writes(self) -> Iterator[Anomaly]:
        for send in self._notes.sends:
            if not send.is_acknowledged or Promise.KEPT not in send.promise:
                continue
            if send.offset is None:
                # Records were deleted, and its offset is unknown: it may be one of them.
                is_there = send.value in self._offsets or self._notes.start_offset > 0
            else:
                is_there = send.offset < self._notes.start_offset or self._value_at.get(send.offset) == send.value
            if not is_there:
                yield self._anomaly(Kind.LOST_WRITE, f"{send}; there is {self._where(send)}")

    def _where(self, send: Send) -> str:
        if elsewhere := self._offsets.get(send.value):
            return f"the same at {elsewhere}"
        end = self._notes.found[-1].offset + 1 if self._notes.found else self._notes.start_offset
        return f"nothing like it up to {end}"

    def _duplicates(self) -> Iterator[Anomaly]:
        for send in self._notes.sends:
            if Promise.ONCE in send.promise and len(offsets := self._offsets.get(send.value, [])) > 1:
                yield self._anomaly(Kind.DUPLICATE, f"{send}; it is at {offsets}")

    def _reordered(self) -> Iterator[Anomaly]:
        by_producer: dict[str, list[tuple[int, Send]]] = defaultdict(list)
        for send in self._notes.sends:
            if Promise.IN_ORDER in send.promise and (offsets := self._offsets.get(send.value)):
                by_producer[send.producer].append((offsets[0], send))
        for placed in by_producer.values():
            for (before, first), (after, second) in pairwise(placed):
                if before > after:
                    yield self._anomaly(
                        Kind.REORDERED, f"{second} is at {after}, and {first}, sent before, at {before}"
                    )

    def _inconsistent_offsets(self) -> Iterator[Anomaly]:
        values: dict[int, set[bytes]] = defaultdict(set)
        for send in self._notes.sends:
            if send.offset is not None and Promise.KEPT in send.promise:
                values[send.offset].add(send.value)
        for reads in [*self._notes.reads.values(), self._notes.found]:
            for offset, value in reads:
                values[offset].add(value)
        for offset, several in values.items():
            if len(several) > 1:
                said = " and ".join(_short(value) for value in sorted(several))
                yield self._anomaly(Kind.INCONSISTENT_OFFSETS, f"{offset} was said to be {said}")

    def _read_then_gone(self) -> Iterator[Anomaly]:
        for reader, reads in self._notes.reads.items():
            for offset, value in reads:
                if offset >= self._notes.start_offset and self._value_at.get(offset) != value:
                    yield self._anomaly(Kind.READ_THEN_GONE, f"{reader} got {_short(value)} at {offset}")

    def _polls(self, reader: str, reads: list[Read]) -> Iterator[Anomaly]:
        offsets = self._all_offsets
        for before, after in pairwise(reads):
            if after.offset <= before.offset:
                text = f"{reader} got {after.offset} after {before.offset}"
                yield self._anomaly(Kind.NONMONOTONIC_POLL, text)
                continue
            following = bisect_right(offsets, before.offset)
            if following < len(offsets) and offsets[following] < after.offset:
                text = f"{reader} got {after.offset} after {before.offset}; there is {offsets[following]}"
                yield self._anomaly(Kind.POLL_SKIP, text)

    def _never_sent(self) -> Iterator[Anomaly]:
        for reader, reads in [*self._notes.reads.items(), ("the last reader", self._notes.found)]:
            for offset, value in reads:
                if value not in self._sent:
                    yield self._anomaly(Kind.NEVER_SENT, f"{reader} got {_short(value)} at {offset}")


def _short(value: bytes) -> str:
    return repr(value) if len(value) <= 60 else f"{value[:50]!r}… ({len(value)} bytes)"
