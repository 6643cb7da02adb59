"""Produce, the short way: a producer's requests look alike.

Most producers send one batch to one partition at a time. Of two such requests all that stands before the batch is the
same but for the correlation id, so it is decoded once and remembered, and so are the bytes of the answer, in which only
numbers change. A request that begins with bytes that are known is not decoded, and its answer is not encoded:

    request   key, version · correlation id · client id … partition, as before · length · the batch · no tags, thrice
    answer    length · correlation id · topic, partition, as before · error, offset, time, start offset · the rest

Whatever is unusual is left to the long way, before anything is changed: a batch that is to be refused, recompressed or
looked into, a disk that is full, a topic that was changed. So there is one place that says what is wrong.
"""

import struct
from typing import TYPE_CHECKING

from tailrace.broker.apis.k00_produce import ALL, BY_TOPIC_ID, LEADER
from tailrace.broker.errors import code_of
from tailrace.broker.partition import Partition
from tailrace.broker.producing import NOT_APPENDED, TIMED_OUT, refuse
from tailrace.broker.waiting import Later
from tailrace.log.errors import LogError
from tailrace.protocol.codec import encode
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frame import RequestHeader, response_header
from tailrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tailrace.protocol.primitives import read_varint, write_varint
from tailrace.records.batch import HEADER, HEADER_SIZE, LENGTH_END, MAGIC, NO_PRODUCER
from tailrace.records.compression import Codec

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

FLEXIBLE_FROM = 9
FORMS_MAX = 64  # of one connection: about as many partitions as one producer writes to at a time

_HEAD = struct.Struct(">ii")  # key and version in one, correlation id
_NUMBERS = struct.Struct(">hqqq")  # error, offset, time, start offset
_NO_TAGS = bytes(3)  # behind the partition, the topic and the request
_CODEC_MAX = max(Codec)


class Form:
    """What requests to one partition have in common, and their answers."""

    __slots__ = (
        "_answer",
        "_answer_length",
        "_before",
        "_rest",
        "acks",
        "config",
        "header",
        "key_and_version",
        "partition",
        "timeout_ms",
    )

    def __init__(self, header: RequestHeader, request: ProduceRequest, partition: Partition) -> None:
        self.header = header  # of the request that it was learnt from
        self.key_and_version = header.api_version  # the key of Produce is 0
        self.acks = request.acks
        self.timeout_ms = max(request.timeout_ms, 0)
        self.partition = partition
        self.config = partition.topic.config  # as it was: when it is another one, so may be what is usual
        whole = self._encode(PartitionProduceResponse(index=partition.index, error_code=0, base_offset=0))
        at = whole.index(_NUMBERS.pack(0, 0, -1, -1))
        self._before, self._rest = whole[:at], whole[at + _NUMBERS.size :]
        self._answer = struct.Struct(f">iix{at}shqqq{len(self._rest)}s")
        self._answer_length = self._answer.size - 4

    def _encode(self, answer: PartitionProduceResponse) -> bytes:
        topic = self.partition.topic
        of_topic = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
        return encode(ProduceResponse(responses=[of_topic]), self.header.api_version)

    def answer(self, correlation_id: int, base_offset: int, append_time: int, start_offset: int) -> bytes:
        return self._answer.pack(
            self._answer_length, correlation_id, self._before, 0, base_offset, append_time, start_offset, self._rest
        )

    def refusal(self, correlation_id: int, code: ErrorCode, message: str) -> bytes:
        answer = PartitionProduceResponse(index=self.partition.index)
        refuse(answer, code, message)
        body = response_header(0, self.header.api_version, correlation_id) + self._encode(answer)
        return len(body).to_bytes(4) + body


