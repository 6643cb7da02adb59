"""Fast path for Produce: skips decoding when a request matches a template learned from an earlier one.

Most producers send one batch to one partition at a time. Of two such requests all that stands before the batch is the
same but for the correlation id, so it is decoded once and remembered; and so are the bytes of the response, in which
only numbers change. A request that matches is not decoded, and its response is not encoded:

    request   key, version · correlation id · client id … partition, as before · length · the batch · no tags, thrice
    response  length · correlation id · topic, partition, as before · error, offset, time, start offset · the rest

Requests that arrive together and match one template are a run: they are gathered, appended by one write, and answered
together. A lone request is a run of one.

Unusual requests go to the slow path before anything is changed: a batch that is to be refused, recompressed or looked
into, a full disk, a topic that was changed. So only the slow path reports errors.
"""

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.broker.apis.k00_produce import ALL, BY_TOPIC_ID, LEADER, topic_of
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import code_of
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.broker.fastpath.templates import HEAD, RequestTemplates
from tailrace.broker.produce.appends import NOT_APPENDED, TIMED_OUT, refuse
from tailrace.broker.produce.validation import CODECS, TRANSACTIONAL_CODECS, is_usual
from tailrace.log.flush.journal_write import JOURNAL_BYTES_PER_LOG_MAX
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.log.validation import Appended
from tailrace.protocol.codec import encode
from tailrace.protocol.errors import ErrorCode, Malformed
from tailrace.protocol.frame import RequestHeader, response_header
from tailrace.protocol.message import is_flexible
from tailrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tailrace.protocol.primitives import read_varint, write_varint
from tailrace.records.batch import HEADER_SIZE, BatchHeader, read_header

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

RUN_REQUESTS_MAX = 16
RUN_BYTES_MAX = JOURNAL_BYTES_PER_LOG_MAX  # more is not worth the copy that one write takes, and not for the journal
TOGETHER_MAX = 2 * RUN_REQUESTS_MAX  # requests that are answered by one acknowledgement

_NUMBERS = struct.Struct(">hqqq")  # error, offset, time, start offset
_BEFORE_TOPIC = struct.Struct(">hib")  # acks, timeout, one topic
_BEFORE_RECORDS = struct.Struct(">bi")  # one partition, its index
_NO_TAGS = bytes(3)  # behind the partition, the topic and the request


class ProduceTemplate:
    """What requests to one partition, and their responses, have in common."""

    __slots__ = (
        "_answer",
        "_answer_length",
        "_before",
        "_rest",
        "acks",
        "config",
        "header",
        "is_transactional",
        "partition",
        "start",
        "timeout_ms",
        "version",
    )

    def __init__(self, header: RequestHeader, request: ProduceRequest, partition: Partition, start: int) -> None:
        self.header = header  # of the request that it was learnt from
        self.version = header.api_version  # and the key before it, which is 0
        self.start = start  # of the length of the batch
        self.is_transactional = request.transactional_id is not None
        self.acks = request.acks
        self.timeout_ms = max(request.timeout_ms, 0)
        self.partition = partition
        self.config = partition.topic.config  # when the template was learned; a change may make other batches usual
        whole = self._encode(PartitionProduceResponse(index=partition.index, error_code=0, base_offset=0))
        at = whole.index(_NUMBERS.pack(0, 0, -1, -1))
        self._before, self._rest = whole[:at], whole[at + _NUMBERS.size :]
        self._answer = struct.Struct(f">iix{at}shqqq{len(self._rest)}s")
        self._answer_length = self._answer.size - 4

    def _encode(self, answer: PartitionProduceResponse) -> bytes:
        topic = self.partition.topic
        of_topic = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
        return encode(ProduceResponse(responses=[of_topic]), self.version)

    def answer(self, correlation_id: int, base_offset: int, append_time: int, start_offset: int) -> bytes:
        return self._answer.pack(
            self._answer_length, correlation_id, self._before, 0, base_offset, append_time, start_offset, self._rest
        )

    def refusal(self, correlation_id: int, code: ErrorCode, message: str) -> bytes:
        answer = PartitionProduceResponse(index=self.partition.index)
        refuse(answer, code, message)
        body = response_header(0, self.version, correlation_id) + self._encode(answer)
        return len(body).to_bytes(4) + body


class PendingAcknowledgement(NamedTuple):
    """A request and its response, which leaves when everything below `end` is on disk."""

    correlation_id: int
    acknowledged: bytes
    end: int


MatchedRequest = tuple[memoryview, int, memoryview, BatchHeader]
"""A request that matches a template and has a valid batch: its frame, its correlation id, the batch and its header."""


