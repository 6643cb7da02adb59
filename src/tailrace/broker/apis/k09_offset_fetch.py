"""OffsetFetch (key 9): the committed offsets of groups.

Behaviour: the last committed offset, with its metadata; -1 without one, also for an unknown group, which is no error.
Without a list of topics, all offsets of the group. A commit is visible once it is on disk. A commit that is part of a
transaction is visible once that is committed; until then a client that requires stable offsets gets
UNSTABLE_OFFSET_COMMIT for the partition, and others get the offset before it. A member of a consumer group (KIP-848)
gets STALE_MEMBER_EPOCH until it has seen its current epoch.

Versions 1-10.
    2   all topics      5   leader epochs      7   only stable offsets      8   several groups      9   member epochs
    10  topics by id
Not done: nothing.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, IncrementalResponse
from tailrace.broker.core.errors import Refused
from tailrace.protocol.codec import Encoded, encode_structure
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

ERROR_FROM = 2  # error of a whole response; before, each partition has it
MANY_FROM = 8
BY_TOPIC_ID = 10
NOTHING = -1
PARTITIONS_A_STEP = 20


class RequestedTopic(NamedTuple):
    """The requested partitions of a topic. Without a name the topic does not exist."""

    name: str | None
    topic_id: bytes
    partitions: Iterable[int]


def offset_fetch(
    request: OffsetFetchRequest, call: Call, broker: "Broker"
) -> OffsetFetchResponse | DelayedResponse[OffsetFetchResponse]:
    groups = request.groups
    if call.version < MANY_FROM:
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                for topic in request.topics
            ]
        groups = [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]
    wanted = {group.group_id: group for group in groups}  # each group once
    stable = request.require_stable
    if call.version < MANY_FROM:
        return broker.groups.when_safe(_as_one(_answer(groups[0], stable, call, broker)), *wanted)
    return broker.groups.when_safe(
        IncrementalResponse(_answer_all(wanted.values(), stable, call, broker), broker.start_job), *wanted
    )


def _answer_all(
    groups: Iterable[OffsetFetchRequestGroup], stable: bool, call: Call, broker: "Broker"
) -> Generator[None, None, OffsetFetchResponse]:
    fragments = []
    for group in groups:
        answer = _answer(group, stable, call, broker)
        fragments.append(encode_structure(answer, OffsetFetchResponse, call.version))
        for _ in range(1 + sum(len(topic.partitions) for topic in answer.topics) // PARTITIONS_A_STEP):
            yield
    return OffsetFetchResponse(groups=Encoded(len(fragments), b"".join(fragments)))


def _answer(group: OffsetFetchRequestGroup, stable: bool, call: Call, broker: "Broker") -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=group.group_id)
    try:
        broker.groups.begin(call)
        if (known := broker.groups.groups.get(group.group_id)) is not None:
            known.check_fetch(group.member_id, group.member_epoch)
    except Refused as error:
        answer.error_code = error.code
        if call.version < ERROR_FROM:
            answer.topics = [
                OffsetFetchResponseTopics(
                    name=topic.name,
                    partitions=[_nothing(index, error.code) for index in topic.partition_indexes],
                )
                for topic in group.topics or ()
            ]
        return answer
    pending = broker.groups.offsets.pending if stable else None  # offsets there are not stable
    for wanted in _wanted(group, call.version, broker):
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if wanted.name is None else ErrorCode.NONE
        answer.topics.append(
            OffsetFetchResponseTopics(
                name=wanted.name or "",
                topic_id=wanted.topic_id,
                partitions=[
                    _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                    if pending and pending.has(group.group_id, (wanted.name or "", index))
                    else _partition(group.group_id, wanted.name or "", index, unknown, broker)
                    for index in wanted.partitions
                ],
            )
        )
    return answer


def _wanted(group: OffsetFetchRequestGroup, version: int, broker: "Broker") -> Iterator[RequestedTopic]:
    if group.topics is None:
        for name, partitions in broker.groups.offsets.of_group(group.group_id).items():
            if (known := broker.topic(name)) is not None:
                yield RequestedTopic(name, known.topic_id, partitions)
        return
    for topic in group.topics:
        if version < BY_TOPIC_ID:
            yield RequestedTopic(topic.name, topic.topic_id, topic.partition_indexes)
        else:
            known = broker.metadata.topics_by_id.get(topic.topic_id)
            yield RequestedTopic(known.name if known is not None else None, topic.topic_id, topic.partition_indexes)


def _partition(
    group_id: str, topic: str, index: int, unknown: ErrorCode, broker: "Broker"
) -> OffsetFetchResponsePartitions:
    value = broker.groups.offsets.get(group_id, topic, index)
    known = broker.topic(topic)
    is_of_another = known is not None and value is not None and value.topic_id not in (known.topic_id, ZERO_UUID)
    if value is None or unknown or is_of_another:  # of a deleted topic with this name
        return _nothing(index, unknown)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _nothing(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NOTHING, metadata="", error_code=code)


def _as_one(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """Converts the response to the format before several groups could be requested."""
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


API = Api(ApiKey.OFFSET_FETCH, offset_fetch, elements_max=10_000)
