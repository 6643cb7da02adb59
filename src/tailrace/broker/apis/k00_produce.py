"""Produce (key 0): appends batches, and responds when they are safe.

Behaviour: `acks=all` is answered when the batches are on disk, `acks=1` when they are written, `acks=0` never (if it
fails, the connection is closed). Partitions are independent: a refused one does not delay another. If the topic has a
`compression.type`, a thread first recompresses batches in another codec; a thread also checks larger batches for a
compacted topic for records without a key. Later batches for the same partition are appended behind them. A request has
at most 500,000 records for compacted topics, and its response lists at most 1,000 records without a key.

A transactional batch is appended if its transaction is open, and has the partition; from version 12 on the partition is
added to the transaction, and the response also waits until that is on disk. With a transactional id `acks` must be
`all`, as it is in all clients.

Where a consumer group limits producers (`tailrace.backlog.policy`), responses are delayed, with `throttle_time_ms`, or
batches refused with NOT_ENOUGH_REPLICAS. With `acks=0` the broker stops reading the connection for up to a second.

Versions 3-13; 0-2 are advertised, as Kafka does, because older clients derive from them which compression the broker
supports, but are not served.
    7   zstd                                  8   error messages
    10  the current leader in the response    12  adds its partitions to the transaction
    13  topics by id
Not done: leader hints, as there is one broker.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call, Silence
from tailrace.broker.core.delayed import DelayedResponse, FlushDependentResponse
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
from tailrace.broker.transactions.admission import ProducerTransaction
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
DELAY_SHARE = 4  # of the time that the client waits, a delay takes at most one in so many


Answer = ProduceResponse | DelayedResponse[ProduceResponse] | Silence


def produce(
    request: ProduceRequest, call: Call, broker: "Broker"
) -> Answer | DelayedResponse[ProduceResponse | Silence]:
    unflushed: UnflushedAppends = []
    queued: list[QueuedAppend] = []
    is_transactional = request.transactional_id is not None
    names = list(_partitions(request, call, broker)) if is_transactional else ()
    transaction = ProducerTransaction(request.transactional_id, names, call, broker)
    budget = ProduceBudget(transaction, may_refuse=request.acks != NONE)
    response = ProduceResponse()
    for data in request.topic_data:
        topic_response = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
        response.responses.append(topic_response)
        _append_to_topic(request, data, topic_response, call, broker, unflushed, queued, budget)
    if queued:
        # Without the request: waiting batches were copied, so its frame is released.
        finish = partial(_answer, request.acks, request.timeout_ms, response, unflushed, broker, budget)
        answer: Answer | DelayedResponse[ProduceResponse | Silence] = QueuedProduce(
            queued, unflushed, finish, request.timeout_ms
        )
    else:
        answer = _answer(request.acks, request.timeout_ms, response, unflushed, broker, budget)
    if not budget.delay_ms or request.acks == NONE:
        return answer
    return _delayed(answer, response, min(budget.delay_ms, max(request.timeout_ms, 0) // DELAY_SHARE), call, broker)


def _delayed(
    answer: object, response: ProduceResponse, delay_ms: int, call: Call, broker: "Broker"
) -> DelayedResponse[ProduceResponse]:
    """Delays a response from the arrival of its request on, and tells the client how long."""
    response.throttle_time_ms = delay_ms
    return broker.backlog.acks.delay(answer, call.steady_ms + delay_ms)


def _answer(
    acks: int,
    timeout_ms: int,
    response: ProduceResponse,
    unflushed: UnflushedAppends,
    broker: "Broker",
    budget: ProduceBudget,
) -> Answer:
    """Makes the response, once all batches are appended or refused."""
    if acks == NONE:
        return Silence(close=_any_error(response), pause_ms=budget.delay_ms)
    if acks == ALL and unflushed:
        delayed = DelayedProduce(response, unflushed, timeout_ms, broker)
        waits = budget.transaction.unflushed
        return FlushDependentResponse(delayed, lambda: waits) if waits else delayed
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
            if why_not_a_name(data.name) is None:  # a topic of this name may be created before the client retries
                name = TopicPartition(data.name, wanted.index)
                remember_refusal(name, header_of(wanted.records), code, call, broker)
        elif (appended := append(partition, wanted.records, call, broker, answer, queued, budget)) is not None:
            unflushed.append((*appended, answer))


def _partitions(request: ProduceRequest, call: Call, broker: "Broker") -> Iterator[TopicPartition]:
    """Yields the partitions of the request that a transaction may have."""
    for data in request.topic_data:
        topic, _ = topic_of(request, data, call.version, broker)
        if topic is not None and not topic.is_internal:
            indexes = (one.index for one in data.partition_data)
            yield from (TopicPartition(topic.name, index) for index in indexes if 0 <= index < topic.partition_count)


def topic_of(
    request: ProduceRequest, data: TopicProduceData, version: int, broker: "Broker"
) -> tuple[Topic | None, ErrorCode | None]:
    # A transaction's decision must not be on disk without all of its batches.
    allowed = (ALL,) if request.transactional_id is not None else (ALL, LEADER, NONE)
    if request.acks not in allowed:
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
    frame_bytes_max=1 << 31,  # socket.request.max.bytes is less
    elements_max=3_000,  # each may be an append, of 20 to 30 µs
)
