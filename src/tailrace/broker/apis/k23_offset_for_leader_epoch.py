"""OffsetForLeaderEpoch (key 23): the end of a leader epoch, by which a client detects records that were lost.

Behaviour: the epoch rises with every unclean start. The response has the end of the largest epoch that is not above the
requested one, up to the high watermark; -1 and -1 for an epoch that the log does not know.

Versions 2-4.
    3   replica ids, which are ignored: there are no followers
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.fetch.targets import check_partition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, call: Call, broker: "Broker"
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_epoch_end(topic.topic, wanted, broker) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _epoch_end(topic: str, wanted: OffsetForLeaderPartition, broker: "Broker") -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    partition = broker.partition(topic, wanted.partition)
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    current = broker.leader_epoch(partition)
    answer.error_code = check_partition(partition, wanted.current_leader_epoch, current)
    if answer.error_code:
        return answer
    if partition.log is not None:
        answer.leader_epoch, answer.end_offset = partition.log.epoch_end(wanted.leader_epoch)
    elif 0 <= wanted.leader_epoch <= current:  # nothing was ever appended: every epoch is empty
        answer.leader_epoch, answer.end_offset = wanted.leader_epoch, 0
    return answer


API = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch)
