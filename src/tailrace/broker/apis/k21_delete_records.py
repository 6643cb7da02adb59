"""DeleteRecords (key 21): moves the start of partitions to a later offset.

Behaviour: -1 is the high watermark. What was appended before is flushed first, so that a client can name the end of its
own `acks=1` writes. A partition that begins later than asked for already stays as it is. The response leaves when the
loss is noted in `__tailrace_losses` and the new start is on disk; then segments that lie before it are deleted. Refused
for internal topics, for topics that are compacted only, and while the log takes no appends.

Versions 0-2.
    2   flexible
Not done: `timeout_ms`; the response is sent when it is done.
"""

from typing import TYPE_CHECKING

from tailrace.broker.backlog.ledger import Actor, NotRecorded
from tailrace.broker.configs.keys import parts_of
from tailrace.broker.configs.registry import topic_entry
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import code_of
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.log.layout.errors import LogError, OffsetOutOfRange
from tailrace.log.retention import Reason
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

HIGH_WATERMARK = -1


def delete_records(
    request: DeleteRecordsRequest, call: Call, broker: "Broker"
) -> DelayedResponse[DeleteRecordsResponse]:
    deletion = RecordDeletion(broker, call)
    for wanted in request.topics:
        results = DeleteRecordsTopicResult(name=wanted.name)
        deletion.response.topics.append(results)
        topic, refusal = broker.topic(wanted.name), _refusal(wanted.name, broker)
        offsets = {
            partition.partition_index: partition.offset for partition in wanted.partitions
        }  # the last one counts
        for index, offset in offsets.items():
            result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=refusal)
            results.partitions.append(result)
            partition = topic.partition(index) if topic is not None else None
            if not refusal and partition is not None:
                deletion.add(partition, offset, result)
            elif not refusal:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    deletion.one_done()
    return deletion


def _refusal(name: str, broker: "Broker") -> int:
    """Returns why no records of this topic can be deleted; 0 if they can."""
    topic = broker.topic(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.is_internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.POLICY_VIOLATION if _is_compacted_only(topic, broker) else 0


def _is_compacted_only(topic: Topic, broker: "Broker") -> bool:
    return parts_of(topic_entry("cleanup.policy", topic.overrides, broker.configs).text or "") == ["compact"]


class RecordDeletion(DelayedResponse[DeleteRecordsResponse]):
    """The response to one request: flushes all that was appended, moves the starts, and saves them."""

    __slots__ = ("_actor", "_broker", "_done", "_now_ms", "_outstanding", "response")

    def __init__(self, broker: "Broker", call: Call) -> None:
        super().__init__()
        self._actor = Actor(call.client_id)
        self._now_ms = call.now_ms
        self.response = DeleteRecordsResponse()
        self._broker = broker
        self._outstanding = 1
        self._done: list[DeleteRecordsPartitionResult] = []

    def add(self, partition: Partition, offset: int, result: DeleteRecordsPartitionResult) -> None:
        self._outstanding += 1
        self._broker.when_flushed(partition).when_resolved(lambda error: self._delete(partition, offset, result, error))

    def _delete(
        self, partition: Partition, offset: int, result: DeleteRecordsPartitionResult, error: LogError | None
    ) -> None:
        try:
            if error is None:
                result.low_watermark = self._delete_before(partition, offset)
                self._done.append(result)
            else:
                result.error_code = code_of(error)
        except (LogError, NotRecorded) as refusal:
            result.error_code = code_of(refusal)
        self.one_done()

    def _delete_before(self, partition: Partition, offset: int) -> int:
        """Returns where the partition begins now. Raises OffsetOutOfRange, NotRecorded, and LogOffline where it is not
        known what may go.
        """
        if partition.log is not None and partition.log.refusal is not None:
            raise partition.log.refusal  # without a name, by which this frame would hold it in a cycle
        end = partition.high_watermark
        before = end if offset == HIGH_WATERMARK else offset
        if not 0 <= before <= end:
            raise OffsetOutOfRange(offset, partition.start_offset, end)
        if partition.log is not None and before > partition.start_offset:
            self._broker.ledger.require_ready()
            self._broker.retention.delete(partition, before, Reason.DELETE_RECORDS, self._now_ms, self._actor)
        return partition.start_offset

    def one_done(self) -> None:
        self._outstanding -= 1
        if self._outstanding:
            return
        if self._done:
            self._broker.checkpointer.when_offsets_saved().when_resolved(self._saved)
        else:
            self.resolve(self.response)

    def _saved(self, error: LogError | None) -> None:
        if error is not None:
            for result in self._done:
                result.error_code, result.low_watermark = code_of(error), -1
        self.resolve(self.response)


API = Api(
    ApiKey.DELETE_RECORDS,
    delete_records,
    elements_max=3_000,  # 150 ms, if all have logs, including a line in our log for each
)
