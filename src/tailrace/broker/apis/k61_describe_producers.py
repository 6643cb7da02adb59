"""DescribeProducers (key 61): the idempotent and transactional producers that a partition remembers.

Behaviour: the producers that have appended within `producer.id.expiration.ms`, with the last sequence and timestamp of
each, and the start of its transaction if one is open. A partition without records has none. Many are processed in
several turns, so that other clients are served meanwhile.

Versions 0.
Not done: nothing.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, IncrementalResponse
from tailrace.broker.core.errors import in_short
from tailrace.log.state.producer_state import Producer
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def describe_producers(
    request: DescribeProducersRequest, call: Call, broker: "Broker"
) -> DelayedResponse[DescribeProducersResponse]:
    return IncrementalResponse(_describe(request, broker), broker.start_job)


def _describe(request: DescribeProducersRequest, broker: "Broker") -> Generator[None, None, DescribeProducersResponse]:
    response = DescribeProducersResponse()
    for named in request.topics:
        described = TopicResponse(name=named.name)
        response.topics.append(described)
        for index in dict.fromkeys(named.partition_indexes):
            answer = PartitionResponse(partition_index=index)
            described.partitions.append(answer)
            yield from _describe_partition(named.name, answer, broker)
    return response


def _describe_partition(name: str, answer: PartitionResponse, broker: "Broker") -> Generator[None, None, None]:
    yield
    partition = broker.partition(name, answer.partition_index)
    if partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer.error_code, answer.error_message = code, code.text
    elif partition.unavailable is not None:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        answer.error_code, answer.error_message = code, in_short(str(partition.unavailable))
    elif partition.log is not None:
        for producer_id, producer in list(partition.log.producers.producers.items()):
            answer.active_producers.append(_state(producer_id, producer))
            yield


def _state(producer_id: int, producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )


API = Api(ApiKey.DESCRIBE_PRODUCERS, describe_producers, frame_bytes_max=1 << 20, elements_max=5_000)
