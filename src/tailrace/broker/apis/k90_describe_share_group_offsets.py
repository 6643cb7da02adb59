"""DescribeShareGroupOffsets (key 90): where each partition of a share group starts, and how far it is behind.

Behaviour: the start is the first record that is not finished; -1 where the group has no state. The lag counts records
that are not finished, those that were never delivered included. A tagged field of ours (10000) adds what the members
hold, what waits for its time, how often records were delivered, and what was given up; and for as many records as a
tagged field of the request says, the state of each.

Versions 0-1.
    1   the lag
Not done: nothing.
"""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, IncrementalResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import Topic
from tailrace.broker.queues.facts import UNKNOWN, OldestJob, backlog_of, oldest_ms, states_of
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages import describe_share_group_offsets as described
from tailrace.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

Group = described.DescribeShareGroupOffsetsResponseGroup
TopicOffsets = described.DescribeShareGroupOffsetsResponseTopic
PartitionOffsets = described.DescribeShareGroupOffsetsResponsePartition


def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, call: Call, broker: "Broker"
) -> DelayedResponse[DescribeShareGroupOffsetsResponse]:
    return Description(request, call, broker)


class Description(DelayedResponse[DescribeShareGroupOffsetsResponse]):
    """The response to one request: reads timestamps that are not in memory, and then describes all groups."""

    def __init__(self, request: DescribeShareGroupOffsetsRequest, call: Call, broker: "Broker") -> None:
        super().__init__()
        self._request = request
        self._call = call
        self._broker = broker
        queues = broker.used_queues
        known = [queues.groups.get(one.group_id) for one in request.groups] if queues is not None else []
        cold = [
            queue
            for of_group in known
            if of_group is not None
            for queue in of_group.partitions.values()
            if oldest_ms(queue, reads_committed=of_group.settings.reads_committed) is None
        ]
        if cold:
            job = OldestJob(cold)

            def finish() -> None:
                job.finish()
                self._describe()

            broker.start_job(job, finish)
        else:
            self._describe()

    def _describe(self) -> None:
        response = self._safe_response()
        assert isinstance(response, DelayedResponse)
        response.when_resolved(self.resolve)

    def _safe_response(self) -> DescribeShareGroupOffsetsResponse | DelayedResponse[DescribeShareGroupOffsetsResponse]:
        described_all = IncrementalResponse(self._describe_all(), self._broker.start_job)
        names = [one.group_id for one in self._request.groups]
        return self._broker.groups.when_share_safe(described_all, *names)

    def _describe_all(self) -> Generator[None, None, DescribeShareGroupOffsetsResponse]:
        response = DescribeShareGroupOffsetsResponse()
        for wanted in self._request.groups:
            group = Group(group_id=wanted.group_id)
            response.groups.append(group)
            try:
                self._broker.groups.begin(self._call)
                self._broker.groups.share_group(wanted.group_id)
                self._broker.queues.begin(self._call)
            except Refused as error:
                group.error_code, group.error_message = error.code, error.message
                continue
            yield from self._describe_group(wanted, group)
        return response

    def _describe_group(
        self, wanted: described.DescribeShareGroupOffsetsRequestGroup, group: Group
    ) -> Generator[None, None, None]:
        for name, indexes in self._wanted(wanted).items():
            topic = self._broker.topic(name)
            found = TopicOffsets(topic_name=name)
            group.topics.append(found)
            if topic is not None:
                found.topic_id = topic.topic_id
            for index in indexes:
                found.partitions.append(self._describe_partition(wanted.group_id, topic, index))
                yield

    def _wanted(self, wanted: described.DescribeShareGroupOffsetsRequestGroup) -> dict[str, Sequence[int]]:
        """Returns the partitions to describe, by topic: all that the group has a state of, unless some are named."""
        if wanted.topics is not None:
            return {topic.topic_name: list(dict.fromkeys(topic.partitions)) for topic in wanted.topics}
        of_group = self._broker.queues.groups.get(wanted.group_id)
        found: dict[str, list[int]] = {}
        for queue in of_group.partitions.values() if of_group is not None else ():
            found.setdefault(queue.partition.topic.name, []).append(queue.partition.index)
        return {name: sorted(indexes) for name, indexes in sorted(found.items())}

    def _describe_partition(self, group_id: str, topic: Topic | None, index: int) -> PartitionOffsets:
        one = PartitionOffsets(partition_index=index, start_offset=UNKNOWN)
        partition = topic.partition(index) if topic is not None else None
        if topic is None or partition is None:
            one.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return one
        queue = self._broker.queues.find(group_id, topic.topic_id, index)
        if queue is not None and queue.state is not None:
            one.start_offset = queue.state.start_offset
            one.leader_epoch = self._broker.leader_epoch(partition)
            self._add_facts(one, queue)
        return one

    def _add_facts(self, one: PartitionOffsets, queue: QueuePartition) -> None:
        state, queues = queue.state, self._broker.queues
        assert state is not None
        reads_committed = queues.settings_of(queue.key.group).reads_committed
        one.lag = backlog_of(queue, reads_committed=reads_committed)
        outcomes = queue.outcomes
        oldest = oldest_ms(queue, reads_committed=reads_committed)
        one.queue = described.QueueFacts(
            in_flight=state.in_flight,
            parked=state.parked,
            oldest_ms=UNKNOWN if oldest is None else oldest,
            attempts=[described.AttemptCount(attempt=count, records=n) for count, n in state.attempts.items() if count],
            dead_lettered=outcomes.dead_lettered,
            expired=outcomes.expired,
            lost=outcomes.lost,
            states=[
                described.RecordStates(first_offset=first, last_offset=last, state=found, delivery_count=count)
                for first, last, found, count in states_of(
                    state, queue.end_for(reads_committed=reads_committed), self._request.states_max
                )
            ],
        )


API = Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, describe_share_group_offsets, frame_bytes_max=1 << 20)
