"""AddPartitionsToTxn (key 24): announces which partitions a transaction will write to.

Later versions are sent only between brokers.
"""

from tailrace.protocol.fields import array, int16, int32, int64, string
from tailrace.protocol.message import message, structure


@structure
class AddPartitionsToTxnTopic:
    name: str = string()
    partitions: list[int] = array(int32)


@message(key=24, versions="0-3", flexible="3+")
class AddPartitionsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@structure
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    partition_error_code: int = int16()


@structure
class AddPartitionsToTxnTopicResult:
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@message(key=24, versions="0-3", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = int32(ignorable=True)
    results_by_topic: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)
