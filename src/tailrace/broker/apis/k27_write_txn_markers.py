"""WriteTxnMarkers (key 27): ends open transactions of producers in some partitions, as operators do with
`kafka-transactions.sh abort`.

Behaviour: a transaction that the coordinator has open is aborted as a whole, in all of its partitions, and its producer
is fenced. To commit it from here is refused with INVALID_TXN_STATE, as it could tear it apart; to abort an earlier one
of its producer with INVALID_PRODUCER_EPOCH. A transaction that is open in a partition alone gets the marker there. The
response is sent when that is on disk.

Versions 1-2.
    2   the version of the transaction: from 2 on a marker needs a higher epoch than its transaction
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, FlushDependentResponse, Flushed
from tailrace.broker.core.errors import Refused, code_of
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.transactions.markers import append_marker
from tailrace.broker.transactions.state import VERSION_2, ProducerIdentity
from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tailrace.records.control import Marker

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def write_txn_markers(
    request: WriteTxnMarkersRequest, call: Call, broker: "Broker"
) -> WriteTxnMarkersResponse | DelayedResponse[WriteTxnMarkersResponse]:
    waits: list[Flushed] = []
    response = WriteTxnMarkersResponse()
    for wanted in request.markers:
        result = WritableTxnMarkerResult(producer_id=wanted.producer_id)
        response.markers.append(result)
        for topic in wanted.topics:
            of_topic = WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(of_topic)
            for index in topic.partition_indexes:
                code = _end(wanted, broker.partition(topic.name, index), call, broker, waits)
                of_topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
    return FlushDependentResponse(DelayedResponse.of(response), lambda: waits) if waits else response


def _end(
    wanted: WritableTxnMarker, partition: Partition | None, call: Call, broker: "Broker", waits: list[Flushed]
) -> ErrorCode:
    try:
        broker.transactions.begin(call)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if wanted.producer_id < 0 or wanted.producer_epoch < 0:
            return ErrorCode.INVALID_REQUEST
        if partition.topic.is_internal and partition.topic.name != OFFSETS_TOPIC:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # the broker's own, which no producer writes to
        if partition.unavailable is not None:
            raise partition.unavailable.again()
        waits += _end_in(wanted, partition, call, broker)
    except (LogError, Refused) as error:
        return code_of(error)
    return ErrorCode.NONE


def _end_in(wanted: WritableTxnMarker, partition: Partition, call: Call, broker: "Broker") -> list[Flushed]:
    """Returns what has to be waited for. Raises Refused, LogError."""
    if wanted.transaction_result and broker.transactions.is_open(wanted.producer_id, partition.name):
        raise Refused(ErrorCode.INVALID_TXN_STATE, "its producer alone may commit a transaction that is open")
    producer = ProducerIdentity(wanted.producer_id, wanted.producer_epoch)
    aborted = broker.transactions.abort_of(producer, partition.name)
    if aborted is not None:
        return [aborted]
    log = partition.log
    if log is None:
        return []
    _check_epochs(wanted, log)
    marker = Marker.COMMIT if wanted.transaction_result else Marker.ABORT
    append_marker(broker, partition, producer, marker, wanted.coordinator_epoch, call.now_ms, call.now_ms)
    return [broker.when_flushed(partition)]


def _check_epochs(wanted: WritableTxnMarker, log: Log) -> None:
    known = log.producers.producers.get(wanted.producer_id)
    if known is not None and wanted.transaction_version >= VERSION_2:
        is_repeated = wanted.producer_epoch == known.epoch and known.transaction_start < 0
        if wanted.producer_epoch <= known.epoch and not is_repeated:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, f"the producer is at epoch {known.epoch}")
    if known is not None and wanted.coordinator_epoch < known.coordinator_epoch:
        raise Refused(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED, f"a coordinator of epoch {known.coordinator_epoch} has written"
        )


API = Api(ApiKey.WRITE_TXN_MARKERS, write_txn_markers, frame_bytes_max=1 << 20, elements_max=3_000)
