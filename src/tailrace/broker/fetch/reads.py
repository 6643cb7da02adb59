"""Serves a Fetch: reads what is available, or waits for more to be flushed, or waits for a disk.

    look     what each partition has now, up to the limits: whole batches, and at least one from the first that has any
    enough   `min_bytes`, an error or other news, or no time to wait: the response is sent
    park     else the request waits at its partitions; each makes it look again when it has more (`Partition.moved`)
    cold     a read that would wait for a disk runs in a thread

No bytes are copied: a response carries slices of files, which the server sends and then releases.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import code_of
from tailrace.broker.core.partition import Partition
from tailrace.broker.fetch.sessions import FetchSession, RequestedPartition, TopicKey
from tailrace.broker.fetch.targets import FetchTarget, find_targets
from tailrace.broker.quotas.client_quotas import ANONYMOUS, CONSUMER_BYTE_RATE
from tailrace.log.files.leader_epochs import UNDEFINED_EPOCH
from tailrace.log.layout.errors import Damaged, LogError, OffsetOutOfRange
from tailrace.log.log import Log
from tailrace.log.segment.segment import WouldWait
from tailrace.log.segment.slices import Slice
from tailrace.log.view import View
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.protocol.messages.share_fetch import ShareFetchResponse

logger = logging.getLogger("tailrace.broker.fetch")

READ_COMMITTED = 1
BY_TOPIC_ID = 13  # from this version on topics have ids instead of names
READS_MAX = 2_000  # partitions with records in one response; like excess bytes, the rest comes with the next one

NOTHING = b""


class ReadResult(NamedTuple):
    """What one pass over the targets has read. Its slices are pinned until they are sent, or released."""

    answers: list[tuple[TopicKey, PartitionData, Slice | None]]
    length: int
    is_final: bool  # nothing is gained by waiting for more

    def release(self) -> None:
        for _, _, records in self.answers:
            if records is not None:
                records.release()


def release_records(response: "FetchResponse | ShareFetchResponse") -> None:
    """Releases the files of a response that will not be sent."""
    for topic in response.responses:
        for partition in topic.partitions:
            if (
                release := getattr(partition.records, "release", None)
            ) is not None and partition.records is not NOTHING:
                release()


def records_bytes(response: "FetchResponse | ShareFetchResponse") -> int:
    """How many bytes of records a response has."""
    partitions = (partition for topic in response.responses for partition in topic.partitions)
    return sum(getattr(partition.records, "length", 0) for partition in partitions)


class Fetch(DelayedResponse[FetchResponse]):
    """One request. `start` resolves it at once, or later."""

    __slots__ = (
        "_broker",
        "_by_id",
        "_call",
        "_is_due",
        "_is_noted",
        "_is_over",
        "_is_reading",
        "_is_settling",
        "_limit",
        "_min_bytes",
        "_revision",
        "_says_all",
        "_session",
        "_up_to_stable",
        "_wanted",
        "_watched",
    )

    def __init__(
        self,
        request: FetchRequest,
        wanted: list[RequestedPartition],
        session: FetchSession | None,
        call: Call,
        broker: "Broker",
    ) -> None:
        super().__init__(max(0, request.max_wait_ms))
        self._broker = broker
        self._wanted = wanted
        self._session = session
        self._says_all = session is None or session.is_new
        self._by_id = call.version >= BY_TOPIC_ID
        self._call = call
        self._is_noted = call.connection is None  # what it fetches, for the client's connection
        self._limit = min(max(request.max_bytes, 0), broker.fetch_bytes_max)
        if broker.quotas.quotas.values:  # no more than the quota allows at once
            allowed = broker.quotas.at_once(CONSUMER_BYTE_RATE, ANONYMOUS, call.client_id or "")
            self._limit = int(min(self._limit, max(1, allowed)))
        self._min_bytes = min(request.min_bytes, self._limit)  # a response can never have more
        self._up_to_stable = request.isolation_level == READ_COMMITTED
        self._watched: list[Partition] = []
        self._revision = -1  # of the metadata, when the targets were resolved
        self._is_reading = False
        self._is_settling = False
        self._is_over = False
        self._is_due = request.max_wait_ms <= 0 or request.min_bytes <= 0

    waits_for_metadata = True  # by itself, before it responds

    def start(self) -> None:
        """Looks for records. On return the request is answered, or parked, or a thread is reading."""
        self._look()

    def partition_moved(self) -> None:
        if not self._is_reading and not self._is_over:
            self._look()

    def expire(self) -> None:
        """Responds with what is available; if a thread is reading, with what that finds."""
        self._is_due = True
        if not self._is_reading and not self._is_over:
            self._look()

    def hurry(self) -> None:
        self.expire()

    def abandon(self) -> None:
        super().abandon()
        self._is_over = True
        self._unwatch()

    def _look(self) -> None:
        targets = find_targets(self._wanted, self._by_id, self._broker)
        if not self._is_noted:
            self._note(targets)
        try:
            found = self.look(targets, wait=False)
        except WouldWait:
            self._is_reading = True
            job = ColdReadJob(self, targets)
            self._broker.start_job(job, job.finish)
        except Exception:
            logger.exception("unexpected error while handling a Fetch")
            self.fail()
        else:
            self._decide(targets, found)

    def _note(self, targets: Sequence[FetchTarget]) -> None:
        self._is_noted = True
        connection = self._call.connection
        assert connection is not None
        for target in targets:
            if target.partition is not None:
                connection.fetches(self._call.client_id, target.partition)

    def found(self, targets: Sequence[FetchTarget], found: ReadResult) -> None:
        """Takes over the result of a thread."""
        self._is_reading = False
        self._decide(targets, found, is_old=_has_moved(targets, found))

    def _decide(self, targets: Sequence[FetchTarget], found: ReadResult, *, is_old: bool = False) -> None:
        is_enough = self._is_due or found.is_final or found.length >= self._min_bytes
        if is_enough and not self._is_over and self._broker.metadata_log.is_settled:
            if found.is_final and self._call.connection is not None:
                self._note_out_of_range(targets, found)
            self._answer_with(self._response(found))
            return
        found.release()
        if self._is_over:
            return
        if is_enough:
            self._settle()
        elif is_old:
            self._look()
        else:
            self._park(targets)

    def _note_out_of_range(self, targets: Sequence[FetchTarget], found: ReadResult) -> None:
        connection = self._call.connection
        assert connection is not None
        for target, (_, answer, _) in zip(targets, found.answers, strict=True):
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and target.partition is not None:
                connection.sent_out_of_range(target.partition, target.wanted.fetch_offset)

    def _answer_with(self, response: FetchResponse) -> None:
        self._is_over = True
        self._unwatch()
        self.resolve(response)

    def fail(self) -> None:
        self._is_reading = False
        if not self._is_over:
            self._answer_with(FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))

    def _settle(self) -> None:
        """Looks again when the metadata that the response depends on is on disk."""
        if not self._is_settling:
            self._is_settling = True
            self._broker.metadata_log.when_settled().when_resolved(self._is_settled)

    def _is_settled(self, error: LogError | None) -> None:
        self._is_settling = False
        if error is None:  # if there is an error, the process is about to stop, and must not respond
            self.partition_moved()

    # Looking, in any thread

    def look(self, targets: Sequence[FetchTarget], *, wait: bool) -> ReadResult:
        answers: list[tuple[TopicKey, PartitionData, Slice | None]] = []
        length = 0
        reads = 0
        is_final = False
        try:
            for target in targets:
                limit = self._limit - length if reads < READS_MAX else 0
                answer, records, must_be_said = self._look_at(target, length, limit, wait)
                answers.append((target.topic, answer, records))
                is_final = is_final or must_be_said
                if records is not None:
                    length += records.length
                    reads += 1
        except BaseException:
            ReadResult(answers, length, is_final).release()
            raise
        return ReadResult(answers, length, is_final)

    def _look_at(
        self, target: FetchTarget, length: int, limit: int, wait: bool
    ) -> tuple[PartitionData, Slice | None, bool]:
        """Returns the data for one partition, its records, and whether that is reason enough to respond. The response
        has `length` bytes of records already, and room for `limit` more.
        """
        wanted, log = target.wanted, target.log
        if target.error:
            index, error = wanted.partition, target.error
            return (
                PartitionData(partition_index=index, error_code=error, high_watermark=-1, records=NOTHING),
                None,
                True,
            )
        answer = PartitionData(partition_index=wanted.partition, records=NOTHING)
        answer.aborted_transactions = [] if self._up_to_stable else None
        if log is None:
            answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = 0
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE if wanted.fetch_offset else 0
            return answer, None, answer.error_code != 0
        view = log.view
        try:
            if wanted.last_fetched_epoch >= 0 and _diverges(log, wanted, answer):
                _bound(view, answer)
                return answer, None, True
            up_to = view.last_stable if self._up_to_stable else view.high_watermark
            records = self._read(log, view, up_to, wanted, answer, length, limit, wait)
        except LogError as error:
            answer.error_code = code_of(error)
            if isinstance(error, Damaged):
                logger.warning("a fetch of %s found corruption: %s", log.directory, error)
            _bound(log.view, answer)
            return answer, None, True
        _bound(view, answer)
        # Waiting does not give more: the limits are reached, or the segment is full, and the rest is in the next one.
        next_offset = records.next_offset if records is not None else wanted.fetch_offset
        is_behind = next_offset < up_to and (records is not None or length > 0)
        return answer, records, is_behind

    def _read(
        self,
        log: Log,
        view: View,
        up_to: int,
        wanted: FetchPartition,
        answer: PartitionData,
        length: int,
        limit: int,
        wait: bool,
    ) -> Slice | None:
        """Reads the records that fit, and adds them to `answer`."""
        offset = wanted.fetch_offset
        left = min(limit, wanted.partition_max_bytes)
        if not view.start <= offset <= log.end_offset:  # records that are not flushed yet are waited for
            raise OffsetOutOfRange(offset, view.start, view.high_watermark)
        if offset >= up_to or (length and left <= 0):
            return None
        found = log.read(offset, left, up_to=up_to, wait=wait)
        if found is None:
            return None
        if length and found.length > left:  # only the first partition may exceed the limit
            found.release()
            return None
        if self._up_to_stable:
            try:
                aborted = log.aborted_transactions(offset, found.next_offset, wait=wait)
            except BaseException:
                found.release()
                raise
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in aborted
            ]
        answer.records = found
        return found

    # Waiting

    def _park(self, targets: Sequence[FetchTarget]) -> None:
        """Registers at every partition, and requests the flush of what is not flushed yet."""
        if self._revision == self._broker.metadata.revision:
            return  # it is registered already: every append requests a flush
        self._unwatch()
        self._revision = self._broker.metadata.revision
        for target in targets:
            partition = target.partition
            if partition is not None:
                partition.waiting_fetches.add(self)
                self._watched.append(partition)
                if partition.has_unflushed and partition.log is not None:
                    self._broker.flushes.request(partition.log)

    def _unwatch(self) -> None:
        for partition in self._watched:
            partition.waiting_fetches.discard(self)
        self._watched.clear()

    # Responding

    def _response(self, found: ReadResult) -> FetchResponse:
        session = self._session
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        for key, answer, records in found.answers:
            length = records.length if records is not None else 0
            if session is not None and not session.is_news(key, answer, length) and not self._says_all:
                continue
            topic = topics.get(key)
            if topic is None:
                if isinstance(key, bytes):
                    topic = FetchableTopicResponse(topic_id=key)
                else:
                    topic = FetchableTopicResponse(topic=key)
                topics[key] = topic
            topic.partitions.append(answer)
        return FetchResponse(
            session_id=session.session_id if session is not None else 0, responses=list(topics.values())
        )


class ColdReadJob:
    """A job that reads the targets, and may wait for a disk."""

    def __init__(self, fetch: Fetch, targets: Sequence[FetchTarget]) -> None:
        self._fetch = fetch
        self._targets = targets
        self._found: ReadResult | None = None

    def run(self) -> None:
        try:
            self._found = self._fetch.look(self._targets, wait=True)
        except Exception:
            logger.exception("unexpected error while reading for a Fetch")

    def finish(self) -> None:
        if self._found is None:
            self._fetch.fail()
        else:
            self._fetch.found(self._targets, self._found)


def _bound(view: View, answer: PartitionData) -> None:
    answer.high_watermark = view.high_watermark
    answer.last_stable_offset = view.last_stable
    answer.log_start_offset = view.start


def _has_moved(targets: Sequence[FetchTarget], found: ReadResult) -> bool:
    """Whether a partition has more than was found, because it changed while a thread was reading."""
    for target, (_, answer, _) in zip(targets, found.answers, strict=True):
        if target.partition is not None and target.partition.log is not target.log:
            return True
        if target.log is not None:
            view = target.log.view
            if view.high_watermark != answer.high_watermark or view.last_stable != answer.last_stable_offset:
                return True
    return False


def _diverges(log: Log, wanted: FetchPartition, answer: PartitionData) -> bool:
    """Whether the client has read records that no longer exist: then the response says where the logs diverge. Raises
    OffsetOutOfRange if that is unknown.
    """
    end = log.epoch_end(wanted.last_fetched_epoch)
    if end.epoch == UNDEFINED_EPOCH:
        raise OffsetOutOfRange(wanted.fetch_offset, log.start_offset, log.high_watermark)
    if end.epoch == wanted.last_fetched_epoch and end.end_offset >= wanted.fetch_offset:
        return False
    answer.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
    return True
