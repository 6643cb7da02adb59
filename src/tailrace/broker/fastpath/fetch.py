"""Fast path for Fetch: skips decoding when a request matches a template learned from an earlier one.

A consumer of one partition sends the same request again and again, from where the last response ended. What such
requests have in common is decoded once, and what stands around the records in the response is encoded once:

    request   key, version · correlation id · client id … partition, as before · offset · the rest, as before
    session   … · client id … session, as before · epoch · topic, partition, as before · offset · the rest, as before
    response  length · correlation id · topic, partition, as before · three offsets · length · records · the rest

The fast path takes only requests that can be answered at once, with records that are in the page cache as far as they
have to be looked at. The slow path takes the rest: errors, waits, reads from a disk, sessions with more partitions than
the request names, and consumers that have to learn of aborted transactions. Once the records are found the session
advances as on the slow path; until then nothing is changed.

A catch-up consumer may be handed to a helper process with a `HandoffRange` of the log (`server/handoff`), and its
session with it. How far that process came is noted when the connection is taken back.
"""

import struct
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.broker.core.partition import Partition
from tailrace.broker.fastpath.templates import HEAD, TEMPLATE_BYTES_MAX, RequestTemplates
from tailrace.broker.fetch.reads import BY_TOPIC_ID, READ_COMMITTED
from tailrace.broker.fetch.sessions import FetchSession, TopicKey, requested_partitions
from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.log.segment.segment import WouldWait
from tailrace.log.segment.slices import FileSlice, Slice
from tailrace.log.view import View
from tailrace.protocol import codec
from tailrace.protocol.fetch_wire import BOUNDS, FINAL_EPOCH, NO_SESSION, FetchAnswer, length_of_records
from tailrace.protocol.frame import RequestHeader, encode_request, response_header
from tailrace.protocol.message import is_flexible
from tailrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

LOG_START_FROM = 5  # the first version whose responses have the log start offset
HANDOFF_BYTES_MIN = 256 << 10  # of a response: the loop serves consumers with small responses faster

_KEY_1 = 1 << 16  # of Fetch, before the version
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_ID_BYTES = 4  # of a correlation id
_ANY_BOUNDS = (-2, -3, -4)  # which no log has


class _AnyRecords:
    """Stands for records of so many bytes."""

    length = 1 << 20


class FieldPositions(NamedTuple):
    """Positions of the fields of a request that change."""

    start: int  # of the first of it: the epoch of a session, or the offset
    offset: int

    def rest(self, frame: memoryview) -> bytes:
        """Returns the bytes behind the start that do not change, including those between epoch and offset."""
        between = frame[self.start + _EPOCH.size : self.offset]
        return between.tobytes() + frame[self.offset + _OFFSET.size :].tobytes()


class FetchTemplate:
    """What requests for one partition, and their responses, have in common."""

    __slots__ = (
        "answer",
        "header",
        "is_committed",
        "is_due",
        "key_and_version",
        "leader_epoch",
        "limit",
        "min_bytes",
        "partition",
        "places",
        "rest",
        "session_id",
        "start",
        "topic",
        "wanted",
    )

    def __init__(
        self,
        header: RequestHeader,
        request: FetchRequest,
        partition: Partition,
        places: FieldPositions,
        rest: bytes,
        most: int,
    ) -> None:
        """`most` is the maximum size of a response of this broker."""
        self.header = header  # of the request that it was learnt from
        ((self.topic, self.wanted),) = requested_partitions(request, header.api_version >= BY_TOPIC_ID)  # likewise
        self.key_and_version = _KEY_1 | header.api_version
        self.places = places
        self.start = places.start
        self.rest = rest
        self.session_id = request.session_id
        self.partition = partition
        self.leader_epoch = self.wanted.current_leader_epoch
        self.is_committed = request.isolation_level == READ_COMMITTED
        limit = min(max(request.max_bytes, 0), most)
        self.limit = min(limit, self.wanted.partition_max_bytes)
        self.min_bytes = min(request.min_bytes, limit)
        self.is_due = request.max_wait_ms <= 0 or request.min_bytes <= 0
        self.answer = self._learn_answer(header.api_version)

    def _learn_answer(self, version: int) -> FetchAnswer:
        topic = self.partition.topic
        data = PartitionData(partition_index=self.partition.index, records=_AnyRecords())
        data.high_watermark, data.last_stable_offset, data.log_start_offset = _ANY_BOUNDS
        data.aborted_transactions = [] if self.is_committed else None
        of_topic = FetchableTopicResponse(topic=topic.name, topic_id=topic.topic_id, partitions=[data])
        flexible = is_flexible(FetchResponse, version)
        parts: list[Any] = codec.encode_parts(FetchResponse(session_id=self.session_id, responses=[of_topic]), version)
        before, between = bytes(parts[0]).split(BOUNDS.pack(*_ANY_BOUNDS))
        without_id = response_header(1, version, 0)[_ID_BYTES:]
        between = between[: -len(length_of_records(_AnyRecords.length, flexible))]
        return FetchAnswer(without_id + before, between, b"".join(parts[2:]), flexible)

    def wanted_from(self, offset: int) -> FetchPartition:
        """Returns what the session remembers: a new object each time, as a waiting Fetch may still use an older one."""
        wanted = copy(self.wanted)
        wanted.fetch_offset = offset
        return wanted

    def parts(self, correlation_id: int, view: View, records: Slice) -> list[Any]:
        """Returns the parts of the response with these records."""
        head, after = self.answer.head(correlation_id, bounds_of(view), records.length), self.answer.after
        return [head, records, after] if after else [head, records]


