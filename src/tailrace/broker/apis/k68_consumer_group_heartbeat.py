"""ConsumerGroupHeartbeat (key 68): a member joins, stays in or leaves a consumer group (KIP-848).

Behaviour: the broker computes assignments, with the assignors `uniform` and `range`. A member is told to give up
partitions first, and gets new ones once no other member has them. The response is sent when what it says is on disk.
A heartbeat that changes nothing writes nothing. A classic group changes its protocol when the first such member joins,
and back when the last one leaves. Patterns match no internal topics.

Versions 0-1.
    1   subscriptions by pattern (RE2), and the client chooses the member id
Not done: nothing.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.consumer.heartbeat import Heartbeat, check
from tailrace.broker.groups.consumer.state import Partition, by_topic
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, call: Call, broker: "Broker"
) -> ConsumerGroupHeartbeatResponse | DelayedResponse[ConsumerGroupHeartbeatResponse]:
    beat = _heartbeat(request, call)
    try:
        broker.groups.begin(call)
        settings = broker.groups.settings_of(request.group_id)
        check(beat, request.group_id, call.version, settings.assignors)
        if not beat.member_id:  # version 0: the broker chooses the id
            beat = beat._replace(member_id=broker.random_bytes(16).hex())
        outcome = broker.groups.beat(request.group_id, beat)
    except Refused as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    response = ConsumerGroupHeartbeatResponse(
        member_id=outcome.member_id,
        member_epoch=outcome.epoch,
        heartbeat_interval_ms=0 if beat.is_leaving else settings.heartbeat_interval_ms,
        assignment=None if outcome.assignment is None else assignment_of(outcome.assignment),
    )
    return broker.groups.when_safe(response, request.group_id)


def _heartbeat(request: ConsumerGroupHeartbeatRequest, call: Call) -> Heartbeat:
    owned = request.topic_partitions
    return Heartbeat(
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else frozenset([(one.topic_id, index) for one in owned for index in one.partitions]),
        call.client_id or "",
        call.client_host,
    )


def assignment_of(partitions: Collection[Partition]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(partitions).items()
        ]
    )


API = Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat, frame_bytes_max=1 << 20)
