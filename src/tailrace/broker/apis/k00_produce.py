"""Produce (key 0): appends batches, and says when they are safe.

Behaviour: `acks=all` is answered when the batches are on disk, `acks=1` when they are written, `acks=0` never (where it
fails, the connection is closed). Partitions stand for themselves: one that is refused does not hold up another. Where
the topic has a `compression.type`, batches in another codec are recompressed first, by a thread; larger batches for a
compacted topic are checked for records without a key by a thread, too. What comes later for the same partition is
appended behind them. A request has at most 500,000 records for compacted topics, and the response to it lists the first
1,000 records without a key.

Versions 3-13; 0-2 are advertised, as Kafka does, because older clients look there for what the broker knows of
compression, but are not served.
    7   zstd                       8   errors in words
    10  where the leader is        13  topics by id
Not done: transactions (a transactional batch is refused with INVALID_TXN_STATE); leader hints, there being one broker.
"""

from functools import partial
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call, Silence
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.topics import Topic, why_not_a_name
from tailrace.broker.produce.appends import (
    DelayedProduce,
    QueuedAppend,
    QueuedProduce,
    UnflushedAppends,
    append,
    refuse,
    remember_refusal,
)
from tailrace.broker.produce.key_checks import ProduceBudget
from tailrace.broker.produce.validation import header_of
from tailrace.log.layout.names import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

BY_TOPIC_ID = 13
ALL, LEADER, NONE = -1, 1, 0


Answer = ProduceResponse | DelayedResponse[ProduceResponse] | Silence


def produce(
    request: ProduceRequest, call: Call, broker: "Broker"
) -> Answer | DelayedResponse[ProduceResponse | Silence]:
    unflushed: UnflushedAppends = []
    queued: list[QueuedAppend] = []
    budget = ProduceBudget()
    response = ProduceResponse()
    for data in request.topic_data:
        topic_response = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
        response.responses.append(topic_response)
        _append_to_topic(request, data, topic_response, call, broker, unflushed, queued, budget)
    if queued:
        # Without the request: what has to wait was copied, and the frame goes back to where it is counted.
        finish = partial(_answer, request.acks, request.timeout_ms, response, unflushed, broker)
        return QueuedProduce(queued, unflushed, finish, request.timeout_ms)
    return _answer(request.acks, request.timeout_ms, response, unflushed, broker)


def _answer(
    acks: int, timeout_ms: int, response: ProduceResponse, unflushed: UnflushedAppends, broker: "Broker"
) -> Answer:
    """What there is to say once all is appended that is going to be."""
    if acks == NONE:
        return Silence(close=_any_error(response))
    if acks == ALL and unflushed:
        return DelayedProduce(response, unflushed, timeout_ms, broker)
    return response


def _append_to_topic(
    request: ProduceRequest,
    data: TopicProduceData,
    response: TopicProduceResponse,
    call: Call,
    broker: "Broker",
    unflushed: UnflushedAppends,
    queued: list[QueuedAppend],
    budget: ProduceBudget,
) -> None:
    topic, refusal = topic_of(request, data, call.version, broker)
    for wanted in data.partition_data:
        answer = PartitionProduceResponse(index=wanted.index)
        response.partition_responses.append(answer)
        partition = topic.partition(wanted.index) if topic is not None else None
        if partition is None or refusal is not None:
            code = refusal or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refuse(
                answer,
                code,
                f"{data.name or 'the topic'} has no partition {wanted.index}" if refusal is None else code.text,
            )
            if why_not_a_name(data.name) is None:  # a topic of this name may be created before the client tries again
                name = TopicPartition(data.name, wanted.index)
                remember_refusal(name, header_of(wanted.records), code, call, broker)
        elif (appended := append(partition, wanted.records, call, broker, answer, queued, budget)) is not None:
            unflushed.append((*appended, answer))


def topic_of(
    request: ProduceRequest, data: TopicProduceData, version: int, broker: "Broker"
) -> tuple[Topic | None, ErrorCode | None]:
    if request.acks not in (ALL, LEADER, NONE):
        return None, ErrorCode.INVALID_REQUIRED_ACKS
    if version >= BY_TOPIC_ID:
        topic = broker.metadata.topics_by_id.get(data.topic_id)
        return topic, None if topic is not None else ErrorCode.UNKNOWN_TOPIC_ID
    topic = broker.metadata.topics.get(data.name)
    return topic, None if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _any_error(response: ProduceResponse) -> bool:
    return any(partition.error_code for topic in response.responses for partition in topic.partition_responses)


API = Api(
    ApiKey.PRODUCE,
    produce,
    frame_bytes_max=1 << 31,  # socket.request.max.bytes says less
    elements_max=3_000,  # each may be an append, of 20 to 30 µs
)