def bounds_of(view: View) -> bytes:
    return BOUNDS.pack(view.high_watermark, view.last_stable, view.start)


class HandoffRange(NamedTuple):
    """A range of the log that a helper process may serve, as long as the requests match this one's template."""

    template: FetchTemplate
    frame: bytes
    session: FetchSession | None
    view: View
    records: FileSlice
    entries: bytes  # of its index

    @property
    def epoch(self) -> int:
        """The epoch of the request in its session; the final one without a session."""
        return self.session.epoch if self.session is not None else FINAL_EPOCH


class HandoffResult(NamedTuple):
    """How far a helper process served a range, as far as the session has to know."""

    next_epoch: int
    offset: int  # that its last request has asked for


class FetchFastPath:
    """The fast path of one connection: learns templates from requests (`learn`), and serves matching ones (`read`)."""

    __slots__ = ("_broker", "_learnt", "_templates", "reads_on")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.reads_on = False  # the last response was large, and close to its limit: a catch-up consumer, most likely
        self._templates: RequestTemplates[FetchTemplate] = RequestTemplates()
        self._learnt: object = None  # what was learnt last: a consumer that waits takes the slow path each time

    def learn(self, frame: memoryview, header: RequestHeader, request: FetchRequest) -> None:
        """Remembers the template of a request that was decoded, if it is one that can be repeated."""
        version = header.api_version
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1 or version < LOG_START_FROM:
            return
        if len(frame) > TEMPLATE_BYTES_MAX:
            return
        ((topic, wanted),) = requested_partitions(request, version >= BY_TOPIC_ID)
        partition = self._partition(topic, wanted.partition)
        limits = request.max_wait_ms, wanted.partition_max_bytes
        learnt = partition, request.session_id, limits, wanted.current_leader_epoch
        if partition is None or wanted.last_fetched_epoch >= 0 or learnt == self._learnt:
            return
        if not self._may_repeat(request, topic, wanted.partition):
            return
        self._learnt = learnt
        places = _places(frame, header)
        if places is not None and self._templates.has_room(places.start):
            most = self._broker.fetch_bytes_max
            self._templates.remember(frame, FetchTemplate(header, request, partition, places, places.rest(frame), most))

    def _partition(self, key: TopicKey, index: int) -> Partition | None:
        metadata = self._broker.metadata
        topic = metadata.topics_by_id.get(key) if isinstance(key, bytes) else metadata.topics.get(key)
        return topic.partition(index) if topic is not None else None

    def _may_repeat(self, request: FetchRequest, topic: TopicKey, index: int) -> bool:
        """Returns whether the request has no session, or one with no other partition."""
        if request.session_id == NO_SESSION:
            return request.session_epoch == FINAL_EPOCH
        session = self._broker.fetch_sessions.find(request.session_id)
        return session is not None and session.follows_only(topic, index) and not request.forgotten_topics_data

    def read(self, frame: memoryview, now_ms: int) -> tuple[FetchTemplate, list[Any]] | None:
        """Returns the response, in parts. Returns None, and changes nothing, if the slow path has to handle it."""
        self.reads_on = False
        asked = self._asked(frame)
        if asked is None:
            return None
        template, log, correlation_id, offset = asked
        session = self._broker.fetch_sessions.find(template.session_id)
        if not _is_in_turn(template, frame, session):
            return None
        view = log.view
        records = self._records(template, log, view, offset)
        if records is None:
            return None
        self.reads_on = 2 * records.length > template.limit >= HANDOFF_BYTES_MIN
        if session is not None:
            self._broker.fetch_sessions.advance(session, now_ms)
            session.repeated(template.topic, template.wanted_from(offset), view.high_watermark, view.start)
        return template, template.parts(correlation_id, view, records)

    def range_ahead(self, frame: memoryview, max_bytes: int) -> HandoffRange | None:
        """Returns what a helper process may send to the consumer; None if that is little or nothing, or if the request
        is not the next one of its session. Changes nothing: `handed_off` and `taken_back` do.
        """
        asked = self._asked(frame)
        if asked is None:
            return None
        template, log, _, offset = asked
        session = self._broker.fetch_sessions.find(template.session_id)
        if not _is_in_turn(template, frame, session):
            return None
        view = log.view
        ahead = log.range_ahead(offset, max_bytes, up_to=_readable_up_to(template, view))
        if ahead is None:
            return None
        records = ahead.records
        if records.length > template.limit >= HANDOFF_BYTES_MIN and not self._has_aborted(
            template, log, offset, records
        ):
            return HandoffRange(template, frame.tobytes(), session, view, records, ahead.entries)
        records.release()
        return None

    def handed_off(self, ahead: HandoffRange, now_ms: int) -> None:
        if ahead.session is not None:
            self._broker.fetch_sessions.hand_off(ahead.session, now_ms)

    def taken_back(self, ahead: HandoffRange, answered: HandoffResult | None, now_ms: int) -> None:
        """Continues the session. `answered` is None if no request was answered, or it is not known: the session is then
        where it was.
        """
        session, template, view = ahead.session, ahead.template, ahead.view
        epoch = ahead.epoch if answered is None else answered.next_epoch
        if session is not None and self._broker.fetch_sessions.take_back(session, epoch, now_ms) and answered:
            session.repeated(template.topic, template.wanted_from(answered.offset), view.high_watermark, view.start)

    def _asked(self, frame: memoryview) -> tuple[FetchTemplate, Log, int, int] | None:
        """Returns the template that the request matches, its log, its correlation id, and the offset to read from."""
        template = self._templates.find(frame)
        if template is None or template.places.rest(frame) != template.rest:
            return None
        key_and_version, correlation_id = HEAD.unpack_from(frame)
        log = template.partition.log
        if key_and_version != template.key_and_version or log is None or not self._is_current(template, log):
            return None
        return template, log, correlation_id, _OFFSET.unpack_from(frame, template.places.offset)[0]

    def _has_aborted(self, template: FetchTemplate, log: Log, offset: int, records: Slice) -> bool:
        """Returns whether the response has to name aborted transactions among these records, or may have to."""
        try:
            return template.is_committed and bool(log.aborted_transactions(offset, records.next_offset, wait=False))
        except (LogError, WouldWait):
            return True

    def _is_current(self, template: FetchTemplate, log: Log) -> bool:
        broker, topic = self._broker, template.partition.topic
        return (
            broker.metadata.topics.get(topic.name) is topic
            and broker.metadata_log.is_settled
            and template.leader_epoch in (-1, log.leader_epoch)
        )

    def _records(self, template: FetchTemplate, log: Log, view: View, offset: int) -> Slice | None:
        """Returns the records that the slow path would send at once, if there is nothing to report with them."""
        up_to = _readable_up_to(template, view)
        if not view.start <= offset < up_to:
            return None
        try:
            found = log.read(offset, template.limit, up_to=up_to, wait=False)
        except (LogError, WouldWait):
            return None
        if found is None:
            return None
        is_enough = template.is_due or found.length >= template.min_bytes or found.next_offset < up_to
        if is_enough and not self._has_aborted(template, log, offset, found):
            return found
        found.release()
        return None


