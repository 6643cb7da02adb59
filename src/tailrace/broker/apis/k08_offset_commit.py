"""OffsetCommit (key 8): commits the offsets of a group.

Behaviour: members commit in their current generation or epoch; a member of a consumer group (KIP-848) that has not seen
its current epoch yet, for the partitions that it still has. While a group has no members, any client may commit
(operators do, and consumers that assign partitions themselves). The response is sent when the commit is on disk. A
commit is kept until another one replaces it, or it or its topic is deleted: nothing expires, whatever retention an old
client requests. A commit that seems to skip records unread is noted in `__tailrace_losses`.

Versions 2-10.
    6   the leader epoch of the offset      7   static members      9   member epochs; GROUP_ID_NOT_FOUND
    10  topics by id
Not done: nothing.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.backlog.resets import note_resets
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import Topic
from tailrace.broker.groups.coordinator import OffsetCommit
from tailrace.broker.groups.group import CommitCheck, Identity
from tailrace.broker.groups.records import OffsetCommitValue
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

NOT_FOUND_FROM = 9
BY_TOPIC_ID = 10


def offset_commit(
    request: OffsetCommitRequest, call: Call, broker: "Broker"
) -> OffsetCommitResponse | DelayedResponse[OffsetCommitResponse]:
    try:
        broker.groups.begin(call)
        not_found = ErrorCode.GROUP_ID_NOT_FOUND if call.version >= NOT_FOUND_FROM else ErrorCode.ILLEGAL_GENERATION
        group = broker.groups.group_for_commit(request.group_id, request.generation_id_or_member_epoch, not_found)
        identity = Identity(request.member_id, request.group_instance_id)
        may_commit = group.check_commit(identity, request.generation_id_or_member_epoch, call.version)
        response = OffsetCommitResponse()
        commits = list(_commits(request, response, call, broker, may_commit))
        is_member = request.generation_id_or_member_epoch >= 0
        has_skipped = note_resets(request.group_id, commits, call, broker, is_member=is_member)
        broker.groups.commit(request.group_id, commits)
    except Refused as error:
        return _refuse_all(request, error.code)
    answer = broker.groups.when_safe(response, request.group_id)
    return broker.ledger.when_noted(answer) if has_skipped else answer


def _commits(
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    call: Call,
    broker: "Broker",
    may_commit: CommitCheck | None,
) -> Iterator[OffsetCommit]:
    """Returns the offsets that can be committed, and fills `response` with the result for each partition."""
    note_max = broker.configs.number("offset.metadata.max.bytes")
    for wanted in request.topics:
        topic, unknown = _topic(wanted, call.version, broker)
        answer = OffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id)
        response.topics.append(answer)
        for partition in wanted.partitions:
            index = partition.partition_index
            code = ErrorCode.NONE
            if topic is None or not 0 <= index < topic.partition_count:
                code = unknown
            elif len(partition.committed_metadata or "") > note_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif may_commit is None or not (code := may_commit(topic.topic_id, index)):
                yield topic.name, index, _value(partition, topic, call.now_ms)
            answer.partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))


def _topic(wanted: OffsetCommitRequestTopic, version: int, broker: "Broker") -> tuple[Topic | None, ErrorCode]:
    if version >= BY_TOPIC_ID:
        topic = broker.metadata.topics_by_id.get(wanted.topic_id)
        return topic, ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return broker.topic(wanted.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _value(partition: OffsetCommitRequestPartition, topic: Topic, now_ms: int) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        topic_id=topic.topic_id,
    )


def _refuse_all(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    ApiKey.OFFSET_COMMIT,
    offset_commit,
    elements_max=3_000,  # 30 µs each
)