class RepeatedProduce:
    """One connection's. What came the long way is learnt (`learn`); what looks like it is appended (`append`)."""

    __slots__ = ("_broker", "_forms", "_start")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._forms: dict[bytes, Form] = {}  # by what stands between the correlation id and the length of the batch
        self._start = 0  # where that length stands in requests of the form that was learnt last

    def learn(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> None:
        """Remembers the form of a request that was decoded, if it is one that can be repeated."""
        if header.api_version < FLEXIBLE_FROM or len(request.topic_data) != 1 or request.acks not in (ALL, LEADER):
            return
        data = request.topic_data[0]
        if len(data.partition_data) != 1 or request.transactional_id is not None:
            return
        topics = self._broker.metadata
        by_id = header.api_version >= BY_TOPIC_ID
        topic = topics.topics_by_id.get(data.topic_id) if by_id else topics.topics.get(data.name)
        partition = topic.partition(data.partition_data[0].index) if topic is not None else None
        records = data.partition_data[0].records
        if partition is None or not records or partition.topic.is_internal:
            return
        if not partition.topic.config.takes_batches_as_they_are:
            return
        length = write_varint(len(records) + 1)
        start = len(frame) - len(_NO_TAGS) - len(records) - len(length)
        if frame[start : start + len(length)] == length and frame[-len(_NO_TAGS) :] == _NO_TAGS:
            if len(self._forms) >= FORMS_MAX:
                self._forms.clear()
            self._forms[frame[8:start].tobytes()] = Form(header, request, partition)
            self._start = start

    def append(self, frame: memoryview, now_ms: int) -> "tuple[Form, bytes | SingleAcknowledgement] | None":
        """The answer, in all its bytes, or later. None where it must go the long way; then nothing was changed."""
        start = self._start
        form = self._forms.get(frame[8:start].tobytes())
        if form is None:
            return None
        key_and_version, correlation_id = _HEAD.unpack_from(frame)
        records = _records_in(frame, start)
        if records is None or key_and_version != form.key_and_version or not self._is_usual(form, records, now_ms):
            return None
        broker, partition = self._broker, form.partition
        log = partition.log
        assert log is not None
        try:
            appended = log.append(records, now_ms)
        except NOT_APPENDED:
            return None  # it will be refused there, with the reason
        base_offset, last_offset, append_time, is_duplicate = appended
        if not is_duplicate:
            broker.appended(partition, log, now_ms)
            broker.counters.produced(partition.topic.name, last_offset - base_offset + 1, len(records))
        answer = form.answer(correlation_id, base_offset, append_time, log.view.start)
        if form.acks == LEADER:
            return form, answer
        acknowledgement = SingleAcknowledgement(form, correlation_id, answer)
        broker.flushes.when_flushed(log, last_offset + 1, acknowledgement.flushed)
        return form, acknowledgement

    def _is_usual(self, form: Form, records: memoryview, now_ms: int) -> bool:
        """Whether the long way would append it at once."""
        broker, partition, config = self._broker, form.partition, form.config
        topic = partition.topic
        if (
            partition.log is None
            or partition.line is not None
            or topic.config is not config
            or broker.metadata.topics.get(topic.name) is not topic
            or broker.space.is_low
            or not broker.metadata_log.is_settled
        ):
            return False
        size = len(records)
        _, length, _, magic, _, attributes, _, base_time, max_time, producer_id, epoch, sequence, _ = (
            HEADER.unpack_from(records)
        )
        return bool(
            magic == MAGIC
            and length + LENGTH_END == size <= config.max_message_bytes
            and 0 <= attributes <= _CODEC_MAX
            and max_time - now_ms <= config.timestamp_after_max_ms
            and (base_time < 0 or now_ms - base_time <= config.timestamp_before_max_ms)
            and (producer_id == NO_PRODUCER or (producer_id >= 0 and epoch >= 0 and sequence >= 0))
        )


def _records_in(frame: memoryview, start: int) -> memoryview | None:
    """What stands behind the length at `start`, where that is a batch, and all but tags that are none."""
    try:
        length, begin = read_varint(frame, start)
    except IndexError:
        return None
    end = begin + length - 1
    if length <= HEADER_SIZE or end + len(_NO_TAGS) != len(frame) or frame[end:] != _NO_TAGS:
        return None
    return frame[begin:end]


class SingleAcknowledgement(Later[bytes]):
    """An answer that leaves when the one batch that it speaks of is on disk."""

    __slots__ = ("_acknowledged", "_correlation_id", "_form")

    def __init__(self, form: Form, correlation_id: int, acknowledged: bytes) -> None:
        super().__init__(form.timeout_ms)
        self._form = form
        self._correlation_id = correlation_id
        self._acknowledged = acknowledged

    def flushed(self, error: LogError | None) -> None:
        if error is None:
            self.resolve(self._acknowledged)
        else:
            self.resolve(self._form.refusal(self._correlation_id, code_of(error), str(error)))

    def expire(self) -> None:
        self.resolve(self._form.refusal(self._correlation_id, *TIMED_OUT))