class ProduceBatchRun:
    """Requests that match one template and arrived together: one write appends all their batches, and one response
    acknowledges them.
    """

    __slots__ = ("bytes", "requests", "template")

    def __init__(self, template: ProduceTemplate) -> None:
        self.template = template
        self.requests: list[MatchedRequest] = []
        self.bytes = 0  # of their frames

    def takes(self, template: ProduceTemplate, size: int) -> bool:
        return (
            template is self.template and len(self.requests) < RUN_REQUESTS_MAX and self.bytes + size <= RUN_BYTES_MAX
        )

    def append_to(self, log: Log, now_ms: int) -> Appended | None:
        """Appends the batches. Returns None if they must be appended one by one. Raises what `Log.append` raises."""
        if len(self.requests) == 1:
            ((_, _, records, header),) = self.requests
            return log.append(records, now_ms, header)
        _, _, batches, headers = zip(*self.requests, strict=True)
        return log.append_all(batches, headers, now_ms)

    def is_in_transaction(self, log: Log) -> bool:
        """Returns whether all batches continue a transaction that is open in the log."""
        is_open = log.producers.has_open_transaction
        return all(is_open(header.producer_id, header.producer_epoch) for _, _, _, header in self.requests)

    @property
    def batch_bytes(self) -> int:
        return sum([len(records) for _, _, records, _ in self.requests])

    def acknowledgements(self, appended: Appended, start_offset: int) -> list[PendingAcknowledgement]:
        """Returns the responses to all requests, whose batches were appended one behind the other."""
        found, offset = [], appended.base_offset
        for _, correlation_id, _, header in self.requests:
            response = self.template.answer(correlation_id, offset, appended.log_append_time, start_offset)
            offset += header.last_offset_delta + 1
            found.append(PendingAcknowledgement(correlation_id, response, offset))
        return found


