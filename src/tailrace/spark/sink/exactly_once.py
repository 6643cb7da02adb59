"""Exactly-once writes: one transaction per task and batch, with a marker that tells a retry what is already written.

The transactional id of a task, and the group of its marker, is `_tailrace-sink-<query>-<task>`. A task first takes over
that id, which fences the previous producer and aborts its open transaction. Then it reads the marker, an offset that
the group has committed: the number of the last batch that this task has written, with a fingerprint of the rows as its
text.

    marker < batch    the rows are written, and the marker with them, in one transaction
    marker = batch    written before, by a try whose end the driver has not seen. The rows are read again and not
                      written, and are to have the fingerprint of the marker. Other rows: `SplitChanged`
    marker > batch    the checkpoint is an older one: `AlreadyFurther`

A producer is kept by its process for the next batch. It needs no look at the marker: a producer that has written one
since has fenced it. Then it is made anew, and looks.

What this rests on, and what it does where that does not hold:

- A batch that is tried again has the same rows. Spark sees to that: sources give the same range for the same batch.
- Its rows are in the same tasks. Spark does not promise that: with another number of cores, other code, or plans that
  adapt, rows may be split otherwise. Rows that moved away from a task that had committed, or to it, change its
  fingerprint, and the query stops: `SplitChanged`. So none is lost. Rows that are twice there have moved from a task
  that had committed to one that had not; the former finds its marker.
- A task that is not there any more finds nothing. A task cannot know how many there are (PySpark does not tell), so
  the driver looks: after the first batch of a run, for markers of this batch by tasks that it has not (`check_tasks`).
  By then their rows are there twice, but the query stops and says so, again at each start.
- A task without rows begins no transaction. Had it rows in an earlier try, these are elsewhere now, and are not to be
  there by that try as well: so it reads the marker, and in the first batch of a run, or of a process, it takes over
  the id before, lest that try is going on. What is not fenced is a task that is not there any more, whose driver is
  dead: should it commit after `check_tasks` has looked, its rows are there twice.
- Markers are there. Brokers forget those of a query that has been idle for `offsets.retention.minutes`, seven days
  unless told otherwise. A query that failed in the middle of a batch and is started later writes that batch again.

A write that is no stream has an id of its own and one batch, so that Spark's retries of tasks are covered; its markers
are deleted at the end.
"""

import functools
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from tailrace.client import groups
from tailrace.client.cluster import coordinators
from tailrace.client.cluster.cluster import Cluster, cluster_for
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import ClientError, GaveUp, ProducerFenced, Refused
from tailrace.client.groups import Committed
from tailrace.client.options import ClientOptions
from tailrace.client.transactions import TransactionalProducer, are_offered
from tailrace.protocol.errors import ErrorCode
from tailrace.spark.sink.options import Delivery, SinkOptions
from tailrace.spark.sink.writer import FingerprintTally, Sent, chunks_for, send, write
from tailrace.spark.source.options import BadOptions

PREFIX = "_tailrace-sink-"
KEPT_MAX = 256  # producers, which are small
TIMEOUT = "kafka.transaction.timeout.ms"

logger = logging.getLogger("tailrace.spark.sink")


