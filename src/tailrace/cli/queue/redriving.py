"""The plan of `tailrace queue redrive`, and its transactions."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tailrace.cli.common import messages, output
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.common.topics.offsets import Offsets, Partition, partitions_of
from tailrace.cli.common.topics.ranges import OffsetRange
from tailrace.cli.common.topics.selection import require
from tailrace.cli.queue import dead_letters
from tailrace.cli.queue.dead_letters import DeadLetter
from tailrace.cli.queue.here import Here
from tailrace.cli.queue.reading import messages_in
from tailrace.cli.queue.requests import Committed, TopicPartition, TransactionalProducer, failures
from tailrace.records.record import Record, encode_batch
from tailrace.util.shutdown import stopped_by_signals

GROUP = "tailrace-redrive"

_MESSAGES_MAX = 500  # in one transaction
_BYTES_MAX = 512 << 10  # of messages in one transaction, unless one is larger


class Plan(NamedTuple):
    """`spans` has the dead letters to send, `targets` how many go where, `empty` those without a payload."""

    source: str
    to: str | None
    spans: dict[Partition, OffsetRange]
    targets: dict[str, int]
    empty: int

    @property
    def total(self) -> int:
        return sum(self.targets.values())

    def as_json(self, sent: int, *, dry_run: bool) -> dict[str, Any]:
        return {
            "dlq": self.source,
            "dry_run": dry_run,
            "to": [{"topic": topic, "messages": count} for topic, count in sorted(self.targets.items())],
            "messages": self.total,
            "sent": sent,
            "without_payload": self.empty,
        }


class _Letter(NamedTuple):
    at: Partition
    offset: int
    letter: DeadLetter
    size: int


def plan(here: Here, source: str, to: str | None, count: int | None) -> Plan:
    """Reads the dead letters that were not sent yet. Raises Failure where one cannot be sent."""
    require([source, *([to] if to else [])], here.metadata.topics, here.brokers.bootstrap)
    if to == source:
        raise Failure(f"dead letters cannot be sent to {source} itself", ExitCode.USAGE)
    spans = _waiting(here, source)
    targets, ends, empty = Counter[str](), {at: span.first for at, span in spans.items()}, 0
    total = sum(span.end - span.first for span in spans.values() if span.end is not None) or 1
    with output.share_bar(f"reading {source}") as advance:
        for one in _letters(here, spans):
            if one.letter.has_payload:
                targets[_target(one, to)] += 1
            else:
                empty += 1
            ends[one.at] = one.offset + 1
            advance(sum(ends[at] - spans[at].first for at in spans) / total)
            if count is not None and targets.total() == count:
                break
    require(targets, here.metadata.topics, here.brokers.bootstrap, makes=True)
    chosen = {at: OffsetRange(span.first, ends[at]) for at, span in spans.items()}
    return Plan(source, to, {at: span for at, span in chosen.items() if not span.is_empty}, dict(targets), empty)


def show(made: Plan, *, dry_run: bool) -> None:
    if not made.total:
        output.warn(f"{made.source} has no dead letters that were not sent again")
    for topic, count in sorted(made.targets.items()):
        print(f"{'would send' if dry_run else 'to be sent:'} {output.plural(count, 'dead letter')} to {topic}")
    if made.empty:
        kept = "errors.deadletterqueue.copy.record.enable was false"
        output.warn(f"{output.plural(made.empty, 'dead letter')} without a payload cannot be sent ({kept})")
    if made.total and made.to is None:
        topics = ", ".join(sorted(made.targets))
        output.warn(f"every group that reads {topics} gets these messages once more; --to TOPIC sends them elsewhere")


def carry_out(here: Here, made: Plan, rate: int | None) -> int:
    """Returns how many were sent: fewer than planned after ctrl-C. What was sent is committed."""
    producer = here.requests.producer(f"{GROUP}-{made.source}")
    _require_unchanged(here, made)
    partitions = {topic: len(here.metadata.topics[topic].partitions) for topic in made.targets}
    sent, began = 0, time.monotonic()
    with stopped_by_signals() as stop, output.share_bar("sending") as advance, failures():
        for letters in _transactions(_letters(here, made.spans), min(_MESSAGES_MAX, rate or _MESSAGES_MAX)):
            sent += _send(producer, made, letters, partitions, sent)
            advance(sent / made.total)
            if stop.wait(0 if rate is None else max(0.0, began + sent / rate - time.monotonic())):
                break
    return sent


def _waiting(here: Here, source: str) -> dict[Partition, OffsetRange]:
    """The dead letters that were not sent yet, by partition."""
    partitions = partitions_of(here.metadata, [source])
    offsets = Offsets(here.brokers, here.admin, committed=True)
    low, high = offsets.earliest(partitions), offsets.latest(partitions)
    committed = here.requests.committed(GROUP, [TopicPartition(*at) for at in partitions])
    return {at: OffsetRange(max(low[at], committed.get(TopicPartition(*at), 0)), high[at]) for at in partitions}


def _letters(here: Here, spans: dict[Partition, OffsetRange]) -> Iterator[_Letter]:
    for found in messages_in(here.brokers, spans):
        for row in map(messages.of_message, found):
            at = Partition(str(row.topic), int(row.partition or 0))
            yield _Letter(at, int(row.offset or 0), dead_letters.read(row), row.size)


def _target(one: _Letter, to: str | None) -> str:
    target = to or one.letter.topic
    if target is None:
        raise Failure(
            f"{one.at} at offset {one.offset} has no header {dead_letters.TOPIC}, which says where it came from\n"
            "  --to TOPIC sends all to one topic",
            ExitCode.REFUSED,
        )
    return target


def _require_unchanged(here: Here, made: Plan) -> None:
    """Another redrive, which the producer has fenced now, may have gone on meanwhile."""
    now = _waiting(here, made.source)
    if any(now[at].first != span.first for at, span in made.spans.items()):
        raise Failure(f"another redrive of {made.source} has gone on meanwhile; nothing was sent", ExitCode.REFUSED)


def _transactions(letters: Iterable[_Letter], count: int) -> Iterator[list[_Letter]]:
    some: list[_Letter] = []
    size = 0
    for one in letters:
        if some and (len(some) == count or size + one.size > _BYTES_MAX):
            yield some
            some, size = [], 0
        some.append(one)
        size += one.size
    if some:
        yield some


def _send(
    producer: TransactionalProducer, made: Plan, letters: list[_Letter], partitions: dict[str, int], number: int
) -> int:
    """Writes them, and moves the group behind them, in one transaction."""
    records: dict[TopicPartition, list[Record]] = {}
    now_ms = round(time.time() * 1000)
    for one in letters:
        if not one.letter.has_payload:
            continue
        target = _target(one, made.to)
        partition = dead_letters.partition_in(one.letter, target, partitions[target], number)
        batch = records.setdefault(TopicPartition(target, partition), [])
        batch.append(Record(len(batch), now_ms, one.letter.key, one.letter.value, one.letter.headers))
        number += 1
    ends = {TopicPartition(*one.at): Committed(one.offset + 1) for one in letters}
    if records:
        producer.begin({at: encode_batch(batch) for at, batch in records.items()})
    producer.commit_offsets(GROUP, ends)
    producer.commit()
    return sum(map(len, records.values()))
