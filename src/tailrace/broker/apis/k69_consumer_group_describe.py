"""ConsumerGroupDescribe (key 69): state, epochs and members of consumer groups (KIP-848).

Behaviour: each member with its subscription, what it has, and what it shall have. What a member has yet to give up
counts as what it has: the difference shows what a rebalance waits for. GROUP_ID_NOT_FOUND for a group that
does not exist, or is a classic one: clients then try DescribeGroups.

Versions 0-1.
    1   which protocol each member speaks
Not done: nothing.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tailrace.broker.apis.k15_describe_groups import GROUP_OPERATIONS
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused, in_short
from tailrace.broker.groups.consumer.group import ConsumerGroup
from tailrace.broker.groups.consumer.state import Member, Partition, by_topic
from tailrace.broker.groups.descriptions import describe_each
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages import consumer_group_describe as described
from tailrace.protocol.messages.consumer_group_describe import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, call: Call, broker: "Broker"
) -> ConsumerGroupDescribeResponse | DelayedResponse[ConsumerGroupDescribeResponse]:
    return describe_each(
        request.group_ids,
        lambda group_id: _describe(group_id, request, call, broker),
        ConsumerGroupDescribeResponse,
        call.version,
        broker,
    )


def _describe(
    group_id: str, request: ConsumerGroupDescribeRequest, call: Call, broker: "Broker"
) -> described.DescribedGroup:
    result = described.DescribedGroup(group_id=group_id)
    try:
        broker.groups.begin(call)
        group = broker.groups.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, in_short(f"there is no consumer group {group_id!r}"))
    except Refused as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    state = group.replayed
    if request.include_authorized_operations:
        result.authorized_operations = GROUP_OPERATIONS
    result.group_state = group.state
    result.group_epoch = state.epoch
    result.assignment_epoch = state.assignment_epoch
    result.assignor_name = group.assignor
    result.members = [_member(member, broker) for member in group.members.values()]
    return result


def _member(member: Member, broker: "Broker") -> described.Member:
    details = member.details
    return described.Member(
        member_id=member.member_id,
        instance_id=details.instance_id,
        rack_id=details.rack_id,
        member_epoch=member.current.epoch,
        client_id=details.client_id,
        client_host=details.client_host,
        subscribed_topic_names=list(details.subscribed_names),
        subscribed_topic_regex=details.subscribed_pattern or None,
        assignment=assignment_of((*member.current.assigned, *member.current.pending), broker),
        target_assignment=assignment_of(member.target, broker),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def assignment_of(partitions: Iterable[Partition], broker: "Broker") -> described.Assignment:
    """Topics that were deleted have no name, and are left out."""
    known = broker.metadata.topics_by_id
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(topic_id=topic_id, topic_name=known[topic_id].name, partitions=indexes)
            for topic_id, indexes in by_topic(partitions).items()
            if topic_id in known
        ]
    )


API = Api(ApiKey.CONSUMER_GROUP_DESCRIBE, consumer_group_describe, elements_max=2_000)