class SplitChanged(Exception):
    """A batch is tried again with its rows in other tasks. It cannot be told any more what was written."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}. What a batch has written is known by task, so its rows have to be in the same tasks when it is "
            "tried again: go on with the code, the options and the number of partitions that it was begun with, "
            "without repartition by round-robin, and with spark.sql.adaptive.streaming.stateless.enabled=false. Or the "
            "rows themselves differ: by functions that are not deterministic (rand, uuid, clocks), by sums of doubles, "
            "which depend on the order, or because records of the batch are gone from their topic. To go on in spite "
            "of it, with rows of this batch there twice, or missing: option delivery=at-least-once"
        )


class TookTooLong(Exception):
    def __init__(self, task_write: "TaskWrite", timeout_ms: int) -> None:
        super().__init__(
            f"{task_write.name} has written for longer than {timeout_ms} ms, so the broker has aborted its "
            f"transaction. Allow more by the option {TIMEOUT}, up to the broker's transaction.max.timeout.ms; or let "
            "each task write less, by more partitions; or give up transactions: option delivery=at-least-once"
        )


class AlreadyFurther(Exception):
    def __init__(self, name: str, marker: int, batch: int) -> None:
        super().__init__(
            f"{name} has written batch {marker}, and this is batch {batch}: the checkpoint is an older one than that "
            "of the query that has written. Go on with the newer one, or begin with a new checkpoint"
        )


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """The share of a batch that one task writes."""

    write_id: str  # of the query, or of a write that is no stream
    task: int
    batch: int = 0
    run: str | None = None  # of the query: another one after a restart

    @property
    def is_of_stream(self) -> bool:
        return self.run is not None

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.write_id}-{self.task}"


# In tasks


def delivered(options: SinkOptions, task_write: TaskWrite, batches: Iterable[pa.RecordBatch]) -> Sent:
    """Writes as the option `delivery` says. Raises BadOptions where that cannot be had."""
    if is_exactly_once(options):
        return write_once(options, task_write, batches)
    return Sent(task_write.task, write(options, batches))


def is_exactly_once(options: SinkOptions) -> bool:
    if options.delivery is Delivery.AT_LEAST_ONCE:
        return False
    is_offered = are_offered(cluster_for(options.client))
    if not is_offered and options.delivery is Delivery.EXACTLY_ONCE:
        raise BadOptions(
            "delivery=exactly-once needs a broker with transactions, which this one does not offer; "
            "with delivery=at-least-once, rows of a batch that is tried again are there twice"
        )
    if not is_offered:
        _warn_once(options.client)
    return is_offered


@functools.cache
def _warn_once(client: ClientOptions) -> None:
    where = ",".join(f"{host}:{port}" for host, port in client.bootstrap)
    logger.warning(
        "%s offers no transactions, so rows are written at least once: those of a batch that is tried again are there "
        "twice. The option delivery=at-least-once says that this is meant",
        where,
    )


_kept: dict[tuple[ClientOptions, str], tuple[TransactionalProducer, int]] = {}  # with the batch written last
_runs: dict[str, tuple[str | None, int]] = {}  # of each query, what this process works for, and since which batch


def write_once(options: SinkOptions, task_write: TaskWrite, batches: Iterable[pa.RecordBatch]) -> Sent:
    cluster = cluster_for(options.client)
    is_first = _is_first(task_write)
    found = chunks_for(options, cluster, batches)
    first = next(found, None)
    try:
        if first is None:
            tally = _write_nothing(options, cluster, task_write, is_first)
        else:
            tally = _write(options, cluster, task_write, chain([first], found))
    finally:
        if not task_write.is_of_stream:
            coordinators.forget(cluster, task_write.name)
    return Sent(task_write.task, tally.rows, task_write.write_id, is_exactly_once=True, is_first=is_first)


def _is_first(task_write: TaskWrite) -> bool:
    """Whether this batch is the first one of its run that this process works for: all its tasks are."""
    run, since = _runs.get(task_write.write_id, (None, -1))
    if task_write.is_of_stream and run != task_write.run:
        _runs[task_write.write_id] = task_write.run, task_write.batch
        return True
    return task_write.batch == since or not task_write.is_of_stream


def _write_nothing(options: SinkOptions, cluster: Cluster, task_write: TaskWrite, is_first: bool) -> FingerprintTally:
    tally = FingerprintTally()
    if is_first and task_write.is_of_stream:
        _keep(options, task_write, _taken_over(options, cluster, task_write))
    if (marker := _marker_at(cluster, task_write)) is not None:
        _check_same(marker, task_write, tally)
    return tally


def _write(
    options: SinkOptions, cluster: Cluster, task_write: TaskWrite, chunks: Iterator[pa.RecordBatch]
) -> FingerprintTally:
    begun = time.monotonic()
    producer = _kept_producer(options, task_write)
    if producer is None:
        producer = _taken_over(options, cluster, task_write)
        if (marker := _marker_at(cluster, task_write)) is not None:
            return _read_through(options, task_write, marker, chunks)
    tally = FingerprintTally()
    try:
        producer.add_group(task_write.name)
        send(options, cluster, producer, chunks, tally)
        assert tally.topic is not None
        place = TopicPartition(tally.topic, 0)
        producer.commit_offsets(task_write.name, {place: Committed(task_write.batch, str(tally))})
        producer.commit()
    except GaveUp:  # no broker answers
        producer.close()
        raise
    except ProducerFenced as error:  # the broker no longer accepts this producer
        producer.close()
        if time.monotonic() - begun > options.transaction_timeout_ms / 1000:
            raise TookTooLong(task_write, options.transaction_timeout_ms) from error
        raise
    except BaseException:
        with suppress(ClientError):
            producer.abort()
        raise
    _keep(options, task_write, producer)
    return tally


def _taken_over(options: SinkOptions, cluster: Cluster, task_write: TaskWrite) -> TransactionalProducer:
    """Raises BadOptions where the broker allows no transactions for as long."""
    timeout_ms = options.transaction_timeout_ms
    try:
        return TransactionalProducer(cluster, task_write.name, timeout_ms)
    except Refused as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise BadOptions(
            f"{TIMEOUT} is {timeout_ms}, and the broker allows less: set it to at most the broker's "
            "transaction.max.timeout.ms, and have as many partitions as tasks need to be done by then; or give up "
            "transactions: option delivery=at-least-once"
        ) from error


def _keep(options: SinkOptions, task_write: TaskWrite, producer: TransactionalProducer) -> None:
    if task_write.is_of_stream:
        _kept[options.client, task_write.name] = producer, task_write.batch
    if len(_kept) > KEPT_MAX:
        del _kept[next(iter(_kept))]


def _kept_producer(options: SinkOptions, task_write: TaskWrite) -> TransactionalProducer | None:
    """With a transaction that is open; None where there is none, where it was fenced, and where it has written this
    batch itself: then the marker is to be looked at.
    """
    producer, batch = _kept.pop((options.client, task_write.name), (None, 0))
    if producer is not None and batch < task_write.batch:
        with suppress(ProducerFenced):
            producer.add_group(task_write.name)
            return producer
    return None


def _read_through(
    options: SinkOptions, task_write: TaskWrite, marker: Committed, chunks: Iterable[pa.RecordBatch]
) -> FingerprintTally:
    """Returns the tally of all rows, which are read but not written."""
    from tailrace.spark.sink.encoder import Rows

    tally = FingerprintTally()
    for chunk in chunks:
        tally.add(Rows.of(chunk, options.topic))
    _check_same(marker, task_write, tally)
    logger.info("%s has written batch %d before: its %d rows are there", task_write.name, task_write.batch, tally.rows)
    return tally


def _marker_at(cluster: Cluster, task_write: TaskWrite) -> Committed | None:
    """None unless this batch is written. Raises AlreadyFurther where a later one is."""
    marker = marker_of(cluster, task_write.name)
    if marker is not None and marker.offset > task_write.batch:
        raise AlreadyFurther(task_write.name, marker.offset, task_write.batch)
    return marker if marker is not None and marker.offset == task_write.batch else None


def marker_of(cluster: Cluster, name: str) -> Committed | None:
    """The last one: there may be some of earlier batches, at other topics."""
    found = groups.committed(cluster, name).values()
    return max(found, key=lambda one: one.offset, default=None)


def _check_same(marker: Committed, task_write: TaskWrite, tally: FingerprintTally) -> None:
    if marker.metadata != str(tally):
        raise SplitChanged(
            f"task {task_write.task} of batch {task_write.batch} has written other rows before than it has now "
            f"({marker.metadata} then, {tally} now)"
        )


# On the driver


def check_sent(options: SinkOptions, batch: int, sent: Sequence[Sent]) -> None:
    """Checks the reports of all tasks of a batch."""
    once = [one for one in sent if one.is_exactly_once]
    if once and len(once) < len(sent):
        raise BadOptions("some brokers offer transactions and some do not: set the option delivery")
    if once and any(one.is_first for one in once):
        check_tasks(options, once[0].write_id, batch, len(once))


def check_tasks(options: SinkOptions, write_id: str, batch: int, count: int) -> None:
    """Raises SplitChanged where this batch was also written by tasks that it does not have any more."""
    cluster = cluster_for(options.client)
    prefix = f"{PREFIX}{write_id}-"
    for name in groups.names(cluster):
        task = name.removeprefix(prefix)
        if not (name.startswith(prefix) and task.isdecimal() and int(task) >= count):
            continue
        marker = marker_of(cluster, name)
        if marker is not None and marker.offset == batch:
            raise SplitChanged(
                f"batch {batch} has {count} tasks, and task {task} has written rows of it before "
                f"({marker.metadata}), which are there twice now"
            )


def forget(options: SinkOptions, write_id: str, sent: Iterable[Sent]) -> None:
    """Deletes the markers of a write that is over."""
    cluster = cluster_for(options.client)
    for one in sent:
        if one.is_exactly_once and one.rows:
            name = TaskWrite(write_id, one.task).name
            try:
                groups.delete(cluster, name)
            except ClientError as error:
                logger.warning("a marker is left: %s", error)
            coordinators.forget(cluster, name)