class ProduceFastPath:
    """The fast path of one connection: learns templates from decoded requests (`learn`), gathers matching ones into a
    run (`gather`, `take_gathered`), and appends it (`append_run`).
    """

    __slots__ = ("_broker", "_run", "_templates")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._templates: RequestTemplates[ProduceTemplate] = RequestTemplates()
        self._run: ProduceBatchRun | None = None

    def learn(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> None:
        """Remembers the template of a request that was decoded, if it is one that can be repeated."""
        if not is_flexible(ProduceRequest, header.api_version) or len(request.topic_data) != 1:
            return
        data, version = request.topic_data[0], header.api_version
        if len(data.partition_data) != 1 or request.acks not in (ALL, LEADER):
            return
        (only,) = data.partition_data
        topic, _ = topic_of(request, data, version, self._broker)
        partition = topic.partition(only.index) if topic is not None else None
        if partition is None or not only.records or not _may_repeat(partition.topic):
            return
        start = _start_of_records(header, request, data)
        found = _records_in(frame, start)
        if found is None or len(found) != len(only.records) or self._knows(frame, partition):
            return
        if self._templates.has_room(start):
            self._templates.remember(frame, ProduceTemplate(header, request, partition, start))

    def _knows(self, frame: memoryview, partition: Partition) -> bool:
        """Returns whether the template is known, with the current config: an unusual batch was decoded, too."""
        template = self._templates.find(frame)
        return template is not None and template.partition is partition and template.config is partition.topic.config

    def gather(self, frame: memoryview, now_ms: int) -> bool:
        """Adds the request to the run if it matches the run's template, and returns whether it did. Appends nothing."""
        template, run, size = self._templates.find(frame), self._run, len(frame)
        if template is None or (run is not None and not run.takes(template, size)):
            return False
        request = _usual_request(template, frame, now_ms)
        if request is None:
            return False
        if run is None:
            run = self._run = ProduceBatchRun(template)
        run.requests.append(request)
        run.bytes += size
        return True

    def take_gathered(self) -> ProduceBatchRun | None:
        """Returns the gathered run, and begins a new one."""
        run, self._run = self._run, None
        return run

    def append_run(
        self, run: ProduceBatchRun, now_ms: int, behind: DelayedResponse[Any] | None = None
    ) -> "bytes | DelayedProduceRun | None":
        """Appends the batches of a run, and returns the responses to all of its requests, which are delayed until the
        batches are on disk if the client asked for that. `behind` is the response before them: it takes theirs along if
        they wait for the same flush, and is returned then.

        Returns None if each request has to be handled by itself, on the slow path. Nothing has changed then, except
        that batches may be stamped, which the next attempt repeats.
        """
        template = run.template
        log = template.partition.log
        if log is None or not self._is_open(template):
            return None
        if template.is_transactional and not (self._broker.transactions.is_loaded and run.is_in_transaction(log)):
            return None
        try:
            appended = run.append_to(log, now_ms)
        except NOT_APPENDED:
            return None
        if appended is None:
            return None
        if appended.is_duplicate:
            if template.is_transactional:
                return None  # its response waits for the transaction, too, as the first one does
        else:
            self._broker.appended(template.partition, log, now_ms)
            records = appended.last_offset - appended.base_offset + 1
            self._broker.counters.produced(template.partition.topic.name, records, run.batch_bytes)
        acknowledgements = run.acknowledgements(appended, log.view.start)
        if template.acks == LEADER:
            return b"".join([one.acknowledged for one in acknowledgements])
        return self._acknowledge(template, log, now_ms, acknowledgements, behind)

    def _acknowledge(
        self,
        template: ProduceTemplate,
        log: Log,
        now_ms: int,
        waiting: list[PendingAcknowledgement],
        behind: DelayedResponse[Any] | None,
    ) -> "DelayedProduceRun":
        if isinstance(behind, DelayedProduceRun) and behind.takes(template, now_ms, len(waiting)):
            behind.join(waiting)
            return behind
        acknowledgement = DelayedProduceRun(template, self._broker.flushes, log, now_ms)
        acknowledgement.join(waiting)
        self._broker.flushes.when_flushed(log, waiting[-1].end, acknowledgement.flushed)
        return acknowledgement

    def _is_open(self, template: ProduceTemplate) -> bool:
        """Returns whether the slow path would append the batch at once."""
        broker, partition = self._broker, template.partition
        topic = partition.topic
        return (
            not partition.has_queue
            and topic.config is template.config
            and broker.metadata.topics.get(topic.name) is topic
            and not broker.disk_reserve.is_low
            and broker.metadata_log.is_settled
        )


def _usual_request(template: ProduceTemplate, frame: memoryview, now_ms: int) -> MatchedRequest | None:
    """Returns the request, or None if the slow path has to handle it."""
    key_and_version, correlation_id = HEAD.unpack_from(frame)
    records = _records_in(frame, template.start)
    if records is None or key_and_version != template.version:
        return None
    header = read_header(records)
    attributes = TRANSACTIONAL_CODECS if template.is_transactional else CODECS
    if not is_usual(header, len(records), template.config, template.version, now_ms, attributes):
        return None
    return frame, correlation_id, records, header


def _may_repeat(topic: Topic) -> bool:
    config = topic.config
    return config.takes_batches_as_they_are and not config.backlog.limits_producers and not topic.is_internal


def _start_of_records(header: RequestHeader, request: ProduceRequest, data: TopicProduceData) -> int:
    """Returns the position of the only batch's length."""
    id_bytes = 1 if request.transactional_id is None else _string_bytes(request.transactional_id)
    topic_bytes = 16 if header.api_version >= BY_TOPIC_ID else _string_bytes(data.name)
    return header.body + id_bytes + _BEFORE_TOPIC.size + topic_bytes + _BEFORE_RECORDS.size


def _string_bytes(text: str) -> int:
    """Returns how many bytes a string takes in a request."""
    size = len(text.encode())
    return len(write_varint(size + 1)) + size


def _records_in(frame: memoryview, start: int) -> memoryview | None:
    """Returns the batch behind the length at `start`; None if it is too small for one, or tags follow it."""
    try:
        length, begin = read_varint(frame, start)
    except (IndexError, Malformed):  # the slow path reports it, after the responses before it
        return None
    end = begin + length - 1
    if length <= HEADER_SIZE or end + len(_NO_TAGS) != len(frame) or frame[end:] != _NO_TAGS:
        return None
    return frame[begin:end]


class DelayedProduceRun(DelayedResponse[bytes]):
    """A response that leaves when its batches are on disk: one batch, or those of runs that arrived together."""

    __slots__ = ("_arrived_ms", "_end", "_flushes", "_log", "_template", "_waiting")

    def __init__(self, template: ProduceTemplate, flushes: FlushQueue, log: Log, now_ms: int) -> None:
        super().__init__(template.timeout_ms)
        self._template = template
        self._flushes = flushes
        self._log = log
        self._arrived_ms = now_ms
        self._end = 0
        self._waiting: list[PendingAcknowledgement] = []

    def takes(self, template: ProduceTemplate, now_ms: int, requests: int) -> bool:
        """Returns whether this response can wait for other batches, too: they came at the same time, for the same log,
        so one flush usually covers all of them.
        """
        is_together = template is self._template and now_ms == self._arrived_ms
        return is_together and not self.is_resolved and len(self._waiting) + requests <= TOGETHER_MAX

    def join(self, waiting: list[PendingAcknowledgement]) -> None:
        self._waiting += waiting
        self._end = max(self._end, waiting[-1].end)  # a repetition has a smaller one

    def flushed(self, error: LogError | None) -> None:
        if error is not None:
            self._refuse(code_of(error), str(error))
        elif self._log.high_watermark < self._end:  # a flush that was already running has not covered all
            self._flushes.when_flushed(self._log, self._end, self.flushed)
        else:
            self.resolve(b"".join([one.acknowledged for one in self._waiting]))

    def expire(self) -> None:
        self._refuse(*TIMED_OUT)

    def _refuse(self, code: ErrorCode, message: str) -> None:
        """Resolves with an error for each batch that is not on disk yet."""
        safe, refusal = self._log.high_watermark, self._template.refusal
        answers = [
            one.acknowledged if one.end <= safe else refusal(one.correlation_id, code, message) for one in self._waiting
        ]
        self.resolve(b"".join(answers))