def _readable_up_to(template: FetchTemplate, view: View) -> int:
    return view.last_stable if template.is_committed else view.high_watermark


def _is_in_turn(template: FetchTemplate, frame: memoryview, session: FetchSession | None) -> bool:
    """Whether it is the next request of its session, which follows nothing else; or has none."""
    if template.session_id == NO_SESSION:
        return True
    if session is None or session.is_handed_off or not session.follows_only(template.topic, template.partition.index):
        return False
    epoch: int = _EPOCH.unpack_from(frame, template.start)[0]
    return epoch == session.epoch


def _places(frame: memoryview, header: RequestHeader) -> FieldPositions | None:
    """In a request for one partition; None where it is not written as we would write it."""
    version = header.api_version
    request = codec.decode(FetchRequest, version, frame, header.body, more_may_follow=True)  # one that we may change

    def encoded() -> bytes:
        return encode_request(request, version, header.correlation_id, header.client_id)[4:]

    def changed() -> int:
        return next(at for at, (one, other) in enumerate(zip(frame, encoded(), strict=True)) if one != other)

    if encoded() != frame:
        return None
    partition = request.topics[0].partitions[0]
    partition.fetch_offset = ~partition.fetch_offset  # which differs in each byte
    offset = changed()
    if request.session_id == NO_SESSION:
        return FieldPositions(offset, offset)
    request.session_epoch = ~request.session_epoch  # which stands before it
    return FieldPositions(changed(), offset)
