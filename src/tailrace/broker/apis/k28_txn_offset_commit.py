"""TxnOffsetCommit (key 28): commits the offsets of a group as part of a transaction.

Behaviour: the offsets count when the transaction is committed, unless a later commit counts already. A client that says
which member of the group it is must be that member; others may commit, too, also while the group has members. The
response is sent when the offsets are on disk.

Versions 0-5.
    3   the member of the group      4   TRANSACTION_ABORTABLE is understood
    5   adds the offsets to the transaction
Not done: topics by id (version 6, of Kafka 4.4).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.backlog.resets import note_resets
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, FlushDependentResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.coordinator import OffsetCommit
from tailrace.broker.groups.group import CommitCheck, Identity
from tailrace.broker.groups.records import OffsetCommitValue
from tailrace.broker.transactions.admission import admit_offsets
from tailrace.broker.transactions.state import ProducerIdentity
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

LOADING_FROM = 2  # older clients know COORDINATOR_NOT_AVAILABLE alone


def txn_offset_commit(
    request: TxnOffsetCommitRequest, call: Call, broker: "Broker"
) -> TxnOffsetCommitResponse | DelayedResponse[TxnOffsetCommitResponse]:
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        broker.groups.begin(call)
        if not request.group_id:
            raise Refused(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        waits = admit_offsets(broker, request.transactional_id, producer, request.group_id, call)
        group = broker.groups.group_for_commit(request.group_id, request.generation_id, ErrorCode.ILLEGAL_GENERATION)
        identity = Identity(request.member_id, request.group_instance_id)
        may_commit = group.check_transactional_commit(identity, request.generation_id)
        response = TxnOffsetCommitResponse()
        commits = list(_commits(request, response, call, broker, may_commit))
        broker.groups.commit_in_transaction(request.group_id, commits, *producer)
        # The producer commits, another client of the same application has read.
        reader = call._replace(client_id=group.client_of(request.member_id) or call.client_id)
        has_skipped = note_resets(request.group_id, commits, reader, broker, is_member=True)
    except Refused as error:
        is_unknown = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_FROM
        return _refuse_all(request, ErrorCode.COORDINATOR_NOT_AVAILABLE if is_unknown else error.code)
    answer = broker.groups.when_safe(response, request.group_id)
    if has_skipped:
        answer = broker.ledger.when_noted(answer)
    if not waits:
        return answer
    first = answer if isinstance(answer, DelayedResponse) else DelayedResponse.of(answer)
    return FlushDependentResponse(first, lambda: waits)


def _commits(
    request: TxnOffsetCommitRequest,
    response: TxnOffsetCommitResponse,
    call: Call,
    broker: "Broker",
    may_commit: CommitCheck | None,
) -> Iterator[OffsetCommit]:
    """Yields the offsets that can be committed, and fills `response` with the result for each partition."""
    note_max = broker.configs.number("offset.metadata.max.bytes")
    for wanted in request.topics:
        topic = broker.topic(wanted.name)
        answer = TxnOffsetCommitResponseTopic(name=wanted.name)
        response.topics.append(answer)
        for partition in wanted.partitions:
            code = ErrorCode.NONE
            if topic is None or not 0 <= partition.partition_index < topic.partition_count:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(partition.committed_metadata or "") > note_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif may_commit is None or not (code := may_commit(topic.topic_id, partition.partition_index)):
                yield topic.name, partition.partition_index, _value(partition, topic.topic_id, call.now_ms)
            answer.partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            )


def _value(partition: TxnOffsetCommitRequestPartition, topic_id: bytes, now_ms: int) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        topic_id=topic_id,
    )


def _refuse_all(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    ApiKey.TXN_OFFSET_COMMIT,
    txn_offset_commit,
    elements_max=3_000,  # 30 µs each
)
