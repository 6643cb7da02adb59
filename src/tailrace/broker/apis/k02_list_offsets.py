"""ListOffsets (key 2): where a partition begins, where it ends, or the offset of a time.

Behaviour: the end is the high watermark, or the last stable offset for `read_committed`; a request for it waits until
everything appended before is on disk, so that a client finds its own `acks=1` writes. By time: the first record of that
time or later, found inside its batch; without one, offset and timestamp are -1, and there is no error. A thread looks
up times, because that may wait for a disk.

Versions 1-11.
    2  isolation level     4  leader epochs     7  -3: the largest timestamp     8  -4: the first offset on this disk
    9  -5: the last offset in remote storage    11  -6: the first offset that is not in remote storage; both are -1
Not done: version 0, which lists segments.
"""

import logging
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import code_of
from tailrace.broker.core.partition import Partition
from tailrace.broker.fetch.reads import READ_COMMITTED
from tailrace.broker.fetch.targets import check_partition
from tailrace.log.files.leader_epochs import UNDEFINED_EPOCH
from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.apis")

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
EPOCHS_FROM = 4  # the first version with leader epochs in the response
FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def list_offsets(request: ListOffsetsRequest, call: Call, broker: "Broker") -> DelayedResponse[ListOffsetsResponse]:
    listing = Listing(request.isolation_level == READ_COMMITTED, call, broker)
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        answers = ListOffsetsTopicResponse(name=topic.name)
        listing.response.topics.append(answers)
        for wanted in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            answers.partitions.append(answer)
            named = (topic.name, wanted.partition_index)
            if named in seen:
                answer.error_code = ErrorCode.INVALID_REQUEST
                continue
            seen.add(named)
            listing.add(broker.partition(*named), wanted, answer)
    listing.start()
    return listing


class Listing(DelayedResponse[ListOffsetsResponse]):
    """The response to one request, sent when the last of its partitions has a result."""

    __slots__ = ("_broker", "_call", "_outstanding", "_searches", "_up_to_stable", "response")

    def __init__(self, up_to_stable: bool, call: Call, broker: "Broker") -> None:
        super().__init__()
        self.response = ListOffsetsResponse()
        self._up_to_stable = up_to_stable
        self._call = call
        self._broker = broker
        self._outstanding = 1
        self._searches = Searches()

    def add(
        self, partition: Partition | None, wanted: ListOffsetsPartition, answer: ListOffsetsPartitionResponse
    ) -> None:
        if partition is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        epoch = self._broker.leader_epoch(partition)
        answer.error_code = check_partition(partition, wanted.current_leader_epoch, epoch)
        if answer.error_code:
            return
        if self._call.version < FIRST_VERSIONS.get(wanted.timestamp, 0) or wanted.timestamp < EARLIEST_PENDING_UPLOAD:
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        elif wanted.timestamp == LATEST:
            self._outstanding += 1
            flushed = self._broker.when_flushed(partition)
            flushed.when_resolved(lambda error: self._answer_latest(partition, answer, error))
        elif wanted.timestamp in (EARLIEST, EARLIEST_LOCAL):
            answer.offset = partition.start_offset
            answer.leader_epoch = epoch if partition.log is None else _epoch_at(partition.log, answer.offset)
        elif wanted.timestamp == MAX_TIMESTAMP or wanted.timestamp >= 0:
            self._searches.add(partition.log, wanted.timestamp, answer)

    def _answer_latest(
        self, partition: Partition, answer: ListOffsetsPartitionResponse, error: LogError | None
    ) -> None:
        if error is not None:
            answer.error_code = code_of(error)
        else:
            answer.offset = partition.last_stable_offset if self._up_to_stable else partition.high_watermark
            answer.leader_epoch = self._broker.leader_epoch(partition)
            if self._call.connection is not None:
                self._call.connection.asks_latest(self._call.client_id, partition, answer.offset)
        self.one_done()

    def start(self) -> None:
        if self._searches.is_needed:
            self._outstanding += 1
            self._broker.start_job(self._searches, self.one_done)
        self.one_done()

    def one_done(self) -> None:
        self._outstanding -= 1
        if not self._outstanding:
            if self._call.version < EPOCHS_FROM:
                self._leave_out_epochs()
            self.resolve(self.response)

    def _leave_out_epochs(self) -> None:
        for topic in self.response.topics:
            for answer in topic.partitions:
                answer.leader_epoch = UNDEFINED_EPOCH


class Searches:
    """A job with all lookups by time of one request."""

    def __init__(self) -> None:
        self._work: list[tuple[Log, int, ListOffsetsPartitionResponse]] = []

    def add(self, log: Log | None, timestamp: int, answer: ListOffsetsPartitionResponse) -> None:
        if log is not None:
            self._work.append((log, timestamp, answer))

    @property
    def is_needed(self) -> bool:
        return bool(self._work)

    def run(self) -> None:
        for log, timestamp, answer in self._work:
            try:
                found = log.find_max_timestamp() if timestamp == MAX_TIMESTAMP else log.find_time(timestamp)
            except LogError as error:
                answer.error_code = code_of(error)
                continue
            except Exception as error:
                logger.exception("unexpected error while looking up a time in %s", log.directory)
                answer.error_code = code_of(error)
                continue
            if found is not None:
                answer.offset, answer.timestamp = found
                answer.leader_epoch = _epoch_at(log, found.offset)

    def finish(self) -> None:
        pass


def _epoch_at(log: Log, offset: int) -> int:
    epoch, _ = log.epochs.range_at(offset)
    return UNDEFINED_EPOCH if epoch is None else epoch


API = Api(ApiKey.LIST_OFFSETS, list_offsets)
